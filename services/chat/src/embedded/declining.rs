//! Whether words take back what was said, or decline to say more.
//! Never: words that hold more than that.

use super::{
    clauses::{self, Clause},
    words::Sentence,
};

/// Words that say nothing beside these.
const BESIDE: &[&str] = &[
    "please", "oh", "ok", "okay", "thanks", "thank", "you", "well", "then", "it", "that", "this",
    "just", "actually", "sorry", "um", "all", "right", "now", "i", "im", "the", "my", "do",
    "about", "so", "am", "yet", "for", "to", "on", "hold", "wait",
];
const TAKES_BACK: &[&str] = &[
    "no",
    "nope",
    "nah",
    "never",
    "mind",
    "nevermind",
    "forget",
    "not",
    "dont",
    "changed",
    "bother",
    "nothing",
    "cant",
];
const DECLINES: &[&str] = &[
    "cancel", "stop", "abort", "skip", "leave", "quit", "drop", "none", "enough", "know", "want",
    "care", "sure", "idea", "anymore", "anything", "need", "later",
];
const BESIDE_CHINESE: &[char] = &[
    '了', '吧', '啊', '呀', '哦', '嗯', '那', '就', '请', '我', '它', '先', '还', ' ',
];
const TAKES_BACK_CHINESE: &[&str] = &[
    "算",
    "不",
    "不用",
    "不要",
    "不必",
    "不需要",
    "不是",
    "不行",
    "不对",
    "没",
    "没有",
    "别",
    "別",
    "算不用",
    "算不要",
    "取消",
    "当没说",
    "忘",
];
const DECLINES_CHINESE: &[&str] = &[
    "停",
    "停止",
    "放弃",
    "作罢",
    "罢",
    "不知道",
    "没想好",
    "不想",
    "不清楚",
    "再说",
    "以后再说",
    "不说",
    "不发",
    "谢谢",
    "不用谢谢",
];
/// What may have more behind it, such as what is declined.
const DECLINES_AND_MORE: &[&str] = &["算了", "取消", "作罢", "放弃", "cancel ", "abort "];

/// Whether nothing else is said than that something is declined.
pub(crate) fn declines(text: &str) -> bool {
    let sentence = Sentence::read(text);
    let clauses = clauses::all(&sentence);
    let is_all = clauses.iter().all(|clause| {
        let words = clause.words();
        let is_beside = words.iter().all(|word| BESIDE.contains(word)) && clause.text.is_ascii();
        is_beside
            || says(
                clause,
                &[TAKES_BACK, DECLINES],
                &[TAKES_BACK_CHINESE, DECLINES_CHINESE],
            )
    });
    let mut says_so = clauses.iter();
    is_all
        && says_so.any(|clause| {
            says(
                clause,
                &[TAKES_BACK, DECLINES],
                &[TAKES_BACK_CHINESE, DECLINES_CHINESE],
            )
        })
}

/// Whether it declines something in words of its own.
pub(crate) fn declines_something(text: &str) -> bool {
    let text = text.trim().to_lowercase();
    DECLINES_AND_MORE.iter().any(|word| text.starts_with(word))
}

/// Whether a clause takes back what was said before it.
pub(super) fn takes_back(clause: &Clause<'_>) -> bool {
    says(clause, &[TAKES_BACK], &[TAKES_BACK_CHINESE])
        || matches!(
            clause.words().as_slice(),
            ["cancel" | "drop" | "leave", "it" | "that"]
        )
}

fn says(clause: &Clause<'_>, english: &[&[&str]], chinese: &[&[&str]]) -> bool {
    let words = clause.words();
    if words.is_empty() {
        let marks = |c: char| !c.is_alphanumeric() || BESIDE_CHINESE.contains(&c);
        let text: String = clause.text.chars().filter(|c| !marks(*c)).collect();
        return chinese.iter().any(|list| list.contains(&text.as_str()));
    }
    let is_said = |word: &&str| english.iter().any(|list| list.contains(word));
    let all = words
        .iter()
        .all(|word| is_said(word) || BESIDE.contains(word));
    all && words.iter().any(is_said) && !clause.text.chars().any(super::words::is_chinese)
}
