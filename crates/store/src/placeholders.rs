//! `{{name}}` in a text: where it stands, and what stands there once values are known.
//! Never: a substituted value searched for placeholders again.

use std::ops::ControlFlow;

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment<'a> {
    /// What is said as it stands.
    Literal(&'a str),
    /// A place for a value.
    Placeholder {
        /// What stands between the braces, without white space around it; perhaps no name at all.
        name: &'a str,
        /// All of it, braces included.
        written: &'a str,
    },
}

/// The parts of a text in their order; together they are the text. An opening without a closing, or with a brace or
/// a line break before it, is literal.
pub fn segments(text: &str) -> impl Iterator<Item = Segment<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let found = first(rest);
        let (segment, remainder) = match found {
            Some((0, length)) => {
                let (written, after) = rest.split_at(length);
                let inner = written
                    .strip_prefix(OPEN)
                    .and_then(|inner| inner.strip_suffix(CLOSE))
                    .unwrap_or_default();
                let name = inner.trim();
                (Segment::Placeholder { name, written }, after)
            }
            Some((at, _)) => {
                let (literal, after) = rest.split_at(at);
                (Segment::Literal(literal), after)
            }
            None => (Segment::Literal(rest), ""),
        };
        rest = remainder;
        Some(segment)
    })
}

/// Where the first placeholder begins and how many bytes it has.
fn first(text: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    while let Some(found) = text.get(from..).and_then(|rest| rest.find(OPEN)) {
        let open = from + found;
        let inner = text.get(open + OPEN.len()..)?;
        let stop = inner.find(['{', '}', '\n'])?;
        if inner
            .get(stop..)
            .is_some_and(|rest| rest.starts_with(CLOSE))
        {
            return Some((open, OPEN.len() + stop + CLOSE.len()));
        }
        // `{{{x}}` holds a placeholder that begins one brace later.
        from = open + 1;
    }
    None
}

/// The text with every placeholder that has a value replaced by it; the others stay as they are written. `None` when
/// the result would have more than `limit` bytes.
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
    fn placeholders_are_found_where_they_stand() {
        fn check(text: &str, expected: &[&str]) {
            let names: Vec<_> = segments(text)
                .filter_map(|segment| match segment {
                    Segment::Placeholder { name, .. } => Some(name),
                    Segment::Literal(_) => None,
                })
                .collect();
            assert_eq!(names, expected, "{text:?}");
            let whole: String = segments(text)
                .map(|segment| match segment {
                    Segment::Literal(text) | Segment::Placeholder { written: text, .. } => text,
                })
                .collect();
            assert_eq!(whole, text);
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
    fn values_are_put_in_once() {
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
