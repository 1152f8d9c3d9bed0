//! The public keys and the revoked tokens in Redis.

use redis::{Cmd, Value};
use switchboard_protocol::{id::TokenId, token::VerifyingKey};
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

    fn key_set(&self, known: u64) -> BackendFuture<'_, Option<KeySet>> {
        Box::pin(async move {
            let names = &self.keys;
            let version = names.key_set_version();
            let mut get = redis::cmd("GET");
            get.arg(&version);
            let version: Option<u64> = self.query(&version, &get).await?;
            let Some(version) = version.filter(|version| *version != known) else {
                return Ok(None);
            };
            let (token_keys, revoked) = (names.token_keys(), names.revoked());
            let mut read = CommandGroup::default();
            read.add(&token_keys, Cmd::get(&token_keys));
            read.add(&revoked, Cmd::zrange_withscores(&revoked, 0, -1));
            let read = Value::Array(self.query_all(read).await?);
            let (keys, revoked): (Option<String>, Vec<(String, f64)>) =
                redis::from_redis_value(read).map_err(redis::RedisError::from)?;
            let keys = keys.map_or_else(|| Ok(Vec::new()), |keys| serde_json::from_str(&keys));
            let keys = keys.map_err(|error| {
                BusError::Unexpected(format!("the public keys are not readable: {error}"))
            })?;
            let revoked = revoked
                .into_iter()
                .filter_map(|(token, expires_at)| Some((token.parse().ok()?, expires_at as u64)))
                .collect();
            Ok(Some(KeySet {
                version,
                keys,
                revoked,
            }))
        })
    }
}
