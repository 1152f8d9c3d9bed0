//! A device connection: the task that owns the socket.

pub(crate) mod buffers;
mod close;
mod dispatch;
mod frames;
mod guard;
mod handshake;
mod io;
mod results;
mod turns;
mod voice;

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use switchboard_protocol::{
    frame::{Frame, Kind},
    message::DeviceMessage,
    session::{Event, Session, SessionError},
};
use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) use self::{buffers::MAX_READ_BYTES, handshake::refusal_labels};
use self::{
    close::{CloseReason, close, reject},
    dispatch::Pause,
    frames::{PendingRegistration, UnsolicitedLimits},
    guard::ConnectionGuard,
    io::{FrameIo, Kept, ReadChunk},
    results::UncheckedResult,
};
use crate::{
    accept::ConnectionPermit,
    edge::Edge,
    handle::{ConnectionHandle, Eviction, Signal},
    token_bucket::TokenBucket,
};

/// After a read of this size, more is probably waiting, and other tasks of this worker run first.
const LARGE_READ_BYTES: usize = MAX_READ_BYTES / 2;

/// What an established connection waits for.
enum Input {
    /// Bytes of the device, and how many of them were just read. They are handled before the next
    /// wait.
    Bytes(ReadChunk, usize),
    /// The handle has commands to write.
    Commands,
    /// Another task closes the connection.
    Evicted(Eviction),
    /// The device closed its side.
    End,
    IoError(std::io::Error),
}

/// What an input leads to besides what is done at once.
enum Work {
    Register(Box<PendingRegistration>),
    CheckResult(Box<UncheckedResult>),
    Resume(Pause),
}

/// An established connection, borrowed by its task while it serves the device.
///
/// ```text
///  accept         AUTH valid, epoch claimed,           device, eviction or
///    │            inserted into the connections        protocol error
///    ▼                        │                              │
///  Handshake ─────────────────┴──► Running ──────────────────┴──► Closing ──► end
///    │                              │    ▲                          ▲
///    │ refusal, timeout, drain,     └────┘ one Input at a time      │ last frame written,
///    │ eviction: `reject`                                           │ socket shut down
///    └──────────────────────────────────────────────────────────────┘
/// ```
///
/// - *Handshake* ([`handshake`]): reads up to the AUTH frame, verifies the token, claims the device
///   in the directory, and creates the [`ConnectionHandle`]. It has one deadline, and a newer
///   connection may need its slot.
/// - *Running* ([`Connection::run`]): writes what is ready, then waits for one [`Input`] and handles
///   it. Frames of the device go to the [`Session`], which decides what each one means. Calls and
///   answers come from the handle as [`crate::handle::Command`]s.
/// - *Closing* ([`close`]): [`ConnectionGuard`] removes the device from the connections and the
///   directory and ends its calls. Then the last frame is sent, with a deadline.
///
/// Only this task touches the socket. Other tasks reach it through the handle. The sweeper replaces
/// timers: it expires calls and evicts idle devices, slow readers and incomplete frames.
///
/// An idle connection holds no buffer, no timer and no state of the short phases, which are boxed.
/// The test below bounds its size.
struct Connection<'a, S> {
    io: &'a mut FrameIo<S>,
    session: &'a mut Session,
    handle: &'a Arc<ConnectionHandle>,
    edge: &'a Arc<Edge>,
    registrations: TokenBucket,
    /// Allocated by the first event or turn of the device.
    unsolicited: Option<Box<UnsolicitedLimits>>,
}

