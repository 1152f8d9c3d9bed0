//! Encodes tables that mirror an object of MCP. A member without a field, or whose field cannot
//! hold it exactly, is stored in `extra`, so that nothing is lost. JSON-RPC messages are in
//! [`super::message`].

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::value::RawValue;

use super::{
    EncodeError,
    error::excerpt,
    members::{Members, ObjectBuilder, ObjectError, compact, is_object, unquoted},
    node::{Cell, Node},
    schema::{Field, Kind, Need, Table, Union},
};

/// How exactly a field can hold a value.
enum Fit<'a> {
    Exact(Cell<'a>),
    /// The field holds an approximation, and `extra` the exact value.
    Approximate(Cell<'a>),
    No,
}

/// The state of encoding an object.
struct ObjectEncoder<'a, 'p> {
    members: Members<'a>,
    /// Members that stay in `extra` although they have a field.
    extra_members: Vec<(&'static str, &'a str)>,
    path: &'p mut String,
}

/// Parses the members of the object at `path`.
pub(crate) fn object<'a>(text: &'a str, path: &str) -> Result<Members<'a>, EncodeError> {
    Members::parse(text).map_err(|unfit| match unfit {
        ObjectError::NotAnObject => unexpected(path, text, "an object"),
        ObjectError::Duplicate(name) => EncodeError::Duplicate {
            path: path.to_owned(),
            name,
        },
        ObjectError::Malformed(detail) => EncodeError::Malformed(detail),
    })
}

pub(crate) fn unexpected(path: &str, found: &str, expected: &'static str) -> EncodeError {
    EncodeError::Unexpected {
        path: path.to_owned(),
        found: format!("`{}`", excerpt(found)),
        expected,
    }
}

/// Encodes an object as a table.
pub(crate) fn encode<'a>(
    table: &'static Table,
    text: &'a str,
    path: &mut String,
) -> Result<Node<'a>, EncodeError> {
    let mut encoder = ObjectEncoder {
        members: object(text, path)?,
        extra_members: Vec::new(),
        path,
    };
    let mut node = Node::new(table);
    encoder.fill(&mut node)?;
    let ObjectEncoder {
        members,
        extra_members,
        path,
    } = encoder;
    let mut rest = ObjectBuilder::new();
    let mut first = None;
    for (name, value) in extra_members.into_iter().chain(members.iter()) {
        first = first.or(Some(name));
        rest.member(name, &compact(value));
    }
    match (first, table.extra()) {
        (None, _) => {}
        (Some(_), Some(extra)) => node.set(extra.name, Cell::Text(rest.finish().into())),
        (Some(name), None) => {
            return Err(EncodeError::NoField {
                path: path.clone(),
                name: excerpt(name),
            });
        }
    }
    Ok(node)
}

impl<'a> ObjectEncoder<'a, '_> {
    fn fill(&mut self, node: &mut Node<'a>) -> Result<(), EncodeError> {
        for field in node.table.fields {
            let cell = match field.kind {
                Kind::Extra => None,
                Kind::Flat(union) => self.flat_union(union)?,
                _ => self.field(field)?,
            };
            if let Some(cell) = cell {
                node.set(field.name, cell);
            }
        }
        Ok(())
    }

    fn field(&mut self, field: &'static Field) -> Result<Option<Cell<'a>>, EncodeError> {
        let length = self.path.len();
        self.path.push('.');
        self.path.push_str(field.json);
        let outcome = self.value(field);
        self.path.truncate(length);
        outcome
    }

    fn value(&mut self, field: &'static Field) -> Result<Option<Cell<'a>>, EncodeError> {
        let optional = field.need == Need::Optional;
        let Some(text) = self.members.take(field.json) else {
            return if optional {
                Ok(None)
            } else {
                Err(EncodeError::Missing {
                    path: self.path.clone(),
                    expected: field.kind.expected(),
                })
            };
        };
        match cell(field.kind, text, self.path) {
            Ok(Fit::Exact(cell)) => Ok(Some(cell)),
            Ok(Fit::Approximate(cell)) => {
                self.extra_members.push((field.json, text));
                Ok(Some(cell))
            }
            // An invalid optional member is extra_members in `extra`.
            Ok(Fit::No) | Err(_) if optional => {
                self.extra_members.push((field.json, text));
                Ok(None)
            }
            Ok(Fit::No) => Err(unexpected(self.path, text, field.kind.expected())),
            Err(error) => Err(error),
        }
    }

    /// Encodes a union whose members are stored in the surrounding object. Its `type`, or else its
    /// first field, selects the variant.
    fn flat_union(&mut self, union: &'static Union) -> Result<Option<Cell<'a>>, EncodeError> {
        let named = union.members.iter().any(|(name, _)| !name.is_empty());
        let typed = if named {
            Some(self.members.take("type"))
        } else {
            None
        };
        for (tag, (name, table)) in (1_u8..).zip(union.members) {
            let is_selected = match typed {
                Some(typed) => typed.and_then(unquoted).is_some_and(|typed| typed == *name),
                None => table.fields.first().is_some_and(|field| self.fits(field)),
            };
            if is_selected {
                let mut node = Node::new(table);
                self.fill(&mut node)?;
                return Ok(Some(Cell::Union(tag, Box::new(node))));
            }
        }
        const EXPECTED: &str = "`stdio` or `sse`";
        let path = format!("{}.type", self.path);
        match typed {
            None => Ok(None),
            Some(None) => Err(EncodeError::Missing {
                path,
                expected: EXPECTED,
            }),
            Some(Some(found)) => Err(unexpected(&path, found, EXPECTED)),
        }
    }

    fn fits(&mut self, field: &Field) -> bool {
        let text = self.members.get(field.json);
        text.is_some_and(|text| matches!(cell(field.kind, text, self.path), Ok(Fit::Exact(_))))
    }
}

/// Encodes a value for a field of this kind.
fn cell<'a>(kind: Kind, text: &'a str, path: &mut String) -> Result<Fit<'a>, EncodeError> {
    let exact = match kind {
        Kind::Bool => match text {
            "true" => Some(Cell::Byte(1)),
            "false" => Some(Cell::Byte(0)),
            _ => None,
        },
        Kind::Presence => (compact(text) == "{}").then_some(Cell::Byte(1)),
        Kind::Int => integer::<i32>(text).map(|number| Cell::Word(number.cast_unsigned())),
        Kind::Count => integer::<u32>(text).map(Cell::Word),
        Kind::Id => integer::<u64>(text).map(Cell::Id),
        Kind::Float => return Ok(float(text)),
        Kind::Choice(choice) => unquoted(text)
            .and_then(|name| position(choice.values, &name))
            .map(Cell::Byte),
        Kind::Choices(choice) => serde_json::from_str::<Vec<String>>(text)
            .ok()
            .and_then(|names| {
                let values = names.iter().map(|name| position(choice.values, name));
                values.collect::<Option<Vec<u8>>>()
            })
            .map(|values| Cell::Bytes(values.into())),
        Kind::Text => unquoted(text).map(|text| Cell::Text(text.into())),
        Kind::Fixed(expected) => unquoted(text)
            .filter(|text| text == expected)
            .map(|_| Cell::Text(expected.into())),
        Kind::Json => Some(Cell::Text(compact(text).into())),
        Kind::Bytes => unquoted(text)
            .and_then(|text| STANDARD.decode(text).ok())
            .map(|bytes| Cell::Bytes(bytes.into())),
        Kind::Table(table) if is_object(text) => Some(Cell::Table(encode(table, text, path)?)),
        Kind::Tables(table) => return tables(table, text, path),
        Kind::Named(table) if is_object(text) => Some(named(table, &object(text, path)?)),
        Kind::Union(union) => Some(content(union, text, path)?),
        Kind::Table(_) | Kind::Named(_) | Kind::Extra | Kind::Flat(_) => None,
    };
    Ok(exact.map_or(Fit::No, Fit::Exact))
}

