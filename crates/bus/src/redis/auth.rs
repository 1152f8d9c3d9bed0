//! The public keys, the revoked tokens, the suspended organisations and the keys of tickets in Redis.

use redis::{Cmd, Value};
use serde::de::DeserializeOwned;
use switchboard_protocol::id::{OrgId, TokenId};

use super::{
    client::{CommandGroup, RedisClient},
    scripts,
};
use crate::{
    auth::REVOCATION_KEPT,
    backend::{BackendFuture, KeySet, KeyStore, PublishedKeys},
    error::BusError,
    tickets::{SECRET_TTL_S, TicketSecret},
};

/// Revocations that one command reads.
const REVOCATIONS_PAGE: usize = 1000;
/// Revocations in one script call: Lua accepts some thousands of arguments.
const REVOCATIONS_PER_CALL: usize = 1000;

impl KeyStore for RedisClient {
    fn publish_keys<'a>(
        &'a self,
        keys: Option<&'a PublishedKeys>,
        revoked: &'a [(TokenId, u64)],
    ) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let names = &self.keys;
            let names = [
                names.token_keys(),
                names.revoked(),
                names.key_set_version(),
                names.signed_keys(),
            ];
            let signed = keys.and_then(|keys| keys.signed.as_deref());
            let keys = keys.map(|keys| serde_json::to_string(&keys.keys));
            let keys = keys
                .transpose()
                .map_err(|error| BusError::Unexpected(error.to_string()))?
                .unwrap_or_default();
            let mut chunks: Vec<_> = revoked.chunks(REVOCATIONS_PER_CALL).collect();
            if chunks.is_empty() {
                // Keys are published without revocations, too.
                chunks.push(&[]);
            }
            for chunk in chunks {
                let mut publish = scripts::call(&self.scripts.publish_keys, &names);
                publish.arg(&keys).arg(REVOCATION_KEPT.as_secs());
                publish.arg(signed.unwrap_or_default());
                for (token, expires_at) in chunk {
                    publish.arg(token.to_string()).arg(*expires_at);
                }
                self.query::<Value>(&names[0], &publish).await?;
            }
            Ok(())
        })
    }

    fn publish_suspended_orgs<'a>(
        &'a self,
        orgs: &'a [OrgId],
        version: u64,
    ) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let names = &self.keys;
            let names = [
                names.suspended_orgs(),
                names.key_set_version(),
                names.suspended_version(),
            ];
            let orgs = serde_json::to_string(orgs)
                .map_err(|error| BusError::Unexpected(error.to_string()))?;
            let mut publish = scripts::call(&self.scripts.publish_suspended, &names);
            publish.arg(orgs).arg(version);
            self.query::<Value>(&names[0], &publish).await.map(drop)
        })
    }

    fn key_set(&self, now_unix_s: u64) -> BackendFuture<'_, Option<KeySet>> {
        Box::pin(async move {
            let names = &self.keys;
            let (version, keys) = (names.key_set_version(), names.token_keys());
            let (revoked, suspended) = (names.revoked(), names.suspended_orgs());
            let suspended_version = names.suspended_version();
            let mut read = CommandGroup::default();
            // The version first: what is read after it is at least as new.
            read.add(&version, Cmd::get(&version));
            read.barrier();
            read.add(&keys, Cmd::get(&keys));
            let signed = names.signed_keys();
            read.add(&signed, Cmd::get(&signed));
            let unexpired = Cmd::zcount(&revoked, format!("({now_unix_s}"), "+inf");
            read.add(&revoked, unexpired);
            // The same of the list.
            read.add(&suspended_version, Cmd::get(&suspended_version));
            read.add(&suspended, Cmd::get(&suspended));
            let read = Value::Array(self.query_all(read).await?);
            let (version, keys, signed, revocations, suspended_version, suspended): StoredKeySet =
                redis::from_redis_value(read).map_err(redis::RedisError::from)?;
            let Some(version) = version else {
                return Ok(None);
            };
            Ok(Some(KeySet {
                version,
                keys: parse_list(keys, "public keys")?,
                signed,
                revocations,
                suspended: parse_list(suspended, "suspended organisations")?,
                suspended_version,
            }))
        })
    }

    fn revoked_tokens(&self) -> BackendFuture<'_, Vec<(TokenId, u64)>> {
        Box::pin(async move {
            let key = self.keys.revoked();
            let mut revoked = Vec::new();
            let mut cursor = 0;
            // In pages: Redis executes nothing else while it reads one.
            loop {
                let mut read = redis::cmd("ZSCAN");
                read.arg(&key)
                    .arg(cursor)
                    .arg("COUNT")
                    .arg(REVOCATIONS_PAGE);
                let (next, page): (u64, Vec<(String, f64)>) = self.query(&key, &read).await?;
                let page = page.into_iter();
                revoked.extend(page.filter_map(|(token, expires_at)| {
                    Some((token.parse().ok()?, expires_at as u64))
                }));
                cursor = next;
                if cursor == 0 {
                    return Ok(revoked);
                }
            }
        })
    }

    fn ticket_secrets<'a>(
        &'a self,
        proposed: &'a [(u64, TicketSecret)],
    ) -> BackendFuture<'a, Vec<TicketSecret>> {
        Box::pin(async move {
            let mut commands = CommandGroup::default();
            for (period, secret) in proposed {
                let name = self.keys.ticket_secret(*period);
                let mut set = redis::cmd("SET");
                set.arg(&name).arg(&secret.0[..]).arg("NX");
                set.arg("EX").arg(SECRET_TTL_S);
                commands.add(&name, set);
            }
            commands.barrier();
            for (period, _) in proposed {
                let name = self.keys.ticket_secret(*period);
                commands.add(&name, Cmd::get(&name));
            }
            let stored = self.query_all(commands).await?;
            let stored = stored.into_iter().skip(proposed.len());
            stored.map(parse_secret).collect()
        })
    }
}

fn parse_secret(stored: Value) -> Result<TicketSecret, BusError> {
    let bytes: Vec<u8> = redis::from_redis_value(stored).map_err(redis::RedisError::from)?;
    let secret = <[u8; 32]>::try_from(bytes).map(TicketSecret);
    secret.map_err(|_| BusError::Unexpected("a key of tickets is not readable".to_owned()))
}

/// The version, the keys, the same signed, the number of revocations, and the suspended
/// organisations after the version of their list.
type StoredKeySet = (
    Option<u64>,
    Option<String>,
    Option<String>,
    usize,
    Option<u64>,
    Option<String>,
);

/// A JSON array; empty if it is not stored.
fn parse_list<T: DeserializeOwned>(json: Option<String>, name: &str) -> Result<Vec<T>, BusError> {
    let Some(json) = json else {
        return Ok(Vec::new());
    };
    serde_json::from_str(&json)
        .map_err(|error| BusError::Unexpected(format!("the {name} are not readable: {error}")))
}
