//! What the rest of the edge sees of a connection: who it is, its calls, and how to reach its task.
//! Never: I/O, an await, anything that blocks for longer than a short lock.

mod ledger;
mod speech;
mod turns;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Instant,
};

use parking_lot::Mutex;
use switchboard_bus::{Epoch, InboundCall, LeftReason, ReplyTo};
use switchboard_protocol::{
    id::{CallId, DeviceKey, TokenId},
    schema::Registration,
};

use self::{ledger::Ledger, turns::Turns};
pub(crate) use self::{
    ledger::{Dispatch, NoticeRate, Stray, Unheard, Unsettled},
    turns::{Errand, Step, TurnEnd, TurnLimits},
};

/// `stalled_since_ms` of a connection whose socket takes what it is given.
const NOT_STALLED: u64 = u64::MAX;

/// `asked_after_ms` of a connection that was not asked yet.
const NOT_ASKED: u64 = u64::MAX;

/// Who is on a connection, as its token says.
pub(crate) struct Identity {
    pub(crate) key: DeviceKey,
    pub(crate) token: TokenId,
    /// Unix seconds.
    pub(crate) token_expires_at_s: u64,
}

/// The shared half of a connection; the other half is its task.
pub(crate) struct Link {
    pub(crate) key: DeviceKey,
    pub(crate) epoch: Epoch,
    pub(crate) token: TokenId,
    /// Unix seconds.
    pub(crate) token_expires_at_s: u64,
    /// On the edge's own clock.
    heard_ms: AtomicU64,
    stalled_since_ms: AtomicU64,
    /// The `heard_ms` after whose silence the device was asked whether it is there.
    asked_after_ms: AtomicU64,
    state: Mutex<State>,
}

/// Why others want a connection closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eviction {
    Idle,
    Takeover,
    SlowReader,
    Revoked,
    Expired,
    /// Told to go, and done with its calls or out of time.
    Drained,
    /// The edge ends before the device was told anything.
    Stopped,
}

/// What the connection's task has to do.
pub(crate) enum Signal {
    Commands,
    /// Told to go, and nothing is left to do, unless the device has just sent something; said once more if nobody has found
    /// anything to do since.
    Done {
        again: bool,
    },
    Leave(Eviction),
}

/// What is to be written to the device.
pub(crate) enum Command {
    Call(Dispatch),
    Answer(Step),
    Cancel(CallId),
    Ping,
    GoAway,
}

/// What a look at the calls brought.
pub(crate) struct Expired {
    pub(crate) calls: Vec<Unsettled>,
    /// How many are still in flight.
    pub(crate) in_flight: usize,
    /// How many still wait to be written.
    pub(crate) waiting: usize,
}

/// The limits a call has to pass to be queued.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLimits {
    pub(crate) waiting: usize,
    pub(crate) waiting_bytes: usize,
    pub(crate) in_flight: usize,
}

/// Why a call was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotQueued {
    /// This connection takes no calls any more.
    Gone,
    /// A limit is reached.
    Full,
    /// This connection has had a call with this id.
    Repeated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Stage {
    #[default]
    Serving,
    /// Told to go, still taking calls until a moment without any comes.
    Draining,
    /// Takes no further calls, finishes those it has.
    Finishing,
    Closed,
}

#[derive(Default)]
struct State {
    stage: Stage,
    /// Whether the device is still to be told that it shall go.
    go_away: bool,
    /// Whether the device is still to be asked whether it is there.
    ping: bool,
    /// Whether nothing was left to do at the last look.
    was_done: bool,
    eviction: Option<Eviction>,
    ledger: Ledger,
    cancels: Vec<CallId>,
    registration: Option<Arc<Registration>>,
    /// Only while something is said.
    turns: Option<Box<Turns>>,
    /// Whether the device ever said something.
    has_spoken: bool,
    waker: Option<Waker>,
}

