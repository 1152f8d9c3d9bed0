//! Cuts the text of an answer into sentences that can be spoken while the rest is being produced.

use std::ops::Range;

use crate::markup::{is_ideograph, speakable};

/// Characters of the first piece: it may end at a comma, so that speech begins early.
const MIN_FIRST_CHARS: usize = 12;
/// The same of Chinese or Japanese text, whose characters are syllables.
const MIN_FIRST_IDEOGRAPHS: usize = 6;
/// Maximum characters of a sentence.
const MAX_CHARS: usize = 200;
/// Words with a dot that ends no sentence.
const ABBREVIATIONS: [&str; 12] = [
    "mr", "mrs", "ms", "dr", "prof", "st", "vs", "etc", "no", "approx", "e.g", "i.e",
];

/// A piece of the answer to be spoken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentence {
    /// What is spoken: without markup, links, code and emoji. May be empty, if there is nothing else.
    pub text: String,
    /// The emotion that the first emoji expresses.
    pub emotion: Option<&'static str>,
    /// The bytes of the answer that it stands for. Those of all sentences are the answer, without a gap.
    pub range: Range<usize>,
}

/// Cuts text, in whatever pieces it arrives.
///
/// A sentence ends at a terminal mark or a line break; the first one also at a comma once it has a few
/// words. A mark ends nothing within a number, after an abbreviation, and before the character after it
/// is known. A sentence without a mark is cut at 200 characters, between two words.
#[derive(Debug, Default)]
pub struct SentenceCutter {
    text: String,
    /// The offset of `text` in the answer.
    offset: usize,
    has_first: bool,
    in_code: bool,
}

impl SentenceCutter {
    /// Appends text of the answer.
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Takes the next sentence that is complete.
    pub fn next_sentence(&mut self) -> Option<Sentence> {
        loop {
            let end = self.sentence_end()?;
            let sentence = self.take(end);
            if let Some(sentence) = sentence {
                return Some(sentence);
            }
        }
    }

    /// Takes what is left, because no more text follows, or none for a while.
    pub fn flush(&mut self) -> Option<Sentence> {
        if let Some(sentence) = self.next_sentence() {
            return Some(sentence);
        }
        let end = self.text.len();
        (end > 0).then(|| self.take(end)).flatten()
    }

    /// Returns whether text waits for its end.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Removes a sentence. Returns `None` where it has nothing to speak.
    fn take(&mut self, end: usize) -> Option<Sentence> {
        let rest = self.text.split_off(end);
        let raw = std::mem::replace(&mut self.text, rest);
        let range = self.offset..self.offset + end;
        self.offset = range.end;
        let (text, emotion) = speakable(&raw, &mut self.in_code);
        if text.is_empty() && emotion.is_none() {
            return None;
        }
        self.has_first |= !text.is_empty();
        Some(Sentence {
            text,
            emotion,
            range,
        })
    }

    /// The end of the next sentence in bytes, if it is known.
    fn sentence_end(&self) -> Option<usize> {
        let mut chars = self.text.char_indices().peekable();
        let (mut count, mut ideographs, mut last_space) = (0, 0, None);
        while let Some((at, char)) = chars.next() {
            count += 1;
            ideographs += usize::from(is_ideograph(char));
            let end = at + char.len_utf8();
            let after = chars.peek().map(|(_, next)| *next);
            if char.is_whitespace() {
                last_space = Some(end);
            }
            let is_end = match char {
                '\n' => count > 1,
                '。' | '！' | '？' | '；' | '…' => {
                    after.is_some_and(|next| !is_closing(next))
                }
                '.' => after.is_some_and(char::is_whitespace) && !self.is_abbreviation(at),
                '!' | '?' | ';' => after.is_some_and(char::is_whitespace),
                ',' | ':' | '—' => {
                    let is_clause = after.is_some_and(char::is_whitespace);
                    !self.has_first && count >= MIN_FIRST_CHARS && is_clause
                }
                '，' | '、' | '：' => !self.has_first && ideographs >= MIN_FIRST_IDEOGRAPHS,
                // A closing mark after a terminal one.
                char if is_closing(char) => {
                    let before = self.text.get(..at).unwrap_or_default();
                    before.ends_with(['。', '！', '？', '.', '!', '?'])
                        && after.is_some_and(|next| next.is_whitespace() || is_ideograph(next))
                }
                _ => false,
            };
            if is_end {
                return Some(end);
            }
            if count >= MAX_CHARS {
                return Some(last_space.unwrap_or(end));
            }
        }
        None
    }

