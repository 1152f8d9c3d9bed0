//! The shared half of a connection: its identity, its calls and turns, and how other tasks reach
//! the task that owns the socket.
//!
//! Invariant: no method awaits, does I/O, or blocks longer than the short lock.

mod calls;
mod connection_turns;
mod language;
mod time;
mod turns;
mod voice;
mod waiting;

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;
use switchboard_bus::{DisconnectReason, Epoch, ReplyTo, TokenCheck};
use switchboard_protocol::{
    id::{CallId, DeviceKey, TokenId},
    locale::Locale,
    token::{AccessError, KeyId},
};
use switchboard_runtime::budget::Permit;

use self::{calls::CallTable, time::AtomicTime, turns::Turns, voice::Voice};
pub(crate) use self::{
    calls::{
        CallLimits, DropReason, EnqueueError, ExpectedOutput, NotificationRate, OutgoingCall,
        UnfinishedCall, UnmatchedResult,
    },
    turns::{BusAction, ReplyChunk, TurnEnd, TurnLimits},
    voice::{Delivery, VoiceFrame, VoiceInput},
    waiting::WaitingBytes,
};

use crate::schemas::CompiledServices;

/// The device of a connection, from its access token.
pub(crate) struct Identity {
    pub(crate) key: DeviceKey,
    pub(crate) token: TokenCheck,
}

/// One live connection, as the bus, the sweeper and the drain see it. The connection's own task
/// holds the socket; it polls this handle for [`Signal`]s and [`Command`]s.
///
/// ```text
///  new         drain            finish, take_over       close_calls
/// ────► Serving ◄──► Moving ──────────────► Finishing ───────────► Closed
///           │          ▲ │ drain             ▲   │                   ▲
///           │   recall │ ▼                   │   │ no calls,         │
///           │───► Draining ──────────────────┘   │ no turns          │
///           │        └───────────────────────────┴► Signal::Drained ─┤
///           └── evict, take_over, or any other reason to close ──────┘
/// ```
///
/// - `Serving`: accepts calls and turns.
/// - `Moving`: GOAWAY is sent, and another edge accepts devices. Everything continues until the device
///   has registered there, or closes this connection, or the reason for the GOAWAY is over and the
///   device did not follow it (`recall`, then `stay`).
/// - `Draining`: GOAWAY is sent. Calls are still accepted until a moment without any.
/// - `Finishing`: accepts no further calls and turns, and completes those that the device has.
/// - `Closed`: the task has ended; the remaining calls are returned to the caller of
///   [`Self::close_calls`].
///
/// Beside the phase, a connection has a [`Place`] in the directory. Calls wait until the device has
/// registered its services.
///
/// Times are milliseconds on the edge's clock ([`crate::edge::Edge::now_ms`]).
pub(crate) struct ConnectionHandle {
    pub(crate) key: DeviceKey,
    pub(crate) epoch: Epoch,
    /// The organisation of the token is that of `key`.
    token: TokenId,
    token_key: KeyId,
    token_expires_at: u64,
    last_received: AtomicTime,
    /// None while the socket accepts data.
    stalled_since: AtomicTime,
    /// None while no frame is incomplete.
    incomplete_since: AtomicTime,
    /// The `last_received` at the last ping: one ping for each silence.
    pinged_after: AtomicTime,
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
    /// An administrator disconnects the device.
    DisconnectRequested,
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

/// What to write to the device, or to the directory.
pub(crate) enum Command {
    /// The connection is entered without services.
    Enter,
    Call(OutgoingCall),
    Reply(ReplyChunk),
    Voice(VoiceFrame),
    Cancel(CallId),
    Ping,
    Goaway,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Phase {
    #[default]
    Serving,
    Moving,
    Draining,
    Finishing,
    Closed,
}

/// Whether the directory's entry of the device points to the connection.
///
/// ```text
///  Joining ── claim, register, enter ──► Entered ── withdraw, finish, take_over ──► Left
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Not yet, for this many sweeps.
    Joining {
        sweeps: u8,
    },
    Entered,
    /// No longer, and it never will again: the entry is given up, or points to a newer connection.
    Left,
}

impl Default for Place {
    fn default() -> Self {
        Self::Joining { sweeps: 0 }
    }
}

#[derive(Default)]
struct State {
    phase: Phase,
    place: Place,
    /// The connection is to be entered without services.
    enter: bool,
    /// GOAWAY is to be sent.
    goaway: bool,
    /// PING is to be sent.
    ping: bool,
    /// The last poll found the drained connection idle.
    was_drained: bool,
    /// Boxed, because it is absent until the connection closes.
    eviction: Option<Box<Eviction>>,
    /// Present only while there are calls, and for a while after the last one.
    calls: Option<Box<CallTable>>,
    registration: Option<Arc<CompiledServices>>,
    /// The slot among the connections of the organisation. `None` once a newer connection of the
    /// device has it.
    slot: Option<Permit>,
    /// The language of the device's users, if AUTH names one. Boxed, because few devices do.
    locale: Option<Box<Locale>>,
    /// Present only while a message or a turn is open.
    turns: Option<Box<Turns>>,
    /// Present only for a device with audio.
    voice: Option<Box<Voice>>,
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
            Self::DisconnectRequested => DisconnectReason::DisconnectRequested,
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
        self.enter
            || self.goaway
            || self.ping
            || self.has_cancels()
            || self.has_sendable_calls()
            || self.has_chunk()
            || self.has_voice_frame()
    }

