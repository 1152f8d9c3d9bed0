//! What the responder says besides results, in both languages.
//! Never: words that claim to understand, to feel, or to be a person.

use switchboard_protocol::id::DeviceKey;

use super::{Ability, Language};

/// Services that are named when it says what it can do.
const MOST_NAMED: usize = 8;

/// Sentences in one language.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phrases(pub(crate) Language);

/// Who answers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Nature<'a> {
    /// The character's name, if there is one.
    pub(crate) name: Option<&'a str>,
}

impl Phrases {
    const fn pick<'a>(self, english: &'a str, chinese: &'a str) -> &'a str {
        match self.0 {
            Language::English => english,
            Language::Chinese => chinese,
        }
    }

    pub(crate) fn who(self, nature: Nature<'_>) -> String {
        let rules = self.pick(
            "Switchboard's embedded responder: fixed rules, not a person and no language model. I match your words to what this device can do.",
            "Switchboard 的内置应答器：按固定规则工作，不是真人，也不是语言模型。我会把您说的话对应到这台设备的功能。",
        );
        match (self.0, nature.name) {
            (Language::English, Some(name)) => format!("I answer for {name}, and I am {rules}"),
            (Language::English, None) => format!("I am {rules}"),
            (Language::Chinese, Some(name)) => format!("我代{name}回答，我是 {rules}"),
            (Language::Chinese, None) => format!("我是 {rules}"),
        }
    }

    pub(crate) fn abilities<'a>(self, abilities: impl Iterator<Item = &'a Ability>) -> String {
        let all: Vec<&str> = abilities
            .map(|ability| plain(&ability.description))
            .collect();
        if all.is_empty() {
            return self
                .pick(
                    "This device has registered nothing that I could do.",
                    "这台设备还没有登记任何功能。",
                )
                .to_owned();
        }
        let named = all.iter().take(MOST_NAMED).copied().collect::<Vec<_>>();
        let more = all.len().saturating_sub(MOST_NAMED);
        match self.0 {
            Language::English if more > 0 => {
                format!("I can: {}; and {more} more.", named.join("; "))
            }
            Language::English => format!("I can: {}.", named.join("; ")),
            Language::Chinese if more > 0 => {
                format!("我可以：{}；还有另外 {more} 项。", named.join("；"))
            }
            Language::Chinese => format!("我可以：{}。", named.join("；")),
        }
    }

    pub(crate) const fn not_understood(self) -> &'static str {
        self.pick(
            "I found nothing that fits this.",
            "我没有找到与此相符的功能。",
        )
    }

    pub(crate) fn missing(self, ability: &Ability, missing: &[&str]) -> String {
        let what = plain(&ability.description);
        match self.0 {
            Language::English => format!("For that ({what}) I still need: {}.", missing.join(", ")),
            Language::Chinese => format!("要完成“{what}”，我还需要：{}。", missing.join("、")),
        }
    }

    pub(crate) fn which(self, alike: &[&Ability]) -> String {
        let names: Vec<&str> = alike
            .iter()
            .map(|ability| plain(&ability.description))
            .collect();
        match self.0 {
            Language::English => format!("Which one do you mean: {}?", names.join("; ")),
            Language::Chinese => format!("您指的是哪一个：{}？", names.join("；")),
        }
    }

    pub(crate) fn which_device(self, alike: &[&DeviceKey]) -> String {
        let names: Vec<&str> = alike.iter().map(|device| device.device.as_str()).collect();
        match self.0 {
            Language::English => format!("On which device: {}?", names.join(", ")),
            Language::Chinese => format!("在哪台设备上：{}？", names.join("、")),
        }
    }

    pub(crate) const fn left_alone(self) -> &'static str {
        self.pick("All right, I leave it as it is.", "好的，我不动它。")
    }

    pub(crate) const fn greeting(self) -> &'static str {
        self.pick("Hello! What can I do for you?", "您好！需要我做什么？")
    }

    pub(crate) const fn thanks(self) -> &'static str {
        self.pick("You are welcome.", "不客气。")
    }

    /// Something was told that becomes a memory when the conversation has ended.
    pub(crate) const fn noted(self) -> &'static str {
        self.pick("All right, I will remember that.", "好的，我会记住的。")
    }

    /// An earlier attempt may have acted, so there is no second one.
    pub(crate) const fn interrupted(self) -> &'static str {
        self.pick(
            "Sorry, I was interrupted. What you asked for may have been done already, so I did not do it again; please check, and ask again if it was not.",
            "抱歉，刚才中断了。您要求的操作可能已经执行，所以我没有再执行一次；请确认一下，如果没有完成，请再说一遍。",
        )
    }

    /// There is no answer, or no end of it, and a service was called before.
    pub(crate) const fn perhaps_done(self) -> &'static str {
        self.pick(
            "Sorry, I could not finish. What you asked for may have been done already; please check before you ask for it again.",
            "抱歉，我没能说完。您要求的操作可能已经执行；请先确认一下，再决定要不要重新说一遍。",
        )
    }

    pub(crate) const fn unreachable(self) -> &'static str {
        self.pick(
            "Sorry, I cannot reach the device's services at the moment; nothing was done.",
            "抱歉，我现在无法使用设备的功能；什么也没有执行。",
        )
    }

    /// Who is to answer is not known, and with it what they may do.
    pub(crate) const fn nobody_known(self) -> &'static str {
        self.pick(
            "Sorry, I cannot look up who answers for this device at the moment; nothing was done. Please ask again in a moment.",
            "抱歉，现在查不到由谁来为这台设备回答；什么也没有执行。请稍后再问。",
        )
    }

    pub(crate) const fn no_model(self) -> &'static str {
        self.pick(
            "Sorry, I cannot think of an answer at the moment. Please ask again in a moment.",
            "抱歉，我现在无法回答。请稍后再问。",
        )
    }

    pub(crate) const fn late(self) -> &'static str {
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

    pub(crate) const fn speechless(self) -> &'static str {
        self.pick(
            "Sorry, I found no answer to that.",
            "抱歉，我没有找到答案。",
        )
    }

    pub(crate) fn remembered(self, text: &str) -> String {
        match self.0 {
            Language::English => format!("As far as I know: {text}"),
            Language::Chinese => format!("据我所知：{text}"),
        }
    }

    pub(crate) fn read_in(self, book: &str, text: &str) -> String {
        match self.0 {
            Language::English => format!("{book} says: {text}"),
            Language::Chinese => format!("《{book}》中写道：{text}"),
        }
    }
}

/// A description without the full stop that its sentence brings along.
fn plain(description: &str) -> &str {
    description.trim().trim_end_matches(['.', '。'])
}
