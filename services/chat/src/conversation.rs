//! What was said so far, as it is kept between turns.
//! Never: more of it than fits beside a prompt, or words that belong to another conversation.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use switchboard_protocol::id::{DeviceId, NpcId};
use switchboard_runtime::clock::unix_now_ms;
use switchboard_tools::text::clean_to;
use uuid::Uuid;

/// What is kept of what somebody said.
const SAID_BYTES: usize = 4 * 1024;
/// What is kept of an answer.
const ANSWERED_BYTES: usize = 8 * 1024;
/// What is kept of a call's result.
const RESULT_BYTES: usize = 1024;
/// What is kept of a call's parameters; larger ones are left out.
const PARAMS_BYTES: usize = 2 * 1024;
/// Calls of one exchange that are kept.
const CALLS: usize = 8;
/// What an exchange takes at most, as it is kept.
const EXCHANGE_BYTES: usize = 32 * 1024;
/// What is kept of a summary.
const SUMMARY_BYTES: usize = 4 * 1024;
/// More exchanges than these are too many for a prompt: the older half is told in short.
const LONG_EXCHANGES: usize = 24;
/// More bytes than these, likewise.
const LONG_BYTES: usize = 24 * 1024;
/// The most that is kept at all; the oldest exchanges go when nobody has told them in short.
const MOST_BYTES: usize = 48 * 1024;

/// A conversation, from its first words to the latest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Conversation {
    /// Made with its first exchange.
    pub(crate) id: Uuid,
    /// What data is marked off with in prompts. Nobody outside knows it.
    pub(crate) fence: String,
    /// Who answers.
    pub(crate) npc: Option<NpcId>,
    /// Whom it is with, as memories name them; nobody who could be told apart when not given.
    pub(crate) subject: Option<String>,
    /// What was said before the exchanges that are kept.
    pub(crate) summary: Option<String>,
    /// Which one the first of the exchanges is, counted from 0.
    pub(crate) first: u64,
    /// From those before this one everything is learned.
    pub(crate) learned: u64,
    /// Somebody learns from more of them.
    pub(crate) learning: Option<Learning>,
    /// The latest ones.
    pub(crate) exchanges: Vec<Exchange>,
}

/// A part of a conversation that somebody learns from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Learning {
    /// Behind the last exchange that belongs to it.
    pub(crate) up_to: u64,
    /// How often it was begun.
    pub(crate) attempts: u32,
    /// Whoever began has died when it is not done by then, in ms since 1970.
    pub(crate) until_ms: u64,
}

/// Something said, and what was answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Exchange {
    /// Names it in its conversation: it is noted when it begins, and once more when it has ended.
    #[serde(default)]
    pub(crate) id: String,
    /// Its answer is still being given, unless whoever gives it has died.
    #[serde(default)]
    pub(crate) is_open: bool,
    /// When, in ms since 1970.
    pub(crate) at_ms: u64,
    pub(crate) said: String,
    pub(crate) answered: String,
    /// Whether somebody did not want to hear the rest.
    #[serde(default)]
    pub(crate) is_interrupted: bool,
    /// What was done for it.
    #[serde(default)]
    pub(crate) calls: Vec<Called>,
    /// The question as far as it is known, when the answer asked for the rest of it.
    #[serde(default)]
    pub(crate) asks_about: Option<String>,
}

/// A service that was called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Called {
    pub(crate) device: DeviceId,
    /// What the model calls it.
    pub(crate) tool: String,
    pub(crate) params: Map<String, Value>,
    /// How it ended, as the model was told.
    pub(crate) result: String,
}

impl Conversation {
    pub(crate) fn begin(npc: Option<NpcId>, subject: Option<String>) -> Self {
        Self {
            id: Uuid::now_v7(),
            fence: format!("{:016x}", rand::random::<u64>()),
            npc,
            subject,
            summary: None,
            first: 0,
            learned: 0,
            learning: None,
            exchanges: Vec::new(),
        }
    }