    /// The first reason wins.
    fn evict(&mut self, eviction: Eviction) {
        self.eviction.get_or_insert_with(|| Box::new(eviction));
    }

    /// Accepts no further calls and turns. Returns the calls that the device did not receive.
    fn finish(&mut self) -> Vec<ReplyTo> {
        self.phase = self.phase.max(Phase::Finishing);
        self.leave();
        let calls = self.calls.as_mut();
        calls.map_or_else(Vec::new, |calls| calls.take_unwritten())
    }

    /// Returns whether the directory's entry pointed here until now.
    fn leave(&mut self) -> bool {
        let is_entered = self.place == Place::Entered;
        if is_entered {
            self.place = Place::Left;
        }
        is_entered
    }

    /// A draining connection has nothing left to do.
    fn is_drained(&self) -> bool {
        self.phase >= Phase::Draining
            && !self.goaway
            && self.has_no_calls()
            && self.has_no_turns()
            && self.is_silent()
    }
}

impl ConnectionHandle {
    pub(crate) fn new(identity: Identity, epoch: Epoch, now_ms: u64) -> Self {
        Self {
            key: identity.key,
            epoch,
            token: identity.token.id,
            token_key: identity.token.key,
            token_expires_at: identity.token.expires_at,
            last_received: AtomicTime::new(now_ms),
            stalled_since: AtomicTime::never(),
            incomplete_since: AtomicTime::never(),
            pinged_after: AtomicTime::never(),
            state: Mutex::default(),
        }
    }

    // Called by any task.

    /// The token that the device authenticated with.
    pub(crate) fn token(&self) -> TokenCheck {
        TokenCheck {
            id: self.token,
            org: self.key.org,
            key: self.token_key,
            expires_at: self.token_expires_at,
        }
    }

    /// Asks the connection's task to close. The first reason wins.
    pub(crate) fn evict(&self, eviction: Eviction) {
        self.change(|state| state.evict(eviction));
    }

    /// A newer connection of the device has the directory's entry. A connection that was asked to
    /// move completes its calls and turns; any other one closes. Returns the calls that the device
    /// did not receive, for its newer connection.
    #[must_use]
    pub(crate) fn take_over(&self) -> Vec<ReplyTo> {
        self.change(|state| {
            if state.phase == Phase::Serving {
                state.evict(Eviction::Takeover);
            }
            state.finish()
        })
    }

    /// Accepts no further calls and turns. Returns the calls that the device did not receive.
    #[must_use]
    pub(crate) fn finish(&self) -> Vec<ReplyTo> {
        self.change(State::finish)
    }

    /// Gives up the directory's entry. Returns whether it pointed here until now.
    #[must_use]
    pub(crate) fn withdraw(&self) -> bool {
        self.state.lock().leave()
    }

    /// Counts a sweep over a joining connection. After `max` of them it is entered without services.
    pub(crate) fn count_sweep(&self, max: u8) {
        let mut state = self.state.lock();
        if let Place::Joining { sweeps } = &mut state.place {
            *sweeps = sweeps.saturating_add(1);
            if *sweeps == max {
                state.enter = true;
                let waker = state.waker.take();
                drop(state);
                waker.into_iter().for_each(Waker::wake);
            }
        }
    }

    /// Sends GOAWAY once. Closes the connection when the device has registered at another edge if
    /// one accepts devices, and otherwise when it has no calls and no turns.
    pub(crate) fn drain(&self, other_edge_accepts: bool) {
        let wanted = if other_edge_accepts {
            Phase::Moving
        } else {
            Phase::Draining
        };
        let mut state = self.state.lock();
        if state.phase >= wanted {
            return;
        }
        state.goaway |= state.phase == Phase::Serving;
        state.phase = wanted;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// The device need not connect elsewhere any more. If it has received GOAWAY, it may do so all the
    /// same, and its connection stays until then.
    pub(crate) fn recall(&self) {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Moving | Phase::Draining) {
            let was_asked = !std::mem::take(&mut state.goaway);
            state.phase = if was_asked {
                Phase::Moving
            } else {
                Phase::Serving
            };
        }
    }

    /// The device was recalled, and did not follow GOAWAY.
    pub(crate) fn stay(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Moving {
            state.phase = Phase::Serving;
        }
    }

