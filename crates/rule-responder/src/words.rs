//! Text as tokens: English words, known Chinese words, single characters, numbers, quotations.

use crate::{
    numbers,
    vocabulary::{self, MAX_CHINESE},
};

/// Pairs of quotation marks.
const QUOTES: [&str; 5] = ["\"\"", "“”", "「」", "『』", "《》"];
/// Signs that carry no meaning.
const PUNCTUATION: &str = ".,!;:()'’-_…，。！；：、（）·~";

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Word,
    /// A Chinese character that belongs to no known word.
    Character,
    Number(f64),
    Quote,
}

#[derive(Debug, Clone)]
pub(crate) struct Token {
    /// The text, in lower case except for a quotation.
    pub(crate) raw: String,
    /// What words are compared by: synonyms share one.
    pub(crate) key: String,
    pub(crate) kind: Kind,
}

impl Token {
    fn new(raw: &str, key: &str, kind: Kind) -> Self {
        let [raw, key] = [raw, key].map(str::to_owned);
        Self { raw, key, kind }
    }

    fn english(raw: &str) -> Self {
        let raw = raw.to_lowercase().replace('’', "'");
        Self::new(&raw, vocabulary::english(&raw), Kind::Word)
    }

    pub(crate) fn is(&self, key: &str) -> bool {
        self.kind == Kind::Word && self.key == key
    }

    pub(crate) const fn number(&self) -> Option<f64> {
        match self.kind {
            Kind::Number(number) => Some(number),
            _ => None,
        }
    }

    /// A Chinese word has about two characters.
    pub(crate) fn weight(&self) -> u32 {
        if self.kind == Kind::Character { 1 } else { 2 }
    }
}

/// The tokens of a text.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let (mut tokens, mut rest) = (Vec::new(), text);
    while let Some(c) = rest.chars().next() {
        let second = rest.chars().nth(1);
        let is_minus = c == '-' && second.is_some_and(|c| c.is_ascii_digit());
        let mut end = c.len_utf8();
        if let Some(quote) = quotation(rest, c) {
            tokens.push(Token::new(quote, "", Kind::Quote));
            end = quote.len() + 2 * c.len_utf8();
        } else if is_chinese(c) {
            end = chinese(rest, &mut tokens);
        } else if c.is_alphanumeric() || is_minus {
            end = english(rest, &mut tokens);
        } else if !c.is_whitespace() && !PUNCTUATION.contains(c) {
            tokens.push(Token::english(&c.to_string()));
        }
        rest = rest.get(end..).unwrap_or_default();
    }
    tokens
}

pub(crate) const fn is_chinese(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}')
}

/// Each two Chinese characters that stand beside each other in these tokens.
pub(crate) fn pairs(tokens: &[Token]) -> Vec<String> {
    let words = tokens.iter().filter(|token| token.kind != Kind::Quote);
    let text: Vec<char> = words.flat_map(|token| token.raw.chars()).collect();
    let pairs = text
        .windows(2)
        .filter(|pair| pair.iter().all(|c| is_chinese(*c)));
    pairs.map(String::from_iter).collect()
}

/// The text of a quotation that begins with this mark.
fn quotation(rest: &str, open: char) -> Option<&str> {
    let marks = QUOTES.iter().find(|marks| marks.starts_with(open))?;
    let inner = rest.get(open.len_utf8()..)?;
    inner.get(..inner.find(marks.chars().next_back()?)?)
}

/// Adds the longest known word, a numeral, or one character.
fn chinese(rest: &str, tokens: &mut Vec<Token>) -> usize {
    let run = rest
        .char_indices()
        .take_while(|(_, c)| is_chinese(*c))
        .take(MAX_CHINESE);
    let ends = run.map(|(at, c)| at + c.len_utf8()).collect::<Vec<_>>();
    for raw in ends.iter().rev().filter_map(|end| rest.get(..*end)) {
        if let Some(key) = vocabulary::KEYS.get(raw) {
            tokens.push(Token::new(raw, key, Kind::Word));
            return raw.len();
        }
    }
    let numeral = numbers::chinese(rest).map(|(number, end)| (end, Kind::Number(number)));
    let (end, kind) = numeral.unwrap_or((ends.first().copied().unwrap_or(1), Kind::Character));
    let raw = rest.get(..end).unwrap_or_default();
    tokens.push(Token::new(
        raw,
        if numeral.is_some() { "" } else { raw },
        kind,
    ));
    end
}

/// Adds a number, a word, or the parts of a name such as `get_time` or `takePhoto`.
fn english(rest: &str, tokens: &mut Vec<Token>) -> usize {
    let mut places = rest.char_indices().skip(1);
    let end = places.find(|(at, c)| !continues(rest, *at, *c));
    let end = end.map_or(rest.len(), |(at, _)| at);
    let raw = rest.get(..end).unwrap_or_default();
    if let Some(number) = numbers::digits(raw) {
        tokens.push(Token::new(raw, "", Kind::Number(number)));
    } else if raw.contains(|c: char| c.is_ascii_digit()) {
        // `speaker-7`, `5-10` and `8:30` are neither numbers nor known words.
        tokens.push(Token::english(raw));
    } else {
        let mut spaced = String::new();
        for c in raw.chars() {
            if c.is_uppercase() && spaced.ends_with(char::is_lowercase) {
                spaced.push(' ');
            }
            spaced.push(c);
        }
        let words = spaced
            .split([' ', '-', '_'])
            .filter(|word| !word.is_empty());
        tokens.extend(words.map(Token::english));
    }
    end
}

/// Whether the character at this place continues an English word or a number.
fn continues(rest: &str, at: usize, c: char) -> bool {
    let is_word = |c: char| c.is_alphanumeric() && !is_chinese(c);
    let (before, after) = rest.split_at(at);
    let next = after.chars().nth(1).unwrap_or(' ');
    let is_digit = |c: char| c.is_ascii_digit();
    match c {
        '.' | ',' | ':' | '/' => before.ends_with(is_digit) && is_digit(next),
        '\'' | '’' | '-' | '_' => is_word(next),
        _ => is_word(c),
    }
}
