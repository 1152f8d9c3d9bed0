//! Conversations in Redis: a string for each, and sorted sets of them by the time they are due.

use std::time::Duration;

use bytes::Bytes;

use super::{
    client::{RedisClient, millis},
    keys::Keys,
    scripts,
};
use crate::{
    backend::{BackendFuture, ConversationStore},
    conversations::{
        Conversation, ConversationKey, ConversationWrite, ConversationsInFlight, DUE_TTL,
        MAX_CLAIMED, ORG_LIMIT, SaveOutcome, SaveResult, TOTAL_LIMIT,
    },
};

/// Due conversations that one claim reads. Protects Redis: a claim takes 1 to 2 ms then.
const MAX_READ: usize = 1_000;

/// A conversation's member in the sets, which is also the end of its string's key.
fn member(key: &ConversationKey) -> String {
    format!("{}/{}", key.org, key.name)
}

fn names(keys: &Keys, key: &ConversationKey) -> [String; 4] {
    [
        keys.conversation(&member(key)),
        keys.conversations(),
        keys.org_conversations(&key.org.to_string()),
        keys.conversation_sizes(),
    ]
}

impl ConversationStore for RedisClient {
    fn conversation<'a>(
        &'a self,
        key: &'a ConversationKey,
    ) -> BackendFuture<'a, Option<Conversation>> {
        Box::pin(async move {
            let name = self.keys.conversation(&member(key));
            let mut get = redis::cmd("GET");
            get.arg(&name);
            let value: Option<Vec<u8>> = self.query(&name, &get).await?;
            Ok(value.and_then(|value| parse_value(key.clone(), value.into())))
        })
    }

    fn save_conversation<'a>(
        &'a self,
        write: ConversationWrite<'a>,
    ) -> BackendFuture<'a, SaveResult> {
        Box::pin(async move {
            let replaces = write.replaces.map(|version| version.to_string());
            let ttl = write.due_after + DUE_TTL;
            let names = names(&self.keys, write.key);
            let mut save = scripts::call(&self.scripts.save_conversation, &names);
            save.arg(member(write.key));
            save.arg(replaces.unwrap_or_default()).arg(&write.bytes[..]);
            save.arg(millis(write.due_after)).arg(millis(ttl));
            save.arg(self.keys.conversation(""));
            save.arg(self.keys.org_conversations(""));
            save.arg(millis(DUE_TTL));
            for limit in [ORG_LIMIT, TOTAL_LIMIT] {
                save.arg(limit.number).arg(limit.bytes);
            }
            let (version, evicted, current): (String, u64, Option<Vec<u8>>) =
                self.query(&names[0], &save).await?;
            let current = || current.and_then(|value| parse_value(write.key.clone(), value.into()));
            let outcome = match version.parse() {
                Ok(version) => SaveOutcome::Saved(version),
                Err(_) => SaveOutcome::Conflict(current()),
            };
            Ok(SaveResult { outcome, evicted })
        })
    }

    fn delete_conversation<'a>(
        &'a self,
        key: &'a ConversationKey,
        version: u64,
    ) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            let names = names(&self.keys, key);
            let mut delete = scripts::call(&self.scripts.delete_conversation, &names);
            delete.arg(member(key)).arg(version);
            self.query(&names[0], &delete).await
        })
    }

    fn claim_due_conversations<'a>(
        &'a self,
        max: usize,
        lease: Duration,
        in_flight: &'a ConversationsInFlight,
    ) -> BackendFuture<'a, Vec<Conversation>> {
        Box::pin(async move {
            let names = [self.keys.conversations()];
            let mut claim = scripts::call(&self.scripts.claim_due_conversations, &names);
            claim.arg(self.keys.conversation(""));
            claim.arg(max).arg(millis(lease));
            claim.arg(self.keys.org_conversations(""));
            claim.arg(millis(DUE_TTL));
            claim.arg(in_flight.share.min(MAX_CLAIMED)).arg(MAX_READ);
            for (org, count) in &in_flight.by_org {
                claim.arg(org.to_string()).arg(*count);
            }
            let due: Vec<(String, Vec<u8>)> = self.query(&names[0], &claim).await?;
            let claimed = due.into_iter().filter_map(|(member, value)| {
                let (org, name) = member.split_once('/')?;
                let (org, name) = (org.parse().ok()?, name.to_owned());
                parse_value(ConversationKey { org, name }, value.into())
            });
            Ok(claimed.collect())
        })
    }
}

/// A stored value is the version, a space, and the bytes.
fn parse_value(key: ConversationKey, value: Bytes) -> Option<Conversation> {
    let space = value.iter().position(|byte| *byte == b' ')?;
    let version = str::from_utf8(value.get(..space)?).ok()?.parse().ok()?;
    Some(Conversation {
        key,
        version,
        bytes: value.slice(space + 1..),
    })
}
