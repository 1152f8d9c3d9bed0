//! Decodes tables that mirror an object of MCP.
//!
//! Invariant: a member that is present in two fields is refused. Otherwise two readers could see
//! different objects.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    DecodeError,
    error::excerpt,
    members::{Members, ObjectBuilder, ObjectError, checked, quoted, unquoted},
    node::{Cell, Node},
    schema::{Choice, Kind, Need, Union},
};

/// A decoded member, and whether `extra` may have its exact value.
struct Member {
    name: String,
    text: String,
    is_approximate: bool,
}

pub(crate) fn unexpected(path: &str, found: &str, expected: &'static str) -> DecodeError {
    DecodeError::Unexpected {
        path: path.to_owned(),
        found: format!("`{}`", excerpt(found)),
        expected,
    }
}

pub(crate) fn duplicate(path: &str, name: &str) -> DecodeError {
    DecodeError::Duplicate {
        path: path.to_owned(),
        name: excerpt(name),
    }
}

/// The JSON text of a field, on one line.
pub(crate) fn json(text: &str, path: &str) -> Result<String, DecodeError> {
    checked(text).map_err(|detail| DecodeError::Unexpected {
        path: path.to_owned(),
        found: format!("`{}` ({})", excerpt(text), excerpt(&detail)),
        expected: "JSON",
    })
}

/// The members of the JSON object in a field.
pub(crate) fn members<'a>(text: &'a str, path: &str) -> Result<Members<'a>, DecodeError> {
    Members::parse(text).map_err(|error| match error {
        ObjectError::Duplicate(name) => duplicate(path, &name),
        ObjectError::NotAnObject | ObjectError::Malformed(_) => {
            unexpected(path, text, "a JSON object")
        }
    })
}

/// Decodes a node as the text of an object. `path` names the table.
pub(crate) fn decode(node: &Node<'_>, path: &str) -> Result<String, DecodeError> {
    let mut found = Vec::new();
    collect(node, path, &mut found)?;
    // The members of `extra` are unique, so each is compared with these few only.
    let typed = found.len();
    if let Some(extra) = node.table.extra()
        && let Some(text) = node.text(extra.name)
    {
        let path = format!("{path}.{}", extra.name);
        for (name, value) in members(text, &path)?.iter() {
            let text = json(value, &path)?;
            match found
                .iter_mut()
                .take(typed)
                .find(|member| member.name == name)
            {
                Some(member) if member.is_approximate => member.text = text,
                Some(_) => return Err(duplicate(&path, name)),
                None => found.push(Member {
                    name: name.to_owned(),
                    text,
                    is_approximate: false,
                }),
            }
        }
    }
    let mut object = ObjectBuilder::new();
    for member in found {
        object.member(&member.name, &member.text);
    }
    Ok(object.finish())
}

/// Appends the members in the fields of a node.
fn collect(node: &Node<'_>, path: &str, found: &mut Vec<Member>) -> Result<(), DecodeError> {
    for (field, cell) in node.fields() {
        let path = format!("{path}.{}", field.name);
        let zero = Cell::Byte(0);
        let cell = match (cell, field.need) {
            (None, Need::Implied) => Some(&zero),
            (cell, _) => cell,
        };
        let text = match (field.kind, cell) {
            (_, None) | (Kind::Extra, _) => None,
            (Kind::Flat(union), Some(Cell::Union(tag, inner))) => {
                let name = member_name(union, *tag);
                if !name.is_empty() {
                    found.push(Member {
                        name: "type".to_owned(),
                        text: quoted(name),
                        is_approximate: false,
                    });
                }
                collect(inner, &path, found)?;
                None
            }
            (kind, Some(cell)) => value(kind, cell, &path)?,
        };
        if let Some(text) = text {
            found.push(Member {
                name: field.json.to_owned(),
                text,
                is_approximate: matches!(field.kind, Kind::Float),
            });
        }
    }
    Ok(())
}

