//! The journal of synchronous calls: they are collected in memory when they end, and written in batches.
//!
//! Invariant: no call waits for the journal, or fails because of it. What an organisation can occupy
//! is bounded; calls beyond are counted as left out.

use std::{
    collections::{HashMap, VecDeque},
    num::NonZeroU32,
    str,
    time::Duration,
};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use prometheus::IntCounter;
use switchboard_protocol::{
    id::{CallId, DeviceKey, JournalEntryId, OrgId},
    outcome::Delivered,
};
use switchboard_runtime::{
    budget::{Budget, Budgets, Kind, Owner, Permit},
    rate_limit::TokenBuckets,
    shutdown::Shutdown,
};
use uuid::Uuid;

use crate::{
    CallCaller, CallVia, Store, StoreError,
    usage::{
        counter::{self, MAX_BATCH, Writable},
        hour,
    },
};

/// Bytes of the params, and of the result, that the journal keeps. Protects the database.
pub const MAX_JOURNALED_BYTES: usize = 4 * 1024;

/// Bytes of calls that wait to be written. Protects memory while the database is unavailable.
const BUFFER_BYTES: usize = 8 * 1024 * 1024;
/// Calls of an organisation that a process records in a second, and at once. Protects the database.
const ORG_RATE_PER_S: NonZeroU32 = NonZeroU32::new(20).unwrap();
const ORG_BURST: NonZeroU32 = NonZeroU32::new(200).unwrap();
/// The maximum size of the texts that one batch writes.
const MAX_BATCH_BYTES: usize = 1024 * 1024;
/// Calls of a batch that are found to be the ones that the database cannot store. With more of them, what
/// is refused with others is left out. Protects the database.
const MAX_REFUSED_CALLS: usize = 32;
/// Calls of an organisation that are written between deletions of its oldest ones.
const CALLS_BETWEEN_TRIMS: u32 = 1_000;
/// Organisations whose calls are counted, for each purpose. Protects memory.
const MAX_COUNTED_ORGS: usize = 10_000;
/// About how long the name of a device, and the subject of a caller, are.
const MAX_SUBJECT_BYTES: usize = 128;
/// The interval of writes: a process that is killed loses this much.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// A synchronous call that has ended.
#[derive(Clone, Copy)]
pub struct EndedCall<'a> {
    /// The id of its entry in the journal.
    pub id: JournalEntryId,
    /// The id of the call.
    pub call: CallId,
    /// The device that was called.
    pub device: &'a DeviceKey,
    /// The service that was called.
    pub service: &'a str,
    /// What it came through.
    pub via: CallVia,
    /// Who made it.
    pub caller: &'a CallCaller,
    /// The outcome, or `unavailable`.
    pub outcome: &'static str,
    /// Whether the device may have executed it.
    pub delivered: Delivered,
    /// How long it took.
    pub elapsed: Duration,
    /// The params.
    pub params: &'a [u8],
    /// The device's result; empty if it sent none.
    pub result: &'a [u8],
}

/// Collects the synchronous calls of a process; [`CallJournal::run`] writes them.
pub struct CallJournal {
    rates: TokenBuckets<OrgId>,
    buffer: Budget,
    waiting: Mutex<Waiting>,
    left_out: IntCounter,
}

#[derive(Default)]
struct Waiting {
    calls: VecDeque<JournaledCall>,
    left_out: HashMap<OrgId, i64>,
    /// Calls that were written since the oldest ones were deleted.
    written: HashMap<OrgId, u32>,
}

/// A call that waits to be written.
pub(super) struct JournaledCall {
    pub(super) id: JournalEntryId,
    pub(super) call: CallId,
    pub(super) ended_at: DateTime<Utc>,
    pub(super) device: DeviceKey,
    pub(super) service: Box<str>,
    pub(super) outcome: &'static str,
    pub(super) delivered: Delivered,
    pub(super) elapsed: Duration,
    pub(super) via: CallVia,
    pub(super) caller: CallCaller,
    pub(super) params_bytes: usize,
    pub(super) result_bytes: usize,
    pub(super) params: Option<Box<str>>,
    pub(super) result: Option<Box<str>>,
    permit: Permit,
}

/// A part of a batch.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are calls: a box would cost each an allocation"
)]
enum Item {
    Call(JournaledCall),
    LeftOut(OrgId, DateTime<Utc>, i64),
    /// The organisation has enough new calls that its oldest ones are deleted.
    Trim(OrgId),
}

impl EndedCall<'_> {
    /// About how many bytes its entry takes, without texts of users.
    fn bytes(&self) -> usize {
        size_of::<Item>() + MAX_SUBJECT_BYTES + self.service.len()
    }

    fn entry(&self, texts: [Option<&str>; 2], permit: Permit) -> JournaledCall {
        let [params, result] = texts;
        JournaledCall {
            id: self.id,
            call: self.call,
            ended_at: Utc::now(),
            device: self.device.clone(),
            service: self.service.into(),
            outcome: self.outcome,
            delivered: self.delivered,
            elapsed: self.elapsed,
            via: self.via,
            caller: self.caller.clone(),
            params_bytes: self.params.len(),
            result_bytes: self.result.len(),
            params: params.map(Box::from),
            result: result.map(Box::from),
            permit,
        }
    }
}

