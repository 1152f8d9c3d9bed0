//! Talk that is about the one who answers, or about nothing.
//! Never: a sentence that a service fits.

use super::words::Sentence;

/// Talk that no service is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SmallTalk {
    Who,
    Abilities,
    Greeting,
    Thanks,
}

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
