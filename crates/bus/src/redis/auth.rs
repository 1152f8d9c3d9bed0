//! The public keys, the revoked tokens and the suspended organisations in Redis.

use redis::{Cmd, Value};
use serde::de::DeserializeOwned;
use switchboard_protocol::{
    id::{OrgId, TokenId},
    token::VerifyingKey,
};
use switchboard_runtime::clock::unix_time;

use super::{
    client::{CommandGroup, RedisClient},
    scripts,
};
use crate::{
    backend::{BackendFuture, KeySet, KeyStore},
    error::BusError,
};

/// Revocations in one script call: Lua accepts some thousands of arguments.
const REVOCATIONS_PER_CALL: usize = 1000;

impl KeyStore for RedisClient {
    fn publish_keys<'a>(
        &'a self,
        keys: Option<&'a [VerifyingKey]>,
        revoked: &'a [(TokenId, u64)],
    ) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let names = &self.keys;
            let names = [names.token_keys(), names.revoked(), names.key_set_version()];
            let keys = keys.map(serde_json::to_string).transpose();
            let keys = keys
                .map_err(|error| BusError::Unexpected(error.to_string()))?
                .unwrap_or_default();
            let mut chunks: Vec<_> = revoked.chunks(REVOCATIONS_PER_CALL).collect();
            if chunks.is_empty() {
                // Keys are published without revocations, too.
                chunks.push(&[]);
            }
            for chunk in chunks {
                let mut publish = scripts::call(&self.scripts.publish_keys, &names);
                publish.arg(&keys).arg(unix_time().as_secs());
                for (token, expires_at) in chunk {
                    publish.arg(token.to_string()).arg(*expires_at);
                }
                self.query::<Value>(&names[0], &publish).await?;
            }
            Ok(())
        })
    }

    fn publish_suspended_orgs<'a>(&'a self, orgs: &'a [OrgId]) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let names = [self.keys.suspended_orgs(), self.keys.key_set_version()];
            let orgs = serde_json::to_string(orgs)
                .map_err(|error| BusError::Unexpected(error.to_string()))?;
            let mut publish = scripts::call(&self.scripts.publish_suspended, &names);
            publish.arg(orgs);
            self.query::<Value>(&names[0], &publish).await.map(drop)
        })
    }

    fn key_set(&self, now_unix_s: u64) -> BackendFuture<'_, Option<KeySet>> {
        Box::pin(async move {
            let names = &self.keys;
            let (version, keys) = (names.key_set_version(), names.token_keys());
            let (revoked, suspended) = (names.revoked(), names.suspended_orgs());
            let mut read = CommandGroup::default();
            // The version first: what is read after it is at least as new.
            read.add(&version, Cmd::get(&version));
            read.barrier();
            read.add(&keys, Cmd::get(&keys));
            let unexpired = Cmd::zcount(&revoked, format!("({now_unix_s}"), "+inf");
            read.add(&revoked, unexpired);
            read.add(&suspended, Cmd::get(&suspended));
            let read = Value::Array(self.query_all(read).await?);
            let (version, keys, revocations, suspended): StoredKeySet =
                redis::from_redis_value(read).map_err(redis::RedisError::from)?;
            let Some(version) = version else {
                return Ok(None);
            };
            Ok(Some(KeySet {
                version,
                keys: parse_list(keys, "public keys")?,
                revocations,
                suspended: parse_list(suspended, "suspended organisations")?,
            }))
        })
    }

    fn revoked_tokens(&self) -> BackendFuture<'_, Vec<(TokenId, u64)>> {
        Box::pin(async move {
            let revoked = self.keys.revoked();
            let read = Cmd::zrange_withscores(&revoked, 0, -1);
            let revoked: Vec<(String, f64)> = self.query(&revoked, &read).await?;
            let revoked = revoked.into_iter();
            Ok(revoked
                .filter_map(|(token, expires_at)| Some((token.parse().ok()?, expires_at as u64)))
                .collect())
        })
    }
}

/// The version, the keys, the number of revocations, and the suspended organisations.
type StoredKeySet = (Option<u64>, Option<String>, usize, Option<String>);

/// A JSON array; empty if it is not stored.
fn parse_list<T: DeserializeOwned>(json: Option<String>, name: &str) -> Result<Vec<T>, BusError> {
    let Some(json) = json else {
        return Ok(Vec::new());
    };
    serde_json::from_str(&json)
        .map_err(|error| BusError::Unexpected(format!("the {name} are not readable: {error}")))
}
