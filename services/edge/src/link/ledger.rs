//! The calls of one connection: waiting to be written, in flight, and those settled lately.
//! Never: a call that ends twice, an allocation kept while there are no calls.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use switchboard_bus::{Handling, InboundCall, ReplyTo, Text};
use switchboard_protocol::id::CallId;
use switchboard_runtime::label;

use crate::allowance::Allowance;

/// How many settled calls are remembered to name a stray result rightly.
const REMEMBERED: usize = 32;
/// For how long.
const MEMORY: Duration = Duration::from_secs(30);

/// A call taken from the queue, to be checked and written.
pub(crate) struct Dispatch {
    pub(crate) id: CallId,
    pub(crate) service: Text,
    pub(crate) params: bytes::Bytes,
    /// Empty when the device asked for nothing before.
    pub(crate) input: bytes::Bytes,
    pub(crate) deadline: Instant,
    pub(crate) handling: Handling,
}

/// A call that ends without a result.
pub(crate) struct Unsettled {
    pub(crate) reply: ReplyTo,
    /// Whether it was taken from the queue, so that the device may have seen it.
    pub(crate) dispatched: bool,
}

/// Why a result fits no call in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stray {
    /// The device answered this call before.
    Repeated,
    /// The call ended without it.
    Late,
    /// Nothing is known of such a call on this connection.
    Foreign,
}

label!(Stray {
    Repeated => "repeated",
    Late => "late",
    Foreign => "foreign",
});

/// How often a device may say something of one call, and when it does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoticeRate {
    pub(crate) burst: u32,
    pub(crate) every_ms: u32,
    /// On the edge's clock.
    pub(crate) now_ms: u64,
}

/// Why what the device says of a call is not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unheard {
    /// There is no such call in flight here, or its caller does not listen.
    NobodyListens,
    TooOften,
}

struct InFlight {
    id: CallId,
    deadline: Instant,
    reply: ReplyTo,
    /// What the device may still say of it; none before it said anything.
    notices: Option<Allowance>,
}

struct Settled {
    id: CallId,
    how: Stray,
    at: Instant,
}

/// What a waiting call holds in memory.
pub(crate) fn bytes_of(call: &InboundCall) -> usize {
    call.params.len() + call.input.len()
}

/// The calls of one connection.
#[derive(Default)]
pub(crate) struct Ledger {
    waiting: VecDeque<InboundCall>,
    /// Of what those bring along.
    waiting_bytes: usize,
    in_flight: Vec<InFlight>,
    /// Oldest first; forgotten after a while, so that a quiet connection keeps nothing.
    settled: VecDeque<Settled>,
}

