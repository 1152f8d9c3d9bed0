//! The shared half of a connection: its identity, its calls and turns, and how other tasks reach
//! the task that owns the socket.
//!
//! Invariant: no method awaits, does I/O, or blocks longer than the short lock.

mod calls;
mod turns;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;
use switchboard_bus::{DisconnectReason, Epoch, TokenCheck};
use switchboard_protocol::{
    id::{CallId, DeviceKey},
    token::AccessError,
};

use self::{calls::CallTable, turns::Turns};
pub(crate) use self::{
    calls::{
        CallLimits, DropReason, EnqueueError, NotificationRate, OutgoingCall, UnfinishedCall,
        UnmatchedResult,
    },
    turns::{BusAction, ReplyChunk, TurnEnd, TurnLimits},
};

use crate::schemas::CompiledServices;

/// `stalled_since_ms` of a connection whose socket accepts data.
const NOT_STALLED: u64 = u64::MAX;

/// `incomplete_since_ms` of a connection without an incomplete frame.
const NOT_INCOMPLETE: u64 = u64::MAX;

/// `pinged_after_ms` of a connection that was not pinged yet.
const NOT_PINGED: u64 = u64::MAX;

/// The device of a connection, from its access token.
pub(crate) struct Identity {
    pub(crate) key: DeviceKey,
    pub(crate) token: TokenCheck,
}

/// One live connection, as the bus, the sweeper and the drain see it. The connection's own task
/// holds the socket; it polls this handle for [`Signal`]s and [`Command`]s.
///
/// ```text
///  new          drain            stop_calls            close_calls
/// ────► Serving ─────► Draining ───────────► Finishing ───────────► Closed
///           │              │ no calls, no turns  │                    ▲
///           │              └────────► Signal::Drained ────────────────┤
///           └── evict, or any other reason to close ──────────────────┘
/// ```
///
/// - `Serving`: accepts calls and turns.
/// - `Draining`: GOAWAY is sent. Calls are still accepted until a moment without any.
/// - `Finishing`: accepts no further calls and turns, and completes those it has.
/// - `Closed`: the task has ended; the remaining calls are returned to the caller of
///   [`Self::close_calls`].
///
/// Times are milliseconds on the edge's clock ([`crate::edge::Edge::now_ms`]).
pub(crate) struct ConnectionHandle {
    pub(crate) key: DeviceKey,
    pub(crate) epoch: Epoch,
    pub(crate) token: TokenCheck,
    last_received_ms: AtomicU64,
    stalled_since_ms: AtomicU64,
    incomplete_since_ms: AtomicU64,
    /// The `last_received_ms` at the last ping: one ping for each silence.
    pinged_after_ms: AtomicU64,
    state: Mutex<State>,
}

/// Why another task wants the connection closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eviction {
    Idle,
    Takeover,
    SlowReader,
    /// A frame was not completed in time.
    SlowFrame,
    Revoked,
    Expired,
    /// The token is refused for another reason.
    Refused(AccessError),
    /// GOAWAY was sent, and the calls are done or out of time.
    Drained,
    /// The edge stops before GOAWAY was sent.
    Stopped,
}

/// What the connection's task has to do.
pub(crate) enum Signal {
    /// [`ConnectionHandle::next_command`] has something to write.
    Commands,
    /// A draining connection has nothing left to do. `confirmed` is set when the poll before found
    /// the same: until then, bytes of the device may be on their way.
    Drained {
        confirmed: bool,
    },
    Close(Eviction),
}

/// What to write to the device.
pub(crate) enum Command {
    Call(OutgoingCall),
    Reply(ReplyChunk),
    Cancel(CallId),
    Ping,
    Goaway,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Phase {
    #[default]
    Serving,
    Draining,
    Finishing,
    Closed,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// GOAWAY is to be sent.
    goaway: bool,
    /// PING is to be sent.
    ping: bool,
    /// The last poll found the drained connection idle.
    was_drained: bool,
    eviction: Option<Eviction>,
    calls: CallTable,
    /// Calls whose CANCEL is to be sent.
    cancels: Vec<CallId>,
    registration: Option<Arc<CompiledServices>>,
    /// Present only while a message or a turn is open.
    turns: Option<Box<Turns>>,
    /// The device has begun a turn, so the bus may hold turns of this connection.
    had_turns: bool,
    waker: Option<Waker>,
}

impl From<AccessError> for Eviction {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Revoked => Self::Revoked,
            AccessError::Expired { .. } => Self::Expired,
            other => Self::Refused(other),
        }
    }
}

impl Eviction {
    pub(crate) const fn reason(self) -> DisconnectReason {
        match self {
            Self::Idle => DisconnectReason::IdleTimeout,
            Self::Takeover => DisconnectReason::Takeover,
            Self::SlowReader => DisconnectReason::SlowReader,
            Self::SlowFrame => DisconnectReason::ProtocolError,
            Self::Revoked | Self::Refused(_) => DisconnectReason::Revoked,
            Self::Expired => DisconnectReason::Expired,
            Self::Drained | Self::Stopped => DisconnectReason::Drain,
        }
    }
}

impl std::fmt::Debug for ConnectionHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionHandle")
            .field("key", &self.key)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

impl State {
    fn has_commands(&self) -> bool {
        self.goaway
            || self.ping
            || !self.cancels.is_empty()
            || self.calls.has_queued()
            || self.has_chunk()
    }

