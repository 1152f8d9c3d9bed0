//! Parameters of skills book requests: part numbers and search queries.
//!
//! Invariant: they accept exactly the values that the OpenAPI document allows.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::http::limits::{Limit::Number, Rule, rule};

/// The maximum number of a part.
pub(super) const MAX_PART_NUMBER: i32 = 10_000;
/// The maximum length of a search query, in characters.
const MAX_QUERY_CHARS: usize = 1_000;

/// The limits of a part number.
pub(crate) const PART_RULES: &[Rule] = &[rule("", Number(1.0, MAX_PART_NUMBER as f64))];

/// The number of a part of a skills book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SkillsBookPartNumber, value_type = i32, example = 1)]
#[serde(transparent)]
pub(crate) struct PartNumber(i32);

/// Search query: 1 to 1000 characters, not only white space.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = SkillsBookQuery, value_type = String, example = "replace the battery")]
#[serde(try_from = "String")]
pub(crate) struct SearchQuery(String);

impl PartNumber {
    /// Parses the number in a path; it must consist of digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number: i32 = text.parse().ok().filter(|_| digits)?;
        (1..=MAX_PART_NUMBER)
            .contains(&number)
            .then_some(Self(number))
    }

    pub(super) const fn get(self) -> i32 {
        self.0
    }
}

impl SearchQuery {
    /// The limits as JSON Schema.
    pub(crate) fn as_schema() -> Value {
        json!({
            "minLength": 1, "maxLength": MAX_QUERY_CHARS, "pattern": r"^[^\u0000]*[^\s\u0000][^\u0000]*$",
        })
    }

    pub(super) fn as_str(&self) -> &str {
        self.0.trim()
    }
}

impl TryFrom<String> for SearchQuery {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let fits = text.chars().count() <= MAX_QUERY_CHARS && !text.trim().is_empty();
        if fits && !text.contains('\0') {
            return Ok(Self(text));
        }
        Err(format!(
            "a query must have 1 to {MAX_QUERY_CHARS} characters, not only white space and without U+0000"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_number_is_parsed_from_digits() {
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
    fn search_query_has_limits() {
        fn check(text: &str, valid: bool) {
            assert_eq!(
                SearchQuery::try_from(text.to_owned()).is_ok(),
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
