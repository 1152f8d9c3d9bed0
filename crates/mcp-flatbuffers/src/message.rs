//! JSON-RPC messages to and from their tables. Params and results stay JSON text, whatever the
//! method.

use super::{
    DecodeError, EncodeError, from_json,
    members::{Members, ObjectBuilder, compact, is_object, quoted, unquoted},
    node::{Cell, Node},
    schema::{self, LOGGING_LEVEL, Table},
    to_json,
};

/// The members that define a message. `extra` must not contain them.
const KNOWN: &[&str] = &["jsonrpc", "id", "method", "result", "error", "params"];
/// The same for answers, in which `params` has no meaning.
const KNOWN_IN_ANSWERS: &[&str] = &["jsonrpc", "id", "method", "result", "error"];
const VERSION: &str = "2.0";
const QUOTED_VERSION: &str = "`\"2.0\"`";
const LOG_MESSAGE: &str = "notifications/message";
const ID: &str = "a string or a number";

/// Encodes a message.
pub(crate) fn encode(text: &str) -> Result<Node<'_>, EncodeError> {
    let mut members = from_json::object(text, "message")?;
    let version = required(members.take("jsonrpc"), "message.jsonrpc", QUOTED_VERSION)?;
    if unquoted(version).as_deref() != Some(VERSION) {
        return Err(from_json::unexpected(
            "message.jsonrpc",
            version,
            QUOTED_VERSION,
        ));
    }
    let parts = ["method", "result", "error"].map(|name| members.take(name));
    let id = members.take("id");
    let (tag, mut node) = match parts {
        [Some(method), None, None] => request_or_notification(method, id, members.take("params"))?,
        [None, Some(result), None] => {
            let mut node = Node::new(&schema::RESPONSE);
            set_id(&mut node, required(id, "message.id", ID)?)?;
            set_body(&mut node, "result", result);
            (2, node)
        }
        [None, None, Some(error)] => (4, error_response(error, id)?),
        [None, None, None] => {
            let expected = "a method, or the `result` or `error` of an answer";
            return Err(missing("message.method", expected));
        }
        _ => {
            return Err(EncodeError::Unexpected {
                path: "message".to_owned(),
                found: "more than one of method, result and error".to_owned(),
                expected: "one of them",
            });
        }
    };
    node.set("jsonrpc", Cell::Text(VERSION.into()));
    if let Some(rest) = members.rest() {
        node.set("extra", Cell::Text(rest.into()));
    }
    let mut message = Node::new(&schema::MESSAGE);
    message.set("type", Cell::Union(tag, Box::new(node)));
    Ok(message)
}

fn missing(path: &str, expected: &'static str) -> EncodeError {
    EncodeError::Missing {
        path: path.to_owned(),
        expected,
    }
}

fn required<'a>(
    text: Option<&'a str>,
    path: &str,
    expected: &'static str,
) -> Result<&'a str, EncodeError> {
    text.ok_or_else(|| missing(path, expected))
}

/// A request, or a notification when there is no id.
fn request_or_notification<'a>(
    method: &'a str,
    id: Option<&'a str>,
    params: Option<&'a str>,
) -> Result<(u8, Node<'a>), EncodeError> {
    let Some(name) = unquoted(method) else {
        let expected = "a string of Unicode text";
        return Err(from_json::unexpected("message.method", method, expected));
    };
    let (tag, table): (_, &'static Table) = match id {
        Some(_) => (1, &schema::REQUEST),
        None => (3, &schema::NOTIFICATION),
    };
    let mut node = Node::new(table);
    match id {
        Some(id) => set_id(&mut node, id)?,
        None => {
            if let Some(level) = level(&name, params) {
                node.set("level", Cell::Byte(level));
            }
        }
    }
    node.set("method", Cell::Text(name.into()));
    if let Some(params) = params {
        set_body(&mut node, "params", params);
    }
    Ok((tag, node))
}