    /// A draining connection has nothing left to do.
    fn is_drained(&self) -> bool {
        self.phase >= Phase::Draining
            && !self.goaway
            && self.calls.is_empty()
            && self.has_no_turns()
    }
}

impl ConnectionHandle {
    pub(crate) fn new(identity: Identity, epoch: Epoch, now_ms: u64) -> Self {
        Self {
            key: identity.key,
            epoch,
            token: identity.token,
            last_received_ms: AtomicU64::new(now_ms),
            stalled_since_ms: AtomicU64::new(NOT_STALLED),
            incomplete_since_ms: AtomicU64::new(NOT_INCOMPLETE),
            pinged_after_ms: AtomicU64::new(NOT_PINGED),
            state: Mutex::default(),
        }
    }

    // Called by any task.

    /// Asks the connection's task to close. The first reason wins.
    pub(crate) fn evict(&self, eviction: Eviction) {
        self.change(|state| state.eviction = state.eviction.or(Some(eviction)));
    }

    /// Sends GOAWAY once, and closes the connection when it has no calls and no turns.
    pub(crate) fn drain(&self) {
        let mut state = self.state.lock();
        if state.phase > Phase::Serving {
            return;
        }
        state.phase = Phase::Draining;
        state.goaway = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Sends a PING, once for each silence of the device.
    pub(crate) fn ping(&self) {
        let received_ms = self.last_received_ms.load(Ordering::Relaxed);
        if self.pinged_after_ms.swap(received_ms, Ordering::Relaxed) != received_ms {
            self.change(|state| state.ping = true);
        }
    }

    /// Closes the connection now.
    pub(crate) fn stop(&self) {
        self.change(|state| {
            let goaway_sent = state.phase > Phase::Serving && !state.goaway;
            let eviction = if goaway_sent {
                Eviction::Drained
            } else {
                Eviction::Stopped
            };
            state.eviction = state.eviction.or(Some(eviction));
        });
    }

    /// Accepts no further calls and turns.
    pub(crate) fn stop_calls(&self) {
        self.change(|state| state.phase = state.phase.max(Phase::Finishing));
    }

    pub(crate) fn registration(&self) -> Option<Arc<CompiledServices>> {
        self.state.lock().registration.clone()
    }

    /// Time since the last bytes of the device.
    pub(crate) fn silent_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.last_received_ms.load(Ordering::Relaxed))
    }

    /// How long the socket has not accepted the data that waits for it.
    pub(crate) fn stalled_ms(&self, now_ms: u64) -> u64 {
        // `NOT_STALLED` is the largest time, so the subtraction saturates to 0.
        now_ms.saturating_sub(self.stalled_since_ms.load(Ordering::Relaxed))
    }

    /// How long the device has not completed a frame that it began.
    pub(crate) fn incomplete_ms(&self, now_ms: u64) -> u64 {
        // `NOT_INCOMPLETE` is the largest time, so the subtraction saturates to 0.
        now_ms.saturating_sub(self.incomplete_since_ms.load(Ordering::Relaxed))
    }

    // Called by the connection's own task.

    /// Waits for something to do. Calls stay queued while the socket accepts no data: a call that
    /// was never written can be answered with certainty.
    pub(crate) fn poll_signal(&self, cx: &Context<'_>, is_writable: bool) -> Poll<Signal> {
        let mut state = self.state.lock();
        if let Some(eviction) = state.eviction {
            return Poll::Ready(Signal::Close(eviction));
        }
        if is_writable && state.has_commands() {
            return Poll::Ready(Signal::Commands);
        }
        if is_writable && state.is_drained() {
            let confirmed = std::mem::replace(&mut state.was_drained, true);
            return Poll::Ready(Signal::Drained { confirmed });
        }
        state.was_drained = false;
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Takes the next thing to write.
    pub(crate) fn next_command(&self) -> Option<Command> {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.goaway) {
            return Some(Command::Goaway);
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
        if let Some(call) = state.calls.dispatch() {
            return Some(Command::Call(call));
        }
        state.next_chunk()
    }

    /// Replaces the device's services and returns the previous ones.
    pub(crate) fn replace_registration(
        &self,
        registration: Arc<CompiledServices>,
    ) -> Option<Arc<CompiledServices>> {
        self.state.lock().registration.replace(registration)
    }

    /// Gives up the device's services, so that their memory is returned.
    pub(crate) fn take_registration(&self) -> Option<Arc<CompiledServices>> {
        self.state.lock().registration.take()
    }

    /// Records that the device sent bytes.
    pub(crate) fn touch(&self, now_ms: u64) {
        self.last_received_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Records since when the socket accepts no data; `None` when it does.
    pub(crate) fn set_stalled_since(&self, since_ms: Option<u64>) {
        self.stalled_since_ms
            .store(since_ms.unwrap_or(NOT_STALLED), Ordering::Relaxed);
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled_since_ms.load(Ordering::Relaxed) != NOT_STALLED
    }

    /// Records since when a frame is incomplete; `None` when there is none.
    pub(crate) fn set_incomplete_since(&self, since_ms: Option<u64>) {
        self.incomplete_since_ms
            .store(since_ms.unwrap_or(NOT_INCOMPLETE), Ordering::Relaxed);
    }

    pub(crate) fn has_incomplete_frame(&self) -> bool {
        self.incomplete_since_ms.load(Ordering::Relaxed) != NOT_INCOMPLETE
    }

    /// Changes the state, then wakes the connection's task outside the lock.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        result
    }
}