impl Ledger {
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty()
    }

    /// Whether it has this call, or had it lately: a device gets an id once.
    pub(crate) fn has(&self, id: CallId) -> bool {
        self.in_flight.iter().any(|call| call.id == id)
            || self.waiting.iter().any(|call| call.id == id)
            || self.settled.iter().any(|settled| settled.id == id)
    }

    /// Queues a call for the connection's task.
    pub(crate) fn admit(&mut self, call: InboundCall) {
        call.reply.handling().note("queued");
        self.waiting_bytes += bytes_of(&call);
        self.waiting.push_back(call);
    }

    /// The next call to write, from here on in flight.
    pub(crate) fn dispatch(&mut self) -> Option<Dispatch> {
        let call = self.waiting.pop_front()?;
        self.waiting_bytes -= bytes_of(&call);
        let InboundCall {
            id,
            service,
            params,
            input,
            deadline,
            reply,
            ..
        } = call;
        let handling = reply.handling().clone();
        self.in_flight.push(InFlight {
            id,
            deadline,
            reply,
            notices: None,
        });
        Some(Dispatch {
            id,
            service,
            params,
            input,
            deadline,
            handling,
        })
    }

    /// Whom to tell what the device says of this call while it is at it.
    pub(crate) fn listener(&mut self, id: CallId, rate: NoticeRate) -> Result<&ReplyTo, Unheard> {
        let mut listening = self
            .in_flight
            .iter_mut()
            .filter(|call| call.reply.wants_notices());
        let call = listening
            .find(|call| call.id == id)
            .ok_or(Unheard::NobodyListens)?;
        let full = || Allowance::new(rate.burst, rate.now_ms);
        let allowance = call.notices.get_or_insert_with(full);
        match allowance.take(rate.burst, rate.every_ms, rate.now_ms) {
            Ok(()) => Ok(&call.reply),
            Err(_) => Err(Unheard::TooOften),
        }
    }

    /// Takes back a dispatched call that will not be written after all.
    pub(crate) fn withdraw(&mut self, id: CallId) -> Option<ReplyTo> {
        self.take(id)
    }

    /// Brings the deadline of a call in flight forward.
    pub(crate) fn shorten(&mut self, id: CallId, deadline: Instant) {
        if let Some(call) = self.in_flight.iter_mut().find(|call| call.id == id) {
            call.deadline = call.deadline.min(deadline);
        }
    }

    /// The device's result arrived: whom to tell, or what is wrong with it.
    pub(crate) fn settle(&mut self, id: CallId) -> Result<ReplyTo, Stray> {
        if let Some(reply) = self.take(id) {
            self.remember(id, Stray::Repeated);
            return Ok(reply);
        }
        let known = self.settled.iter().find(|settled| settled.id == id);
        Err(known.map_or(Stray::Foreign, |settled| settled.how))
    }

    /// The caller gave up.
    pub(crate) fn cancel(&mut self, id: CallId) -> Option<Unsettled> {
        if let Some(at) = self.waiting.iter().position(|call| call.id == id) {
            let call = self.waiting.remove(at)?;
            self.waiting_bytes -= bytes_of(&call);
            return Some(Unsettled {
                reply: call.reply,
                dispatched: false,
            });
        }
        let reply = self.take(id)?;
        self.remember(id, Stray::Late);
        Some(Unsettled {
            reply,
            dispatched: true,
        })
    }

    /// Takes out every call whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Unsettled> {
        let mut expired = Vec::new();
        while let Some(at) = self.in_flight.iter().position(|call| call.deadline <= now) {
            let call = self.in_flight.swap_remove(at);
            self.remember(call.id, Stray::Late);
            expired.push(Unsettled {
                reply: call.reply,
                dispatched: true,
            });
        }
        while let Some(at) = self.waiting.iter().position(|call| call.deadline <= now) {
            let Some(call) = self.waiting.remove(at) else {
                break;
            };
            self.waiting_bytes -= bytes_of(&call);
            expired.push(Unsettled {
                reply: call.reply,
                dispatched: false,
            });
        }
        expired
    }

    /// Forgets what was settled long ago, and gives memory back that is not needed now.
    pub(crate) fn forget(&mut self, now: Instant) {
        let old = |settled: &Settled| now.saturating_duration_since(settled.at) > MEMORY;
        while self.settled.front().is_some_and(old) {
            self.settled.pop_front();
        }
        if self.settled.is_empty() {
            self.settled = VecDeque::new();
        }
        if self.in_flight.is_empty() {
            self.in_flight = Vec::new();
        }
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
    }

    /// Empties the ledger: every call that has not ended.
    pub(crate) fn close(&mut self) -> Vec<Unsettled> {
        let closed = std::mem::take(self);
        let in_flight = closed.in_flight.into_iter();
        let waiting = closed.waiting.into_iter();
        in_flight
            .map(|call| Unsettled {
                reply: call.reply,
                dispatched: true,
            })
            .chain(waiting.map(|call| Unsettled {
                reply: call.reply,
                dispatched: false,
            }))
            .collect()
    }

    fn take(&mut self, id: CallId) -> Option<ReplyTo> {
        let at = self.in_flight.iter().position(|call| call.id == id)?;
        Some(self.in_flight.swap_remove(at).reply)
    }

    fn remember(&mut self, id: CallId, how: Stray) {
        if self.settled.len() >= REMEMBERED {
            self.settled.pop_front();
        }
        self.settled.push_back(Settled {
            id,
            how,
            at: Instant::now(),
        });
    }
}