fn error_response<'a>(error: &'a str, id: Option<&'a str>) -> Result<Node<'a>, EncodeError> {
    let mut node = Node::new(&schema::ERROR);
    match id {
        Some(id) => set_id(&mut node, id)?,
        None => {
            node.set("id", Cell::Id(0));
            node.set("id_json", Cell::Text("".into()));
        }
    }
    let mut members = from_json::object(error, "message.error")?;
    let expected = "a whole number";
    let code = required(members.get("code"), "message.error.code", expected)?;
    let number = from_json::integer::<i32>(code);
    if number.is_some() {
        members.take("code");
    } else if !is_number(code) {
        return Err(from_json::unexpected("message.error.code", code, expected));
    }
    // A code that is not an int32 stays in `error_extra`.
    node.set("code", Cell::Word(number.unwrap_or(0).cast_unsigned()));
    let (path, expected) = ("message.error.message", "a string of Unicode text");
    let message = required(members.take("message"), path, expected)?;
    let Some(message) = unquoted(message) else {
        return Err(from_json::unexpected(path, message, expected));
    };
    node.set("message", Cell::Text(message.into()));
    if let Some(data) = members.take("data") {
        node.set("data", Cell::Text(compact(data).into()));
    }
    if let Some(rest) = members.rest() {
        node.set("error_extra", Cell::Text(rest.into()));
    }
    Ok(node)
}

fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

/// A valid id that is not a uint64.
fn is_other_id(text: &str) -> bool {
    text == "null" || text.starts_with('"') || is_number(text)
}

fn set_id<'a>(node: &mut Node<'a>, id: &'a str) -> Result<(), EncodeError> {
    match from_json::integer::<u64>(id) {
        Some(number) => node.set("id", Cell::Id(number)),
        None if is_other_id(id) => {
            node.set("id", Cell::Id(0));
            node.set("id_json", Cell::Text(compact(id).into()));
        }
        None => return Err(from_json::unexpected("message.id", id, ID)),
    }
    Ok(())
}

/// Sets the params or the result. The `_meta` of an object has a table of its own.
fn set_body<'a>(node: &mut Node<'a>, name: &str, text: &'a str) {
    if let Ok(mut members) = Members::parse(text)
        && let Some(meta) = members.take("_meta")
        && let Ok(meta) = from_json::encode(&schema::METADATA, meta, &mut String::new())
    {
        let rest = members.rest().unwrap_or_else(|| "{}".to_owned());
        node.set(name, Cell::Text(rest.into()));
        node.set("meta", Cell::Table(meta));
    } else {
        node.set(name, Cell::Text(compact(text).into()));
    }
}

/// The level of a log message as the value of the field `level`.
fn level(method: &str, params: Option<&str>) -> Option<u8> {
    if method != LOG_MESSAGE {
        return None;
    }
    let level = Members::parse(params?).ok()?.get("level")?;
    from_json::position(LOGGING_LEVEL.values, &unquoted(level)?)
}

/// Decodes a message.
pub(crate) fn decode(message: &Node<'_>) -> Result<String, DecodeError> {
    let Some(Cell::Union(_, node)) = message.get("type") else {
        let path = "Message.type".to_owned();
        return Err(DecodeError::Missing { path });
    };
    let path = format!("Message.type<{}>", node.table.name);
    let version = node.text("jsonrpc").unwrap_or_default();
    if version != VERSION {
        let path = format!("{path}.jsonrpc");
        return Err(to_json::unexpected(&path, version, VERSION));
    }
    let mut object = ObjectBuilder::new();
    object.member("jsonrpc", &quoted(version));
    if let Some(id) = id(node, &path)? {
        object.member("id", &id);
    }
    if let Some(method) = node.text("method") {
        object.member("method", &quoted(method));
    }
    for field in node.table.fields {
        if matches!(field.name, "params" | "result") {
            let path = format!("{path}.{}", field.name);
            let body = body(node, node.text(field.name), &path)?;
            check_level(node, body.as_deref(), &path)?;
            if let Some(body) = body {
                object.member(field.name, &body);
            }
        }
    }
    if node.text("message").is_some() {
        object.member("error", &error(node, &path)?);
    }
    if let Some(extra) = node.text("extra") {
        let has_method = node.text("method").is_some();
        let known = if has_method { KNOWN } else { KNOWN_IN_ANSWERS };
        append(&mut object, extra, known, &format!("{path}.extra"))?;
    }
    Ok(object.finish())
}

