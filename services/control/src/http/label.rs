//! Display names: one line of text.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The maximum length of a name, in characters.
pub(crate) const MAX_CHARS: usize = 100;

/// Display name: 1 to 100 characters, without control characters or surrounding white space.
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
        let fits = (1..=MAX_CHARS).contains(&text.chars().count());
        if fits && text.trim() == text && !text.chars().any(char::is_control) {
            Ok(Self(text))
        } else {
            Err("a name must have 1 to 100 characters on one line, without surrounding white space")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_name_is_rejected() {
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
