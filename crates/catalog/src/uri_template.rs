//! URIs with simple expressions (RFC 6570, level 1): `test://template/{id}/data`.
//! Invariant: the value of an expression contains no unencoded `/`.

use std::collections::BTreeMap;

/// The maximum length of a URI, in bytes.
pub const MAX_URI_BYTES: usize = 512;
/// The maximum length of an expression's name, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// The maximum number of expressions in one URI.
const MAX_EXPRESSIONS: usize = 8;

/// The decoded values of a URI's expressions, by name.
pub type UriValues = BTreeMap<String, String>;

/// The reason why a text is not a valid resource URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// Empty or too long.
    #[error("a URI has 1 to 512 bytes")]
    Length,
    /// The scheme is missing, or nothing follows it.
    #[error("a URI begins with a scheme, followed by a colon and a path, like notes://garden")]
    Scheme,
    /// A character that is not allowed in a URI.
    #[error(
        "a URI must not contain white space, control characters or any of <>\"\\^`|; \
         encode characters outside ASCII as %XX"
    )]
    Character,
    /// A `%` without two hexadecimal digits.
    #[error("in a URI a % is followed by two hexadecimal digits")]
    Percent,
    /// Expressions where none are allowed.
    #[error("this URI cannot have expressions in braces")]
    Expressions,
    /// Braces without a simple expression.
    #[error("an expression is a name of A-Z a-z 0-9 _ in braces, like {{id}}")]
    Expression,
    /// The same expression twice, or too many.
    #[error("a URI has at most 8 expressions, each with a different name")]
    Repeated,
    /// Expressions without a literal between them.
    #[error("two expressions must be separated by at least one character")]
    Adjacent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Expression {
    name: String,
    /// The literal between this expression and the next, or the end.
    suffix: String,
}

/// A validated URI, with or without expressions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UriTemplate {
    text: String,
    prefix: String,
    expressions: Vec<Expression>,
}

impl UriTemplate {
    /// Parses a URI that may contain expressions.
    ///
    /// # Errors
    /// [`UriError`] if the text is not valid.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        if !(1..=MAX_URI_BYTES).contains(&text.len()) {
            return Err(UriError::Length);
        }
        check_scheme(text)?;
        let (prefix, mut rest) = text.split_once('{').unwrap_or((text, ""));
        check_literal(prefix)?;
        let mut expressions: Vec<Expression> = Vec::new();
        let mut more = prefix.len() < text.len();
        while more {
            let (name, after) = rest.split_once('}').ok_or(UriError::Expression)?;
            let (suffix, next) = match after.split_once('{') {
                Some((literal, next)) => (literal, Some(next)),
                None => (after, None),
            };
            if !is_name(name) {
                return Err(UriError::Expression);
            }
            check_literal(suffix)?;
            if suffix.is_empty() && next.is_some() {
                return Err(UriError::Adjacent);
            }
            if expressions.len() == MAX_EXPRESSIONS || expressions.iter().any(|e| e.name == name) {
                return Err(UriError::Repeated);
            }
            expressions.push(Expression {
                name: name.to_owned(),
                suffix: suffix.to_owned(),
            });
            more = next.is_some();
            rest = next.unwrap_or_default();
        }
        Ok(Self {
            text: text.to_owned(),
            prefix: prefix.to_owned(),
            expressions,
        })
    }

    /// Parses a URI without expressions.
    ///
    /// # Errors
    /// [`UriError`] if the text is not valid.
    pub fn parse_plain(text: &str) -> Result<Self, UriError> {
        let template = Self::parse(text)?;
        if template.has_expressions() {
            return Err(UriError::Expressions);
        }
        Ok(template)
    }

    /// The URI as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The literal before the first expression; the whole URI if there is none.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether it contains expressions, and so matches more than one URI.
    #[must_use]
    pub fn has_expressions(&self) -> bool {
        !self.expressions.is_empty()
    }

    /// The names of its expressions, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.expressions.iter().map(|e| e.name.as_str())
    }

    /// The values of the expressions in this URI; `None` if it does not match. An expression
    /// matches one or more unreserved characters or `%XX` bytes, and as few as possible.
    #[must_use]
    pub fn matches(&self, uri: &str) -> Option<UriValues> {
        let mut rest = uri.strip_prefix(self.prefix.as_str())?;
        let mut values = UriValues::new();
        let last = self.expressions.len().checked_sub(1);
        for (index, expression) in self.expressions.iter().enumerate() {
            let literal = expression.suffix.as_str();
            let length = if Some(index) == last {
                rest.len().checked_sub(literal.len())?
            } else {
                // A value has at least one character.
                let first = rest.chars().next()?.len_utf8();
                first + rest.get(first..)?.find(literal)?
            };
            let value = rest.get(..length)?;
            rest = rest.get(length..)?.strip_prefix(literal)?;
            values.insert(expression.name.clone(), decode(value)?);
        }
        rest.is_empty().then_some(values)
    }
}

