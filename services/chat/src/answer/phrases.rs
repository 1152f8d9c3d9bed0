//! Sentences of the service itself in English and Chinese: answers without a model, and apologies.

use switchboard_runtime::quota::Quota;
use switchboard_tools::text::clean_to;

/// Services listed when the abilities of a device are described.
const MAX_SERVICES: usize = 8;
/// Bytes of a description.
const MAX_DESCRIPTION_BYTES: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    English,
    Chinese,
}

impl Language {
    /// The language of a text; that of the locale when the text has no letters.
    pub(crate) fn detect(text: &str, locale: Option<&str>) -> Self {
        if text.chars().any(is_chinese) {
            return Self::Chinese;
        }
        let is_chinese = locale.is_some_and(|locale| locale.to_ascii_lowercase().starts_with("zh"));
        if is_chinese && !text.chars().any(char::is_alphabetic) {
            return Self::Chinese;
        }
        Self::English
    }
}

pub(crate) const fn is_chinese(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '〇')
}

/// Sentences in one language.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phrases(pub(crate) Language);

impl Phrases {
    const fn pick<'a>(self, english: &'a str, chinese: &'a str) -> &'a str {
        match self.0 {
            Language::English => english,
            Language::Chinese => chinese,
        }
    }

    /// States that rules answer, and for which character.
    pub(crate) fn identity(self, name: Option<&str>) -> String {
        let rules = self.pick(
            "Switchboard's embedded responder: fixed rules, not a person and no language model. \
             I match your words to what this device can do.",
            "Switchboard 的内置应答器：按固定规则工作，不是真人，也不是语言模型。\
             我会把您说的话对应到这台设备的功能。",
        );
        match (self.0, name) {
            (Language::English, Some(name)) => format!("I answer for {name}, and I am {rules}"),
            (Language::English, None) => format!("I am {rules}"),
            (Language::Chinese, Some(name)) => format!("我代{name}回答，我是 {rules}"),
            (Language::Chinese, None) => format!("我是 {rules}"),
        }
    }

    /// Lists what the devices can do, and how to ask for it.
    pub(crate) fn abilities(self, descriptions: &[String]) -> String {
        if descriptions.is_empty() {
            return self
                .pick(
                    "This device has registered nothing that I could do.",
                    "这台设备还没有登记任何功能。",
                )
                .to_owned();
        }
        let listed = descriptions.get(..MAX_SERVICES).unwrap_or(descriptions);
        let more = descriptions.len().saturating_sub(MAX_SERVICES);
        let how = self.how_to_ask();
        match self.0 {
            Language::English if more > 0 => {
                format!("I can: {}; and {more} more. {how}", listed.join("; "))
            }
            Language::English => format!("I can: {}. {how}", listed.join("; ")),
            Language::Chinese if more > 0 => {
                format!("我可以：{}；还有另外 {more} 项。{how}", listed.join("；"))
            }
            Language::Chinese => format!("我可以：{}。{how}", listed.join("；")),
        }
    }