/// Parses a number that is written in its canonical form.
pub(crate) fn integer<N: std::str::FromStr + ToString>(text: &str) -> Option<N> {
    let number: N = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

pub(crate) fn position(values: &[&str], name: &str) -> Option<u8> {
    let index = values.iter().position(|value| *value == name)?;
    u8::try_from(index).ok()
}

fn float<'a>(text: &str) -> Fit<'a> {
    let number = text.parse::<f32>().ok();
    match number.filter(|number| number.is_finite()) {
        None => Fit::No,
        Some(number) if number.to_string() == text => Fit::Exact(Cell::Word(number.to_bits())),
        Some(number) => Fit::Approximate(Cell::Word(number.to_bits())),
    }
}

fn tables<'a>(
    table: &'static Table,
    text: &'a str,
    path: &mut String,
) -> Result<Fit<'a>, EncodeError> {
    let Ok(items) = serde_json::from_str::<Vec<&'a RawValue>>(text) else {
        return Ok(Fit::No);
    };
    let nodes = items
        .into_iter()
        .map(|item| encode(table, item.get(), path))
        .collect::<Result<_, _>>()?;
    Ok(Fit::Exact(Cell::Tables(nodes)))
}

/// Encodes an object as a list of names and values.
fn named<'a>(table: &'static Table, members: &Members<'a>) -> Cell<'a> {
    let nodes = members.iter().map(|(name, value)| {
        let mut node = Node::new(table);
        node.set("name", Cell::Text(Cow::Owned(name.to_owned())));
        node.set("value", Cell::Text(compact(value).into()));
        node
    });
    Cell::Tables(nodes.collect())
}

/// Encodes content with the table of its `type`, or with the one for other types.
fn content<'a>(
    union: &'static Union,
    text: &'a str,
    path: &mut String,
) -> Result<Cell<'a>, EncodeError> {
    let name = match Members::parse(text) {
        Ok(members) => members.get("type").and_then(unquoted),
        Err(_) => None,
    };
    for (tag, (member, table)) in (1_u8..).zip(union.members) {
        if member.is_empty() {
            let mut node = Node::new(table);
            node.set("json", Cell::Text(compact(text).into()));
            return Ok(Cell::Union(tag, Box::new(node)));
        }
        if name.as_deref() == Some(*member) {
            let node = encode(table, text, path)?;
            return Ok(Cell::Union(tag, Box::new(node)));
        }
    }
    Err(unexpected(path, text, "content with a known `type`"))
}

impl Kind {
    /// The expected value, for an error.
    fn expected(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Presence | Self::Table(_) | Self::Named(_) | Self::Extra => "an object",
            Self::Int | Self::Count | Self::Id => "a whole number",
            Self::Float => "a number",
            Self::Choice(choice) | Self::Choices(choice) => choice.expected,
            Self::Text => "a string of Unicode text",
            Self::Fixed(text) => text,
            Self::Json => "any JSON value",
            Self::Bytes => "a string in base64 with padding",
            Self::Tables(_) => "a list of objects",
            Self::Union(_) | Self::Flat(_) => "an object with a `type`",
        }
    }
}
