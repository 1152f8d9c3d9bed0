//! Placeholders `{{name}}` in a text: parsing and substitution.
//! Invariant: a substituted value is not searched for placeholders.

use std::ops::ControlFlow;

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment<'a> {
    /// Text without a placeholder.
    Literal(&'a str),
    /// A placeholder.
    Placeholder {
        /// The text between the braces, trimmed; possibly empty or not a valid name.
        name: &'a str,
        /// The whole placeholder, braces included.
        written: &'a str,
    },
}

/// The segments of a text in order; concatenated they are the text. An opening `{{` without a `}}`,
/// or with a brace or a line break before it, is literal.
pub fn segments(text: &str) -> impl Iterator<Item = Segment<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (segment, remainder) = match find_placeholder(rest) {
            Some((0, length)) => {
                let (written, after) = rest.split_at(length);
                let inner = written
                    .strip_prefix(OPEN)
                    .and_then(|inner| inner.strip_suffix(CLOSE))
                    .unwrap_or_default();
                let name = inner.trim();
                (Segment::Placeholder { name, written }, after)
            }
            Some((start, _)) => {
                let (literal, after) = rest.split_at(start);
                (Segment::Literal(literal), after)
            }
            None => (Segment::Literal(rest), ""),
        };
        rest = remainder;
        Some(segment)
    })
}

/// The offset and the length of the first placeholder.
fn find_placeholder(text: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    while let Some(found) = text.get(from..).and_then(|rest| rest.find(OPEN)) {
        let open = from + found;
        let inner = text.get(open + OPEN.len()..)?;
        let stop = inner.find(['{', '}', '\n'])?;
        let rest = inner.get(stop..)?;
        if rest.starts_with(CLOSE) {
            return Some((open, OPEN.len() + stop + CLOSE.len()));
        }
        // `{{{x}}` contains a placeholder that begins one brace later.
        from = open + 1;
    }
    None
}

/// Replaces each placeholder that has a value by it; the others remain. `None` if the result would
/// exceed `limit` bytes.
pub fn substitute<'v>(
    text: &str,
    limit: usize,
    value: impl Fn(&str) -> Option<&'v str>,
) -> Option<String> {
    let mut result = String::with_capacity(text.len().min(limit));
    let filled = segments(text).try_for_each(|segment| {
        let part = match segment {
            Segment::Literal(literal) => literal,
            Segment::Placeholder { name, written } => value(name).unwrap_or(written),
        };
        if result.len().saturating_add(part.len()) > limit {
            return ControlFlow::Break(());
        }
        result.push_str(part);
        ControlFlow::Continue(())
    });
    filled.is_continue().then_some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_find_placeholders() {
        fn check(text: &str, expected: &[&str]) {
            let names: Vec<_> = segments(text)
                .filter_map(|segment| match segment {
                    Segment::Placeholder { name, .. } => Some(name),
                    Segment::Literal(_) => None,
                })
                .collect();
            assert_eq!(names, expected, "{text:?}");
            let concatenated: String = segments(text)
                .map(|segment| match segment {
                    Segment::Literal(text) | Segment::Placeholder { written: text, .. } => text,
                })
                .collect();
            assert_eq!(concatenated, text);
        }
        check("", &[]);
        check("plain", &[]);
        check("{{a}}", &["a"]);
        check("x{{ a }}y{{b}}", &["a", "b"]);
        check("{{a}}{{a}}", &["a", "a"]);
        check("{{{a}}}", &["a"]);
        check("{{}}", &[""]);
        check("{{two words}}", &["two words"]);
        check("{{a} {{b}}", &["b"]);
        check("{{a\n}} {{b}}", &["b"]);
        check("{{ open", &[]);
        check("{{", &[]);
        check("玩{{名}}具", &["名"]);
        check("{a} }} {{", &[]);
    }

    #[test]
    fn substituted_values_are_not_substituted_again() {
        fn check(text: &str, limit: usize, expected: Option<&str>) {
            let value = |name: &str| match name {
                "a" => Some("{{b}}"),
                "b" => Some("B"),
                "half" => Some("{{"),
                "rest" => Some("b}}"),
                _ => None,
            };
            assert_eq!(
                substitute(text, limit, value).as_deref(),
                expected,
                "{text:?}"
            );
        }
        check("{{a}} {{b}}", 99, Some("{{b}} B"));
        check("{{half}}{{rest}}", 99, Some("{{b}}"));
        check("{{c}} stays", 99, Some("{{c}} stays"));
        check("{{ b }}!", 2, Some("B!"));
        check("{{ b }}!", 1, None);
    }
}
