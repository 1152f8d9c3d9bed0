//! What a token says.
//! Never: a claim that verification does not insist on.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

use super::{AccessError, Scopes};
use crate::id::{DeviceId, OrgId, TokenId};

/// Who holds a token: `device:ID`, or `client:NAME` with a name made like a device id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A device.
    Device(DeviceId),
    /// Anybody else.
    Client(DeviceId),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(id) => write!(f, "device:{id}"),
            Self::Client(name) => write!(f, "client:{name}"),
        }
    }
}

impl FromStr for Subject {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let (kind, name) = text.split_once(':').ok_or(AccessError::BadSubject)?;
        let name = name.parse().map_err(|_| AccessError::BadSubject)?;
        match kind {
            "device" => Ok(Self::Device(name)),
            "client" => Ok(Self::Client(name)),
            _ => Err(AccessError::BadSubject),
        }
    }
}

impl PartialSchema for Subject {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(
                "Who holds a token: a device, or a client with a name made like a device's id.",
            ))
            .pattern(Some("^(device|client):[A-Za-z0-9._:-]{1,64}$"))
            .examples(["device:toy-1"])
            .into()
    }
}

impl ToSchema for Subject {}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Subject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The content of a verified token, or of one to be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// Names this token, for revocation.
    pub id: TokenId,
    /// Whose devices and settings it is about.
    pub org: OrgId,
    /// Who holds it.
    pub subject: Subject,
    /// What it allows.
    pub scopes: Scopes,
    /// When it was made, in Unix seconds.
    pub issued_at: u64,
    /// From when on it is refused, in Unix seconds.
    pub expires_at: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_have_two_kinds() {
        fn check(text: &str, valid: bool) {
            let subject = text.parse::<Subject>();
            assert_eq!(subject.is_ok(), valid, "{text}");
            if let Ok(subject) = subject {
                assert_eq!(subject.to_string(), text);
                let json = serde_json::to_string(&subject).unwrap();
                assert_eq!(serde_json::from_str::<Subject>(&json).unwrap(), subject);
            }
        }
        check("device:toy-1", true);
        check("client:a:b", true);
        check("device:", false);
        check("device", false);
        check("npc:a", false);
        check("Device:a", false);
        check("device:a b", false);
    }
}