    const fn how_to_ask(self) -> &'static str {
        self.pick(
            "Ask with a short command, numbers in digits and texts in quotation marks.",
            "请用简短的命令提出，数字写成数字，文本放在引号里。",
        )
    }

    pub(crate) const fn not_understood(self) -> &'static str {
        self.pick(
            "I found nothing that fits this.",
            "我没有找到与此相符的功能。",
        )
    }

    pub(crate) fn missing(self, description: &str, missing: &[&str]) -> String {
        let how = self.how_to_ask();
        match self.0 {
            Language::English => {
                let missing = missing.join(", ");
                format!("For that ({description}) I also need: {missing}. {how}")
            }
            Language::Chinese => {
                let missing = missing.join("、");
                format!("要完成“{description}”，我还需要：{missing}。{how}")
            }
        }
    }

    /// Answers a sentence that mentions a service and is no plain command.
    pub(crate) fn no_command(self, description: &str) -> String {
        let how = self.how_to_ask();
        match self.0 {
            Language::English => {
                format!(
                    "Nothing was done. I only follow plain commands for now: {description}. {how}"
                )
            }
            Language::Chinese => {
                format!("什么也没有执行。我只执行现在就做的明确命令：{description}。{how}")
            }
        }
    }

    pub(crate) fn which_service(self, descriptions: &[String]) -> String {
        match self.0 {
            Language::English => format!("Which one do you mean: {}?", descriptions.join("; ")),
            Language::Chinese => format!("您指的是哪一个：{}？", descriptions.join("；")),
        }
    }

    pub(crate) fn which_device(self, devices: &[&str]) -> String {
        match self.0 {
            Language::English => format!("On which device: {}?", devices.join(", ")),
            Language::Chinese => format!("在哪台设备上：{}？", devices.join("、")),
        }
    }

    pub(crate) const fn greeting(self) -> &'static str {
        self.pick("Hello! What can I do for you?", "您好！需要我做什么？")
    }

    pub(crate) const fn thanks(self) -> &'static str {
        self.pick("You are welcome.", "不客气。")
    }

    /// Confirms a statement that becomes a memory when the conversation has ended.
    pub(crate) const fn memory_noted(self) -> &'static str {
        self.pick("All right, I will remember that.", "好的，我会记住的。")
    }

    /// An earlier attempt may have called a service, so there is no second one.
    pub(crate) const fn interrupted(self) -> &'static str {
        self.pick(
            "Sorry, I was interrupted. What you asked for may have been done already, so I did not \
             do it again; please check, and ask again if it was not.",
            "抱歉，刚才中断了。您要求的操作可能已经执行，所以我没有再执行一次；\
             请确认一下，如果没有完成，请再说一遍。",
        )
    }

    /// The answer failed after a service was called.
    pub(crate) const fn may_be_done(self) -> &'static str {
        self.pick(
            "Sorry, I could not finish. What you asked for may have been done already; please \
             check before you ask for it again.",
            "抱歉，我没能说完。您要求的操作可能已经执行；请先确认一下，再决定要不要重新说一遍。",
        )
    }

    pub(crate) const fn unreachable(self) -> &'static str {
        self.pick(
            "Sorry, I cannot reach the device's services at the moment; nothing was done.",
            "抱歉，我现在无法使用设备的功能；什么也没有执行。",
        )
    }

    /// The NPC of the device is unknown, and with it what it may do.
    pub(crate) const fn unknown_npc(self) -> &'static str {
        self.pick(
            "Sorry, I cannot look up who answers for this device at the moment; nothing was done. \
             Please ask again in a moment.",
            "抱歉，现在查不到由谁来为这台设备回答；什么也没有执行。请稍后再问。",
        )
    }

    /// The organisation is at a quota of the day.
    pub(crate) const fn quota_exceeded(self, quota: Quota) -> &'static str {
        match quota {
            Quota::SpeechMinutesPerDay => self.pick(
                "Sorry, the time for speaking is used up for today. Please speak to me again tomorrow.",
                "抱歉，今天的语音时间已经用完了。请明天再和我说话。",
            ),
            _ => self.pick(
                "Sorry, I have talked as much as I may today. Please come back tomorrow.",
                "抱歉，我今天能说的话已经说完了。请明天再来。",
            ),
        }
    }

    /// Rules answer, and the message has a picture.
    pub(crate) const fn unseen_picture(self) -> &'static str {
        self.pick("I cannot see pictures.", "我看不到图片。")
    }

    pub(crate) const fn unknown_picture(self) -> &'static str {
        self.pick(
            "Sorry, I do not know this picture: there is none with this id.",
            "抱歉，我找不到这张图片：没有这个编号的图片。",
        )
    }

    pub(crate) const fn large_picture(self) -> &'static str {
        self.pick(
            "Sorry, this picture is too large for me.",
            "抱歉，这张图片太大了，我看不了。",
        )
    }

    pub(crate) const fn no_picture(self) -> &'static str {
        self.pick(
            "Sorry, I cannot look at the picture at the moment. Please show it again later.",
            "抱歉，我现在看不了这张图片。请稍后再给我看。",
        )
    }

    pub(crate) const fn no_model(self) -> &'static str {
        self.pick(
            "Sorry, I cannot think of an answer at the moment. Please ask again in a moment.",
            "抱歉，我现在无法回答。请稍后再问。",
        )
    }

    pub(crate) const fn timed_out(self) -> &'static str {
        self.pick(
            "Sorry, that took too long. Please ask again.",
            "抱歉，这花的时间太长了。请再问一次。",
        )
    }

    pub(crate) const fn broken_off(self) -> &'static str {
        self.pick(
            "Sorry, I lost the thread. Please ask again.",
            "抱歉，我的话断了。请再问一次。",
        )
    }

    pub(crate) const fn no_answer(self) -> &'static str {
        self.pick(
            "Sorry, I found no answer to that.",
            "抱歉，我没有找到答案。",
        )
    }

    pub(crate) fn quote_memory(self, text: &str) -> String {
        match self.0 {
            Language::English => format!("As far as I know: {text}"),
            Language::Chinese => format!("据我所知：{text}"),
        }
    }

    pub(crate) fn quote_book(self, book: &str, text: &str) -> String {
        match self.0 {
            Language::English => format!("{book} says: {text}"),
            Language::Chinese => format!("《{book}》中写道：{text}"),
        }
    }
}

/// The description of a service as a part of a sentence, or its name.
pub(crate) fn describe(name: &str, description: &str) -> String {
    let description = description.trim().trim_end_matches(['.', '。']);
    let text = if description.is_empty() {
        name
    } else {
        description
    };
    clean_to(text, MAX_DESCRIPTION_BYTES)
}
