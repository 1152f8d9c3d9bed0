//! A text as words: English ones by their stems, Chinese ones from the table of concepts, the rest by its characters.
//! Never: a word without the place where it stands.

use std::{collections::HashMap, ops::Range, sync::LazyLock};

use super::{
    concepts::{CONCEPTS, Concept, Meaning},
    empty_words,
};

/// What stands in one place of a text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Word {
    /// A stem, and the word as it was said.
    English { stem: String, whole: String },
    /// A Chinese word of the tables.
    Chinese,
    /// A Chinese character of none.
    Character(char),
    /// What parts one clause from the next.
    Break,
}

/// A word in its place.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) place: Range<usize>,
    pub(super) word: Word,
    pub(super) meanings: Vec<Meaning>,
    /// It says nothing by itself.
    pub(super) empty: bool,
}

/// A text and its words.
#[derive(Debug)]
pub(super) struct Sentence {
    pub(super) text: String,
    pub(super) tokens: Vec<Token>,
    /// Where devices are named; what stands there counts nothing.
    pub(super) names: Vec<Range<usize>>,
}

impl Sentence {
    pub(super) fn read(text: &str) -> Self {
        // What a device or a person wrote is read once; names are split where their case changes.
        let mut tokens = Vec::new();
        let mut rest = 0;
        while let Some(c) = text.get(rest..).and_then(|left| left.chars().next()) {
            rest = if is_chinese(c) {
                chinese(text, rest, &mut tokens)
            } else if c.is_alphanumeric() {
                english(text, rest, &mut tokens)
            } else {
                if matches!(
                    c,
                    ',' | '.'
                        | '?'
                        | '!'
                        | ';'
                        | ':'
                        | '，'
                        | '。'
                        | '？'
                        | '！'
                        | '；'
                        | '：'
                        | '、'
                        | '('
                        | ')'
                        | '\n'
                ) {
                    tokens.push(Token {
                        place: rest..rest + c.len_utf8(),
                        word: Word::Break,
                        meanings: Vec::new(),
                        empty: true,
                    });
                }
                rest + c.len_utf8()
            };
        }
        settle_on(&mut tokens);
        Self {
            text: text.to_owned(),
            tokens,
            names: Vec::new(),
        }
    }

    pub(super) fn has(&self, meaning: Meaning) -> bool {
        self.tokens
            .iter()
            .any(|token| token.meanings.contains(&meaning))
    }

    /// The English words as they were said, in small letters.
    pub(super) fn english(&self) -> Vec<&str> {
        let words = self.tokens.iter().filter_map(|token| match &token.word {
            Word::English { whole, .. } => Some(whole.as_str()),
            _ => None,
        });
        words.collect()
    }
}

/// `on` is a deed after a verb or where a clause ends, and elsewhere a mere preposition.
fn settle_on(tokens: &mut [Token]) {
    let word = |token: Option<&Token>| match token.map(|token| &token.word) {
        Some(Word::English { whole, .. }) => whole.clone(),
        _ => String::new(),
    };
    for at in 0..tokens.len() {
        if word(tokens.get(at)) != "on" {
            continue;
        }
        let before = at
            .checked_sub(1)
            .map(|at| word(tokens.get(at)))
            .unwrap_or_default();
        let after = word(tokens.get(at + 1));
        let is_deed = matches!(before.as_str(), "turn" | "switch" | "put" | "is")
            || matches!(after.as_str(), "" | "or" | "and" | "off" | "please");
        if let Some(token) = tokens.get_mut(at) {
            token.empty = !is_deed;
            if !is_deed {
                token.meanings.clear();
            }
        }
    }
}

pub(super) const fn is_chinese(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}