/// The value of a field as JSON, unless it means that the member is absent.
fn value(kind: Kind, cell: &Cell<'_>, path: &str) -> Result<Option<String>, DecodeError> {
    let text = match (kind, cell) {
        (Kind::Bool, Cell::Byte(byte)) => (*byte != 0).to_string(),
        (Kind::Presence, Cell::Byte(0)) => return Ok(None),
        (Kind::Presence, _) => "{}".to_owned(),
        (Kind::Int, Cell::Word(word)) => word.cast_signed().to_string(),
        (Kind::Count, Cell::Word(word)) => word.to_string(),
        (Kind::Float, Cell::Word(bits)) => match f32::from_bits(*bits) {
            number if number.is_finite() => number.to_string(),
            number => return Err(unexpected(path, &number.to_string(), "a finite number")),
        },
        (Kind::Choice(choice), Cell::Byte(byte)) => quoted(choice_name(choice, *byte)),
        (Kind::Choices(choice), Cell::Bytes(bytes)) => {
            let names = bytes.iter().map(|byte| quoted(choice_name(choice, *byte)));
            list(names.collect())
        }
        (Kind::Text, Cell::Text(text)) => quoted(text),
        (Kind::Fixed(expected), Cell::Text(text)) if text == expected => quoted(text),
        (Kind::Fixed(expected), Cell::Text(text)) => return Err(unexpected(path, text, expected)),
        (Kind::Json, Cell::Text(text)) => json(text, path)?,
        (Kind::Bytes, Cell::Bytes(bytes)) => quoted(&STANDARD.encode(bytes)),
        (Kind::Table(_), Cell::Table(node)) => decode(node, path)?,
        (Kind::Tables(_), Cell::Tables(nodes)) => tables(nodes, path)?,
        (Kind::Named(_), Cell::Tables(nodes)) => named(nodes, path)?,
        (Kind::Union(union), Cell::Union(tag, node)) => content(union, *tag, node, path)?,
        _ => return Ok(None),
    };
    Ok(Some(text))
}

fn tables(nodes: &[Node<'_>], path: &str) -> Result<String, DecodeError> {
    let texts = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| decode(node, &format!("{path}[{index}]")));
    Ok(list(texts.collect::<Result<_, _>>()?))
}

/// A list of names and values as an object.
fn named(nodes: &[Node<'_>], path: &str) -> Result<String, DecodeError> {
    let mut object = ObjectBuilder::new();
    let mut seen = std::collections::HashSet::with_capacity(nodes.len());
    for node in nodes {
        let name = node.text("name").unwrap_or_default();
        if !seen.insert(name) {
            return Err(duplicate(path, name));
        }
        let value = node.text("value").unwrap_or("null");
        object.member(name, &json(value, &format!("{path}.{name}"))?);
    }
    Ok(object.finish())
}

fn content(
    union: &'static Union,
    tag: u8,
    node: &Node<'_>,
    path: &str,
) -> Result<String, DecodeError> {
    if !member_name(union, tag).is_empty() {
        return decode(node, path);
    }
    let text = json(node.text("json").unwrap_or_default(), path)?;
    let typed = Members::parse(&text)
        .ok()
        .and_then(|members| members.get("type").and_then(unquoted))
        .filter(|name| !name.is_empty());
    match typed {
        Some(name) if union.members.iter().any(|(member, _)| *member == name) => {
            let expected = "content whose `type` has no table of its own";
            Err(unexpected(path, &text, expected))
        }
        _ => Ok(text),
    }
}

fn list(texts: Vec<String>) -> String {
    format!("[{}]", texts.join(","))
}

/// The name of an enum value, which the reader verified.
fn choice_name(choice: &Choice, value: u8) -> &'static str {
    choice.values.get(usize::from(value)).copied().unwrap_or("")
}

/// The `type` of a variant, which the reader verified.
fn member_name(union: &'static Union, tag: u8) -> &'static str {
    let index = usize::from(tag.saturating_sub(1));
    union.members.get(index).map_or("", |(name, _)| name)
}
