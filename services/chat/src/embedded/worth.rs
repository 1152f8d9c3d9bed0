//! What of somebody's words is worth keeping, by rules: what they say of themselves, and what they ask to be remembered.
//! Never: a question, an order, or a sentence written anew; the words stay the speaker's own.

use switchboard_tools::text::clean_to;

use super::Language;
use crate::lesson::Note;

/// What is kept of a sentence.
const KEPT_BYTES: usize = 300;
const ASKED_FOR: f64 = 0.9;
const TOLD: f64 = 0.6;

const REMEMBER: &[&str] = &[
    "remember that",
    "please remember",
    "don't forget",
    "do not forget",
    "keep in mind",
    "记住",
    "請記住",
    "记得",
    "别忘了",
];
const ABOUT_ONESELF: &[&str] = &[
    "my name is",
    "call me",
    "i am called",
    "i like",
    "i love",
    "i hate",
    "i don't like",
    "i do not like",
    "i prefer",
    "my favorite",
    "my favourite",
    "i am allergic",
    "i'm allergic",
    "my birthday",
    "i live in",
    "i am from",
    "i'm from",
    "i work as",
    "my wife",
    "my husband",
    "my son",
    "my daughter",
    "my dog",
    "my cat",
    "我叫",
    "我的名字",
    "叫我",
    "我喜欢",
    "我不喜欢",
    "我讨厌",
    "我最喜欢",
    "我对",
    "我的生日",
    "我住在",
    "我来自",
    "我妻子",
    "我丈夫",
    "我儿子",
    "我女儿",
];
const QUESTIONS: &[&str] = &["?", "？", "吗", "什么", "几点", "哪", "谁"];
const OF_QUESTIONS: &[&str] = &[
    "what", "who", "when", "where", "why", "how", "do", "did", "can", "could", "would",
];

/// The note that somebody's words are worth, if any.
pub(crate) fn worth_keeping(said: &str) -> Option<Note> {
    let lower = said.trim().to_lowercase().replace('’', "'");
    let first = lower.split_whitespace().next().unwrap_or_default();
    let is_question =
        QUESTIONS.iter().any(|mark| lower.contains(mark)) || OF_QUESTIONS.contains(&first);
    let asked_for = REMEMBER.iter().any(|begin| lower.contains(begin));
    let told = ABOUT_ONESELF.iter().any(|begin| begins_part(&lower, begin));
    if is_question || !asked_for && !told {
        return None;
    }
    let words = clean_to(said.trim(), KEPT_BYTES);
    let text = match Language::of(said, None) {
        Language::English => format!("The user said: “{words}”"),
        Language::Chinese => format!("用户说：“{words}”"),
    };
    let importance = if asked_for { ASKED_FOR } else { TOLD };
    Some(Note { text, importance })
}

/// Whether the text or a part of it begins so: `I like tea` does, `the music I like is off` does not.
fn begins_part(text: &str, begin: &str) -> bool {
    let starts = text
        .match_indices(begin)
        .map(|(at, _)| text.get(..at).unwrap_or_default());
    let mut starts = starts.map(str::trim_end);
    starts.any(|before| {
        before.is_empty()
            || before.ends_with([',', '.', '!', ';', ':', '，', '。', '！', '；', '：'])
            || before.ends_with(" and")
            || before.ends_with(" but")
            || matches!(
                before,
                "and" | "but" | "hi" | "hello" | "well" | "oh" | "你好" | "其实"
            )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_say_of_themselves_is_kept_in_their_words() {
        fn check(said: &str, expected: Option<(&str, f64)>) {
            let note = worth_keeping(said);
            let note = note
                .as_ref()
                .map(|note| (note.text.as_str(), note.importance));
            assert_eq!(note, expected, "{said}");
        }
        check(
            "My name is Anna.",
            Some(("The user said: “My name is Anna.”", TOLD)),
        );
        check(
            "Hello, I’m allergic to nuts",
            Some(("The user said: “Hello, I’m allergic to nuts”", TOLD)),
        );
        check("我喜欢绿茶", Some(("用户说：“我喜欢绿茶”", TOLD)));
        check(
            "请记住我的钥匙在花盆下面",
            Some(("用户说：“请记住我的钥匙在花盆下面”", ASKED_FOR)),
        );
        check(
            "Please remember the bin on Tuesday",
            Some((
                "The user said: “Please remember the bin on Tuesday”",
                ASKED_FOR,
            )),
        );
        check("What is my name?", None);
        check("Do you remember that I like tea", None);
        check("我叫什么名字?", None);
        check("Turn on the lamp", None);
        check("Play the music I like", None);
        check("", None);
    }
}
