//! Assembles tool calls from their fragments. Providers omit or repeat ids, names and indexes.

use std::collections::HashSet;

use rand::distr::{Alphanumeric, SampleString as _};
use serde_json::{Deserializer, Map, Value};

use crate::{
    ToolCall,
    chunk::{Arguments, CallPart},
};

/// Maximum calls of a reply.
pub(crate) const MAX_CALLS: usize = 32;
/// Maximum bytes of the arguments of one call.
pub(crate) const MAX_ARGUMENTS_BYTES: usize = 64 * 1024;
/// Maximum bytes of a name, and of an id.
const MAX_NAME_BYTES: usize = 256;
/// Length of a generated id; all providers accept this length.
const ID_LENGTH: usize = 9;

/// A reply exceeds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitExceeded {
    #[error("the reply has more than {MAX_CALLS} calls")]
    Calls,
    #[error("the arguments of a call have more than {MAX_ARGUMENTS_BYTES} bytes")]
    Arguments,
}

/// The calls so far.
#[derive(Debug, Default)]
pub(crate) struct ToolCallAssembler {
    calls: Vec<PartialCall>,
}

#[derive(Debug, Default)]
struct PartialCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl ToolCallAssembler {
    /// Bytes of all arguments.
    pub(crate) fn bytes(&self) -> usize {
        self.calls.iter().map(|call| call.arguments.len()).sum()
    }

    /// Adds the fragments of one chunk. In a whole reply each of them is a call.
    pub(crate) fn push(&mut self, parts: Vec<CallPart>, whole: bool) -> Result<(), LimitExceeded> {
        for (position, part) in parts.into_iter().enumerate() {
            let function = part.function.unwrap_or_default();
            let name = truncate_name(function.name.unwrap_or_default());
            // An id that is too long is replaced.
            let id = part.id.filter(|id| id.len() <= MAX_NAME_BYTES);
            let id = id.unwrap_or_default();
            // Two fragments with names in one chunk are two calls.
            let is_sibling = position > 0 && part.index.is_none() && !name.is_empty();
            let index = if whole || is_sibling {
                None
            } else {
                self.find(part.index, &id, &name)
            };
            let index = match index {
                Some(index) => index,
                None if self.calls.len() == MAX_CALLS => return Err(LimitExceeded::Calls),
                None => {
                    self.calls.push(PartialCall::default());
                    self.calls.len().saturating_sub(1)
                }
            };
            let Some(call) = self.calls.get_mut(index) else {
                continue;
            };
            call.extend(part.index, id, name, function.arguments)?;
        }
        Ok(())
    }

    /// The call that a fragment continues; `None` when it starts one.
    fn find(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let same_index = |call: &PartialCall| index.is_none() || call.index == index;
        let by_id = || {
            self.calls
                .iter()
                .rposition(|call| call.id == id && same_index(call))
        };
        let by_order = || self.calls.iter().rposition(same_index);
        let found = match id {
            "" => by_order(),
            _ => by_id().or_else(by_order),
        }?;
        let call = self.calls.get(found)?;
        // A fragment without a name continues a call; one with a name must match name and id.
        let same_name = name.is_empty() || call.name.is_empty() || call.name == name;
        let same_id = name.is_empty() || id.is_empty() || call.id.is_empty() || call.id == id;
        (same_name && same_id).then_some(found)
    }

    /// The complete calls, each with arguments and a unique id. The last call of a reply that was
    /// cut off may have lost its arguments; without any it is invalid.
    pub(crate) fn finish(self, is_cut_off: bool) -> Result<Vec<ToolCall>, LimitExceeded> {
        let mut ids = HashSet::new();
        let mut calls = Vec::new();
        let last = self.calls.len().saturating_sub(1);
        for (index, call) in self.calls.into_iter().enumerate() {
            if call.name.is_empty() && call.arguments.trim().is_empty() {
                continue;
            }
            let is_partial = is_cut_off && index == last && call.arguments.trim().is_empty();
            let arguments = if is_partial {
                vec![Err(String::new())]
            } else {
                parse_arguments(&call.arguments)
            };
            for (number, arguments) in arguments.into_iter().enumerate() {
                let id = if number == 0 { call.id.as_str() } else { "" };
                calls.push(ToolCall {
                    id: unique_id(id, &mut ids),
                    name: call.name.clone(),
                    arguments,
                });
            }
        }
        if calls.len() > MAX_CALLS {
            return Err(LimitExceeded::Calls);
        }
        Ok(calls)
    }
}

impl PartialCall {
    fn extend(
        &mut self,
        index: Option<u64>,
        id: String,
        name: String,
        arguments: Option<Arguments>,
    ) -> Result<(), LimitExceeded> {
        self.index = self.index.or(index);
        if self.id.is_empty() {
            self.id = id;
        }
        if self.name.is_empty() {
            self.name = name;
        }
        let more = match arguments {
            Some(Arguments::Text(text)) => text,
            Some(Arguments::Object(object)) => Value::Object(object).to_string(),
            None => String::new(),
        };
        if self.arguments.len().saturating_add(more.len()) > MAX_ARGUMENTS_BYTES {
            return Err(LimitExceeded::Arguments);
        }
        self.arguments.push_str(&more);
        Ok(())
    }
}

/// Parses the arguments of a call, or of several calls whose arguments were concatenated. An error
/// is the raw text.
fn parse_arguments(raw: &str) -> Vec<Result<Map<String, Value>, String>> {
    let values: Result<Vec<Value>, _> = Deserializer::from_str(raw).into_iter().collect();
    let objects = values.ok().and_then(|values| {
        let objects = values.into_iter().map(object);
        objects.collect::<Option<Vec<_>>>()
    });
    let Some(mut objects) = objects else {
        return vec![Err(raw.to_owned())];
    };
    // Some providers announce arguments with `{}`; together that is one call.
    if objects.iter().any(|object| !object.is_empty()) {
        objects.retain(|object| !object.is_empty());
    } else {
        objects = vec![Map::new()];
    }
    objects.into_iter().map(Ok).collect()
}

fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(object) => Some(object),
        Value::Null => Some(Map::new()),
        // JSON within a JSON string.
        Value::String(text) if text.trim().is_empty() => Some(Map::new()),
        Value::String(text) => serde_json::from_str(&text).ok(),
        _ => None,
    }
}

/// Truncates a name; no tool has a longer one.
fn truncate_name(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(MAX_NAME_BYTES));
    name
}

/// This id, or a generated one when it is empty or taken.
fn unique_id(id: &str, taken: &mut HashSet<String>) -> String {
    let mut id = id.to_owned();
    while id.is_empty() || taken.contains(&id) {
        id = Alphanumeric.sample_string(&mut rand::rng(), ID_LENGTH);
    }
    taken.insert(id.clone());
    id
}

#[cfg(test)]
mod tests;
