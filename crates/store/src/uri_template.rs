//! URIs with simple expressions (RFC 6570, level 1): `test://template/{id}/data`.
//! Never: a database, or an expression that takes a `/`.

use std::collections::BTreeMap;

/// The longest URI, in bytes.
pub const LONGEST_URI: usize = 512;
/// The longest name of an expression, in bytes.
const LONGEST_NAME: usize = 64;
/// The most expressions in one URI.
const MOST_EXPRESSIONS: usize = 8;

/// What an expression of a URI stood for, decoded, by its name.
pub type UriValues = BTreeMap<String, String>;

/// Why a text is no URI that something can be read under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// Empty or too long.
    #[error("a URI has 1 to 512 bytes")]
    Length,
    /// There is no scheme, or nothing behind it.
    #[error("a URI begins with a scheme, a colon and something behind it, like notes://garden")]
    Scheme,
    /// A character that no URI has.
    #[error(
        "a URI has no white space, no control characters and none of <>\"\\^`|, and what is not ASCII is written as %XX"
    )]
    Character,
    /// A `%` that begins no byte.
    #[error("in a URI a % is followed by two hexadecimal digits")]
    Percent,
    /// Braces where no expressions are allowed.
    #[error("this URI cannot have expressions in braces")]
    Expressions,
    /// Braces that hold no simple expression.
    #[error("an expression is a name out of A-Z a-z 0-9 _ in braces, like {{id}}")]
    Expression,
    /// The same expression twice, or too many.
    #[error("each expression stands once, and there are at most 8")]
    Repeated,
    /// Expressions without anything between them.
    #[error("between two expressions there must be something that tells where the first ends")]
    Adjacent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Expression {
    name: String,
    /// What stands between this expression and the next, or the end.
    followed_by: String,
}

/// A URI, perhaps with expressions, that has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UriTemplate {
    written: String,
    prefix: String,
    expressions: Vec<Expression>,
}

impl UriTemplate {
    /// Reads a URI that may have expressions.
    ///
    /// # Errors
    /// [`UriError`] says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        if !(1..=LONGEST_URI).contains(&text.len()) {
            return Err(UriError::Length);
        }
        check_scheme(text)?;
        let (prefix, mut rest) = text.split_once('{').unwrap_or((text, ""));
        check_literal(prefix)?;
        let mut expressions: Vec<Expression> = Vec::new();
        let mut more = prefix.len() < text.len();
        while more {
            let (name, after) = rest.split_once('}').ok_or(UriError::Expression)?;
            let (followed_by, next) = match after.split_once('{') {
                Some((literal, next)) => (literal, Some(next)),
                None => (after, None),
            };
            if !is_name(name) {
                return Err(UriError::Expression);
            }
            check_literal(followed_by)?;
            if followed_by.is_empty() && next.is_some() {
                return Err(UriError::Adjacent);
            }
            if expressions.len() == MOST_EXPRESSIONS || expressions.iter().any(|e| e.name == name) {
                return Err(UriError::Repeated);
            }
            expressions.push(Expression {
                name: name.to_owned(),
                followed_by: followed_by.to_owned(),
            });
            more = next.is_some();
            rest = next.unwrap_or_default();
        }
        Ok(Self {
            written: text.to_owned(),
            prefix: prefix.to_owned(),
            expressions,
        })
    }

    /// Reads a URI without expressions.
    ///
    /// # Errors
    /// [`UriError`] says what is wrong with it.
    pub fn parse_plain(text: &str) -> Result<Self, UriError> {
        let template = Self::parse(text)?;
        if template.has_expressions() {
            return Err(UriError::Expressions);
        }
        Ok(template)
    }

    /// The URI as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.written
    }

    /// What stands before the first expression; the whole URI when there is none.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether it stands for more than one URI.
    #[must_use]
    pub fn has_expressions(&self) -> bool {
        !self.expressions.is_empty()
    }

    /// The names of its expressions, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.expressions.iter().map(|e| e.name.as_str())
    }

    /// What the expressions stand for in this URI; `None` when it is not one of those that are meant. An expression
    /// stands for one or more unreserved characters or bytes written as `%XX`, and takes as few as it can.
    #[must_use]
    pub fn matches(&self, uri: &str) -> Option<UriValues> {
        let mut rest = uri.strip_prefix(self.prefix.as_str())?;
        let mut values = UriValues::new();
        let last = self.expressions.len().checked_sub(1);
        for (index, expression) in self.expressions.iter().enumerate() {
            let literal = expression.followed_by.as_str();
            let taken = if Some(index) == last {
                rest.len().checked_sub(literal.len())?
            } else {
                // One character at least is the value's.
                let first = rest.chars().next()?.len_utf8();
                first + rest.get(first..)?.find(literal)?
            };
            let value = rest.get(..taken)?;
            rest = rest.get(taken..)?.strip_prefix(literal)?;
            values.insert(expression.name.clone(), decode(value)?);
        }
        rest.is_empty().then_some(values)
    }
}

fn check_scheme(text: &str) -> Result<(), UriError> {
    let (scheme, behind) = text.split_once(':').ok_or(UriError::Scheme)?;
    let begins = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    let clean = scheme
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte));
    if begins && clean && !behind.is_empty() {
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
    let escaped = text.split('%').skip(1);
    let whole = |digits: &str| {
        digits
            .get(..2)
            .is_some_and(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    if escaped.into_iter().all(whole) {
        Ok(())
    } else {
        Err(UriError::Percent)
    }
}

fn is_name(text: &str) -> bool {
    (1..=LONGEST_NAME).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The value that was written, if it is one that an expression can stand for.
fn decode(written: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(written.len());
    let mut rest = written.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let value = digit(rest.next()?)? * 16 + digit(rest.next()?)?;
                bytes.push(u8::try_from(value).ok()?);
            }
            byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => bytes.push(byte),
            // Clients that do not encode what is not ASCII mean what they write.
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
    fn uris_are_checked() {
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
    fn expressions_stand_for_what_the_uri_says() {
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