    /// What comes after the latest exchange.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.exchanges.len() as u64
    }

    /// Adds an exchange, or how one went on that was added when it began.
    pub(crate) fn note(&mut self, exchange: Exchange) {
        let exchange = exchange.bounded();
        match self.place_of(&exchange.id) {
            Some(begun) => *begun = exchange,
            None => self.exchanges.push(exchange),
        }
        while self.bytes() > MOST_BYTES && self.exchanges.len() > 1 {
            self.forget_before(self.first + 1);
        }
    }

    fn place_of(&mut self, id: &str) -> Option<&mut Exchange> {
        let mut latest = self.exchanges.iter_mut().rev();
        latest.find(|exchange| exchange.id == id)
    }

    /// What was said beside this exchange, whose answer is wanted.
    pub(crate) fn without(&mut self, id: &str) {
        self.exchanges.retain(|exchange| exchange.id != id);
    }

    /// Whether an answer is being given to somewhat else than this.
    pub(crate) fn is_open_beside(&self, id: &str) -> bool {
        let mut exchanges = self.exchanges.iter();
        exchanges.any(|exchange| exchange.is_open && exchange.id != id)
    }

    /// Those answers have ended, wherever they had come to.
    pub(crate) fn end_beside(&mut self, id: &str) {
        self.end_where(|exchange| exchange.id != id);
    }

    /// So have those that began before this time, in ms since 1970.
    pub(crate) fn end_begun_before(&mut self, at_ms: u64) {
        self.end_where(|exchange| exchange.at_ms < at_ms);
    }

    fn end_where(&mut self, has_ended: impl Fn(&Exchange) -> bool) {
        let open = self.exchanges.iter_mut();
        for exchange in open.filter(|exchange| exchange.is_open && has_ended(exchange)) {
            (exchange.is_open, exchange.is_interrupted) = (false, true);
        }
    }

    /// Whether an answer may still be given that began after this time, in ms since 1970.
    pub(crate) fn is_open_since(&self, at_ms: u64) -> bool {
        let mut exchanges = self.exchanges.iter();
        exchanges.any(|exchange| exchange.is_open && exchange.at_ms > at_ms)
    }

    /// Forgets exchanges that are told in short, or of which everything is learned.
    pub(crate) fn forget_before(&mut self, end: u64) {
        let gone = usize::try_from(end.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let gone = gone.min(self.exchanges.len());
        self.exchanges.drain(..gone);
        self.first += gone as u64;
    }

    /// Replaces what stands before this exchange by what was told of it in short when it all stood as in `told`. What somebody else
    /// has told in short meanwhile stays: it says more.
    pub(crate) fn summarise(&mut self, told: &Self, summary: &str, end: u64) {
        if (self.id, &self.summary) == (told.id, &told.summary) {
            self.summary = Some(clean_to(summary, SUMMARY_BYTES));
            self.forget_before(end);
        }
    }

    /// Behind the exchanges that should be told in short, if it is too long for a prompt.
    pub(crate) fn too_long_up_to(&self) -> Option<u64> {
        let is_long = self.exchanges.len() > LONG_EXCHANGES || self.bytes() > LONG_BYTES;
        let half = self.exchanges.len().div_ceil(2);
        (is_long && half > 0).then_some(self.first + half as u64)
    }

    /// Those before this one.
    pub(crate) fn before(&self, end: u64) -> &[Exchange] {
        let count = usize::try_from(end.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.exchanges
            .get(..count.min(self.exchanges.len()))
            .unwrap_or_default()
    }

    /// Those of them from which nothing is learned yet.
    pub(crate) fn unlearned(&self, end: u64) -> &[Exchange] {
        let learned = self.before(self.learned).len();
        self.before(end).get(learned..).unwrap_or_default()
    }

    /// After how long it is to be looked at: when it has rested, or, once it has, when somebody may try again to learn from it.
    pub(crate) fn due_in(&self, now_ms: u64, rests_after: Duration) -> Duration {
        let rest_ms = u64::try_from(rests_after.as_millis()).unwrap_or(u64::MAX);
        let goes_on = |exchange: &Exchange| exchange.at_ms.saturating_add(rest_ms) > now_ms;
        match self.learning {
            Some(learning) if !self.exchanges.last().is_some_and(goes_on) => {
                Duration::from_millis(learning.until_ms.saturating_sub(now_ms))
            }
            _ => rests_after,
        }
    }

    fn bytes(&self) -> usize {
        let summary = self.summary.as_ref().map_or(0, String::len);
        summary + self.exchanges.iter().map(Exchange::bytes).sum::<usize>()
    }
}

impl Exchange {
    /// One that begins now, by this name.
    pub(crate) fn begin(id: String, said: &str) -> Self {
        Self {
            id,
            is_open: true,
            at_ms: unix_now_ms(),
            said: said.to_owned(),
            answered: String::new(),
            is_interrupted: false,
            calls: Vec::new(),
            asks_about: None,
        }
    }

    fn bounded(mut self) -> Self {
        self.said = clean_to(&self.said, SAID_BYTES);
        self.answered = clean_to(&self.answered, ANSWERED_BYTES);
        self.asks_about = self.asks_about.map(|about| clean_to(&about, SAID_BYTES));
        self.calls.truncate(CALLS);
        for call in &mut self.calls {
            call.result = clean_to(&call.result, RESULT_BYTES);
            let params = serde_json::to_string(&call.params).map_or(usize::MAX, |text| text.len());
            if params > PARAMS_BYTES {
                call.params.clear();
            }
        }
        // What has to be escaped takes more than its own length.
        if self.bytes() > EXCHANGE_BYTES {
            self.calls.clear();
            self.said = clean_to(&self.said, SAID_BYTES / 4);
            self.answered = clean_to(&self.answered, ANSWERED_BYTES / 4);
            self.asks_about = None;
        }
        self
    }

    fn bytes(&self) -> usize {
        serde_json::to_string(self).map_or(usize::MAX, |text| text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(said: &str) -> Exchange {
        Exchange {
            answered: "Yes.".to_owned(),
            is_open: false,
            ..Exchange::begin(Uuid::now_v7().to_string(), said)
        }
    }

    fn said(conversation: &Conversation) -> Vec<&str> {
        let exchanges = conversation.exchanges.iter();
        exchanges.map(|exchange| exchange.said.as_str()).collect()
    }

    #[test]
    fn what_is_forgotten_keeps_the_numbers_of_the_rest() {
        let mut conversation = Conversation::begin(None, None);
        for word in ["a", "b", "c", "d"] {
            conversation.note(exchange(word));
        }
        assert_eq!((conversation.first, conversation.next()), (0, 4));
        assert_eq!(conversation.before(2).len(), 2);
        conversation.forget_before(2);
        assert_eq!(said(&conversation), ["c", "d"]);
        assert_eq!((conversation.first, conversation.next()), (2, 4));
        conversation.forget_before(1);
        assert_eq!(said(&conversation), ["c", "d"]);
        conversation.summarise(&conversation.clone(), "a and b", 9);
        assert_eq!((conversation.first, conversation.next()), (4, 4));
        assert_eq!(conversation.summary.as_deref(), Some("a and b"));
    }

    #[test]
    fn what_was_told_in_short_late_replaces_nothing_newer() {
        let mut conversation = Conversation::begin(None, None);
        for word in ["a", "b", "c", "d"] {
            conversation.note(exchange(word));
        }
        let early = conversation.clone();
        conversation.summarise(&early, "a and b", 2);
        let once = conversation.clone();
        conversation.summarise(&early, "only a", 1);
        assert_eq!(conversation, once);
        conversation.summarise(&once, "a, b and c", 3);
        assert_eq!(conversation.summary.as_deref(), Some("a, b and c"));
        // Nor what another conversation was told of.
        let other = Conversation::begin(None, None);
        let before = conversation.clone();
        conversation.summarise(&other, "x", 4);
        assert_eq!(conversation, before);
    }

    #[test]
    fn an_exchange_is_noted_when_it_begins_and_once_more_when_it_ends() {
        let mut conversation = Conversation::begin(None, None);
        conversation.note(exchange("a"));
        let story = Exchange::begin("1".to_owned(), "a story");
        let song = Exchange::begin("2".to_owned(), "a song");
        conversation.note(story.clone());
        assert!(!conversation.is_open_beside("1") && conversation.is_open_beside("2"));
        conversation.note(song.clone());
        assert!(conversation.is_open_since(0) && !conversation.is_open_since(u64::MAX));
        conversation.note(Exchange {
            answered: "Once upon".to_owned(),
            is_open: false,
            ..story
        });
        assert_eq!(said(&conversation), ["a", "a story", "a song"]);
        assert_eq!(conversation.exchanges[1].answered, "Once upon");
        assert!(!conversation.is_open_beside("2") && conversation.is_open_beside("3"));
        let begun_ms = conversation.exchanges[2].at_ms;
        conversation.end_begun_before(begun_ms);
        assert!(conversation.is_open_beside("3"));
        let mut later = conversation.clone();
        later.end_begun_before(begun_ms + 1);
        assert!(!later.is_open_beside("3") && later.exchanges[2].is_interrupted);
        conversation.end_beside("3");
        assert!(!conversation.is_open_beside("3") && conversation.exchanges[2].is_interrupted);
        conversation.without("2");
        assert_eq!(said(&conversation), ["a", "a story"]);
    }

    #[test]
    fn only_what_has_rested_is_looked_at_before_it_rests_again() {
        let (now_ms, rests_after) = (1_000_000, Duration::from_secs(600));
        let check = |said_ms: u64, until_ms: Option<u64>, expected_s: u64| {
            let mut conversation = Conversation::begin(None, None);
            conversation.note(Exchange {
                at_ms: said_ms,
                ..exchange("a")
            });
            conversation.learning = until_ms.map(|until_ms| Learning {
                up_to: 1,
                attempts: 1,
                until_ms,
            });
            let due_in = conversation.due_in(now_ms, rests_after);
            assert_eq!(
                due_in,
                Duration::from_secs(expected_s),
                "{said_ms} {until_ms:?}"
            );
        };
        check(now_ms, None, 600);
        check(0, None, 600);
        check(0, Some(now_ms + 5_000), 5);
        check(0, Some(now_ms - 1), 0);
        // Somebody goes on with it, and that is not to end it.
        check(now_ms - 1_000, Some(now_ms + 5_000), 600);
    }

    #[test]
    fn what_is_learned_is_not_learned_again() {
        let mut conversation = Conversation::begin(None, None);
        for word in ["a", "b", "c", "d"] {
            conversation.note(exchange(word));
        }
        assert_eq!(conversation.unlearned(3).len(), 3);
        conversation.learned = 2;
        assert_eq!(conversation.unlearned(3)[0].said, "c");
        conversation.forget_before(1);
        assert_eq!(conversation.unlearned(4).len(), 2);
        conversation.forget_before(3);
        assert_eq!(conversation.unlearned(4)[0].said, "d");
        assert!(conversation.unlearned(2).is_empty());
    }

    #[test]
    fn a_long_one_is_told_in_short_and_never_grows_for_ever() {
        let mut conversation = Conversation::begin(None, None);
        for n in 0..LONG_EXCHANGES {
            conversation.note(exchange(&format!("{n}")));
            assert_eq!(conversation.too_long_up_to(), None);
        }
        conversation.note(exchange("one more"));
        assert_eq!(conversation.too_long_up_to(), Some(13));
        for _ in 0..100 {
            conversation.note(exchange(&"x".repeat(3_000)));
            assert!(conversation.bytes() <= MOST_BYTES);
        }
        assert_eq!(conversation.next(), 125);
        conversation.note(exchange(&"y".repeat(100_000)));
        assert_eq!(
            conversation.exchanges.last().unwrap().said.len(),
            SAID_BYTES
        );
    }
}
