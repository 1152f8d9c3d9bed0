//! Limits of request bodies, as tables of rules. The OpenAPI document has the same limits.

use serde_json::{Value, json};
use switchboard_protocol::locale::{Locale, MAX_LOCALE_BYTES};
use switchboard_runtime::problem::Problem;

use super::documents::{child_pointer, invalid};

/// The limit of all values whose JSON Pointer matches a pattern; `*` matches any member or element.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) pattern: &'static str,
    pub(crate) limit: Limit,
}

/// The limit of a value. Null and missing values are within every limit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    /// Maximum number of characters; line breaks and tabs are allowed.
    Text(usize),
    /// 1 to this many characters on one line, without surrounding white space.
    Line(usize),
    /// 1 to 64 of `[A-Za-z0-9_.-]`.
    Name,
    /// A BCP 47 language tag.
    Locale,
    /// Exactly this many hexadecimal digits.
    Hex(usize),
    /// Minimum and maximum number of elements.
    Items(usize, usize),
    /// A number from the first to the second, inclusive.
    Number(f64, f64),
}

/// No control characters but line breaks and tabs, as a regular expression.
const TEXT: &str = r"^[^\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]*$";
/// No control characters, and no white space at the ends.
const LINE: &str = r"^[^\s\u0000-\u001f\u007f-\u009f]([^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f])?$";

pub(crate) const fn rule(pattern: &'static str, limit: Limit) -> Rule {
    Rule { pattern, limit }
}

