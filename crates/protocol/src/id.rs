//! Identifiers that cross a boundary, as newtypes: validated once, where they are parsed.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};
use uuid::Uuid;

/// Why a text is not a valid identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The prefix is missing, or the rest is not a UUID.
    #[error("expected `{prefix}` followed by 32 lower-case hexadecimal digits")]
    Malformed {
        /// The expected prefix, underscore included.
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

/// The OpenAPI schema of a prefixed id.
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
            /// The prefix of every id of this kind.
            pub const PREFIX: &'static str = $prefix;

            /// Creates the id with this UUID.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// Returns the UUID without the prefix, as it is stored and sent between nodes.
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
    /// An organisation. Nothing crosses its boundary.
    OrgId, "org_"
}
prefixed_id! {
    /// One call of one service, globally unique. The device receives it as `call_id`.
    CallId, "call_"
}
prefixed_id! {
    /// The id (`jti`) of an access token.
    TokenId, "tok_"
}
prefixed_id! {
    /// An API key, without its secret.
    ApiKeyId, "key_"
}
prefixed_id! {
    /// A template from which characters are created: a persona and its manner of speaking.
    TemplateId, "tpl_"
}
prefixed_id! {
    /// A character (NPC), created from a template or on its own. It may be assigned to devices.
    NpcId, "npc_"
}
prefixed_id! {
    /// One memory of a template or an NPC.
    MemoryId, "mem_"
}
prefixed_id! {
    /// One picture, without its bytes.
    PictureId, "pic_"
}
prefixed_id! {
    /// A collection of documents in which a character can look up information.
    SkillsBookId, "skb_"
}
prefixed_id! {
    /// A webhook: where an organisation receives events.
    WebhookId, "whk_"
}
prefixed_id! {
    /// One event on its way to one webhook; the same in each attempt.
    DeliveryId, "whd_"
}
prefixed_id! {
    /// A voice: a sample, and what a provider made of it.
    VoiceId, "voice_"
}
prefixed_id! {
    /// A recording of what a user said to a device.
    RecordingId, "rec_"
}
prefixed_id! {
    /// An approval of a service: models may call it as it is.
    ApprovalId, "apv_"
}
prefixed_id! {
    /// An entry of the audit log: who changed which setting.
    AuditEntryId, "aud_"
}
prefixed_id! {
    /// An entry of the journal: a synchronous call that has ended.
    JournalEntryId, "jrn_"
}
prefixed_id! {
    /// A conversation of a participant without a device.
    ConversationId, "conv_"
}

/// The name of a device within its organisation: 1 to 64 of `[A-Za-z0-9._:-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
#[schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,64}$", example = "toy-1")]
#[serde(transparent)]
pub struct DeviceId(Box<str>);

impl DeviceId {
    /// The maximum length of a device id in bytes.
    pub const MAX_BYTES: usize = 64;

    /// Returns the id as text.
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

/// A device in the whole system. A device id alone is unique within its organisation only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceKey {
    /// The organisation of the device.
    pub org: OrgId,
    /// The device's id within the organisation.
    pub device: DeviceId,
}

impl fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.org, self.device)
    }
}

/// The devices of an organisation in byte order of their ids: those whose ids begin with a prefix, as
/// far as they follow a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceRange<'a> {
    /// How the ids begin; any id if it is `None`.
    pub prefix: Option<&'a str>,
    /// The range begins after this id, which need not exist.
    pub after: Option<&'a str>,
}

impl<'a> From<Option<&'a str>> for DeviceRange<'a> {
    fn from(after: Option<&'a str>) -> Self {
        Self {
            prefix: None,
            after,
        }
    }
}

impl DeviceRange<'_> {
    /// Returns the text that every id of the range follows, and which is no id of the range itself
    /// unless `includes_start`.
    #[must_use]
    pub fn start(&self) -> &str {
        let (prefix, after) = (self.prefix.unwrap_or(""), self.after.unwrap_or(""));
        prefix.max(after)
    }

    /// Returns whether an id that equals [`Self::start`] belongs to the range.
    #[must_use]
    pub fn includes_start(&self) -> bool {
        self.prefix > self.after
    }

    /// Returns a text that every id of the range precedes: no id has the character at its end.
    #[must_use]
    pub fn end(&self) -> String {
        format!("{}\u{7f}", self.prefix.unwrap_or(""))
    }

    /// Returns whether an id belongs to the range.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        self.prefix.is_none_or(|prefix| id.starts_with(prefix))
            && self.after.is_none_or(|after| id > after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_range_has_the_ids_between_its_bounds() {
        let ids = ["T-1", "sun", "toy", "toy-", "toy-1", "toy-z", "toy.", "u"];
        fn check(ids: &[&str], prefix: Option<&str>, after: Option<&str>, expected: &[&str]) {
            let range = DeviceRange { prefix, after };
            let (start, end) = (range.start(), range.end());
            let between = |id: &&&str| {
                let id = **id;
                (id > start || range.includes_start() && id == start) && id < end.as_str()
            };
            let within: Vec<&str> = ids.iter().filter(between).copied().collect();
            assert_eq!(within, expected);
            let contained = ids.iter().filter(|id| range.contains(id));
            assert!(contained.eq(expected), "{range:?}");
        }
        check(&ids, None, None, &ids);
        check(&ids, None, Some("toy-z"), &["toy.", "u"]);
        check(&ids, Some("toy-"), None, &["toy-", "toy-1", "toy-z"]);
        check(&ids, Some("toy-"), Some("toy-"), &["toy-1", "toy-z"]);
        check(&ids, Some("toy-"), Some("T"), &["toy-", "toy-1", "toy-z"]);
        check(&ids, Some("toy-"), Some("toy-1"), &["toy-z"]);
        check(&ids, Some("toy-"), Some("u"), &[]);
    }

    #[test]
    fn device_id_validates_length_and_alphabet() {
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
    fn prefixed_id_has_one_canonical_form() {
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
