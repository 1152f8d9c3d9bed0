//! What a ticket is for, and how it is written in the ticket.

use ring::digest::{SHA256, digest};
use switchboard_protocol::{
    id::{DeviceKey, OrgId, TokenId},
    token::KeyId,
};
use uuid::Uuid;

use crate::auth::TokenCheck;

/// The first byte of what is sealed.
const VERSION: u8 = 1;
/// Of the hash of a token.
const DIGEST_BYTES: usize = 8;

/// What a ticket is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketHolder {
    /// The device.
    pub device: DeviceKey,
    /// What is checked of the token that it was authenticated with.
    pub token: TokenCheck,
    /// Of the same token.
    pub digest: TokenDigest,
}

/// The head of the SHA-256 of a token: whether a ticket belongs to the token that is shown beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; DIGEST_BYTES]);

impl TokenDigest {
    /// The digest of this token.
    #[must_use]
    pub fn compute(token: &str) -> Self {
        let hash = digest(&SHA256, token.as_bytes());
        let head = hash.as_ref().first_chunk();
        Self(head.copied().unwrap_or_default())
    }
}

/// ```text
///  version  org  token  key of the token  token expires  ticket expires  digest of the token  device id
///     1     16    16           8                8               8                 8             1 to 64
/// ```
impl TicketHolder {
    /// Writes what is sealed. Returns its length, or `None` if it does not fit.
    pub(super) fn write(&self, expires_at: u64, out: &mut [u8]) -> Option<usize> {
        let Self {
            device,
            token,
            digest,
        } = self;
        let (org, id) = (device.org.uuid(), token.id.uuid());
        let parts: [&[u8]; 8] = [
            &[VERSION],
            org.as_bytes(),
            id.as_bytes(),
            &token.key.to_bytes(),
            &token.expires_at.to_be_bytes(),
            &expires_at.to_be_bytes(),
            &digest.0,
            device.device.as_str().as_bytes(),
        ];
        let mut end = 0;
        for part in parts {
            let start = end;
            end += part.len();
            out.get_mut(start..end)?.copy_from_slice(part);
        }
        Some(end)
    }

    /// Reads what is sealed, and when the ticket expires.
    pub(super) fn read(sealed: &[u8]) -> Option<(Self, u64)> {
        fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
            let (part, others) = rest.split_first_chunk()?;
            *rest = others;
            Some(*part)
        }
        let rest = &mut &*sealed;
        let [version] = take(rest)?;
        if version != VERSION {
            return None;
        }
        let org = OrgId::from_uuid(Uuid::from_bytes(take(rest)?));
        let id = TokenId::from_uuid(Uuid::from_bytes(take(rest)?));
        let key = KeyId::from_bytes(take(rest)?);
        let token = TokenCheck {
            id,
            org,
            key,
            expires_at: u64::from_be_bytes(take(rest)?),
        };
        let expires_at = u64::from_be_bytes(take(rest)?);
        let digest = TokenDigest(take(rest)?);
        let device = str::from_utf8(rest).ok()?.parse().ok()?;
        let device = DeviceKey { org, device };
        let holder = Self {
            device,
            token,
            digest,
        };
        Some((holder, expires_at))
    }
}
