//! The language of a short text: by its script, and by everyday words where languages share one.
//!
//! A text of another language, or of too few known words, has none: a user is not answered in a language
//! that only resembles theirs.

mod words;

use self::words::{LATIN, VOCABULARIES};
use crate::language::Language;

/// Characters of a text that are looked at. Bounds the work for a long message.
const MAX_CHARS: usize = 1_000;

/// Characters of everyday words that only this Chinese script has, and Japanese has not.
const SIMPLIFIED: &str = "这个们说时对为吗么请几开关灯还过头爱听电话问题谢现让给儿东车门见气热风长边间样动从认识觉刚执设图钟务连张产书写语";
/// The same characters in the other script.
const TRADITIONAL: &str = "這個們說時對為嗎麼請幾開關燈還過頭愛聽電話問題謝現讓給兒東車門見氣熱風長邊間樣動從認識覺剛執設圖鐘務連張產書寫語";

/// What a word of three letters and more counts; a shorter one, which chance makes a word of another
/// language, counts 1.
const WORD_SCORE: usize = 2;
/// How far a language has to be ahead of all others: by more than one word.
const MIN_MARGIN: usize = 3;
/// The least part of the words that a language has to know, in percent.
const MIN_KNOWN_PERCENT: usize = 40;
/// Bytes of a word that is looked up. No everyday word is longer.
const MAX_WORD_BYTES: usize = 32;

/// Which script the letters of a text have.
#[derive(Default)]
struct Letters {
    han: usize,
    kana: usize,
    simplified: usize,
    traditional: usize,
    /// Of neither these nor Latin script.
    others: usize,
}

/// The language of a text; `None` where the text does not decide. Of what several languages write in the
/// same way, `fallback` decides. It allocates nothing.
pub(crate) fn detect(text: &str, fallback: Language) -> Option<Language> {
    let end = text.char_indices().nth(MAX_CHARS);
    let text = end.map_or(text, |(end, _)| text.split_at(end).0);
    let letters = Letters::count(text);
    let latin_words = words(text).count();
    if letters.han + letters.kana > 0 && letters.han + letters.kana >= latin_words {
        Some(letters.east_asian(fallback))
    } else if letters.others > latin_words {
        None
    } else {
        Scores::count(text).decide()
    }
}

impl Letters {
    fn count(text: &str) -> Self {
        let mut letters = Self::default();
        for c in text.chars() {
            letters.han += usize::from(is_han(c));
            letters.kana += usize::from(is_kana(c));
            letters.simplified += usize::from(SIMPLIFIED.contains(c));
            letters.traditional += usize::from(TRADITIONAL.contains(c));
            let is_other = c.is_alphabetic() && !is_latin(c) && !is_han(c) && !is_kana(c);
            letters.others += usize::from(is_other);
        }
        letters
    }

    /// Japanese may have no kana, and many Chinese words are the same in both scripts.
    fn east_asian(&self, fallback: Language) -> Language {
        use Language::{Japanese, SimplifiedChinese, TraditionalChinese};
        if self.kana > 0 || (fallback == Japanese && self.simplified == 0) {
            return Japanese;
        }
        match self.simplified.cmp(&self.traditional) {
            std::cmp::Ordering::Greater => SimplifiedChinese,
            std::cmp::Ordering::Less => TraditionalChinese,
            std::cmp::Ordering::Equal if fallback == TraditionalChinese => fallback,
            std::cmp::Ordering::Equal => SimplifiedChinese,
        }
    }
}

/// How much in a text speaks for each language in Latin script.
#[derive(Default)]
struct Scores {
    words: usize,
    /// Of its words and marks.
    scores: [usize; VOCABULARIES],
    /// Its words.
    known: [usize; VOCABULARIES],
    /// What words score that have letters of other languages.
    foreign: [usize; VOCABULARIES],
}

impl Scores {
    fn count(text: &str) -> Self {
        let mut scores = Self::default();
        for word in words(text) {
            scores.words += 1;
            let mut buffer = [0; MAX_WORD_BYTES];
            let lower = lowercase(word, &mut buffer);
            let known = lower.map_or(0, words::known);
            let score = if word.chars().nth(2).is_some() {
                WORD_SCORE
            } else {
                1
            };
            let languages = scores.scores.iter_mut().zip(&mut scores.known);
            for (index, (sum, count)) in languages.enumerate() {
                let is_known = known & (1 << index) != 0;
                *sum += if is_known { score } else { 0 };
                *count += usize::from(is_known);
            }
            scores.count_foreign(word);
        }
        for (sum, vocabulary) in scores.scores.iter_mut().zip(&LATIN) {
            let is_marked = text.contains(|c| vocabulary.marks.contains(c));
            *sum += if is_marked { WORD_SCORE } else { 0 };
        }
        scores
    }

    fn count_foreign(&mut self, word: &str) {
        if word.is_ascii() {
            return;
        }
        for (foreign, vocabulary) in self.foreign.iter_mut().zip(&LATIN) {
            let is_foreign =
                |c: char| !c.is_ascii() && is_latin(c) && !vocabulary.letters.contains(c);
            if word.chars().flat_map(char::to_lowercase).any(is_foreign) {
                *foreign += WORD_SCORE;
            }
        }
    }

    /// The language that is clearly ahead, or the only one that has every word of a short text.
    fn decide(&self) -> Option<Language> {
        let scores = self.scores.iter().enumerate();
        let (best, score) = scores.max_by_key(|(_, score)| **score)?;
        let others = self.scores.iter().enumerate();
        let others = others.filter(|(index, _)| *index != best);
        let second = others.map(|(_, score)| *score).max().unwrap_or_default();
        let against = second.max(*self.foreign.get(best)?);
        let known = *self.known.get(best)?;
        let is_ahead =
            *score >= against + MIN_MARGIN && known * 100 >= self.words * MIN_KNOWN_PERCENT;
        let is_complete = known == self.words && *score >= WORD_SCORE && against == 0;
        let language = LATIN.get(best)?.language;
        language.filter(|_| is_ahead || is_complete)
    }
}

/// The words in Latin script, with apostrophes as a part of them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '’');
    words.filter(|word| word.chars().any(is_latin))
}

/// A word in lower case with plain apostrophes; `None` if it is longer than the buffer.
fn lowercase<'a>(word: &str, buffer: &'a mut [u8; MAX_WORD_BYTES]) -> Option<&'a str> {
    let mut end = 0;
    for c in word.chars().flat_map(char::to_lowercase) {
        let c = if c == '’' { '\'' } else { c };
        let room = buffer.get_mut(end..end + c.len_utf8())?;
        end += c.encode_utf8(room).len();
    }
    str::from_utf8(buffer.get(..end)?).ok()
}

const fn is_han(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '〇')
}

const fn is_kana(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}')
}

/// Whether it is a letter of Latin script.
const fn is_latin(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}')
}

#[cfg(test)]
mod tests;
