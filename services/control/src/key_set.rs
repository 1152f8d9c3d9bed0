//! Signs the token keys that are published, so that nodes can refuse keys that only Redis has.

use chrono::{DateTime, Utc};
use switchboard_bus::{KeySet, PublishedKeys};
use switchboard_protocol::token::{
    AccessError, SignedKeySet, SigningKey, VerifyingKey, VerifyingKeys,
};

/// How long nodes adopt a published set. A former set, with a key that was deleted since, can be
/// replayed to a node that has just started for as long.
const KEY_SET_TTL_S: u64 = 24 * 3_600;
/// How often a set is signed again.
const RENEWAL_INTERVAL_S: u64 = 3_600;

/// Signs sets of token keys, each with a higher number than the ones before.
#[derive(Default)]
pub(crate) struct KeySetSigner {
    /// The number of the latest set that was published or read.
    latest: u64,
}

impl KeySetSigner {
    /// The keys to publish, and whether that is necessary. Without a key they are not signed.
    ///
    /// `now` is the clock of the database, which all control planes share.
    pub(crate) fn sign(
        &mut self,
        key: Option<&SigningKey>,
        keys: Vec<VerifyingKey>,
        published: &KeySet,
        now: DateTime<Utc>,
    ) -> Result<(PublishedKeys, bool), AccessError> {
        let is_published = published.keys == keys;
        let Some(key) = key else {
            return Ok((keys.into(), !is_published));
        };
        let now_s = u64::try_from(now.timestamp()).unwrap_or_default();
        let own = VerifyingKeys::new([key.verifying_key()])?;
        let signed = published.signed.as_deref();
        // What another key has signed, or none, is replaced.
        let former = signed.and_then(|signed| own.verify_key_set(signed, now_s).ok());
        if let Some(former) = former {
            let is_fresh = former.expires_at > now_s + KEY_SET_TTL_S - RENEWAL_INTERVAL_S;
            let is_latest = former.sequence >= self.latest;
            self.latest = self.latest.max(former.sequence);
            if is_latest && is_fresh && former.keys == keys {
                let signed = published.signed.clone();
                return Ok((PublishedKeys { keys, signed }, !is_published));
            }
        }
        let now_us = u64::try_from(now.timestamp_micros()).unwrap_or_default();
        self.latest = now_us.max(self.latest + 1);
        let signed = key.sign_key_set(&SignedKeySet {
            keys: keys.clone(),
            sequence: self.latest,
            expires_at: now_s + KEY_SET_TTL_S,
        })?;
        let signed = Some(signed);
        Ok((PublishedKeys { keys, signed }, true))
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed(&[seed; 32])
    }

    /// What is published after a set of these keys was.
    fn published(keys: PublishedKeys) -> KeySet {
        KeySet {
            keys: keys.keys,
            signed: keys.signed,
            ..KeySet::default()
        }
    }

    #[test]
    fn set_is_signed_again_when_it_changes_or_is_replaced_or_old() {
        let (signer_key, now) = (key(9), DateTime::from_timestamp(1_800_000_000, 0).unwrap());
        let own = VerifyingKeys::new([signer_key.verifying_key()]).unwrap();
        let (first, both) = (
            vec![key(1).verifying_key()],
            vec![key(1).verifying_key(), key(2).verifying_key()],
        );
        let mut signer = KeySetSigner::default();
        let mut latest = 0;
        let mut check = |keys: &[VerifyingKey], set: &KeySet, after_s: i64, changed: bool| {
            let now = now + TimeDelta::seconds(after_s);
            let signed = signer.sign(Some(&signer_key), keys.to_vec(), set, now);
            let (signed, is_changed) = signed.unwrap();
            assert_eq!(is_changed, changed, "{signed:?}");
            let now_s = u64::try_from(now.timestamp()).unwrap();
            let text = signed.signed.as_deref().unwrap();
            let set = own.verify_key_set(text, now_s).unwrap();
            assert_eq!(set.keys, keys);
            assert_eq!(set.sequence > latest, changed, "{}", set.sequence);
            latest = set.sequence;
            published(signed)
        };
        let none = KeySet::default();
        let old = check(&both, &none, 0, true);
        check(&both, &old, 60, false);
        let new = check(&first, &old, 60, true);
        check(&first, &new, 120, false);
        // A replayed set, with a key that was deleted.
        let again = check(&first, &old, 120, true);
        // A set without a signature, and one of another key.
        let unsigned = published(first.clone().into());
        check(&first, &unsigned, 120, true);
        let foreign = KeySetSigner::default().sign(Some(&key(8)), first.clone(), &none, now);
        check(&first, &published(foreign.unwrap().0), 120, true);
        // A clock that went back, and a set that is about to expire.
        check(&both, &again, 0, true);
        let fresh = check(&first, &none, 200, true);
        check(&first, &fresh, 3_000, false);
        check(&first, &fresh, 4_000, true);
    }

    #[test]
    fn without_a_master_key_only_keys_are_compared() {
        let (mut signer, keys) = (KeySetSigner::default(), vec![key(1).verifying_key()]);
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let (first, is_changed) = signer
            .sign(None, keys.clone(), &KeySet::default(), now)
            .unwrap();
        assert_eq!((&first.signed, is_changed), (&None, true));
        let (_, is_changed) = signer.sign(None, keys, &published(first), now).unwrap();
        assert!(!is_changed);
    }
}