    /// Sends a PING, once for each silence of the device.
    pub(crate) fn ping(&self) {
        if self.pinged_after.follow(&self.last_received) {
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
            state.evict(eviction);
        });
    }

    /// Whether GOAWAY asked the device to connect elsewhere, and it has not done so.
    pub(crate) fn is_leaving(&self) -> bool {
        let state = self.state.lock();
        state.phase > Phase::Serving && !state.goaway
    }

    /// Whether the connection's task has ended its calls, and removes or has removed it.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().phase == Phase::Closed
    }

    pub(crate) fn registration(&self) -> Option<Arc<CompiledServices>> {
        self.state.lock().registration.clone()
    }

    /// Time since the last bytes of the device.
    pub(crate) fn silent_ms(&self, now_ms: u64) -> u64 {
        self.last_received.elapsed_ms(now_ms)
    }

    /// How long the socket has not accepted the data that waits for it.
    pub(crate) fn stalled_ms(&self, now_ms: u64) -> u64 {
        self.stalled_since.elapsed_ms(now_ms)
    }

    /// How long the device has not completed a frame that it began.
    pub(crate) fn incomplete_ms(&self, now_ms: u64) -> u64 {
        self.incomplete_since.elapsed_ms(now_ms)
    }

    // Called by the connection's own task.

    /// Waits for something to do. Calls stay queued while the socket accepts no data: a call that
    /// was never written can be answered with certainty.
    pub(crate) fn poll_signal(&self, cx: &Context<'_>, is_writable: bool) -> Poll<Signal> {
        let mut state = self.state.lock();
        if let Some(eviction) = &state.eviction {
            return Poll::Ready(Signal::Close(**eviction));
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
        if std::mem::take(&mut state.enter) {
            return Some(Command::Enter);
        }
        if std::mem::take(&mut state.goaway) {
            return Some(Command::Goaway);
        }
        if std::mem::take(&mut state.ping) {
            return Some(Command::Ping);
        }
        if let Some(command) = state.next_call_command() {
            return Some(command);
        }
        let frame = state.next_voice_frame();
        frame.or_else(|| state.next_chunk())
    }

    /// Replaces the device's services and returns the previous ones.
    pub(crate) fn replace_registration(
        &self,
        registration: Option<Arc<CompiledServices>>,
    ) -> Option<Arc<CompiledServices>> {
        std::mem::replace(&mut self.state.lock().registration, registration)
    }

    /// Gives up the device's services, so that their memory is returned.
    pub(crate) fn take_registration(&self) -> Option<Arc<CompiledServices>> {
        self.state.lock().registration.take()
    }

    /// Whether the directory's entry of the device points to this connection, or will when the
    /// directory is reachable.
    pub(crate) fn is_entered(&self) -> bool {
        self.state.lock().place == Place::Entered
    }

    /// Whether the directory's entry points to this connection no longer.
    pub(crate) fn has_left(&self) -> bool {
        self.state.lock().place == Place::Left
    }

    /// Records that the directory's entry points to this connection. Returns false if it did before.
    pub(crate) fn set_entered(&self) -> bool {
        let mut state = self.state.lock();
        let is_joining = matches!(state.place, Place::Joining { .. });
        if is_joining {
            state.place = Place::Entered;
        }
        is_joining
    }

    /// Keeps the slot among the connections of the organisation.
    pub(crate) fn set_slot(&self, slot: Permit) {
        self.state.lock().slot = Some(slot);
    }

    /// Gives up the slot among the connections of the organisation: to a newer connection of the
    /// device, or to the task that closes the socket.
    pub(crate) fn take_slot(&self) -> Option<Permit> {
        self.state.lock().slot.take()
    }

    /// Records that the device sent bytes.
    pub(crate) fn touch(&self, now_ms: u64) {
        self.last_received.set(Some(now_ms));
    }

    /// Records since when the socket accepts no data; `None` when it does.
    pub(crate) fn set_stalled_since(&self, since_ms: Option<u64>) {
        self.stalled_since.set(since_ms);
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled_since.is_set()
    }

    /// Records since when a frame is incomplete; `None` when there is none.
    pub(crate) fn set_incomplete_since(&self, since_ms: Option<u64>) {
        self.incomplete_since.set(since_ms);
    }

    pub(crate) fn has_incomplete_frame(&self) -> bool {
        self.incomplete_since.is_set()
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

#[cfg(test)]
mod tests {
    use switchboard_protocol::id::{OrgId, TokenId};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn recalled_device_receives_no_goaway_that_was_not_sent() {
        let org = OrgId::from_uuid(Uuid::nil());
        let key = DeviceKey {
            org,
            device: "toy".parse().unwrap(),
        };
        let token = TokenCheck {
            id: TokenId::from_uuid(Uuid::nil()),
            org,
            key: "0123456789abcdef".parse().unwrap(),
            expires_at: u64::MAX,
        };
        let handle = ConnectionHandle::new(Identity { key, token }, Epoch(1), 0);
        handle.drain(true);
        handle.recall();
        assert!(handle.next_command().is_none());
        // The next reason to move counts again.
        handle.drain(true);
        assert!(matches!(handle.next_command(), Some(Command::Goaway)));
        handle.drain(false);
        handle.recall();
        assert!(handle.next_command().is_none());
        assert!(handle.is_leaving());
        handle.stay();
        assert!(!handle.is_leaving());
    }
}
