//! What is asked of a skills book beside its document: which part is meant, and what is looked up.
//! Never: a number or a question that the document of the API would not allow.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::limits::{Limit::Number, Rule, rule};

/// The last part's number.
pub(super) const LAST_PART: i32 = 10_000;
/// The longest question, in characters.
const LONGEST_QUESTION: usize = 1_000;

/// What number a part can have.
pub(crate) const PART_RULES: &[Rule] = &[rule("", Number(1.0, LAST_PART as f64))];

/// Which part of a skills book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SkillsBookPartNumber, value_type = i32, example = 1)]
#[serde(transparent)]
pub(crate) struct PartNumber(i32);

/// What is looked up in a skills book: 1 to 1000 characters, not all of them white space.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = SkillsBookQuestion, value_type = String, example = "replace the battery")]
#[serde(try_from = "String")]
pub(crate) struct Question(String);

impl PartNumber {
    /// The number that a path has; only digits are one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number: i32 = text.parse().ok().filter(|_| digits)?;
        (1..=LAST_PART).contains(&number).then_some(Self(number))
    }

    pub(super) const fn get(self) -> i32 {
        self.0
    }
}

impl Question {
    /// The limits as JSON Schema says them.
    pub(crate) fn as_schema() -> Value {
        json!({
            "minLength": 1, "maxLength": LONGEST_QUESTION, "pattern": r"^[^\u0000]*[^\s\u0000][^\u0000]*$",
        })
    }

    pub(super) fn as_str(&self) -> &str {
        self.0.trim()
    }
}

impl TryFrom<String> for Question {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let fits = text.chars().count() <= LONGEST_QUESTION && !text.trim().is_empty();
        if fits && !text.contains('\0') {
            return Ok(Self(text));
        }
        Err(format!(
            "a question has 1 to {LONGEST_QUESTION} characters, not all of them white space and none of them U+0000"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_numbers() {
        fn check(text: &str, number: Option<i32>) {
            assert_eq!(
                PartNumber::parse(text).map(PartNumber::get),
                number,
                "{text:?}"
            );
        }
        check("1", Some(1));
        check("010", Some(10));
        check("10000", Some(10_000));
        check("10001", None);
        check("0", None);
        check("+1", None);
        check("-1", None);
        check("", None);
        check("1.0", None);
        check("99999999999", None);
    }

    #[test]
    fn questions_ask_something() {
        fn check(text: &str, valid: bool) {
            assert_eq!(
                Question::try_from(text.to_owned()).is_ok(),
                valid,
                "{text:?}"
            );
        }
        check("电池", true);
        check(" two\nlines ", true);
        check(&"x".repeat(1_000), true);
        check(&"x".repeat(1_001), false);
        check(" \n", false);
        check("", false);
        check("a\0", false);
    }
}