/// Serves one connection from its first byte to its last.
///
/// The state that lives as long as the connection is captured by the block. As arguments of an
/// async function it would be stored twice.
pub(crate) fn serve<S>(stream: S, mut permit: ConnectionPermit) -> impl Future<Output = ()> + Send
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let config = &permit.edge().config;
    let mut io = FrameIo::new(stream, config.device_max_hello_bytes);
    let mut session = Session::new(config.device_max_open_tasks);
    async move {
        // The short phases are boxed, so that an idle connection does not carry their memory.
        let handshake = handshake::handshake(&mut io, &mut session, &permit);
        let handle = match Box::pin(handshake).await {
            Ok(handle) => handle,
            Err(refusal) => return Box::pin(reject(&mut io, &permit, refusal)).await,
        };
        permit.set_authenticated();
        let guard = ConnectionGuard::new(permit.edge(), handle);
        let mut connection = Connection {
            io: &mut io,
            session: &mut session,
            handle: guard.handle(),
            edge: permit.edge(),
            registrations: TokenBucket::default(),
            unsolicited: None,
        };
        let reason = connection.run().await;
        Box::pin(close(&mut io, &permit, guard, reason)).await;
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    /// Handles one input after the other until the connection has a reason to close.
    async fn run(&mut self) -> CloseReason {
        loop {
            // No wait within this match: the input would be stored in the task.
            let begun = match poll_fn(|cx| self.poll_input(cx)).await {
                Input::Bytes(chunk, length) => match self.handle_frames(chunk) {
                    Ok(Some(work)) => Some(work),
                    Ok(None) if length >= LARGE_READ_BYTES => Some(Work::Resume(Pause::Yield)),
                    Ok(None) => None,
                    Err(reason) => return reason,
                },
                Input::Commands => self.send_commands().map(Work::Resume),
                Input::Evicted(eviction) => return CloseReason::Evicted(eviction),
                Input::End => return CloseReason::Closed,
                Input::IoError(error) => return CloseReason::IoError(error),
            }
            .map(|work| Box::pin(self.complete(work)));
            if let Some(work) = begun {
                work.await;
            }
        }
    }

    async fn complete(&mut self, work: Work) {
        match work {
            Work::Register(registration) => self.register(registration).await,
            Work::CheckResult(result) => self.check_result(result).await,
            Work::Resume(pause) => self.resume(pause).await,
        }
    }

    /// Writes what is ready, then waits for the first input.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Input> {
        let is_writable = match self.poll_write(cx) {
            Ok(is_writable) => is_writable,
            Err(error) => return Poll::Ready(Input::IoError(error)),
        };
        let drained = match self.handle.poll_signal(cx, is_writable) {
            Poll::Ready(Signal::Close(eviction)) => return Poll::Ready(Input::Evicted(eviction)),
            Poll::Ready(Signal::Commands) => return Poll::Ready(Input::Commands),
            Poll::Ready(Signal::Drained { confirmed }) => Some(confirmed),
            Poll::Pending => None,
        };
        match self.io.poll_read(cx) {
            Poll::Ready(Ok(Some((chunk, length)))) => {
                self.edge.metrics.received_bytes.inc_by(length as u64);
                Poll::Ready(Input::Bytes(chunk, length))
            }
            Poll::Ready(Ok(None)) => Poll::Ready(Input::End),
            Poll::Ready(Err(error)) => Poll::Ready(Input::IoError(error)),
            Poll::Pending => match drained {
                Some(true) => Poll::Ready(Input::Evicted(Eviction::Drained)),
                Some(false) => {
                    // Poll again after the runtime has polled the sockets: a frame of the device
                    // may already have arrived.
                    let waker = cx.waker().clone();
                    self.edge.tasks.spawn(async move {
                        tokio::task::yield_now().await;
                        waker.wake();
                    });
                    Poll::Pending
                }
                None => Poll::Pending,
            },
        }
    }

    /// Writes what the socket accepts before a wait. An error shows again at the next write.
    async fn write_ready(&mut self) {
        std::future::poll_fn(|cx| {
            let _ = self.poll_write(cx);
            Poll::Ready(())
        })
        .await;
    }

    /// Writes what is ready. Returns whether the socket accepted all of it.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> std::io::Result<bool> {
        let before = self.io.unsent_bytes();
        let flushed = self.io.poll_flush(cx);
        let written = before.saturating_sub(self.io.unsent_bytes());
        if written > 0 {
            self.edge.metrics.sent_bytes.inc_by(written as u64);
        }
        match flushed {
            Poll::Ready(result) => {
                if self.handle.is_stalled() {
                    self.handle.set_stalled_since(None);
                }
                result.map(|()| true)
            }
            Poll::Pending => {
                if written > 0 || !self.handle.is_stalled() {
                    self.handle.set_stalled_since(Some(self.edge.now_ms()));
                }
                let owner = self.handle.owner();
                if self.io.charge_unsent(&self.edge.messages, owner).is_err() {
                    self.handle.evict(Eviction::SlowReader);
                }
                Ok(false)
            }
        }
    }

    /// Handles every complete frame, up to one with work that is done before the rest.
    fn handle_frames(&mut self, mut chunk: ReadChunk) -> Result<Option<Work>, CloseReason> {
        let now_ms = self.edge.now_ms();
        self.handle.touch(now_ms);
        loop {
            let frame = self.io.next_frame(&mut chunk);
            let Some(frame) = frame.map_err(|error| CloseReason::Protocol(error.into()))? else {
                self.put_back(chunk, false, now_ms)?;
                return Ok(None);
            };
            if let Some(work) = self.handle_frame(frame).map_err(CloseReason::Protocol)? {
                self.put_back(chunk, true, now_ms)?;
                return Ok(Some(work));
            }
            if self.io.unsent_bytes() > self.edge.config.device_max_unsent_bytes {
                return Err(CloseReason::SlowReader);
            }
        }
    }

    /// Keeps the bytes of an incomplete frame, and records since when it is incomplete.
    fn put_back(
        &mut self,
        chunk: ReadChunk,
        may_have_frame: bool,
        now_ms: u64,
    ) -> Result<(), CloseReason> {
        let owner = self.handle.owner();
        let frames = &self.edge.frames;
        let kept = self.io.put_back(chunk, may_have_frame, frames, owner);
        match kept.map_err(CloseReason::Overload)? {
            Kept::Nothing => self.handle.set_incomplete_since(None),
            Kept::SameFrame if self.handle.has_incomplete_frame() => {}
            Kept::SameFrame | Kept::NewFrame => self.handle.set_incomplete_since(Some(now_ms)),
        }
        Ok(())
    }

    fn handle_frame(&mut self, frame: Frame<'_>) -> Result<Option<Work>, SessionError> {
        let metrics = &self.edge.metrics;
        metrics.received_frames.inc();
        let (task, seq) = (frame.task, frame.seq);
        match self.session.handle(frame)? {
            Event::Message(DeviceMessage::Result(result)) => {
                return Ok(self.complete_call(&result).map(Work::CheckResult));
            }
            Event::Message(DeviceMessage::Register { call_id, services }) => {
                let registration = self.begin_registration(call_id.map(Into::into), services);
                return Ok(registration.map(Work::Register));
            }
            Event::Message(DeviceMessage::Progress { call_id, raw }) => {
                self.forward_progress(&call_id, raw);
            }
            Event::Message(DeviceMessage::Log { call_id, raw }) => {
                self.forward_log(call_id.as_deref(), raw);
            }
            Event::Rejected { call_id, detail } => {
                self.reject_message(call_id.as_deref(), &detail);
            }
            Event::DeviceEvent { raw } => self.publish_event(raw),
            Event::Text { task, text, .. } => self.append_text(task, text),
            Event::End { task, kind } => self.end_message(task, kind),
            Event::Cancel { task } => self.cancel_turn(task),
            Event::Audio { task, chunk } => self.append_audio(task, chunk),
            Event::Picture { task, chunk } => self.append_picture(task, chunk),
            Event::Voice { task, message } => self.handle_voice(task, message),
            Event::Ping(payload) => self.io.put(Kind::Pong, task, seq, payload),
            Event::Pong(_) => {}
            Event::Auth(_) => return Err(SessionError::AlreadyAuthenticated),
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[test]
    fn idle_connection_is_small() {
        fn size<F>(_: impl FnOnce(TcpStream, ConnectionPermit) -> F) -> usize {
            size_of::<F>()
        }
        let task = size(serve::<TcpStream>);
        let handle = size_of::<ConnectionHandle>();
        let sizes = format!("the task has {task} bytes, the handle {handle}");
        assert!(task <= 280 && handle <= 208, "{sizes}");
    }
}