fn check_scheme(text: &str) -> Result<(), UriError> {
    let (scheme, path) = text.split_once(':').ok_or(UriError::Scheme)?;
    let starts_with_letter = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    let has_valid_chars = scheme
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte));
    if starts_with_letter && has_valid_chars && !path.is_empty() {
        Ok(())
    } else {
        Err(UriError::Scheme)
    }
}

fn check_literal(text: &str) -> Result<(), UriError> {
    if text.contains('}') {
        return Err(UriError::Expression);
    }
    if !text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"<>\"\\^`|".contains(&byte))
    {
        return Err(UriError::Character);
    }
    let after_percent = text.split('%').skip(1);
    let has_two_digits = |digits: &str| {
        digits
            .get(..2)
            .is_some_and(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    if after_percent.into_iter().all(has_two_digits) {
        Ok(())
    } else {
        Err(UriError::Percent)
    }
}

fn is_name(text: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Decodes the value of an expression; `None` if it is not a valid one.
fn decode(encoded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let value = digit(rest.next()?)? * 16 + digit(rest.next()?)?;
                bytes.push(u8::try_from(value).ok()?);
            }
            byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => bytes.push(byte),
            // Some clients do not encode characters outside ASCII.
            byte if !byte.is_ascii() => bytes.push(byte),
            _ => return None,
        }
    }
    let value = String::from_utf8(bytes).ok()?;
    (!value.is_empty() && !value.contains('\0')).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsing_validates_uris() {
        fn check(text: &str, expected: Result<&[&str], UriError>) {
            let parsed = UriTemplate::parse(text);
            let names = match &parsed {
                Ok(uri) => Ok(uri.names().collect::<Vec<_>>()),
                Err(error) => Err(*error),
            };
            assert_eq!(names, expected.map(<[&str]>::to_vec), "{text:?}");
            if let Ok(uri) = parsed {
                assert_eq!(uri.as_str(), text);
            }
        }
        check("test://static-text", Ok(&[]));
        check("urn:x", Ok(&[]));
        check("test://template/{id}/data", Ok(&["id"]));
        check("a:{x}/{y}", Ok(&["x", "y"]));
        check("a:%20", Ok(&[]));
        check("", Err(UriError::Length));
        check(&format!("a:{}", "x".repeat(511)), Err(UriError::Length));
        check("no-scheme", Err(UriError::Scheme));
        check("1a:b", Err(UriError::Scheme));
        check("a:", Err(UriError::Scheme));
        check("{x}:b", Err(UriError::Scheme));
        check("a:b c", Err(UriError::Character));
        check("a:名", Err(UriError::Character));
        check("a:<b>", Err(UriError::Character));
        check("a:%2", Err(UriError::Percent));
        check("a:%zz", Err(UriError::Percent));
        check("a:{+x}", Err(UriError::Expression));
        check("a:{}", Err(UriError::Expression));
        check("a:{x", Err(UriError::Expression));
        check("a:x}", Err(UriError::Expression));
        check("a:{x}}", Err(UriError::Expression));
        check("a:{x}{y}", Err(UriError::Adjacent));
        check("a:{x}/{x}", Err(UriError::Repeated));
        check(
            "a:{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/{i}",
            Err(UriError::Repeated),
        );
        assert_eq!(
            UriTemplate::parse_plain("a:{x}"),
            Err(UriError::Expressions)
        );
    }

    #[test]
    fn matching_extracts_expression_values() {
        fn check(template: &str, uri: &str, expected: Option<&[(&str, &str)]>) {
            let found = UriTemplate::parse(template).unwrap().matches(uri);
            let expected = expected.map(|pairs| {
                let owned = pairs
                    .iter()
                    .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
                owned.collect::<UriValues>()
            });
            assert_eq!(found, expected, "{template} {uri}");
        }
        let data = "test://template/{id}/data";
        check(data, "test://template/123/data", Some(&[("id", "123")]));
        check(data, "test://template/a%2Fb/data", Some(&[("id", "a/b")]));
        check(
            data,
            "test://template/%E5%90%8D/data",
            Some(&[("id", "名")]),
        );
        check(data, "test://template/名/data", Some(&[("id", "名")]));
        check(data, "test://template//data", None);
        check(data, "test://template/a/b/data", None);
        check(data, "test://template/1/data/more", None);
        check(data, "test://template/1", None);
        check(data, "test://template/%FF/data", None);
        check(data, "test://template/%00/data", None);
        check(data, "test://template/%2/data", None);
        check(data, "test://template/a?b/data", None);
        check("a:{x}", "a:1", Some(&[("x", "1")]));
        check("a:{x}", "a:", None);
        check("a:{x}/{y}", "a:1/2", Some(&[("x", "1"), ("y", "2")]));
        check("a:{x}-{y}", "a:1-2-3", Some(&[("x", "1"), ("y", "2-3")]));
        check("a:{x}.{y}", "a:..b", Some(&[("x", "."), ("y", "b")]));
        check("a:{x}-{y}", "a:1-", None);
        check("a:{x}aa", "a:aaa", Some(&[("x", "a")]));
        check("a:b", "a:b", Some(&[]));
        check("a:b", "a:bc", None);
        check("a:{x}", "a:{{y}}", None);
    }
}
