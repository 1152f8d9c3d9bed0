//! Conversations as they are stored between turns. The JSON is shared with other releases.

use std::{sync::OnceLock, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use switchboard_protocol::id::{DeviceId, NpcId};
use switchboard_runtime::{clock::unix_now_ms, response_budget::json_bytes};
use switchboard_tools::text::clean_to;
use uuid::Uuid;

use crate::picture::note;

/// Stored bytes of a user's message.
const MAX_MESSAGE_BYTES: usize = 4 * 1024;
/// Stored bytes of a reply.
const MAX_REPLY_BYTES: usize = 8 * 1024;
/// Stored bytes of a call's result.
const MAX_RESULT_BYTES: usize = 1024;
/// Stored bytes of a call's parameters; larger parameters are dropped.
const MAX_PARAMS_BYTES: usize = 2 * 1024;
/// Stored calls of one exchange.
const MAX_CALLS: usize = 8;
/// Bytes of a stored exchange as JSON.
const MAX_EXCHANGE_BYTES: usize = 32 * 1024;
/// Stored bytes of a summary.
const MAX_SUMMARY_BYTES: usize = 4 * 1024;
/// With more exchanges, the older half is summarised.
const SUMMARY_THRESHOLD: usize = 24;
/// With more bytes, likewise.
const SUMMARY_THRESHOLD_BYTES: usize = 24 * 1024;
/// Bytes of a stored conversation. The oldest exchanges are dropped when no summary replaces them.
const MAX_CONVERSATION_BYTES: usize = 48 * 1024;

/// A conversation between one user and one NPC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Conversation {
    /// Created with the first exchange.
    pub(crate) id: Uuid,
    /// Secret name of the tags around data in prompts.
    pub(crate) fence: String,
    pub(crate) npc: Option<NpcId>,
    /// The user as memories name them; `None` for a user without a name.
    pub(crate) subject: Option<String>,
    /// Summary of the exchanges before the stored ones.
    pub(crate) summary: Option<String>,
    /// Index of the first stored exchange, counted from 0.
    pub(crate) first: u64,
    /// Memories are extracted from all exchanges before this index.
    #[serde(rename = "learned")]
    pub(crate) extracted: u64,
    /// An extraction in progress, or one to retry.
    #[serde(rename = "learning")]
    pub(crate) extraction: Option<Extraction>,
    /// The latest exchanges.
    pub(crate) exchanges: Vec<Exchange>,
}

/// The extraction of memories from a part of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extraction {
    /// Index behind the last exchange of the part.
    pub(crate) up_to: u64,
    /// Number of attempts so far.
    pub(crate) attempts: u32,
    /// End of the lease, or of the pause before a retry, in ms since 1970.
    pub(crate) until_ms: u64,
}

/// A message of a user, and the reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Exchange {
    /// Id within the conversation. An exchange is stored when it starts and again when it ends.
    #[serde(default)]
    pub(crate) id: String,
    /// Whether the reply is in progress, unless its replica stopped.
    #[serde(default)]
    pub(crate) is_open: bool,
    /// Start, in ms since 1970.
    pub(crate) at_ms: u64,
    #[serde(rename = "said")]
    pub(crate) message: String,
    #[serde(rename = "answered")]
    pub(crate) reply: String,
    /// Whether the user stopped the reply.
    #[serde(default)]
    pub(crate) is_interrupted: bool,
    /// Services called for the reply.
    #[serde(default)]
    pub(crate) calls: Vec<ToolCallRecord>,
    /// Written by releases before 0.2 and not used; kept so that the JSON stays the same.
    #[serde(default)]
    pub(crate) asks_about: Option<String>,
    /// The name of the picture that the user showed; empty for one without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) picture: Option<String>,
    #[serde(skip)]
    pub(crate) bytes: KnownBytes,
}

/// The length of an exchange as JSON, once it was needed. It counts for no comparison.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownBytes(OnceLock<usize>);

impl PartialEq for KnownBytes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A called service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolCallRecord {
    pub(crate) device: DeviceId,
    /// The tool name of the service.
    pub(crate) tool: String,
    pub(crate) params: Map<String, Value>,
    /// The result as JSON for a model.
    pub(crate) result: String,
}

impl Conversation {
    pub(crate) fn new(npc: Option<NpcId>, subject: Option<String>) -> Self {
        Self {
            id: Uuid::now_v7(),
            fence: format!("{:016x}", rand::random::<u64>()),
            npc,
            subject,
            summary: None,
            first: 0,
            extracted: 0,
            extraction: None,
            exchanges: Vec::new(),
        }
    }

