//! Conversations in Redis: a string each, and sets of them in the order in which they are due.
//! Never: a name in the set without a bound on how many there are.

use std::time::Duration;

use bytes::Bytes;

use super::{
    keys::Keys,
    link::{Link, millis},
    script,
};
use crate::{
    conversations::{
        Conversation, ConversationKey, KEPT_WHEN_DUE, Keeping, Kept, MAX_CONVERSATIONS,
        MAX_CONVERSATIONS_OF_ORG, NewVersion,
    },
    error::BusError,
};

/// A conversation's name in the sets, which is also the end of its string's key.
fn member(key: &ConversationKey) -> String {
    format!("{}/{}", key.org, key.name)
}

fn names(keys: &Keys, key: &ConversationKey) -> [String; 3] {
    let theirs = keys.conversations_of(&key.org.to_string());
    [
        keys.conversation(&member(key)),
        keys.conversations(),
        theirs,
    ]
}

impl Link {
    pub(super) async fn conversation(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<Conversation>, BusError> {
        let name = self.keys.conversation(&member(key));
        let mut get = redis::cmd("GET");
        get.arg(&name);
        let value: Option<Vec<u8>> = self.query(&name, &get).await?;
        Ok(value.and_then(|value| open(key.clone(), value.into())))
    }

    pub(super) async fn keep_conversation(&self, new: NewVersion<'_>) -> Result<Keeping, BusError> {
        let was = new.was.map(|was| was.to_string()).unwrap_or_default();
        let ttl = new.rests_after + KEPT_WHEN_DUE;
        let names = names(&self.keys, new.key);
        let mut keep = script::run(&self.scripts.keep_conversation, &names);
        keep.arg(member(new.key)).arg(was).arg(&new.bytes[..]);
        keep.arg(millis(new.rests_after)).arg(millis(ttl));
        keep.arg(MAX_CONVERSATIONS_OF_ORG).arg(MAX_CONVERSATIONS);
        keep.arg(self.keys.conversation(""));
        keep.arg(self.keys.conversations_of(""));
        keep.arg(millis(KEPT_WHEN_DUE));
        let (version, gone): (String, u64) = self.query(&names[0], &keep).await?;
        let kept = version.parse().map_or(Kept::Changed, Kept::Yes);
        Ok(Keeping { kept, gone })
    }

    pub(super) async fn drop_conversation(
        &self,
        key: &ConversationKey,
        version: u64,
    ) -> Result<bool, BusError> {
        let names = names(&self.keys, key);
        let mut remove = script::run(&self.scripts.drop_conversation, &names);
        remove.arg(member(key)).arg(version);
        self.query(&names[0], &remove).await
    }

    pub(super) async fn take_due_conversations(
        &self,
        most: usize,
        lease: Duration,
    ) -> Result<Vec<Conversation>, BusError> {
        let names = [self.keys.conversations()];
        let mut take = script::run(&self.scripts.due, &names);
        take.arg(self.keys.conversation(""));
        take.arg(most).arg(millis(lease));
        take.arg(self.keys.conversations_of(""));
        take.arg(millis(KEPT_WHEN_DUE));
        let due: Vec<(String, Vec<u8>)> = self.query(&names[0], &take).await?;
        let given = due.into_iter().filter_map(|(member, value)| {
            let (org, name) = member.split_once('/')?;
            let (org, name) = (org.parse().ok()?, name.to_owned());
            open(ConversationKey { org, name }, value.into())
        });
        Ok(given.collect())
    }
}

/// A value is a version, a space, and what was kept.
fn open(key: ConversationKey, value: Bytes) -> Option<Conversation> {
    let space = value.iter().position(|byte| *byte == b' ')?;
    let version = str::from_utf8(value.get(..space)?).ok()?.parse().ok()?;
    Some(Conversation {
        key,
        version,
        bytes: value.slice(space + 1..),
    })
}