impl CallJournal {
    /// Creates an empty journal. `left_out` counts the calls that it leaves out.
    #[must_use]
    pub fn new(budgets: &Budgets, left_out: IntCounter) -> Self {
        Self {
            rates: TokenBuckets::new(ORG_RATE_PER_S, ORG_BURST),
            buffer: budgets.bytes(
                "journaled_calls",
                BUFFER_BYTES,
                Kind::quarter_of(BUFFER_BYTES),
            ),
            waiting: Mutex::default(),
            left_out,
        }
    }

    /// Records a call, at once. `keeps_params`: also the beginnings of its params and its result.
    pub fn record(&self, ended: &EndedCall<'_>, keeps_params: bool) {
        let org = ended.device.org;
        if self.rates.take(&org).is_err() {
            return self.leave_out(org);
        }
        let texts = match keeps_params {
            true => [Some(ended.params), Some(ended.result)].map(|text| text.map(beginning)),
            false => [None, None],
        };
        let bytes = texts.iter().flatten().map(|text| text.len()).sum::<usize>();
        let bytes = ended.bytes() + bytes;
        match self.buffer.try_acquire(Owner::Org(org.uuid()), bytes) {
            Ok(permit) => {
                let entry = ended.entry(texts, permit);
                self.waiting.lock().calls.push_back(entry);
            }
            Err(_) => self.leave_out(org),
        }
    }

    fn leave_out(&self, org: OrgId) {
        self.left_out.inc();
        let left_out = &mut self.waiting.lock().left_out;
        if left_out.len() < MAX_COUNTED_ORGS || left_out.contains_key(&org) {
            *left_out.entry(org).or_default() += 1;
        }
    }

    /// Drops the buckets of rates that are full again.
    pub fn sweep(&self) {
        self.rates.sweep();
    }

    /// Writes periodically until draining begins and no call is in flight, or until shutdown is
    /// forced.
    pub async fn run(&self, in_flight: impl Fn() -> bool, store: Store, shutdown: Shutdown) {
        counter::write_periodically(|| self.take(), in_flight, store, shutdown).await;
    }

    /// Removes a batch.
    fn take(&self) -> Vec<Item> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut waiting = self.waiting.lock();
        let Waiting {
            calls,
            left_out,
            written,
        } = &mut *waiting;
        while batch.len() < MAX_BATCH
            && bytes < MAX_BATCH_BYTES
            && let Some(call) = calls.pop_front()
        {
            bytes += call.permit.amount();
            let org = call.device.org;
            batch.push(Item::Call(call));
            let count = written.entry(org).or_default();
            *count += 1;
            if *count >= CALLS_BETWEEN_TRIMS {
                written.remove(&org);
                batch.push(Item::Trim(org));
            }
        }
        if written.len() > MAX_COUNTED_ORGS {
            written.clear();
        }
        let now = hour(Utc::now());
        let counts = left_out.drain();
        batch.extend(counts.map(|(org, calls)| Item::LeftOut(org, now, calls)));
        batch
    }
}

impl Writable for Item {
    const FLUSH_INTERVAL: Duration = FLUSH_INTERVAL;
    const NAME: &'static str = "calls of the journal";

    /// Writes a batch. Calls that cannot be stored are left out: others do not wait for them.
    async fn write(
        store: &Store,
        counter: Uuid,
        batch: i64,
        items: &[Self],
    ) -> Result<(), StoreError> {
        let calls = items.iter().filter_map(|item| match item {
            Self::Call(call) => Some(call),
            _ => None,
        });
        let calls: Vec<_> = calls.collect();
        let mut left_out: HashMap<_, i64> = HashMap::new();
        for call in insert_storable(store, &calls).await? {
            *left_out
                .entry((call.device.org, hour(call.ended_at)))
                .or_default() += 1;
        }
        for item in items {
            if let Self::LeftOut(org, hour, calls) = item {
                *left_out.entry((*org, *hour)).or_default() += calls;
            }
        }
        let left_out = left_out
            .into_iter()
            .map(|((org, hour), calls)| (org, hour, calls));
        let left_out: Vec<_> = left_out.collect();
        store
            .add_left_out_calls((counter, batch), &left_out)
            .await?;
        for item in items {
            if let Self::Trim(org) = item {
                store.trim_recent_calls(*org).await?;
            }
        }
        Ok(())
    }
}