/// Checks a document, at the pointer `base` in the body, against the rules. U+0000 is not allowed
/// anywhere: PostgreSQL cannot store it.
pub(crate) fn check(document: &Value, base: &str, rules: &[Rule]) -> Result<(), Problem> {
    let mut open = vec![(String::new(), document)];
    while let Some((place, value)) = open.pop() {
        let pointer = format!("{base}{place}");
        let reject = |reason: String| invalid(&pointer, format!("`{pointer}` {reason}."));
        if let Some(rule) = rules.iter().find(|rule| matches(rule.pattern, &place)) {
            rule.limit.check(value).map_err(reject)?;
        }
        match value {
            Value::String(text) if text.contains('\0') => {
                return Err(reject("must not contain the character U+0000".to_owned()));
            }
            Value::Array(elements) => {
                let places = elements.iter().enumerate();
                open.extend(places.map(|(index, value)| (format!("{place}/{index}"), value)));
            }
            Value::Object(members) => {
                if members.keys().any(|name| name.contains('\0')) {
                    return Err(reject(
                        "must not contain the character U+0000 in a member name".to_owned(),
                    ));
                }
                let places = members.iter();
                open.extend(places.map(|(name, value)| (child_pointer(&place, name), value)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a pattern matches this pointer.
fn matches(pattern: &str, place: &str) -> bool {
    let mut parts = place.split('/');
    let fits = pattern.split('/').all(|expected| {
        parts
            .next()
            .is_some_and(|part| expected == "*" || expected == part)
    });
    fits && parts.next().is_none()
}

impl Limit {
    /// The limit as JSON Schema.
    pub(crate) fn as_schema(self) -> Value {
        match self {
            Self::Text(max) => json!({"maxLength": max, "pattern": TEXT}),
            Self::Line(max) => json!({"minLength": 1, "maxLength": max, "pattern": LINE}),
            Self::Name => json!({"pattern": "^[A-Za-z0-9_.-]{1,64}$"}),
            Self::Locale => {
                json!({"maxLength": MAX_LOCALE_BYTES, "pattern": "^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$"})
            }
            Self::Hex(count) => json!({"pattern": format!("^[0-9a-fA-F]{{{count}}}$")}),
            Self::Items(min, max) => json!({"minItems": min, "maxItems": max}),
            Self::Number(min, max) => {
                json!({"minimum": json_number(min), "maximum": json_number(max)})
            }
        }
    }

    fn check(self, value: &Value) -> Result<(), String> {
        match (self, value) {
            (Self::Text(max), Value::String(text)) => check_text(text, max),
            (Self::Line(max), Value::String(text)) => check_line(text, max),
            (Self::Name, Value::String(text)) if !is_name(text) => {
                Err("must be 1 to 64 of A-Z a-z 0-9 _ . -".to_owned())
            }
            (Self::Locale, Value::String(text)) => {
                let locale = text.parse::<Locale>();
                locale.map(drop).map_err(|error| error.to_string())
            }
            (Self::Hex(count), Value::String(text)) if !is_hex(text, count) => {
                Err(format!("must be {count} hexadecimal digits"))
            }
            (Self::Items(min, max), Value::Array(elements)) => {
                let count = elements.len();
                if (min..=max).contains(&count) {
                    return Ok(());
                }
                Err(format!("has {count} elements; it must have {min} to {max}"))
            }
            (Self::Number(min, max), Value::Number(number)) => {
                let fits = number
                    .as_f64()
                    .is_some_and(|number| (min..=max).contains(&number));
                if fits {
                    return Ok(());
                }
                Err(format!("is {number}; it must be from {min} to {max}"))
            }
            _ => Ok(()),
        }
    }
}

/// A number, without `.0` if it is an integer.
fn json_number(number: f64) -> Value {
    if number.fract() == 0.0 {
        // Every limit is far below the maximum of an i64.
        json!(number as i64)
    } else {
        json!(number)
    }
}

fn check_text(text: &str, max: usize) -> Result<(), String> {
    let count = text.chars().count();
    if count > max {
        return Err(format!(
            "has {count} characters; it must have at most {max}"
        ));
    }
    let forbidden = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    match text.chars().find(|c| forbidden(*c)) {
        Some(found) => Err(format!(
            "must not contain the control character U+{:04X}",
            u32::from(found)
        )),
        None => Ok(()),
    }
}

fn check_line(text: &str, max: usize) -> Result<(), String> {
    let fits = (1..=max).contains(&text.chars().count());
    if fits && text.trim() == text && !text.chars().any(char::is_control) {
        return Ok(());
    }
    Err(format!(
        "must be 1 to {max} characters on one line, without surrounding white space"
    ))
}

fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

fn is_hex(text: &str, count: usize) -> bool {
    text.len() == count && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_over_the_limit_is_rejected() {
        fn check(limit: Limit, value: Value, good: bool) {
            assert_eq!(limit.check(&value).is_ok(), good, "{limit:?} {value}");
        }
        check(Limit::Text(3), json!("a\n名"), true);
        check(Limit::Text(3), json!("abcd"), false);
        check(Limit::Text(3), json!("\u{1b}"), false);
        check(Limit::Text(3), json!(""), true);
        check(Limit::Text(3), Value::Null, true);
        check(Limit::Line(3), json!("玩具厂"), true);
        check(Limit::Line(3), json!(""), false);
        check(Limit::Line(3), json!(" a"), false);
        check(Limit::Line(3), json!("a\nb"), false);
        check(Limit::Name, json!("a.B_c-9"), true);
        check(Limit::Name, json!("a b"), false);
        check(Limit::Name, json!("x".repeat(65)), false);
        check(Limit::Locale, json!("de"), true);
        check(Limit::Locale, json!("zh-Hans-CN"), true);
        check(Limit::Locale, json!("d"), false);
        check(Limit::Locale, json!("de_DE"), false);
        check(Limit::Locale, json!("de-"), false);
        check(Limit::Hex(4), json!("09aF"), true);
        check(Limit::Hex(4), json!("09a"), false);
        check(Limit::Hex(4), json!("+9aF"), false);
        check(Limit::Hex(4), json!("éé"), false);
        check(Limit::Items(1, 2), json!([]), false);
        check(Limit::Items(1, 2), json!([1, 2]), true);
        check(Limit::Items(1, 2), json!([1, 2, 3]), false);
        check(Limit::Number(0.0, 1.0), json!(0), true);
        check(Limit::Number(0.0, 1.0), json!(1.01), false);
        check(Limit::Number(0.0, 1.0), json!(-1), false);
    }

    #[test]
    fn rule_applies_to_matching_pointers() {
        const RULES: [Rule; 2] = [
            rule("/tags/*", Limit::Line(3)),
            rule("/deep/*/name", Limit::Name),
        ];
        fn check(document: Value, pointer: Option<&str>) {
            let refused = super::check(&document, "/0", &RULES).err();
            let place = refused.as_ref().and_then(Problem::pointer);
            assert_eq!(place, pointer, "{document}");
        }
        check(
            json!({"tags": ["abc"], "deep": [{"name": "x"}], "other": " "}),
            None,
        );
        check(json!({"tags": ["abc", "abcd"]}), Some("/0/tags/1"));
        check(json!({"deep": [{"name": " "}]}), Some("/0/deep/0/name"));
        check(
            json!({"deep": {"x": {"name": " "}}}),
            Some("/0/deep/x/name"),
        );
        check(json!({"other": ["a\0"]}), Some("/0/other/0"));
        check(json!({"other": {"a\0": 1}}), Some("/0/other"));
    }
}
