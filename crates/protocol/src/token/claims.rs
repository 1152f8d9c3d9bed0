//! The content of an access token. Every claim is required.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

use super::{AccessError, Scopes};
use crate::id::{DeviceId, OrgId, TokenId};

/// The holder of a token: `device:ID`, or `client:NAME` with a name of the same form as a device
/// id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A device.
    Device(DeviceId),
    /// Any other client.
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
                "The holder of a token: a device, or a client with a name of the same form as a device id.",
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

/// The content of a verified token, or of a token to be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// The token's id (`jti`), for revocation.
    pub id: TokenId,
    /// The organisation whose devices and settings it gives access to.
    pub org: OrgId,
    /// The holder.
    pub subject: Subject,
    /// What it permits.
    pub scopes: Scopes,
    /// When it was issued, in Unix seconds.
    pub issued_at: u64,
    /// When it expires, in Unix seconds.
    pub expires_at: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_parses_two_kinds() {
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