/// Inserts calls, and returns those that the database cannot store. These are found by halves.
async fn insert_storable<'a>(
    store: &Store,
    calls: &[&'a JournaledCall],
) -> Result<Vec<&'a JournaledCall>, StoreError> {
    let mut parts = vec![calls];
    let mut refused = Vec::new();
    let mut reason = String::new();
    while let Some(part) = parts.pop() {
        let error = match store.insert_recent_calls(part.iter().copied()).await {
            Err(error @ StoreError::Refused(_)) => error,
            inserted => {
                inserted?;
                continue;
            }
        };
        reason = error.report();
        if part.len() == 1 || refused.len() >= MAX_REFUSED_CALLS {
            refused.extend(part);
        } else {
            let (first, second) = part.split_at(part.len() / 2);
            parts.extend([second, first]);
        }
    }
    if !refused.is_empty() {
        tracing::error!(
            calls = refused.len(),
            error = reason,
            "calls are left out of the journal: the database cannot store them"
        );
    }
    Ok(refused)
}

/// The beginning of a text, in whole characters.
fn beginning(text: &[u8]) -> &str {
    let cut = text.get(..MAX_JOURNALED_BYTES).unwrap_or(text);
    match cut.utf8_chunks().next() {
        Some(chunk) => chunk.valid(),
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;

    fn journal() -> CallJournal {
        let budgets = Budgets::new(&Registry::new()).unwrap();
        CallJournal::new(&budgets, IntCounter::new("left_out", "calls").unwrap())
    }

    fn record(journal: &CallJournal, org: u128, params: &[u8], keeps_params: bool) {
        let device = DeviceKey {
            org: OrgId::from_uuid(Uuid::from_u128(org)),
            device: "toy-1".parse().unwrap(),
        };
        let ended = EndedCall {
            id: JournalEntryId::from_uuid(Uuid::now_v7()),
            call: CallId::from_uuid(Uuid::now_v7()),
            device: &device,
            service: "wave",
            via: CallVia::Rest,
            caller: &CallCaller::Assistant,
            outcome: "succeeded",
            delivered: Delivered::Yes,
            elapsed: Duration::from_millis(3),
            params,
            result: b"{}",
        };
        journal.record(&ended, keeps_params);
    }

    /// The calls, the calls that were left out, and the trims of a batch.
    fn sums(batch: &[Item]) -> (usize, i64, usize) {
        batch.iter().fold((0, 0, 0), |sums, item| match item {
            Item::Call(_) => (sums.0 + 1, sums.1, sums.2),
            Item::LeftOut(_, _, calls) => (sums.0, sums.1 + calls, sums.2),
            Item::Trim(_) => (sums.0, sums.1, sums.2 + 1),
        })
    }

    #[test]
    fn calls_beyond_the_rate_of_an_organisation_are_left_out_and_counted() {
        let journal = journal();
        for _ in 0..1_000 {
            record(&journal, 1, b"{}", false);
        }
        record(&journal, 2, b"{}", false);
        let batch = journal.take();
        let (calls, left_out, _) = sums(&batch);
        assert!((201..=300).contains(&calls), "{calls}");
        assert_eq!(calls + usize::try_from(left_out).unwrap(), 1_001);
        let written = batch.iter().any(
            |item| matches!(item, Item::Call(call) if call.device.org.uuid() == Uuid::from_u128(2)),
        );
        assert!(written, "the other organisation has its call");
        assert!(journal.take().is_empty());
        assert_eq!(u64::try_from(left_out).unwrap(), journal.left_out.get());
    }

    #[test]
    fn batch_is_bounded_and_returns_its_room() {
        let journal = journal();
        let params = [b'x'; 2 * MAX_JOURNALED_BYTES];
        for org in 0..2_000 {
            record(&journal, org, &params, true);
        }
        let (mut calls, mut left_out) = (0, 0);
        loop {
            let batch = journal.take();
            if batch.is_empty() {
                break;
            }
            let bytes = batch.iter().map(|item| match item {
                Item::Call(call) => call.permit.amount(),
                _ => 0,
            });
            assert!(bytes.sum::<usize>() < MAX_BATCH_BYTES + 2 * MAX_JOURNALED_BYTES);
            let (more, more_left_out, _) = sums(&batch);
            (calls, left_out) = (calls + more, left_out + more_left_out);
        }
        assert!(left_out > 0 && calls > 1_500, "{calls}, {left_out}");
        assert_eq!(journal.buffer.used(), 0);
    }

    #[test]
    fn texts_are_kept_only_where_they_are_wanted_and_cut_between_characters() {
        fn check(params: &[u8], keeps_params: bool, expected: Option<&str>) {
            let journal = journal();
            record(&journal, 1, params, keeps_params);
            let batch = journal.take();
            let [Item::Call(call)] = &batch[..] else {
                panic!("one call");
            };
            assert_eq!(call.params.as_deref(), expected);
            assert_eq!(call.params_bytes, params.len());
        }
        check(b"{}", false, None);
        check(b"{}", true, Some("{}"));
        check(b"", true, Some(""));
        check(b"a\xffb", true, Some("a"));
        let long = format!("x{}", "好".repeat(2_000));
        check(long.as_bytes(), true, Some(&long[..4_096]));
        let long = "好".repeat(2_000);
        check(long.as_bytes(), true, Some(&long[..4_095]));
    }
}