impl Eviction {
    pub(crate) const fn reason(self) -> LeftReason {
        match self {
            Self::Idle => LeftReason::IdleTimeout,
            Self::Takeover => LeftReason::Takeover,
            Self::SlowReader => LeftReason::SlowReader,
            Self::Revoked => LeftReason::Revoked,
            Self::Expired => LeftReason::Expired,
            Self::Drained | Self::Stopped => LeftReason::Drain,
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("key", &self.key)
            .field("epoch", &self.epoch)
            .finish()
    }
}

impl State {
    fn has_commands(&self) -> bool {
        self.go_away
            || self.ping
            || !self.cancels.is_empty()
            || self.ledger.waiting() > 0
            || self.has_steps()
    }

    /// Whether a drained connection has nothing left to do.
    fn is_done(&self) -> bool {
        self.stage >= Stage::Draining && !self.go_away && self.ledger.is_empty() && self.is_silent()
    }
}

impl Link {
    pub(crate) fn new(identity: Identity, epoch: Epoch, now_ms: u64) -> Self {
        Self {
            key: identity.key,
            epoch,
            token: identity.token,
            token_expires_at_s: identity.token_expires_at_s,
            heard_ms: AtomicU64::new(now_ms),
            stalled_since_ms: AtomicU64::new(NOT_STALLED),
            asked_after_ms: AtomicU64::new(NOT_ASKED),
            state: Mutex::default(),
        }
    }

    // Called by anybody.

    /// Queues a call for the device, or says why not.
    pub(crate) fn deliver(
        &self,
        mut call: InboundCall,
        limits: CallLimits,
    ) -> Result<(), (ReplyTo, NotQueued)> {
        let mut state = self.state.lock();
        if state.stage >= Stage::Finishing {
            return Err((call.reply, NotQueued::Gone));
        }
        if state.ledger.has(call.id) {
            return Err((call.reply, NotQueued::Repeated));
        }
        let busy = state.ledger.waiting() + state.ledger.in_flight();
        let bytes = state.ledger.waiting_bytes() + ledger::bytes_of(&call);
        let full = state.ledger.waiting() >= limits.waiting || bytes > limits.waiting_bytes;
        if full || busy >= limits.in_flight {
            return Err((call.reply, NotQueued::Full));
        }
        if self.is_stalled() {
            // It will wait, and shall not keep alive the whole pack that it came in.
            call.detach();
        }
        state.ledger.admit(call);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Ends a call whose caller gave up, and has the device told if it may be at it.
    pub(crate) fn cancel(&self, id: CallId) -> Option<Unsettled> {
        self.change(|state| {
            let call = state.ledger.cancel(id)?;
            if call.dispatched {
                state.cancels.push(id);
            }
            Some(call)
        })
    }

    /// Asks the connection's task to close; the first reason given is the one that counts.
    pub(crate) fn evict(&self, eviction: Eviction) {
        self.change(|state| state.eviction = state.eviction.or(Some(eviction)));
    }

    /// Has the device told to go elsewhere, once, and the connection closed when it has no calls.
    pub(crate) fn drain(&self) {
        let mut state = self.state.lock();
        if state.stage > Stage::Serving {
            return;
        }
        state.stage = Stage::Draining;
        state.go_away = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Asks the device whether it is there, once for each silence.
    pub(crate) fn ask(&self) {
        let heard = self.heard_ms.load(Ordering::Relaxed);
        if self.asked_after_ms.swap(heard, Ordering::Relaxed) != heard {
            self.change(|state| state.ping = true);
        }
    }

    /// Has the connection closed now.
    pub(crate) fn stop(&self) {
        self.change(|state| {
            let told = state.stage > Stage::Serving && !state.go_away;
            let eviction = if told {
                Eviction::Drained
            } else {
                Eviction::Stopped
            };
            state.eviction = state.eviction.or(Some(eviction));
        });
    }

    /// Takes no further calls.
    pub(crate) fn finish(&self) {
        self.change(|state| state.stage = state.stage.max(Stage::Finishing));
    }

    /// Takes out the calls whose time is over and gives back memory nobody needs.
    pub(crate) fn expire(&self, now: Instant) -> Expired {
        let mut state = self.state.lock();
        let calls = state.ledger.expire(now);
        state.ledger.forget(now);
        let (in_flight, waiting) = (state.ledger.in_flight(), state.ledger.waiting());
        let done = if state.is_done() {
            state.waker.take()
        } else {
            None
        };
        drop(state);
        done.into_iter().for_each(Waker::wake);
        Expired {
            calls,
            in_flight,
            waiting,
        }
    }

    pub(crate) fn registration(&self) -> Option<Arc<Registration>> {
        self.state.lock().registration.clone()
    }

    /// How long the device has been silent at `now_ms` on the edge's clock.
    pub(crate) fn silent_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.heard_ms.load(Ordering::Relaxed))
    }

