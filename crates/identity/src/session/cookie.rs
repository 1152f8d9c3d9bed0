//! What the cookie of a session contains, and for how long it is valid.

use std::fmt;

use subtle::ConstantTimeEq;

use crate::ApiKeySecret;

/// A session ends this long after its sign-in, in seconds.
const MAX_AGE_S: u64 = 12 * 3_600;
/// A session ends this long after its last use, in seconds.
const MAX_IDLE_S: u64 = 3_600;
/// How exactly the last use is known, in seconds: a browser gets a new cookie at most this often.
const RENEWAL_INTERVAL_S: u64 = 300;
/// How far the clocks of two nodes may differ, in seconds.
const MAX_CLOCK_SKEW_S: u64 = 60;
/// The first byte, for other contents of later releases.
const VERSION: u8 = 1;
/// Version, kind of the holder, id, hash, and two times.
const BYTES: usize = 1 + 1 + 16 + 32 + 8 + 8;

/// What identifies a credential: the SHA-256 of its secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub(crate) [u8; 32]);

impl KeyHash {
    /// Returns the hash of a secret.
    #[must_use]
    pub fn of(secret: &ApiKeySecret) -> Self {
        Self(secret.hash())
    }

    /// Returns the bytes of the hash.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether two hashes are equal, in the same time wherever they differ.
    #[must_use]
    pub fn eq_constant_time(&self, other: &[u8; 32]) -> bool {
        self.0.as_slice().ct_eq(other).into()
    }
}

impl From<[u8; 32]> for KeyHash {
    fn from(hash: [u8; 32]) -> Self {
        Self(hash)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHash").finish_non_exhaustive()
    }
}

/// Whose session it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The owner of an API key.
    ApiKey(KeyHash),
    /// The operator, by the SHA-256 of the operator key.
    Operator(KeyHash),
}

/// The content of a cookie. Its `Debug` output has no secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) holder: Holder,
    /// Random, and secret; the same until the session ends.
    pub(super) id: [u8; 16],
    /// Unix seconds.
    pub(super) issued_at: u64,
    /// Unix seconds.
    pub(super) used_at: u64,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content")
            .field("holder", &self.holder)
            .field("issued_at", &self.issued_at)
            .field("used_at", &self.used_at)
            .finish_non_exhaustive()
    }
}

impl Content {
    pub(super) fn new(holder: Holder, now: u64) -> Self {
        Self {
            holder,
            id: rand::random(),
            issued_at: now,
            used_at: now,
        }
    }

    pub(super) const fn ends_at(&self) -> u64 {
        self.issued_at.saturating_add(MAX_AGE_S)
    }

    pub(super) const fn is_valid_at(&self, now: u64) -> bool {
        let is_from_the_future = self.used_at > now.saturating_add(MAX_CLOCK_SKEW_S)
            || self.issued_at > now.saturating_add(MAX_CLOCK_SKEW_S);
        !is_from_the_future && now < self.ends_at() && now < self.used_at.saturating_add(MAX_IDLE_S)
    }

    /// The content of the next cookie, if it is time for one.
    pub(super) const fn renewed_at(self, now: u64) -> Option<Self> {
        if now < self.used_at.saturating_add(RENEWAL_INTERVAL_S) {
            return None;
        }
        Some(Self {
            used_at: now,
            ..self
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, KeyHash(hash)) = match &self.holder {
            Holder::ApiKey(hash) => (0, hash),
            Holder::Operator(hash) => (1, hash),
        };
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend([VERSION, kind]);
        bytes.extend(self.id);
        bytes.extend(hash);
        bytes.extend(self.issued_at.to_be_bytes());
        bytes.extend(self.used_at.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[VERSION, kind], bytes) = bytes.split_first_chunk()? else {
            return None;
        };
        let (&id, bytes) = bytes.split_first_chunk()?;
        let (&hash, bytes) = bytes.split_first_chunk()?;
        let (&issued_at, bytes) = bytes.split_first_chunk()?;
        let used_at: [u8; 8] = bytes.try_into().ok()?;
        let holder = match kind {
            0 => Holder::ApiKey(KeyHash(hash)),
            1 => Holder::Operator(KeyHash(hash)),
            _ => return None,
        };
        Some(Self {
            holder,
            id,
            issued_at: u64::from_be_bytes(issued_at),
            used_at: u64::from_be_bytes(used_at),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn content() -> Content {
        Content::new(Holder::ApiKey(KeyHash([7; 32])), NOW)
    }

    #[test]
    fn session_ends_after_12_hours_and_an_hour_without_use() {
        fn check(used_after: u64, after: u64, expected: bool) {
            let content = Content {
                used_at: NOW + used_after,
                ..content()
            };
            assert_eq!(
                content.is_valid_at(NOW + after),
                expected,
                "used after {used_after}, sent after {after}"
            );
        }
        check(0, 0, true);
        check(0, 3_599, true);
        check(0, 3_600, false);
        check(3_599, 7_198, true);
        check(3_599, 7_199, false);
        // The last use does not prolong the 12 hours.
        check(12 * 3_600 - 1, 12 * 3_600 - 1, true);
        check(12 * 3_600 - 1, 12 * 3_600, false);
        // A node whose clock is a little behind accepts it, one far behind does not.
        check(60, 0, true);
        check(61, 0, false);
        let later = Content {
            issued_at: NOW + 61,
            ..content()
        };
        assert!(!later.is_valid_at(NOW));
    }

    #[test]
    fn cookie_is_renewed_every_5_minutes_of_use() {
        let first = content();
        assert_eq!(first.renewed_at(NOW + 299), None);
        let renewed = first.renewed_at(NOW + 300).unwrap();
        assert_eq!((renewed.issued_at, renewed.used_at), (NOW, NOW + 300));
        assert_eq!((renewed.id, renewed.holder), (first.id, first.holder));
        assert_eq!(renewed.renewed_at(NOW + 599), None);
    }

    #[test]
    fn content_survives_its_encoding() {
        for holder in [
            Holder::ApiKey(KeyHash([1; 32])),
            Holder::Operator(KeyHash([2; 32])),
        ] {
            let content = Content::new(holder, NOW);
            let bytes = content.encode();
            assert_eq!(bytes.len(), BYTES);
            assert_eq!(Content::decode(&bytes), Some(content));
            for length in 0..BYTES {
                assert_eq!(Content::decode(&bytes[..length]), None, "{length}");
            }
            let longer = [bytes.as_slice(), &[0]].concat();
            assert_eq!(Content::decode(&longer), None);
            for (at, value) in [(0, 2), (1, 2)] {
                let mut other = bytes.clone();
                other[at] = value;
                assert_eq!(Content::decode(&other), None);
            }
        }
    }

    #[test]
    fn hash_and_id_are_absent_from_debug_output() {
        let shown = format!("{:?}", content());
        let expected = format!(
            "Content {{ holder: ApiKey(KeyHash {{ .. }}), issued_at: {NOW}, used_at: {NOW}, .. }}"
        );
        assert_eq!(shown, expected);
    }
}
