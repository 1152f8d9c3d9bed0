//! Limits of what people write, as a table: a place in the document and what may stand there.
//! Never: a document that nests without end; what parses it has a limit.

use serde_json::{Value, json};
use switchboard_runtime::problem::Problem;

use crate::document::{invalid, member};

/// What may stand at the places that a pattern means. `*` is any member or element.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) at: &'static str,
    pub(crate) limit: Limit,
}

/// What may stand somewhere. A place that is empty or absent breaks no limit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    /// At most so many characters, line breaks and tabs among them.
    Text(usize),
    /// 1 to so many characters on one line, without white space around them.
    Line(usize),
    /// 1 to 64 of `[A-Za-z0-9_.-]`.
    Name,
    /// A language, as BCP 47 writes it.
    Locale,
    /// Exactly so many hexadecimal digits.
    Hex(usize),
    /// From so many to so many elements.
    Items(usize, usize),
    /// A number in this range, ends included.
    Number(f64, f64),
}

/// No control characters but line breaks and tabs, as a regular expression.
const TEXT: &str = r"^[^\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]*$";
/// No control characters, and no white space at the ends.
const LINE: &str = r"^[^\s\u0000-\u001f\u007f-\u009f]([^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f])?$";

pub(crate) const fn rule(at: &'static str, limit: Limit) -> Rule {
    Rule { at, limit }
}

/// Holds a document, which stands at `at` in the body, against the rules. No text has a NUL, which cannot be stored.
pub(crate) fn keep(document: &Value, at: &str, rules: &[Rule]) -> Result<(), Problem> {
    let mut open = vec![(String::new(), document)];
    while let Some((place, value)) = open.pop() {
        let pointer = format!("{at}{place}");
        let refuse = |reason: String| invalid(&pointer, format!("`{pointer}` {reason}."));
        if let Some(rule) = rules.iter().find(|rule| means(rule.at, &place)) {
            rule.limit.check(value).map_err(refuse)?;
        }
        match value {
            Value::String(text) if text.contains('\0') => {
                return Err(refuse("must not have the character U+0000".to_owned()));
            }
            Value::Array(elements) => {
                let places = elements.iter().enumerate();
                open.extend(places.map(|(index, value)| (format!("{place}/{index}"), value)));
            }
            Value::Object(members) => {
                if members.keys().any(|name| name.contains('\0')) {
                    return Err(refuse(
                        "must not have the character U+0000 in a name".to_owned(),
                    ));
                }
                let places = members.iter();
                open.extend(places.map(|(name, value)| (member(&place, name), value)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a pattern means this place.
fn means(pattern: &str, place: &str) -> bool {
    let mut parts = place.split('/');
    let fits = pattern.split('/').all(|wanted| {
        parts
            .next()
            .is_some_and(|part| wanted == "*" || wanted == part)
    });
    fits && parts.next().is_none()
}

impl Limit {
    /// The limit as JSON Schema says it.
    pub(crate) fn as_schema(self) -> Value {
        match self {
            Self::Text(most) => json!({"maxLength": most, "pattern": TEXT}),
            Self::Line(most) => json!({"minLength": 1, "maxLength": most, "pattern": LINE}),
            Self::Name => json!({"pattern": "^[A-Za-z0-9_.-]{1,64}$"}),
            Self::Locale => {
                json!({"maxLength": 35, "pattern": "^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$"})
            }
            Self::Hex(count) => json!({"pattern": format!("^[0-9a-fA-F]{{{count}}}$")}),
            Self::Items(least, most) => json!({"minItems": least, "maxItems": most}),
            Self::Number(least, most) => {
                json!({"minimum": shortest(least), "maximum": shortest(most)})
            }
        }
    }

    fn check(self, value: &Value) -> Result<(), String> {
        match (self, value) {
            (Self::Text(most), Value::String(text)) => check_text(text, most),
            (Self::Line(most), Value::String(text)) => check_line(text, most),
            (Self::Name, Value::String(text)) if !is_name(text) => {
                Err("must be 1 to 64 of A-Z a-z 0-9 _ . -".to_owned())
            }
            (Self::Locale, Value::String(text)) if !is_locale(text) => {
                Err("must be a language tag like de or zh-Hans-CN".to_owned())
            }
            (Self::Hex(count), Value::String(text)) if !is_hex(text, count) => {
                Err(format!("must be {count} hexadecimal digits"))
            }
            (Self::Items(least, most), Value::Array(elements)) => {
                let count = elements.len();
                if (least..=most).contains(&count) {
                    return Ok(());
                }
                Err(format!(
                    "has {count} elements; it must have {least} to {most}"
                ))
            }
            (Self::Number(least, most), Value::Number(number)) => {
                let fits = number
                    .as_f64()
                    .is_some_and(|number| (least..=most).contains(&number));
                if fits {
                    return Ok(());
                }
                Err(format!("is {number}; it must be from {least} to {most}"))
            }
            _ => Ok(()),
        }
    }
}

/// A number without `.0`.
fn shortest(number: f64) -> Value {
    if number.fract() == 0.0 {
        // Every limit is far below what an i64 can say.
        json!(number as i64)
    } else {
        json!(number)
    }
}

fn check_text(text: &str, most: usize) -> Result<(), String> {
    let count = text.chars().count();
    if count > most {
        return Err(format!(
            "has {count} characters; it must have {most} at most"
        ));
    }
    let forbidden = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    match text.chars().find(|c| forbidden(*c)) {
        Some(found) => Err(format!(
            "must not have the control character U+{:04X}",
            u32::from(found)
        )),
        None => Ok(()),
    }
}

fn check_line(text: &str, most: usize) -> Result<(), String> {
    let fits = (1..=most).contains(&text.chars().count());
    if fits && text.trim() == text && !text.chars().any(char::is_control) {
        return Ok(());
    }
    Err(format!(
        "must be 1 to {most} characters on one line, without white space around them"
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

fn is_locale(text: &str) -> bool {
    let mut parts = text.split('-');
    let language = parts.next().unwrap_or_default();
    let is_language =
        (2..=8).contains(&language.len()) && language.bytes().all(|b| b.is_ascii_alphabetic());
    let rest = parts.all(|part| {
        (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    is_language && rest && text.len() <= 35
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_kept() {
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
    fn rules_are_found_at_their_places() {
        const RULES: [Rule; 2] = [
            rule("/tags/*", Limit::Line(3)),
            rule("/deep/*/name", Limit::Name),
        ];
        fn check(document: Value, pointer: Option<&str>) {
            let refused = keep(&document, "/0", &RULES).err();
            let place = refused
                .as_ref()
                .and_then(|problem| problem.extra.get("pointer"));
            assert_eq!(place, pointer.map(Value::from).as_ref(), "{document}");
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
