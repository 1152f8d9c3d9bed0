//! Tables that mirror an object of MCP, back as that object.
//! Never: an object whose members depend on which of two fields a reader believes.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    DecodeError,
    error::shown,
    members::{Members, Object, Unfit, checked, quoted, unquoted},
    node::{Cell, Node},
    schema::{Choice, Kind, Need, Union},
};

/// A member that was found, and whether `extra` may say it more exactly.
struct Member {
    name: String,
    text: String,
    near: bool,
}

pub(super) fn unexpected(path: &str, found: &str, expected: &'static str) -> DecodeError {
    DecodeError::Unexpected {
        path: path.to_owned(),
        found: format!("`{}`", shown(found)),
        expected,
    }
}

pub(super) fn twice(path: &str, name: &str) -> DecodeError {
    DecodeError::Twice {
        path: path.to_owned(),
        name: shown(name),
    }
}

/// JSON text that a field holds, on one line.
pub(super) fn json(text: &str, path: &str) -> Result<String, DecodeError> {
    checked(text).map_err(|detail| DecodeError::Unexpected {
        path: path.to_owned(),
        found: format!("`{}` ({})", shown(text), shown(&detail)),
        expected: "JSON",
    })
}

/// The members of an object that a field holds as JSON text.
pub(super) fn members<'a>(text: &'a str, path: &str) -> Result<Members<'a>, DecodeError> {
    Members::parse(text).map_err(|unfit| match unfit {
        Unfit::Twice(name) => twice(path, &name),
        Unfit::NoObject | Unfit::Malformed(_) => unexpected(path, text, "a JSON object"),
    })
}

/// Makes the text of an object of a node; `path` names the table.
pub(super) fn decode(node: &Node<'_>, path: &str) -> Result<String, DecodeError> {
    let mut found = Vec::new();
    collect(node, path, &mut found)?;
    // The members of `extra` differ from each other, so only these few are compared with each.
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
                Some(member) if member.near => member.text = text,
                Some(_) => return Err(twice(&path, name)),
                None => found.push(Member {
                    name: name.to_owned(),
                    text,
                    near: false,
                }),
            }
        }
    }
    let mut object = Object::new();
    for member in found {
        object.member(&member.name, &member.text);
    }
    Ok(object.finish())
}

/// Adds what the fields of a node say.
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
                        near: false,
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
                near: matches!(field.kind, Kind::Float),
            });
        }
    }
    Ok(())
}

/// The value of a field as JSON, unless it stands for nothing.
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
    let mut object = Object::new();
    let mut seen = std::collections::HashSet::with_capacity(nodes.len());
    for node in nodes {
        let name = node.text("name").unwrap_or_default();
        if !seen.insert(name) {
            return Err(twice(path, name));
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

/// The name of a value that was verified when it was read.
fn choice_name(choice: &Choice, value: u8) -> &'static str {
    choice.values.get(usize::from(value)).copied().unwrap_or("")
}

/// The name of a member that was verified when it was read.
fn member_name(union: &'static Union, tag: u8) -> &'static str {
    let index = usize::from(tag.saturating_sub(1));
    union.members.get(index).map_or("", |(name, _)| name)
}
