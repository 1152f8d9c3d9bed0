//! The characters of languages that put no space between words, as terms that can be looked up: each one, and each two
//! that stand side by side.
//! Never: a language that has spaces; PostgreSQL knows its words.

/// The terms under which a text is found.
pub(super) fn terms(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for run in runs(text) {
        found.extend(run.iter().map(char::to_string));
        found.extend(pairs(&run));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// What a question asks for: pairs, and a single character only where it stands alone.
pub(super) fn question(text: &str) -> Vec<String> {
    let mut asked = Vec::new();
    for run in runs(text) {
        match run.as_slice() {
            [alone] => asked.push(alone.to_string()),
            run => asked.extend(pairs(run)),
        }
    }
    asked.sort_unstable();
    asked.dedup();
    asked
}

fn pairs(run: &[char]) -> impl Iterator<Item = String> {
    run.windows(2).map(|pair| pair.iter().collect())
}

/// Characters of such languages that stand side by side.
fn runs(text: &str) -> Vec<Vec<char>> {
    let mut runs = vec![Vec::new()];
    for character in text.chars() {
        match (is_unspaced(character), runs.last_mut()) {
            (true, Some(run)) => run.push(character),
            (false, Some(run)) if !run.is_empty() => runs.push(Vec::new()),
            _ => {}
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

/// Thai, Lao, Burmese, Khmer, Japanese, Korean and Chinese letters.
const fn is_unspaced(character: char) -> bool {
    matches!(character,
        '\u{0E01}'..='\u{0EDF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{17DD}' | '\u{3005}'..='\u{3007}'
        | '\u{3041}'..='\u{30FF}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7A3}'
        | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{323AF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_questions_meet() {
        fn check(text: &str, expected: &[&str], asked: &[&str]) {
            assert_eq!(terms(text), expected, "{text}");
            assert_eq!(question(text), asked, "{text}");
        }
        check("", &[], &[]);
        check("no such letters", &[], &[]);
        check(
            "换电池",
            &["换", "换电", "池", "电", "电池"],
            &["换电", "电池"],
        );
        check("a 猫 b 犬!", &["犬", "猫"], &["犬", "猫"]);
        check("猫。猫", &["猫"], &["猫"]);
    }
}
