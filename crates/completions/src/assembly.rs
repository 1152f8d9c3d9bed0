//! Fragments of calls put together, whatever a provider leaves out or says twice.
//! Never: a call taken for two because its name or id is repeated, or two for one because their index is.

use std::collections::HashSet;

use rand::distr::{Alphanumeric, SampleString as _};
use serde_json::{Deserializer, Map, Value};

use crate::{
    ToolCall,
    chunk::{Arguments, CallPart},
};

/// How many calls a reply may have.
pub(crate) const MOST_CALLS: usize = 32;
/// The longest arguments of one call, in bytes.
pub(crate) const LONGEST_ARGUMENTS: usize = 64 * 1024;
/// The longest name and the longest id of a call, in bytes.
const LONGEST_NAME: usize = 256;
/// The length of an id made here: the one length that every provider takes.
const ID_LENGTH: usize = 9;

/// More than a reply may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Excess {
    #[error("it makes more than {MOST_CALLS} calls")]
    Calls,
    #[error("the arguments of a call have more than {LONGEST_ARGUMENTS} bytes")]
    Arguments,
}

/// Calls as far as they were heard.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    open: Vec<Open>,
}

#[derive(Debug, Default)]
struct Open {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Assembly {
    /// The bytes of all arguments.
    pub(crate) fn bytes(&self) -> usize {
        self.open.iter().map(|call| call.arguments.len()).sum()
    }

    /// Takes the fragments of one piece; of a whole reply, each of them is a call.
    pub(crate) fn take(&mut self, parts: Vec<CallPart>, whole: bool) -> Result<(), Excess> {
        for (position, part) in parts.into_iter().enumerate() {
            let function = part.function.unwrap_or_default();
            let name = cut(function.name.unwrap_or_default());
            // An id is of use only as a whole; without one, the call gets another.
            let id = part.id.filter(|id| id.len() <= LONGEST_NAME);
            let id = id.unwrap_or_default();
            // Fragments of one call do not come side by side.
            let beside = position > 0 && part.index.is_none() && !name.is_empty();
            let place = if whole || beside {
                None
            } else {
                self.place(part.index, &id, &name)
            };
            let place = match place {
                Some(place) => place,
                None if self.open.len() == MOST_CALLS => return Err(Excess::Calls),
                None => {
                    self.open.push(Open::default());
                    self.open.len().saturating_sub(1)
                }
            };
            let Some(call) = self.open.get_mut(place) else {
                continue;
            };
            call.extend(part.index, id, name, function.arguments)?;
        }
        Ok(())
    }

    /// Which call a fragment goes on with; none when it begins one.
    fn place(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let same_index = |call: &Open| index.is_none() || call.index == index;
        let by_id = || {
            self.open
                .iter()
                .rposition(|call| call.id == id && same_index(call))
        };
        let by_order = || self.open.iter().rposition(same_index);
        let place = match id {
            "" => by_order(),
            _ => by_id().or_else(by_order),
        }?;
        let call = self.open.get(place)?;
        // Without a name it can only go on; with one, name and id must be those of the call.
        let named_so = name.is_empty() || call.name.is_empty() || call.name == name;
        let known_so = name.is_empty() || id.is_empty() || call.id.is_empty() || call.id == id;
        (named_so && known_so).then_some(place)
    }

    /// All calls, each with arguments and an id of its own. Of a reply that was cut off, the last one may have lost its arguments:
    /// without any it is no call without arguments.
    pub(crate) fn finish(self, is_cut_off: bool) -> Result<Vec<ToolCall>, Excess> {
        let mut ids = HashSet::new();
        let mut calls = Vec::new();
        let last = self.open.len().saturating_sub(1);
        for (place, call) in self.open.into_iter().enumerate() {
            if call.name.is_empty() && call.arguments.trim().is_empty() {
                continue;
            }
            let is_half = is_cut_off && place == last && call.arguments.trim().is_empty();
            let arguments = if is_half {
                vec![Err(String::new())]
            } else {
                read(&call.arguments)
            };
            for (turn, arguments) in arguments.into_iter().enumerate() {
                let said = if turn == 0 { call.id.as_str() } else { "" };
                calls.push(ToolCall {
                    id: unique(said, &mut ids),
                    name: call.name.clone(),
                    arguments,
                });
            }
        }
        if calls.len() > MOST_CALLS {
            return Err(Excess::Calls);
        }
        Ok(calls)
    }
}

impl Open {
    fn extend(
        &mut self,
        index: Option<u64>,
        id: String,
        name: String,
        arguments: Option<Arguments>,
    ) -> Result<(), Excess> {
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
        if self.arguments.len().saturating_add(more.len()) > LONGEST_ARGUMENTS {
            return Err(Excess::Arguments);
        }
        self.arguments.push_str(&more);
        Ok(())
    }
}

/// The arguments of a call, or of several that were glued together; the raw text when they are no JSON objects.
fn read(raw: &str) -> Vec<Result<Map<String, Value>, String>> {
    let values: Result<Vec<Value>, _> = Deserializer::from_str(raw).into_iter().collect();
    let objects = values.ok().and_then(|values| {
        let objects = values.into_iter().map(object);
        objects.collect::<Option<Vec<_>>>()
    });
    let Some(mut objects) = objects else {
        return vec![Err(raw.to_owned())];
    };
    // What begins with `{}` and goes on with arguments is one call: that is how some say that they come.
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
        // JSON that was quoted once more.
        Value::String(text) if text.trim().is_empty() => Some(Map::new()),
        Value::String(text) => serde_json::from_str(&text).ok(),
        _ => None,
    }
}

/// The beginning of a name: there is no tool whose name is longer.
fn cut(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(LONGEST_NAME));
    name
}

/// This id, unless there is none or it is taken.
fn unique(said: &str, taken: &mut HashSet<String>) -> String {
    let mut id = said.to_owned();
    while id.is_empty() || taken.contains(&id) {
        id = Alphanumeric.sample_string(&mut rand::rng(), ID_LENGTH);
    }
    taken.insert(id.clone());
    id
}

#[cfg(test)]
mod tests;
