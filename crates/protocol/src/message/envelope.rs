//! Parses `{"type": …, "data": {…}}` in one pass, in any order of keys.
//!
//! Invariant: no key, known or unknown, is repeated in the envelope or in its data. Otherwise the
//! edge and the device could read the message differently.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{MessageError, nesting, utf8};

/// A message of any type, before the members that its type requires are checked.
#[derive(Debug, Default)]
pub(super) struct Envelope<'a> {
    pub(super) kind: Option<Text<'a>>,
    pub(super) data: Data<'a>,
}

/// The members that the message types have in their `data`.
#[derive(Debug, Default)]
pub(super) struct Data<'a> {
    pub(super) call_id: Option<Text<'a>>,
    pub(super) services: Option<&'a RawValue>,
    pub(super) result: Option<&'a RawValue>,
    pub(super) method: Option<Text<'a>>,
    pub(super) params: Option<&'a RawValue>,
    pub(super) input: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    pub(super) fn parse(payload: &'a [u8]) -> Result<Self, MessageError> {
        if nesting::is_too_deep(payload) {
            let detail = format!("a message is nested at most {} deep", nesting::MAX_DEPTH);
            return Err(MessageError::invalid(None, &detail));
        }
        let json = utf8(payload)?;
        serde_json::from_str(json)
            .map_err(|error| MessageError::from_json(&error, find_call_id(json)))
    }

    pub(super) fn kind(&self) -> Result<&str, MessageError> {
        match &self.kind {
            Some(kind) => Ok(&kind.0),
            None => Err(self.data.invalid("a message has a `type`")),
        }
    }

    pub(super) fn unknown(&self, known: &'static str) -> MessageError {
        MessageError::Unknown {
            call_id: self.data.call_id.as_ref().map(|id| id.0.to_string()),
            kind: super::shortened(self.kind.as_ref().map_or("", |kind| &kind.0)),
            known,
        }
    }
}

impl<'a> Data<'a> {
    pub(super) fn invalid(&self, detail: &str) -> MessageError {
        MessageError::invalid(self.call_id.as_ref().map(|id| &*id.0), detail)
    }

    pub(super) fn take_call_id(&mut self, kind: &str) -> Result<Cow<'a, str>, MessageError> {
        match self.call_id.take() {
            Some(call_id) => Ok(call_id.0),
            None => Err(self.invalid(&format!("a `{kind}` has a `call_id` in its `data`"))),
        }
    }
}

/// A string that borrows from the payload unless it contains an escape.
#[derive(Debug)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

/// Reads a member that must not be repeated.
fn once<'de, M, T>(slot: &mut Option<T>, map: &mut M, key: &'static str) -> Result<(), M::Error>
where
    M: MapAccess<'de>,
    T: Deserialize<'de>,
{
    if slot.is_some() {
        return Err(M::Error::duplicate_field(key));
    }
    *slot = Some(map.next_value()?);
    Ok(())
}

/// The unknown keys so far, which must not be repeated either.
#[derive(Default)]
struct Unknown<'a>(HashSet<Cow<'a, str>>);

impl<'de> Unknown<'de> {
    fn skip<M: MapAccess<'de>>(&mut self, key: Text<'de>, map: &mut M) -> Result<(), M::Error> {
        if let Some(twice) = self.0.replace(key.0) {
            return Err(M::Error::custom(format_args!("duplicate field `{twice}`")));
        }
        map.next_value::<IgnoredAny>().map(drop)
    }
}

impl<'de> Deserialize<'de> for Envelope<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EnvelopeVisitor)
    }
}

struct EnvelopeVisitor;

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = Envelope<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a `type` and its `data`")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let (mut kind, mut data) = (None, None);
        let mut unknown = Unknown::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match &*key.0 {
                "type" => once(&mut kind, &mut map, "type")?,
                "data" => once(&mut data, &mut map, "data")?,
                _ => unknown.skip(key, &mut map)?,
            }
        }
        Ok(Envelope {
            kind,
            data: data.unwrap_or_default(),
        })
    }
}

impl<'de> Deserialize<'de> for Data<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(DataVisitor)
    }
}

struct DataVisitor;

impl<'de> Visitor<'de> for DataVisitor {
    type Value = Data<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object as `data`")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut data = Data::default();
        let mut unknown = Unknown::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match &*key.0 {
                "call_id" => once(&mut data.call_id, &mut map, "call_id")?,
                "services" => once(&mut data.services, &mut map, "services")?,
                "result" => once(&mut data.result, &mut map, "result")?,
                "method" => once(&mut data.method, &mut map, "method")?,
                "params" => once(&mut data.params, &mut map, "params")?,
                "input" => once(&mut data.input, &mut map, "input")?,
                _ => unknown.skip(key, &mut map)?,
            }
        }
        Ok(data)
    }
}

/// The call id of a message that is otherwise invalid, so that the error reaches its call.
fn find_call_id(json: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Loose<'a> {
        #[serde(borrow)]
        data: LooseData<'a>,
    }
    #[derive(Deserialize)]
    struct LooseData<'a> {
        #[serde(borrow)]
        call_id: Text<'a>,
    }
    let loose: Loose<'_> = serde_json::from_str(json).ok()?;
    Some(loose.data.call_id.0.into_owned())
}