    /// Index behind the latest exchange.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.exchanges.len() as u64
    }

    /// Adds an exchange, or replaces the one with the same id.
    pub(crate) fn upsert(&mut self, exchange: Exchange) {
        let exchange = exchange.bounded();
        match self.find_mut(&exchange.id) {
            Some(stored) => *stored = exchange,
            None => self.exchanges.push(exchange),
        }
        while self.bytes() > MAX_CONVERSATION_BYTES && self.exchanges.len() > 1 {
            self.drop_before(self.first + 1);
        }
    }

    fn find_mut(&mut self, id: &str) -> Option<&mut Exchange> {
        let mut latest = self.exchanges.iter_mut().rev();
        latest.find(|exchange| exchange.id == id)
    }

    /// Removes the exchange with this id.
    pub(crate) fn remove(&mut self, id: &str) {
        self.exchanges.retain(|exchange| exchange.id != id);
    }

    /// Only these words of the reply to an earlier message were played. Does nothing when this is not the
    /// exchange before the one with this id: then it was not stored.
    pub(crate) fn shorten_reply_before(&mut self, id: &str, message: &str, played: &str) {
        let mut earlier = self.exchanges.iter_mut().rev();
        let message = clean_to(message, MAX_MESSAGE_BYTES);
        if let Some(previous) = earlier.find(|exchange| exchange.id != id)
            && previous.message == message
            && played.len() < previous.reply.len()
        {
            played.clone_into(&mut previous.reply);
            previous.is_interrupted = true;
            previous.bytes = KnownBytes::default();
        }
    }

    /// Whether an exchange other than this one is open.
    pub(crate) fn has_open_besides(&self, id: &str) -> bool {
        let mut exchanges = self.exchanges.iter();
        exchanges.any(|exchange| exchange.is_open && exchange.id != id)
    }

    /// Closes all exchanges other than this one, as interrupted.
    pub(crate) fn close_besides(&mut self, id: &str) {
        self.close_where(|exchange| exchange.id != id);
    }

    /// Closes the exchanges that started before this time, in ms since 1970.
    pub(crate) fn close_started_before(&mut self, at_ms: u64) {
        self.close_where(|exchange| exchange.at_ms < at_ms);
    }

    fn close_where(&mut self, condition: impl Fn(&Exchange) -> bool) {
        let open = self.exchanges.iter_mut();
        for exchange in open.filter(|exchange| exchange.is_open && condition(exchange)) {
            (exchange.is_open, exchange.is_interrupted) = (false, true);
            exchange.bytes = KnownBytes::default();
        }
    }

    /// Whether an exchange is open that started after this time, in ms since 1970.
    pub(crate) fn has_open_since(&self, at_ms: u64) -> bool {
        let mut exchanges = self.exchanges.iter();
        exchanges.any(|exchange| exchange.is_open && exchange.at_ms > at_ms)
    }

    /// Drops the exchanges before this index.
    pub(crate) fn drop_before(&mut self, end: u64) {
        let count = usize::try_from(end.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let count = count.min(self.exchanges.len());
        self.exchanges.drain(..count);
        self.first += count as u64;
    }

    /// Replaces the exchanges before this index by a summary of `source`, an earlier state of this
    /// conversation. A summary that another replica stored since then stays: it covers more.
    pub(crate) fn summarize(&mut self, source: &Self, summary: &str, end: u64) {
        if (self.id, &self.summary) == (source.id, &source.summary) {
            self.summary = Some(clean_to(summary, MAX_SUMMARY_BYTES));
            self.drop_before(end);
        }
    }

    /// Index behind the exchanges to summarise, when the conversation is too long for a prompt.
    pub(crate) fn summary_end(&self) -> Option<u64> {
        let is_long =
            self.exchanges.len() > SUMMARY_THRESHOLD || self.bytes() > SUMMARY_THRESHOLD_BYTES;
        let half = self.exchanges.len().div_ceil(2);
        (is_long && half > 0).then_some(self.first + half as u64)
    }

    /// The stored exchanges before this index.
    pub(crate) fn before(&self, end: u64) -> &[Exchange] {
        let count = usize::try_from(end.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.exchanges
            .get(..count.min(self.exchanges.len()))
            .unwrap_or_default()
    }

    /// Those of them from which no memories are extracted yet.
    pub(crate) fn unextracted(&self, end: u64) -> &[Exchange] {
        let extracted = self.before(self.extracted).len();
        self.before(end).get(extracted..).unwrap_or_default()
    }

    /// Time until the background job is due: the idle timeout, or the end of the extraction's
    /// lease or pause when the conversation is idle already.
    pub(crate) fn due_in(&self, now_ms: u64, idle_timeout: Duration) -> Duration {
        let idle_ms = u64::try_from(idle_timeout.as_millis()).unwrap_or(u64::MAX);
        let is_recent = |exchange: &Exchange| exchange.at_ms.saturating_add(idle_ms) > now_ms;
        match self.extraction {
            Some(extraction) if !self.exchanges.last().is_some_and(is_recent) => {
                Duration::from_millis(extraction.until_ms.saturating_sub(now_ms))
            }
            _ => idle_timeout,
        }
    }

    fn bytes(&self) -> usize {
        let summary = self.summary.as_ref().map_or(0, String::len);
        summary + self.exchanges.iter().map(Exchange::bytes).sum::<usize>()
    }
}

impl Exchange {
    /// An open exchange that starts now.
    pub(crate) fn start(id: String, message: &str) -> Self {
        Self {
            id,
            is_open: true,
            at_ms: unix_now_ms(),
            message: message.to_owned(),
            reply: String::new(),
            is_interrupted: false,
            calls: Vec::new(),
            asks_about: None,
            picture: None,
            bytes: KnownBytes::default(),
        }
    }

    /// The message for models, with a note about its picture.
    pub(crate) fn annotated_message(&self) -> String {
        let Some(name) = &self.picture else {
            return self.message.clone();
        };
        let annotated = format!("{}\n\n{}", self.message, note(name));
        annotated.trim_start().to_owned()
    }

    fn bounded(mut self) -> Self {
        self.message = clean_to(&self.message, MAX_MESSAGE_BYTES);
        self.reply = clean_to(&self.reply, MAX_REPLY_BYTES);
        self.asks_about = None;
        self.calls.truncate(MAX_CALLS);
        for call in &mut self.calls {
            call.result = clean_to(&call.result, MAX_RESULT_BYTES);
            if json_bytes(&call.params) > MAX_PARAMS_BYTES {
                call.params.clear();
            }
        }
        // Escaped characters take more bytes than the text.
        self.bytes = KnownBytes::default();
        if self.bytes() > MAX_EXCHANGE_BYTES {
            self.bytes = KnownBytes::default();
            self.calls.clear();
            self.message = clean_to(&self.message, MAX_MESSAGE_BYTES / 4);
            self.reply = clean_to(&self.reply, MAX_REPLY_BYTES / 4);
        }
        self
    }

    fn bytes(&self) -> usize {
        *self.bytes.0.get_or_init(|| json_bytes(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(message: &str) -> Exchange {
        Exchange {
            reply: "Yes.".to_owned(),
            is_open: false,
            ..Exchange::start(Uuid::now_v7().to_string(), message)
        }
    }

    fn messages(conversation: &Conversation) -> Vec<&str> {
        let exchanges = conversation.exchanges.iter();
        exchanges
            .map(|exchange| exchange.message.as_str())
            .collect()
    }

    #[test]
    fn dropped_exchanges_keep_the_indexes_of_the_rest() {
        let mut conversation = Conversation::new(None, None);
        for word in ["a", "b", "c", "d"] {
            conversation.upsert(exchange(word));
        }
        assert_eq!((conversation.first, conversation.end()), (0, 4));
        assert_eq!(conversation.before(2).len(), 2);
        conversation.drop_before(2);
        assert_eq!(messages(&conversation), ["c", "d"]);
        assert_eq!((conversation.first, conversation.end()), (2, 4));
        conversation.drop_before(1);
        assert_eq!(messages(&conversation), ["c", "d"]);
        conversation.summarize(&conversation.clone(), "a and b", 9);
        assert_eq!((conversation.first, conversation.end()), (4, 4));
        assert_eq!(conversation.summary.as_deref(), Some("a and b"));
    }

    #[test]
    fn reply_that_was_not_played_to_its_end_is_shortened() {
        let mut conversation = Conversation::new(None, None);
        let [first, second] = ["a", "b"].map(exchange);
        conversation.upsert(first);
        conversation.upsert(second.clone());
        for (message, words) in [("a", "Yes, and more."), ("other", "Ye")] {
            conversation.shorten_reply_before(&second.id, message, words);
            assert!(!conversation.exchanges[0].is_interrupted);
        }
        conversation.shorten_reply_before(&second.id, "a", "Ye");
        let [first, last] = &*conversation.exchanges else {
            panic!("two exchanges");
        };
        assert_eq!((&*first.reply, first.is_interrupted), ("Ye", true));
        assert_eq!(*last, second);
    }

    #[test]
    fn late_summary_replaces_nothing_newer() {
        let mut conversation = Conversation::new(None, None);
        for word in ["a", "b", "c", "d"] {
            conversation.upsert(exchange(word));
        }
        let early = conversation.clone();
        conversation.summarize(&early, "a and b", 2);
        let once = conversation.clone();
        conversation.summarize(&early, "only a", 1);
        assert_eq!(conversation, once);
        conversation.summarize(&once, "a, b and c", 3);
        assert_eq!(conversation.summary.as_deref(), Some("a, b and c"));
        // Nor does a summary of another conversation.
        let other = Conversation::new(None, None);
        let before = conversation.clone();
        conversation.summarize(&other, "x", 4);
        assert_eq!(conversation, before);
    }

    #[test]
    fn exchange_is_stored_at_its_start_and_its_end() {
        let mut conversation = Conversation::new(None, None);
        conversation.upsert(exchange("a"));
        let story = Exchange::start("1".to_owned(), "a story");
        let song = Exchange::start("2".to_owned(), "a song");
        conversation.upsert(story.clone());
        assert!(!conversation.has_open_besides("1") && conversation.has_open_besides("2"));
        conversation.upsert(song.clone());
        assert!(conversation.has_open_since(0) && !conversation.has_open_since(u64::MAX));
        conversation.upsert(Exchange {
            reply: "Once upon".to_owned(),
            is_open: false,
            ..story
        });
        assert_eq!(messages(&conversation), ["a", "a story", "a song"]);
        assert_eq!(conversation.exchanges[1].reply, "Once upon");
        assert!(!conversation.has_open_besides("2") && conversation.has_open_besides("3"));
        let started_ms = conversation.exchanges[2].at_ms;
        conversation.close_started_before(started_ms);
        assert!(conversation.has_open_besides("3"));
        let mut later = conversation.clone();
        later.close_started_before(started_ms + 1);
        assert!(!later.has_open_besides("3") && later.exchanges[2].is_interrupted);
        conversation.close_besides("3");
        assert!(!conversation.has_open_besides("3") && conversation.exchanges[2].is_interrupted);
        conversation.remove("2");
        assert_eq!(messages(&conversation), ["a", "a story"]);
    }

    #[test]
    fn retry_is_due_only_while_the_conversation_is_idle() {
        let (now_ms, idle_timeout) = (1_000_000, Duration::from_secs(600));
        let check = |at_ms: u64, until_ms: Option<u64>, expected_s: u64| {
            let mut conversation = Conversation::new(None, None);
            conversation.upsert(Exchange {
                at_ms,
                ..exchange("a")
            });
            conversation.extraction = until_ms.map(|until_ms| Extraction {
                up_to: 1,
                attempts: 1,
                until_ms,
            });
            let due_in = conversation.due_in(now_ms, idle_timeout);
            assert_eq!(
                due_in,
                Duration::from_secs(expected_s),
                "{at_ms} {until_ms:?}"
            );
        };
        check(now_ms, None, 600);
        check(0, None, 600);
        check(0, Some(now_ms + 5_000), 5);
        check(0, Some(now_ms - 1), 0);
        // A recent exchange postpones the retry.
        check(now_ms - 1_000, Some(now_ms + 5_000), 600);
    }

    #[test]
    fn extracted_exchanges_are_not_extracted_again() {
        let mut conversation = Conversation::new(None, None);
        for word in ["a", "b", "c", "d"] {
            conversation.upsert(exchange(word));
        }
        assert_eq!(conversation.unextracted(3).len(), 3);
        conversation.extracted = 2;
        assert_eq!(conversation.unextracted(3)[0].message, "c");
        conversation.drop_before(1);
        assert_eq!(conversation.unextracted(4).len(), 2);
        conversation.drop_before(3);
        assert_eq!(conversation.unextracted(4)[0].message, "d");
        assert!(conversation.unextracted(2).is_empty());
    }

    #[test]
    fn long_conversation_is_summarized_and_bounded() {
        let mut conversation = Conversation::new(None, None);
        for n in 0..SUMMARY_THRESHOLD {
            conversation.upsert(exchange(&format!("{n}")));
            assert_eq!(conversation.summary_end(), None);
        }
        conversation.upsert(exchange("the last"));
        assert_eq!(conversation.summary_end(), Some(13));
        for _ in 0..100 {
            conversation.upsert(exchange(&"x".repeat(3_000)));
            assert!(conversation.bytes() <= MAX_CONVERSATION_BYTES);
        }
        assert_eq!(conversation.end(), 125);
        conversation.upsert(exchange(&"y".repeat(100_000)));
        assert_eq!(
            conversation.exchanges.last().unwrap().message.len(),
            MAX_MESSAGE_BYTES
        );
    }
}