/// One English word or number; a name in camelCase is several.
fn english(text: &str, from: usize, tokens: &mut Vec<Token>) -> usize {
    let mut end = from;
    let mut last = ' ';
    for c in text.get(from..).unwrap_or_default().chars() {
        let joins = c.is_alphanumeric() && !is_chinese(c);
        let decimal = matches!(c, '.') && last.is_ascii_digit() && digit_follows(text, end);
        let apostrophe = matches!(c, '\'' | '’') && last.is_alphabetic();
        let breaks = c.is_uppercase() && last.is_lowercase()
            || c.is_ascii_digit() && last.is_alphabetic()
            || c.is_alphabetic() && last.is_ascii_digit();
        if (!joins && !decimal && !apostrophe) || breaks {
            break;
        }
        end += c.len_utf8();
        last = c;
    }
    let place = from..end;
    let whole = text
        .get(place.clone())
        .unwrap_or_default()
        .to_lowercase()
        .replace(['\'', '’'], "");
    let stem = stem(&whole);
    let meanings = ENGLISH.get(&stem).cloned().unwrap_or_default();
    let empty = empty_words::ENGLISH.split(' ').any(|word| word == whole);
    tokens.push(Token {
        place,
        word: Word::English { stem, whole },
        meanings,
        empty,
    });
    end
}

fn digit_follows(text: &str, at: usize) -> bool {
    text.as_bytes().get(at + 1).is_some_and(u8::is_ascii_digit)
}

/// The longest word of the tables that stands here, or one character.
fn chinese(text: &str, from: usize, tokens: &mut Vec<Token>) -> usize {
    let left = text.get(from..).unwrap_or_default();
    let ends = left
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take(LONGEST);
    for end in ends.collect::<Vec<_>>().into_iter().rev() {
        let word = left.get(..end).unwrap_or_default();
        if let Some(meanings) = CHINESE.get(word) {
            let place = from..from + end;
            tokens.push(Token {
                place,
                word: Word::Chinese,
                meanings: meanings.clone(),
                empty: meanings.is_empty(),
            });
            return from + end;
        }
    }
    let c = left.chars().next().unwrap_or_default();
    let place = from..from + c.len_utf8();
    tokens.push(Token {
        place: place.clone(),
        word: Word::Character(c),
        meanings: Vec::new(),
        empty: false,
    });
    place.end
}

/// The longest word of the tables has fewer characters.
const LONGEST: usize = 6;

type Dictionary = HashMap<String, Vec<Meaning>>;

static ENGLISH: LazyLock<Dictionary> =
    LazyLock::new(|| dictionary(|concept| concept.english, stem));
static CHINESE: LazyLock<Dictionary> = LazyLock::new(|| {
    let mut words = dictionary(|concept| concept.chinese, str::to_owned);
    for word in empty_words::CHINESE.split(' ') {
        words.entry(word.to_owned()).or_default();
    }
    words
});

fn dictionary(
    of: impl Fn(&Concept) -> &'static [&'static str],
    key: impl Fn(&str) -> String,
) -> Dictionary {
    let mut words = Dictionary::new();
    for (meaning, concept) in CONCEPTS {
        for word in of(concept) {
            words.entry(key(word)).or_default().push(*meaning);
        }
    }
    words
}

/// A word without the endings that number and tense give it, and without a silent `e`, so that all its forms meet.
fn stem(word: &str) -> String {
    let keeps = |stem: &str| stem.len() >= 3 && stem.chars().any(|c| "aeiouy".contains(c));
    let cut = |ending: &str| word.strip_suffix(ending).filter(|stem| keeps(stem));
    if let Some(stem) = cut("ies") {
        return format!("{stem}y");
    }
    let plural = cut("s").filter(|stem| !stem.ends_with(['s', 'u', 'i']));
    let stem = cut("ing").or_else(|| cut("ed")).or(plural).unwrap_or(word);
    let stem = stem
        .strip_suffix('e')
        .filter(|stem| keeps(stem))
        .unwrap_or(stem);
    let mut end = stem.chars().rev();
    match (end.next(), end.next()) {
        (Some(last), Some(before))
            if last == before && "bdgmnprt".contains(last) && stem.len() > 3 =>
        {
            stem.get(..stem.len() - 1).unwrap_or(stem).to_owned()
        }
        _ => stem.to_owned(),
    }
}
