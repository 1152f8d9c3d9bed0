//! What a sentence does: it asks, orders, forbids, or is talk about nothing.
//! Never: a decision about a service.

use super::words::Sentence;

/// What a sentence does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mood {
    pub(super) asks: bool,
    pub(super) yes_or_no: bool,
    pub(super) orders: bool,
    pub(super) forbids: bool,
}

/// Talk that no service is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SmallTalk {
    Who,
    Abilities,
    Greeting,
    Thanks,
}

const QUESTIONS: &[&str] = &[
    "what", "whats", "when", "whens", "how", "hows", "which", "who", "whos", "where", "wheres",
    "why",
];
const YES_OR_NO: &[&str] = &[
    "is", "are", "am", "does", "do", "did", "has", "have", "was", "were",
];
const POLITE: &[&str] = &["can", "could", "would", "will"];
const ASKS_CHINESE: &[&str] = &[
    "什么",
    "几",
    "多少",
    "怎么样",
    "哪",
    "多远",
    "多高",
    "多大",
    "告诉我",
    "如何",
    "谁",
    "多快",
    "多热",
    "多冷",
    "?",
    "？",
];
const YES_OR_NO_CHINESE: &[&str] = &["吗", "嗎", "是不是", "有没有", "没有？", "了没"];
const POLITE_CHINESE: &[&str] = &["能不能", "可不可以", "可以", "能", "帮我", "请"];
const FORBIDS_CHINESE: &[&str] = &["不要", "别再", "不许", "先别", "请别", "不准"];
const WHO: &[&str] = &[
    "who are you",
    "what are you",
    "are you an ai",
    "are you a robot",
    "are you human",
    "are you a human",
    "are you real",
    "are you a person",
    "are you chatgpt",
    "are you an llm",
    "are you a language model",
    "what is your name",
    "whats your name",
    "which model are you",
    "what model are you",
    "introduce yourself",
];
const WHO_CHINESE: &[&str] = &[
    "你是谁",
    "你是什么",
    "你叫什么",
    "您是谁",
    "你是人",
    "你是机器人",
    "你是真人",
    "介绍一下你自己",
    "介绍你自己",
    "你是哪个模型",
    "你是AI",
];
const ABILITIES: &[&str] = &[
    "what can you do",
    "help",
    "what do you do",
    "how can you help",
];
const ABILITIES_CHINESE: &[&str] = &[
    "你会什么",
    "你能做什么",
    "你会做什么",
    "你能干什么",
    "你可以做什么",
    "有什么功能",
];
const THANKS: &[&str] = &["thanks", "thank", "thx"];
const THANKS_CHINESE: &[&str] = &["谢谢", "多谢", "感谢"];
const GREETINGS: &[&str] = &["hello", "hi", "hey", "greetings"];
const GREETINGS_CHINESE: &[&str] = &["你好", "您好", "早上好", "晚上好", "下午好", "嗨", "哈喽"];

impl Mood {
    pub(super) fn of(sentence: &Sentence) -> Self {
        let words = sentence.english();
        let text = sentence.text.trim();
        let first = words.first().copied().unwrap_or_default();
        let has = |list: &[&str]| list.iter().any(|part| text.contains(part));
        let tells = text.to_lowercase().contains("tell me") || words.contains(&"know");
        let polite = POLITE.contains(&first) && words.get(1) == Some(&"you") && !tells;
        let polite_chinese = has(POLITE_CHINESE) && !has(&["什么", "几", "多少", "哪", "告诉我"]);
        let yes_or_no = YES_OR_NO.contains(&first) && words.get(1) != Some(&"not")
            || has(YES_OR_NO_CHINESE) && !polite_chinese;
        let wants = tells || yes_or_no || QUESTIONS.contains(&first);
        let asks = !polite && (wants || has(ASKS_CHINESE) && !polite_chinese);
        Self {
            asks,
            yes_or_no: yes_or_no && !has(&["什么", "几", "多少", "哪"]),
            orders: polite,
            forbids: forbids(&words, text),
        }
    }
}

fn forbids(words: &[&str], text: &str) -> bool {
    let pairs = words
        .windows(2)
        .any(|pair| matches!(pair, ["do" | "must" | "should", "not"]));
    // `Don't you know what time it is?` forbids nothing.
    let never = words
        .iter()
        .take(2)
        .any(|word| matches!(*word, "dont" | "never"))
        && words.get(1) != Some(&"you");
    let chinese = text.starts_with('别') || FORBIDS_CHINESE.iter().any(|part| text.contains(part));
    pairs || never || chinese && !text.contains("要不要")
}

/// Whether it asks who or what answers.
pub(super) fn asks_who(sentence: &Sentence) -> bool {
    let words = sentence.english().join(" ");
    let text = written(sentence);
    begins(&words, WHO) || WHO_CHINESE.iter().any(|part| text.contains(part))
}

/// What a sentence that no service fits is, if it is talk.
pub(super) fn small_talk(sentence: &Sentence) -> Option<SmallTalk> {
    let words = sentence.english().join(" ");
    let text = written(sentence);
    let has = |list: &[&str]| list.iter().any(|part| text.contains(part));
    if begins(&words, ABILITIES) && sentence.tokens.len() <= 8 || has(ABILITIES_CHINESE) {
        return Some(SmallTalk::Abilities);
    }
    let says_more = sentence.tokens.iter().filter(|token| !token.empty).count() > 1
        || sentence.tokens.len() > 5
        || sentence
            .tokens
            .iter()
            .any(|token| !token.meanings.is_empty());
    let is_one_of = |list: &[&str]| !says_more && words.split(' ').any(|word| list.contains(&word));
    if is_one_of(THANKS) || has(THANKS_CHINESE) && text.chars().count() <= 6 {
        return Some(SmallTalk::Thanks);
    }
    let greeted = text.trim_end_matches(['啊', '呀']);
    if is_one_of(GREETINGS) || GREETINGS_CHINESE.contains(&greeted) {
        return Some(SmallTalk::Greeting);
    }
    None
}

/// The text without what stands between its words.
fn written(sentence: &Sentence) -> String {
    let text = sentence.text.chars();
    text.filter(|c| c.is_alphanumeric()).collect()
}

fn begins(words: &str, list: &[&str]) -> bool {
    list.iter()
        .any(|part| words == *part || words.starts_with(&format!("{part} ")))
}
