//! What happened to each call, as devices and callers saw it, and what must not have happened.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use switchboard_protocol::{
    id::CallId,
    outcome::{Delivered, Outcome},
};
use tokio::time::Instant;

use super::{actors::Host, process::elapsed};
use crate::{Answer, BusError};

/// How much later than its deadline a call may be executed, or end; and end during a failure.
const GRACE: Duration = Duration::from_millis(250);
const FAILURE_GRACE: Duration = Duration::from_secs(1);

/// The number of calls with each outcome, and of executions.
pub(super) type Counts = BTreeMap<&'static str, usize>;

/// Everything that was observed.
#[derive(Default)]
pub(super) struct Ledger {
    calls: Mutex<BTreeMap<CallId, Record>>,
    violations: Mutex<Vec<String>>,
    log: Mutex<Vec<String>>,
}

struct Record {
    caller: Arc<Host>,
    began: Instant,
    /// The latest that it may be executed, and end.
    execution_limit: Instant,
    limit: Instant,
    /// Whether the caller stops waiting earlier.
    is_dropped: bool,
    /// When a device executed it, and until when it could, as its node knew.
    executions: Vec<(Instant, Instant)>,
    ended: Option<(Instant, Result<Answer, BusError>)>,
}

/// The result with which a device answers a call.
pub(super) fn result_of(call: CallId) -> Bytes {
    format!("{{\"success\":true,\"data\":\"{call}\"}}").into()
}

impl Ledger {
    pub(super) fn log(&self, line: impl FnOnce() -> String) {
        let line = format!("{:>7} ms: {}", elapsed().as_millis(), line());
        self.log.lock().push(line);
    }

    pub(super) fn violation(&self, what: &str) {
        self.log(|| format!("VIOLATION: {what}"));
        self.violations.lock().push(what.to_owned());
    }

    pub(super) fn begin(
        &self,
        call: CallId,
        caller: &Arc<Host>,
        timeout: Duration,
        is_dropped: bool,
    ) {
        let began = Instant::now();
        let has_faults = *caller.redis.has_faults.lock();
        let grace = if has_faults { FAILURE_GRACE } else { GRACE };
        let record = Record {
            caller: Arc::clone(caller),
            began,
            execution_limit: began + timeout + GRACE,
            limit: began + timeout + grace,
            is_dropped,
            executions: Vec::new(),
            ended: None,
        };
        self.calls.lock().insert(call, record);
    }

    pub(super) fn execute(&self, call: CallId, deadline: Instant) {
        self.log(|| format!("{call} is executed"));
        if let Some(record) = self.calls.lock().get_mut(&call) {
            record.executions.push((Instant::now(), deadline));
        }
    }

    pub(super) fn end(&self, call: CallId, result: Result<Answer, BusError>) {
        self.log(|| match &result {
            Ok(answer) => format!(
                "{call} ends: {} {}",
                answer.outcome.as_str(),
                answer.delivered.as_str()
            ),
            Err(error) => format!("{call} is refused: {error}"),
        });
        if let Some(record) = self.calls.lock().get_mut(&call) {
            record.ended = Some((Instant::now(), result));
        }
    }

    /// Checks the calls, when all have ended.
    pub(super) fn check(&self) {
        for (call, record) in &*self.calls.lock() {
            for violation in record.violations(*call) {
                self.violation(&format!("{call}: {violation}"));
            }
        }
    }

    /// The violations, with what led to them; `None` when there are none.
    pub(super) fn verdict(&self) -> Option<String> {
        let violations = self.violations.lock();
        (!violations.is_empty()).then(|| format!("{}\n\n{}", self.trace(), violations.join("\n")))
    }

    /// What happened, a line each.
    pub(super) fn trace(&self) -> String {
        self.log.lock().join("\n")
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = BTreeMap::new();
        for record in self.calls.lock().values() {
            let name = match &record.ended {
                None => "none",
                Some((_, Err(_))) => "refused",
                Some((_, Ok(answer))) => answer.outcome.as_str(),
            };
            *counts.entry(name).or_default() += 1;
            *counts.entry("executed").or_default() += record.executions.len();
        }
        counts
    }
}

impl Record {
    fn violations(&self, call: CallId) -> Vec<String> {
        let mut violations = Vec::new();
        let mut check = |is_violated: bool, what: &str| {
            if is_violated {
                violations.push(what.to_owned());
            }
        };
        let executed = self.executions.len();
        check(executed > 1, "I2: executed more than once");
        let is_late =
            |(at, deadline): &(Instant, Instant)| *at.max(deadline) > self.execution_limit;
        check(
            self.executions.iter().any(is_late),
            "I1: executed after its deadline, or allowed to be",
        );
        let Some((ended_at, result)) = &self.ended else {
            let waits = !self.is_dropped && self.caller.is_alive();
            check(waits, "I1: without an outcome");
            return violations;
        };
        let caller_ran = !self.caller.was_stopped_since(self.began);
        let is_late = *ended_at > self.limit;
        check(is_late && caller_ran, "I1: ended after its deadline");
        let was_not_delivered = match result {
            Ok(answer) => answer.delivered == Delivered::No,
            Err(_) => true,
        };
        check(
            was_not_delivered && executed > 0,
            "I3: executed, and `delivered: no`",
        );
        let Ok(answer) = result else {
            return violations;
        };
        if answer.outcome == Outcome::Succeeded {
            check(executed != 1, "I3: succeeded without its execution");
            check(
                answer.body != result_of(call),
                "I4: the result of another call",
            );
        }
        let lost_lease = answer
            .refusal()
            .is_some_and(|refusal| refusal.detail.contains("lease"));
        let resurrected = self.executions.iter().any(|(at, _)| at > ended_at);
        check(
            answer.outcome == Outcome::Lost && lost_lease && resurrected,
            "I1: executed after the lease of its node had ended",
        );
        violations
    }
}