    /// How long the socket has taken nothing although something waits for it.
    pub(crate) fn stalled_ms(&self, now_ms: u64) -> u64 {
        // Not stalled is the end of time, which leaves nothing after subtraction.
        now_ms.saturating_sub(self.stalled_since_ms.load(Ordering::Relaxed))
    }

    // Called by the connection's own task.

    /// Waits for something to do. Calls stay queued while the socket takes nothing, because a
    /// call that was never written can still be answered with certainty.
    pub(crate) fn poll_signal(&self, cx: &Context<'_>, writable: bool) -> Poll<Signal> {
        let mut state = self.state.lock();
        if let Some(eviction) = state.eviction {
            return Poll::Ready(Signal::Leave(eviction));
        }
        if writable && state.has_commands() {
            return Poll::Ready(Signal::Commands);
        }
        if writable && state.is_done() {
            let again = std::mem::replace(&mut state.was_done, true);
            return Poll::Ready(Signal::Done { again });
        }
        state.was_done = false;
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// The next thing to write.
    pub(crate) fn next_command(&self) -> Option<Command> {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.go_away) {
            return Some(Command::GoAway);
        }
        if std::mem::take(&mut state.ping) {
            return Some(Command::Ping);
        }
        if let Some(id) = state.cancels.pop() {
            if state.cancels.is_empty() {
                state.cancels = Vec::new();
            }
            return Some(Command::Cancel(id));
        }
        if let Some(call) = state.ledger.dispatch() {
            return Some(Command::Call(call));
        }
        state.next_step()
    }

    /// Takes back a call that will not be written; none if its caller has withdrawn it by now.
    pub(crate) fn withdraw(&self, id: CallId) -> Option<ReplyTo> {
        self.state.lock().ledger.withdraw(id)
    }

    /// Brings a call's deadline forward.
    pub(crate) fn shorten(&self, id: CallId, deadline: Instant) {
        self.state.lock().ledger.shorten(id, deadline);
    }

    /// The device answered this call: whom to tell.
    pub(crate) fn settle(&self, id: CallId) -> Result<ReplyTo, Stray> {
        self.state.lock().ledger.settle(id)
    }

    /// Whom to tell what the device says of this call, if it is in flight here.
    pub(crate) fn listener(&self, id: CallId, rate: NoticeRate) -> Result<ReplyTo, Unheard> {
        self.state.lock().ledger.listener(id, rate).cloned()
    }

    /// Puts a set of services into force, in place of the former.
    pub(crate) fn register(&self, registration: Arc<Registration>) -> Option<Arc<Registration>> {
        self.state.lock().registration.replace(registration)
    }

    pub(crate) fn heard(&self, now_ms: u64) {
        self.heard_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Notes whether the socket takes what it is given, since when if not.
    pub(crate) fn note_stall(&self, since_ms: Option<u64>) {
        self.stalled_since_ms
            .store(since_ms.unwrap_or(NOT_STALLED), Ordering::Relaxed);
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled_since_ms.load(Ordering::Relaxed) != NOT_STALLED
    }

    /// How many calls have not ended.
    pub(crate) fn calls(&self) -> usize {
        let state = self.state.lock();
        state.ledger.waiting() + state.ledger.in_flight()
    }

    /// From here on nothing is taken; what is left has to be settled by the caller.
    pub(crate) fn close(&self) -> Vec<Unsettled> {
        let mut state = self.state.lock();
        state.stage = Stage::Closed;
        state.waker = None;
        state.ledger.close()
    }

    /// Changes the state and wakes the task afterwards, outside the lock.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        result
    }
}