/// Appends the members of an object in JSON text. None of them may be one of `known`.
fn append(
    object: &mut ObjectBuilder,
    text: &str,
    known: &[&str],
    path: &str,
) -> Result<(), DecodeError> {
    for (name, value) in to_json::members(text, path)?.iter() {
        if known.contains(&name) {
            return Err(to_json::duplicate(path, name));
        }
        object.member(name, &compact(value));
    }
    Ok(())
}

fn id(node: &Node<'_>, path: &str) -> Result<Option<String>, DecodeError> {
    let Some(Cell::Id(number)) = node.get("id") else {
        return Ok(None);
    };
    let Some(text) = node.text("id_json") else {
        return Ok(Some(number.to_string()));
    };
    if *number != 0 {
        let expected = "0, since `id_json` has the id";
        let path = format!("{path}.id");
        return Err(to_json::unexpected(&path, &number.to_string(), expected));
    }
    if text.is_empty() && std::ptr::eq(node.table, &schema::ERROR) {
        return Ok(None);
    }
    let path = format!("{path}.id_json");
    let text = to_json::json(text, &path)?;
    if !is_other_id(&text) || from_json::integer::<u64>(&text).is_some() {
        let expected = "a string, null, or a number that is no uint64";
        return Err(to_json::unexpected(&path, &text, expected));
    }
    Ok(Some(text))
}

/// The params or the result, with `_meta`.
fn body(node: &Node<'_>, text: Option<&str>, path: &str) -> Result<Option<String>, DecodeError> {
    let text = text.map(|text| to_json::json(text, path)).transpose()?;
    let Some(Cell::Table(meta)) = node.get("meta") else {
        return Ok(text);
    };
    let mut object = ObjectBuilder::new();
    object.member("_meta", &to_json::decode(meta, &format!("{path}/meta"))?);
    if let Some(text) = text {
        if !is_object(&text) {
            let expected = "an object, since there is `meta`";
            return Err(to_json::unexpected(path, &text, expected));
        }
        append(&mut object, &text, &["_meta"], path)?;
    }
    Ok(Some(object.finish()))
}

/// Checks that a `level` beside the params equals the level in them.
fn check_level(node: &Node<'_>, params: Option<&str>, path: &str) -> Result<(), DecodeError> {
    let Some(Cell::Byte(found)) = node.get("level") else {
        return Ok(());
    };
    let method = node.text("method").unwrap_or_default();
    if level(method, params) == Some(*found) {
        return Ok(());
    }
    let found = LOGGING_LEVEL.values.get(usize::from(*found)).unwrap_or(&"");
    let expected = "the level that the params of a log message have";
    Err(to_json::unexpected(
        &format!("{path}/level"),
        found,
        expected,
    ))
}

fn error(node: &Node<'_>, path: &str) -> Result<String, DecodeError> {
    let mut object = ObjectBuilder::new();
    let extra = node.text("error_extra");
    let extra_path = format!("{path}.error_extra");
    let code = match extra {
        Some(extra) => to_json::members(extra, &extra_path)?.get("code"),
        None => None,
    };
    let number = match node.get("code") {
        Some(Cell::Word(word)) => word.cast_signed(),
        _ => 0,
    };
    match code {
        None => object.member("code", &number.to_string()),
        // `error_extra` has a code only if it is not an int32. The field must be 0 then.
        Some(code)
            if number != 0 || !is_number(code) || from_json::integer::<i32>(code).is_some() =>
        {
            return Err(to_json::duplicate(&extra_path, "code"));
        }
        Some(_) => {}
    }
    let message = node.text("message").unwrap_or_default();
    object.member("message", &quoted(message));
    if let Some(data) = node.text("data") {
        object.member("data", &to_json::json(data, &format!("{path}.data"))?);
    }
    if let Some(extra) = extra {
        append(&mut object, extra, &["message", "data"], &extra_path)?;
    }
    Ok(object.finish())
}
