//! The name that people give to a thing.
//! Never: a name that cannot be shown on one line.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The longest name, in characters.
pub(crate) const LONGEST: usize = 100;

/// 1 to 100 characters, no control characters, no white space around.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(value_type = String, example = "Toy factory")]
#[serde(try_from = "String")]
pub(crate) struct Label(String);

impl Label {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Label {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let fits = (1..=LONGEST).contains(&text.chars().count());
        if fits && text.trim() == text && !text.chars().any(char::is_control) {
            Ok(Self(text))
        } else {
            Err("a name is 1 to 100 characters on one line, without white space around it")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        fn check(text: &str, valid: bool) {
            assert_eq!(Label::try_from(text.to_owned()).is_ok(), valid, "{text:?}");
        }
        check("玩具厂", true);
        check("A & B, Inc.", true);
        check(&"名".repeat(100), true);
        check(&"x".repeat(101), false);
        check("", false);
        check(" x", false);
        check("a\nb", false);
        check("a\0b", false);
    }
}
