//! The content of an access token. Every claim but the restrictions is required.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

use super::{AccessError, Restrictions, Scopes};
use crate::id::{DeviceId, OrgId, TokenId};

/// The longest lifetime of a token that can be issued: 366 days.
pub const MAX_TTL_S: u64 = 366 * 24 * 3600;
/// How far the clocks of two nodes may differ.
pub const MAX_CLOCK_SKEW_S: u64 = 60;

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
    /// What restricts it beside its scopes; `None` for nothing.
    pub restrictions: Option<Arc<Restrictions>>,
    /// When it was issued, in Unix seconds.
    pub issued_at: u64,
    /// When it expires, in Unix seconds.
    pub expires_at: u64,
}

impl Claims {
    /// Checks that a token with these claims can have been issued: neither in the future, nor for
    /// longer than [`MAX_TTL_S`]. The expiry is checked with the signature.
    ///
    /// # Errors
    /// When one of these fails, beyond [`MAX_CLOCK_SKEW_S`].
    pub const fn check_lifetime(&self, now_unix_s: u64) -> Result<(), AccessError> {
        if self.issued_at > now_unix_s.saturating_add(MAX_CLOCK_SKEW_S) {
            return Err(AccessError::IssuedInFuture { at: self.issued_at });
        }
        if self.expires_at.saturating_sub(self.issued_at) > MAX_TTL_S + MAX_CLOCK_SKEW_S {
            return Err(AccessError::LifetimeTooLong);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn lifetime_is_limited() {
        const NOW: u64 = 1_800_000_000;
        fn check(issued_at: u64, expires_at: u64, expect: Result<(), AccessError>) {
            let claims = Claims {
                id: TokenId::from_uuid(Uuid::from_u128(1)),
                org: OrgId::from_uuid(Uuid::from_u128(2)),
                subject: Subject::Device("toy-1".parse().unwrap()),
                scopes: Scopes::default(),
                restrictions: None,
                issued_at,
                expires_at,
            };
            assert_eq!(
                claims.check_lifetime(NOW),
                expect,
                "{issued_at} {expires_at}"
            );
        }
        check(NOW, NOW + MAX_TTL_S, Ok(()));
        check(NOW - 10, NOW + MAX_TTL_S + 50, Ok(()));
        let too_long = Err(AccessError::LifetimeTooLong);
        check(NOW - 10, NOW + MAX_TTL_S + 51, too_long);
        check(0, NOW + 1, too_long);
        check(NOW, u64::MAX, too_long);
        check(NOW + 60, NOW + 120, Ok(()));
        let future = Err(AccessError::IssuedInFuture { at: NOW + 61 });
        check(NOW + 61, NOW + 120, future);
        check(NOW + 61, u64::MAX, future);
    }

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