    /// Whether the dot at this position belongs to an abbreviation or an initial.
    fn is_abbreviation(&self, dot: usize) -> bool {
        let before = self.text.get(..dot).unwrap_or_default();
        let word = before
            .rsplit(|char: char| char.is_whitespace() || char == '(')
            .next()
            .unwrap_or_default();
        let is_initial = word.chars().count() == 1 && word.chars().all(char::is_uppercase);
        is_initial
            || ABBREVIATIONS
                .iter()
                .any(|known| word.eq_ignore_ascii_case(known))
    }
}

const fn is_closing(char: char) -> bool {
    matches!(char, '"' | '”' | '’' | '」' | '』' | ')' | '）')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(pieces: &[&str]) -> Vec<Sentence> {
        let mut cutter = SentenceCutter::default();
        let mut sentences = Vec::new();
        for piece in pieces {
            cutter.push(piece);
            sentences.extend(std::iter::from_fn(|| cutter.next_sentence()));
        }
        sentences.extend(std::iter::from_fn(|| cutter.flush()));
        sentences
    }

    fn texts(text: &str) -> Vec<String> {
        let sentences = cut(&[text]).into_iter();
        sentences.map(|sentence| sentence.text).collect()
    }

    #[test]
    fn text_is_cut_where_a_person_pauses() {
        let check = |text: &str, expect: &[&str]| assert_eq!(texts(text), expect, "{text}");
        check("Hello. How are you?", &["Hello.", "How are you?"]);
        check(
            "Well, let me think, perhaps. One, two, three, four. End",
            &[
                "Well, let me think,",
                "perhaps.",
                "One, two, three, four.",
                "End",
            ],
        );
        check("It costs $29.99. Next.", &["It costs $29.99.", "Next."]);
        check(
            "It is 3.5 km, i.e. near Dr. Smith. So",
            &["It is 3.5 km,", "i.e. near Dr. Smith.", "So"],
        );
        check(
            "现在是三点二十分，你该去学校了。再见！",
            &["现在是三点二十分，", "你该去学校了。", "再见！"],
        );
        check("好的，没问题。", &["好的，没问题。"]);
        check(
            "He said \"Stop!\" Then he left.",
            &["He said \"Stop!\"", "Then he left."],
        );
        check("“你好！”他说。", &["“你好！”", "他说。"]);
        check(
            &"word ".repeat(50),
            &["word ".repeat(40).trim_end(), "word ".repeat(10).trim_end()],
        );
    }

    #[test]
    fn only_words_are_spoken() {
        let check = |text: &str, expect: &[&str]| assert_eq!(texts(text), expect, "{text}");
        check("**Bold** and _soft_ `code`.", &["Bold and soft code."]);
        check("# Title\n- one\n- two\n", &["Title", "one", "two"]);
        check(
            "See [the page](https://a.b/c) or https://d.e/f now.",
            &["See the page or now."],
        );
        check("Look:\n```\nlet x = 1;\n```\nDone.", &["Look:", "Done."]);
        check("| a | b |\n", &["a b"]);
        let happy = cut(&["Great 😀! Bye 👋."]);
        assert_eq!(
            (happy[0].text.as_str(), happy[0].emotion),
            ("Great !", Some("happy"))
        );
        assert_eq!(happy[1].text, "Bye .");
        assert_eq!(cut(&["😢"])[0].emotion, Some("sad"));
        assert_eq!(cut(&["…", " \n", "***\n"]), []);
    }

    #[test]
    fn flush_speaks_what_waits() {
        let mut cutter = SentenceCutter::default();
        cutter.push("Let me look");
        assert_eq!(cutter.next_sentence(), None);
        assert_eq!(cutter.flush().unwrap().text, "Let me look");
        cutter.push(" that up. ");
        assert_eq!(cutter.next_sentence().unwrap().range, 11..20);
    }

    proptest! {
        #[test]
        fn every_split_gives_the_same_sentences(
            text in "([a-zA-Z]{1,8}[ ,.!?]{1,2}|[现在几点。，！]{1,6}|[0-9.]{1,4}|😀|\n){0,60}",
            size in 1_usize..9,
        ) {
            let whole = cut(&[&text]);
            let chars: Vec<char> = text.chars().collect();
            let pieces: Vec<String> = chars.chunks(size).map(|piece| piece.iter().collect()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(&cut(&pieces), &whole);
            let mut end = 0;
            for sentence in &whole {
                prop_assert!(sentence.range.start >= end && sentence.range.end <= text.len());
                prop_assert!(sentence.text.chars().count() <= MAX_CHARS);
                end = sentence.range.end;
            }
            let letters = |text: &str| text.chars().filter(|char| char.is_alphanumeric()).collect::<String>();
            let spoken: String = whole.iter().map(|sentence| letters(&sentence.text)).collect();
            prop_assert_eq!(spoken, letters(&text));
        }
    }
}
