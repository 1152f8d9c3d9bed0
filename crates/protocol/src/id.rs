//! Identifiers that cross a boundary, as newtypes: what is checked once stays checked.
//! Never: a raw string or UUID passed where one of these is meant.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};
use uuid::Uuid;

/// Why a text is not the identifier it was read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// A prefixed id without its prefix, or with something that is no UUID behind it.
    #[error("expected `{prefix}` followed by 32 lower-case hexadecimal digits")]
    Malformed {
        /// What the identifier begins with, underscore included.
        prefix: &'static str,
    },
    /// A device id of the wrong length or with a character outside its alphabet.
    #[error("a device id is 1 to 64 characters out of A-Z a-z 0-9 . _ : -")]
    Device,
}

fn parse_prefixed(prefix: &'static str, text: &str) -> Result<Uuid, IdError> {
    let malformed = IdError::Malformed { prefix };
    let digits = text.strip_prefix(prefix).ok_or(malformed)?;
    let canonical = digits.len() == 32 && !digits.bytes().any(|byte| byte.is_ascii_uppercase());
    if !canonical {
        return Err(malformed);
    }
    Uuid::try_parse(digits).map_err(|_| malformed)
}

/// How a prefixed id stands in the API's document.
fn prefixed_schema(prefix: &str, description: &str) -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(description.trim()))
        .pattern(Some(format!("^{prefix}[0-9a-f]{{32}}$")))
        .examples([format!("{prefix}01a1fdc1e83670f68020c071fd533605")])
        .into()
}

macro_rules! prefixed_id {
    ($(#[doc = $doc_text:literal])+ $name:ident, $prefix:literal) => {
        $(#[doc = $doc_text])+
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// What every id of this kind begins with.
            pub const PREFIX: &'static str = $prefix;

            /// The id with this UUID behind its prefix.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID without the prefix, as it is stored and sent between nodes.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", Self::PREFIX, self.0.simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                parse_prefixed(Self::PREFIX, text).map(Self)
            }
        }

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                prefixed_schema($prefix, concat!($($doc_text),+))
            }
        }

        impl ToSchema for $name {}

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

prefixed_id! {
    /// An organisation: the wall that nothing crosses.
    OrgId, "org_"
}
prefixed_id! {
    /// One call of one service, unique for ever; a device sees it as `call_id`.
    CallId, "call_"
}
prefixed_id! {
    /// An access token's `jti`.
    TokenId, "tok_"
}
prefixed_id! {
    /// An API key, without its secret.
    ApiKeyId, "key_"
}
prefixed_id! {
    /// What characters are made from: a persona and how it speaks.
    TemplateId, "tpl_"
}
prefixed_id! {
    /// A character: made from a template or on its own, and perhaps speaking through devices.
    NpcId, "npc_"
}
prefixed_id! {
    /// One thing that a template or an NPC remembers.
    MemoryId, "mem_"
}
prefixed_id! {
    /// One picture, without its bytes.
    PictureId, "pic_"
}
prefixed_id! {
    /// A collection of documents that a character can look things up in.
    SkillsBookId, "skb_"
}
prefixed_id! {
    /// Where an organisation wants to be told of events.
    WebhookId, "whk_"
}
prefixed_id! {
    /// One event on its way to one webhook; the same in each attempt.
    DeliveryId, "whd_"
}
prefixed_id! {
    /// How somebody sounds: a sample, and what a provider made of it.
    VoiceId, "voice_"
}
prefixed_id! {
    /// A line of the audit log: who changed which setting.
    AuditEntryId, "aud_"
}
prefixed_id! {
    /// A conversation of somebody without a device.
    ConversationId, "conv_"
}

/// The name a device has within its organisation: 1 to 64 of `[A-Za-z0-9._:-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
#[schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,64}$", example = "toy-1")]
#[serde(transparent)]
pub struct DeviceId(Box<str>);

impl DeviceId {
    /// The longest device id, in bytes.
    pub const MAX_BYTES: usize = 64;

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DeviceId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let fits = (1..=Self::MAX_BYTES).contains(&text.len());
        let clean = text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte));
        if fits && clean {
            Ok(Self(text.into()))
        } else {
            Err(IdError::Device)
        }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for DeviceId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A device as the whole system knows it: ids are unique within an organisation only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceKey {
    /// Whose device it is.
    pub org: OrgId,
    /// Its id within the organisation.
    pub device: DeviceId,
}

impl fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.org, self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_ids_are_checked() {
        fn check(text: &str, valid: bool) {
            assert_eq!(text.parse::<DeviceId>().is_ok(), valid, "{text:?}");
        }
        check("toy-1", true);
        check("a.b_c:D-9", true);
        check(&"x".repeat(64), true);
        check("", false);
        check(&"x".repeat(65), false);
        check("with space", false);
        check("玩具", false);
        check("a/b", false);
    }

    #[test]
    fn prefixed_ids_have_one_spelling() {
        fn check(text: &str, valid: bool) {
            assert_eq!(text.parse::<OrgId>().is_ok(), valid, "{text:?}");
        }
        let id = OrgId::from_uuid(Uuid::from_u128(0xabcd));
        check(&id.to_string(), true);
        check(&id.to_string().to_uppercase(), false);
        check("org_", false);
        check("key_0000000000000000000000000000abcd", false);
        check("org_0000000000000000000000000000ABCD", false);
        check("org_00000000-0000-0000-0000-00000000abcd", false);
    }
}
