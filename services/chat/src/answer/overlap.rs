//! How many words of a question occur in a text.

use std::collections::HashSet;

/// English words that carry no meaning in a question.
const STOPWORDS: &str = "a about an and are at be can could did do does for from have how i in is \
    it me my of on or please should tell that the there this to was we were what when where \
    which who why will with would you your";
/// Chinese words that carry no meaning in a question.
const CHINESE_STOPWORDS: [&str; 20] = [
    "什么",
    "什麼",
    "怎么",
    "怎样",
    "为什么",
    "多少",
    "哪里",
    "哪个",
    "请问",
    "告诉",
    "是否",
    "吗",
    "嗎",
    "呢",
    "了",
    "的",
    "是",
    "谁",
    "几",
    "请",
];

/// The share of the question's words that occur in the text, from 0 to 1. Chinese is compared by
/// pairs of characters.
pub(crate) fn overlap(question: &str, text: &str) -> f64 {
    let (question, text) = (words(question), words(text));
    let common = question.intersection(&text).count();
    if common == 0 {
        return 0.0;
    }
    common as f64 / question.len() as f64
}

fn words(text: &str) -> HashSet<String> {
    let mut text = text.to_lowercase();
    for word in CHINESE_STOPWORDS {
        text = text.replace(word, " ");
    }
    let mut words = HashSet::new();
    for run in text.split(|c: char| !c.is_alphanumeric()) {
        let characters: Vec<char> = run.chars().collect();
        for part in characters.chunk_by(|one, other| is_chinese(*one) == is_chinese(*other)) {
            if part.iter().any(|c| is_chinese(*c)) {
                words.extend(part.windows(part.len().min(2)).map(String::from_iter));
            } else {
                words.extend(stem(&String::from_iter(part)));
            }
        }
    }
    words
}

const fn is_chinese(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '〇')
}

/// A word without its plural ending; `None` for a stopword.
fn stem(word: &str) -> Option<String> {
    let is_stopword = STOPWORDS
        .split_whitespace()
        .any(|stopword| stopword == word);
    let stem = word.strip_suffix('s').filter(|stem| stem.len() > 2);
    (!is_stopword).then(|| stem.unwrap_or(word).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_counts_words_with_meaning() {
        fn check(question: &str, text: &str, expected: f64) {
            assert!(
                (overlap(question, text) - expected).abs() < 0.01,
                "{question} {text} {}",
                overlap(question, text)
            );
        }
        check("What is my name?", "The user said: “My name is Anna.”", 1.0);
        check("Does Anna like teas?", "Anna likes tea", 1.0);
        check("Does Anna like coffee?", "Anna likes tea", 0.67);
        check("我叫什么名字?", "用户说：“我叫小明。”", 0.5);
        check("What is it?", "It is late", 0.0);
        check("", "", 0.0);
    }
}
