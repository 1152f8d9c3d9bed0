//! Rules that select statements worth remembering: what users state about themselves, and what
//! they ask to be remembered. Notes quote the user; they are never rephrased.

use switchboard_phrases::{Phrase, Preference};
use switchboard_tools::text::clean_to;

use crate::memory::extract::Note;

/// Bytes of a quoted sentence.
const MAX_QUOTE_BYTES: usize = 300;
const REQUESTED_IMPORTANCE: f64 = 0.9;
const STATED_IMPORTANCE: f64 = 0.6;

const REQUESTS: &[&str] = &[
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
const STATEMENTS: &[&str] = &[
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
const QUESTION_MARKS: &[&str] = &["?", "？", "吗", "什么", "几点", "哪", "谁"];
const QUESTION_WORDS: &[&str] = &[
    "what", "who", "when", "where", "why", "how", "do", "did", "can", "could", "would",
];

/// The note for a message, if it is worth remembering.
pub(crate) fn note(message: &str) -> Option<Note> {
    let lower = message.trim().to_lowercase().replace('’', "'");
    let first = lower.split_whitespace().next().unwrap_or_default();
    let is_question =
        QUESTION_MARKS.iter().any(|mark| lower.contains(mark)) || QUESTION_WORDS.contains(&first);
    let is_requested = REQUESTS.iter().any(|start| lower.contains(start));
    let is_stated = STATEMENTS.iter().any(|start| starts_clause(&lower, start));
    if is_question || !is_requested && !is_stated {
        return None;
    }
    let quote = &*clean_to(message.trim(), MAX_QUOTE_BYTES);
    let language = Preference::default().language_of(message);
    let text = Phrase::UserSaid { quote }.text(language).into_owned();
    let importance = if is_requested {
        REQUESTED_IMPORTANCE
    } else {
        STATED_IMPORTANCE
    };
    Some(Note { text, importance })
}

/// Whether a clause of the text starts so: `I like tea` does, `the music I like is off` does not.
fn starts_clause(text: &str, start: &str) -> bool {
    let before = text
        .match_indices(start)
        .map(|(at, _)| text.get(..at).unwrap_or_default());
    let mut before = before.map(str::trim_end);
    before.any(|before| {
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
    fn statements_about_the_user_become_notes() {
        fn check(message: &str, expected: Option<(&str, f64)>) {
            let note = note(message);
            let note = note
                .as_ref()
                .map(|note| (note.text.as_str(), note.importance));
            assert_eq!(note, expected, "{message}");
        }
        check(
            "My name is Anna.",
            Some(("The user said: “My name is Anna.”", STATED_IMPORTANCE)),
        );
        check(
            "Hello, I’m allergic to nuts",
            Some((
                "The user said: “Hello, I’m allergic to nuts”",
                STATED_IMPORTANCE,
            )),
        );
        check(
            "我喜欢绿茶",
            Some(("用户说：“我喜欢绿茶”", STATED_IMPORTANCE)),
        );
        check(
            "请记住我的钥匙在花盆下面",
            Some(("用户说：“请记住我的钥匙在花盆下面”", REQUESTED_IMPORTANCE)),
        );
        check(
            "Please remember the bin on Tuesday",
            Some((
                "The user said: “Please remember the bin on Tuesday”",
                REQUESTED_IMPORTANCE,
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
