//! The connection through which batches leave.

use std::{
    collections::VecDeque,
    io::{self, Read as _, Write as _},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use redis::ConnectionInfo;
use switchboard_runtime::metrics::Histograms;
use tokio::{io::Interest, net, sync::Notify, time::sleep};

use super::{
    connection::COMMAND_TIMEOUT,
    connector::Connector,
    resp::{self, Frame},
    socket::Socket,
};
use crate::{backend::DeliveryFailure, error::BusError, metrics::Command, node::NodeId};

/// How long replies and unwritten bytes wait for the next command before they are polled. A call
/// to a node that is gone fails after this time when no other traffic exists.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// How often an idle connection is checked: Redis or a proxy may close it.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A connection that was read this recently is not checked before a command.
const CHECKED_RECENTLY: Duration = Duration::from_millis(5);
/// Capacity that the write buffer keeps while it is empty.
const RETAINED_BYTES: usize = 64 * 1024;

/// Refusals of a cluster that concern a slot and not the connection.
const REDIRECTIONS: [&[u8]; 3] = [b"MOVED ", b"TRYAGAIN", b"CLUSTERDOWN"];

/// Where a batch is published.
#[derive(Debug, Clone, Copy)]
pub(super) struct Channel<'a> {
    /// The command: `PUBLISH` or `SPUBLISH`.
    pub(super) publish: &'static str,
    pub(super) name: &'a str,
}

/// The history of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    /// When it was first published.
    pub(super) since: Instant,
    /// An earlier attempt may have arrived, although its server counted no subscriber.
    pub(super) may_have_arrived: bool,
}

/// Receives batches that did not arrive.
pub(super) trait FailureSink: Send + Sync {
    fn publish_failed(&self, failed: FailedPublish);
}

/// A batch that did not arrive, as far as is known.
pub(super) struct FailedPublish {
    pub(super) to: NodeId,
    pub(super) batch: Bytes,
    pub(super) reason: DeliveryFailure,
    /// The error that Redis returned.
    pub(super) error: Option<String>,
    pub(super) attempt: Attempt,
    /// The server that was used, if the batch left.
    pub(super) server: Option<Arc<str>>,
}

/// Publishes batches through a connection of its own.
///
/// A command is written by the task that flushes, and its reply is read together with the next
/// command or 2 ms later. The socket is not registered with the runtime unless the outbox waits
/// for replies under load, so a single call wakes each of its two nodes once less.
///
/// ```text
///   publish ─┬─► unwritten bytes ──flush──► socket ──reply─┬─ :n  delivered
///            └─► unacknowledged batches, in order          ├─ :0  NoSubscriber
///                                                          ├─ -…  NotSent, with the error
///                                                          └─ none: connection closed
///   A batch without reply is Unknown if a byte of its command was written, else NotSent.
/// ```
///
/// [`run`](Self::run) polls what no later command has moved. It fails when the socket does, when
/// Redis refuses a command for a reason other than a moved slot, or when a reply takes longer
/// than [`COMMAND_TIMEOUT`]. Every batch without a reply is then passed to the [`FailureSink`].
///
/// Invariant: replies belong to batches in order.
pub(super) struct Publisher {
    /// The server that batches are sent to.
    pub(super) server: Arc<str>,
    failures: Arc<dyn FailureSink>,
    state: Mutex<State>,
    /// There is something to poll.
    published: Notify,
    /// Every batch has its reply.
    idle: Notify,
}

struct State {
    open: bool,
    /// Non-blocking, and unknown to the runtime.
    socket: Socket,
    /// Bytes of commands that the socket has not accepted yet.
    unwritten: Vec<u8>,
    /// How many bytes the socket has accepted so far; with TLS, some of them may not have left.
    written: u64,
    /// Batches without a reply, in the order of their commands.
    unacknowledged: VecDeque<SentBatch>,
    /// Bytes of replies that are not decoded yet.
    replies: Vec<u8>,
    /// An error that closes the connection.
    refusal: Option<String>,
    /// Whether [`Publisher::run`] polls at the moment.
    polling: bool,
    /// When the socket was read last.
    read_at: Instant,
    registered: Option<RegisteredSocket>,
    /// Durations of commands.
    timings: Histograms<Command>,
}

/// A published batch whose reply has not been read.
struct SentBatch {
    to: NodeId,
    batch: Bytes,
    attempt: Attempt,
    sent_at: Instant,
    /// The position of its command, counted like [`State::written`].
    offset: u64,
}

/// The socket, registered with the runtime while the outbox waits for replies now and then.
struct RegisteredSocket {
    stream: Arc<net::TcpStream>,
    used: bool,
}

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error("closed by Redis")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("no reply within {} s", COMMAND_TIMEOUT.as_secs())]
    Timeout,
    #[error("Redis refused to publish: {0}")]
    Refused(String),
}

impl SentBatch {
    fn into_failed(self, reason: DeliveryFailure, error: Option<String>) -> FailedPublish {
        FailedPublish {
            to: self.to,
            batch: self.batch,
            reason,
            error,
            attempt: self.attempt,
            server: None,
        }
    }
}

impl Attempt {
    pub(super) fn first() -> Self {
        Self {
            since: Instant::now(),
            may_have_arrived: false,
        }
    }

    pub(super) fn with_doubt(self) -> Self {
        Self {
            may_have_arrived: true,
            ..self
        }
    }
}

impl FailedPublish {
    /// A batch that was not written to any socket.
    pub(super) fn not_sent(to: &NodeId, batch: Bytes, attempt: Attempt) -> Self {
        Self {
            to: to.clone(),
            batch,
            reason: DeliveryFailure::NotSent,
            error: None,
            attempt,
            server: None,
        }
    }
}

impl Publisher {
    pub(super) async fn connect(
        connector: &Connector,
        info: &ConnectionInfo,
        failures: Arc<dyn FailureSink>,
        timings: Histograms<Command>,
    ) -> Result<Self, BusError> {
        let stream = connector.connect(info).await?;
        let socket = Socket::try_from(stream).map_err(redis::RedisError::from)?;
        Ok(Self {
            server: info.addr().to_string().into(),
            failures,
            state: Mutex::new(State::new(socket, timings)),
            published: Notify::new(),
            idle: Notify::new(),
        })
    }

    /// Accepts a batch for a channel; [`Self::flush`] sends it.
    pub(super) fn publish(
        &self,
        channel: Channel<'_>,
        to: &NodeId,
        batch: Bytes,
        attempt: Attempt,
    ) {
        let mut state = self.state.lock();
        if state.was_closed_while_idle() {
            state.open = false;
            self.published.notify_one();
        }
        if !state.open {
            drop(state);
            self.failures
                .publish_failed(FailedPublish::not_sent(to, batch, attempt));
            return;
        }
        let offset = state.written + state.unwritten.len() as u64;
        let Channel { publish, name } = channel;
        let command = [publish.as_bytes(), name.as_bytes(), &batch[..]];
        resp::encode_command(&mut state.unwritten, &command);
        state.unacknowledged.push_back(SentBatch {
            to: to.clone(),
            batch,
            attempt,
            sent_at: Instant::now(),
            offset,
        });
    }

    /// Writes what the socket accepts.
    pub(super) fn flush(&self) {
        let mut state = self.state.lock();
        if state.unacknowledged.is_empty() {
            return;
        }
        // `run` finds an error again, and reports it.
        let _ = state.write();
        if !std::mem::replace(&mut state.polling, true) {
            self.published.notify_one();
        }
    }

    /// Reads what has arrived. Returns whether every batch has its reply, so that the next one
    /// need not wait for others.
    pub(super) fn is_idle(&self) -> bool {
        // As in `flush`.
        self.poll().unwrap_or(false)
    }

    /// Reads and writes what is possible without waiting. Returns whether every batch has its
    /// reply.
    fn poll(&self) -> Result<bool, PublishError> {
        let mut failed = Vec::new();
        let mut state = self.state.lock();
        let result = if state.unacknowledged.is_empty() {
            Ok(())
        } else {
            state.exchange(&mut failed)
        };
        let idle = state.unacknowledged.is_empty();
        drop(state);
        self.report(failed);
        if idle {
            self.idle.notify_waiters();
        }
        result.map(|()| idle)
    }

    /// Waits until every batch has its reply. Paces the outbox under load.
    pub(super) async fn wait_idle(&self) {
        let Ok(socket) = self.register() else {
            return sleep(POLL_INTERVAL).await;
        };
        // Other tasks read replies as well, and what they have read does not wake this one.
        let mut idle = pin!(self.idle.notified());
        idle.as_mut().enable();
        if self.is_idle() {
            return;
        }
        let poll = || match self.poll() {
            Ok(false) => Err(io::ErrorKind::WouldBlock.into()),
            polled => Ok(polled),
        };
        loop {
            tokio::select! {
                _ = socket.readable() => {}
                () = &mut idle => return,
            }
            match socket.try_io(Interest::READABLE, poll) {
                Ok(Ok(_)) => return,
                // A failed socket stays readable. `run` notices, and closes it.
                Ok(Err(_)) => return sleep(POLL_INTERVAL).await,
                Err(_) => {}
            }
        }
    }

    fn register(&self) -> io::Result<Arc<net::TcpStream>> {
        let mut state = self.state.lock();
        let stream = match &state.registered {
            Some(registered) => Arc::clone(&registered.stream),
            None => Arc::new(net::TcpStream::from_std(state.socket.try_clone()?)?),
        };
        state.registered = Some(RegisteredSocket {
            stream: Arc::clone(&stream),
            used: true,
        });
        Ok(stream)
    }

    /// Polls while there are unread replies or unwritten bytes. Returns when the connection
    /// fails: the reason, and since when nothing is known of what was sent.
    pub(super) async fn run(&self) -> (String, Instant) {
        loop {
            let has_work = {
                let mut state = self.state.lock();
                state.polling = !state.unacknowledged.is_empty();
                state.polling
            };
            if !has_work {
                tokio::select! {
                    () = self.published.notified() => {}
                    () = sleep(IDLE_CHECK_INTERVAL) => {}
                }
            } else {
                sleep(POLL_INTERVAL).await;
            }
            let mut failed = Vec::new();
            let checked = self.state.lock().check(&mut failed);
            self.report(failed);
            self.is_idle();
            if let Err(error) = checked {
                let since = self.close();
                return (format!("publishing failed: {error}"), since);
            }
        }
    }

    /// Closes the connection; batches without a reply have failed. Returns since when nothing is
    /// known.
    pub(super) fn close(&self) -> Instant {
        let mut state = self.state.lock();
        state.open = false;
        let written = state.written;
        state.unwritten = Vec::new();
        let since = state.unacknowledged.front().map(|oldest| oldest.sent_at);
        let failed = state.unacknowledged.drain(..).map(|sent| {
            let reason = if sent.offset < written {
                DeliveryFailure::Unknown
            } else {
                DeliveryFailure::NotSent
            };
            sent.into_failed(reason, None)
        });
        let failed: Vec<FailedPublish> = failed.collect();
        drop(state);
        // Failed batches are reported before tasks that wait for idle continue: they go first.
        self.report(failed);
        self.idle.notify_waiters();
        since.unwrap_or_else(Instant::now)
    }

    /// Invariant: never called under the lock, because a failure sink may publish.
    fn report(&self, failed: Vec<FailedPublish>) {
        for failed in failed {
            let server = Some(Arc::clone(&self.server));
            self.failures
                .publish_failed(FailedPublish { server, ..failed });
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.close();
    }
}

impl State {
    fn new(socket: Socket, timings: Histograms<Command>) -> Self {
        Self {
            open: true,
            socket,
            timings,
            unwritten: Vec::new(),
            written: 0,
            unacknowledged: VecDeque::new(),
            replies: Vec::new(),
            refusal: None,
            polling: false,
            read_at: Instant::now(),
            registered: None,
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let mut accepted = 0;
        let result = loop {
            match self.unwritten.get(accepted..) {
                None | Some([]) => break self.socket.flush(),
                Some(rest) => match self.socket.write(rest) {
                    Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => accepted += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => break Err(error),
                },
            }
        };
        self.unwritten.drain(..accepted);
        if self.unwritten.is_empty() {
            self.unwritten.shrink_to(RETAINED_BYTES);
        }
        self.written += accepted as u64;
        result
    }

    /// Whether the other side has closed the connection since the last reply. A command on such a
    /// connection would get no reply, and its calls would end as `lost`.
    fn was_closed_while_idle(&mut self) -> bool {
        self.open
            && self.unacknowledged.is_empty()
            && self.read_at.elapsed() > CHECKED_RECENTLY
            && self.read(&mut Vec::new()).is_err()
    }

    /// Reads the replies that have arrived.
    fn read(&mut self, failed: &mut Vec<FailedPublish>) -> Result<(), PublishError> {
        let mut chunk = [0; 512];
        self.read_at = Instant::now();
        loop {
            match self.socket.read(&mut chunk) {
                Ok(0) => return Err(PublishError::Closed),
                Ok(count) => {
                    self.handle_replies(chunk.get(..count).unwrap_or_default(), failed);
                    if count < chunk.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads and writes without waiting.
    fn exchange(&mut self, failed: &mut Vec<FailedPublish>) -> Result<(), PublishError> {
        self.read(failed)?;
        match self.write() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn handle_replies(&mut self, bytes: &[u8], failed: &mut Vec<FailedPublish>) {
        let now = Instant::now();
        let mut replies = std::mem::take(&mut self.replies);
        replies.extend_from_slice(bytes);
        let mut rest = &replies[..];
        loop {
            match resp::decode(&mut rest) {
                Ok(None) => break,
                Ok(Some(reply)) => self.handle_reply(&reply, now, failed),
                Err(resp::Malformed) => {
                    self.handle_reply(&Frame::Status(b"a malformed reply"), now, failed);
                    rest = &[];
                    break;
                }
            }
        }
        let consumed = replies.len() - rest.len();
        replies.drain(..consumed);
        self.replies = replies;
    }

    /// The reply to a publish command is the number of subscribers that received the batch.
    fn handle_reply(&mut self, reply: &Frame<'_>, now: Instant, failed: &mut Vec<FailedPublish>) {
        let sent = self.unacknowledged.pop_front();
        if let Some(sent) = &sent {
            let elapsed = now.saturating_duration_since(sent.sent_at);
            self.timings.observe(Command::Publish, elapsed);
        }
        let (reason, error) = match reply {
            Frame::Integer(0) => (DeliveryFailure::NoSubscriber, None),
            Frame::Integer(_) => return,
            Frame::Error(error) => {
                let text = String::from_utf8_lossy(error).into_owned();
                if !REDIRECTIONS.iter().any(|known| error.starts_with(known)) {
                    self.refusal.get_or_insert_with(|| text.clone());
                }
                (DeliveryFailure::NotSent, Some(text))
            }
            Frame::Status(_) | Frame::Message(_) => {
                let text = format!("unexpected reply {reply}");
                self.refusal.get_or_insert_with(|| text.clone());
                (DeliveryFailure::Unknown, Some(text))
            }
        };
        failed.extend(sent.map(|sent| sent.into_failed(reason, error)));
    }

    /// Polls, and checks whether the connection is still good.
    fn check(&mut self, failed: &mut Vec<FailedPublish>) -> Result<(), PublishError> {
        self.registered
            .take_if(|registered| !std::mem::take(&mut registered.used));
        self.exchange(failed)?;
        if let Some(refusal) = self.refusal.take() {
            return Err(PublishError::Refused(refusal));
        }
        match self.unacknowledged.front() {
            Some(oldest) if oldest.sent_at.elapsed() > COMMAND_TIMEOUT => {
                Err(PublishError::Timeout)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_with_batches(names: &[&str]) -> State {
        let timings = Histograms::new("test_seconds", "Test", "command", &[1.0]).unwrap();
        let mut state = State::new(Socket::closed(), timings);
        let batches = names.iter().map(|name| SentBatch {
            to: NodeId::from(*name),
            batch: Bytes::new(),
            attempt: Attempt::first(),
            sent_at: Instant::now(),
            offset: 0,
        });
        state.unacknowledged.extend(batches);
        state
    }

    /// Checks which batches fail, and what Redis refused, for every split of the replies.
    fn check(replies: &str, expected: &[(&str, DeliveryFailure)], refusal: Option<&str>) {
        for split in 0..=replies.len() {
            let mut state = state_with_batches(&["a", "b", "c"]);
            let mut failed = Vec::new();
            let (head, tail) = replies.as_bytes().split_at(split);
            state.handle_replies(head, &mut failed);
            state.handle_replies(tail, &mut failed);
            let failed: Vec<_> = failed
                .iter()
                .map(|failed| (failed.to.as_str(), failed.reason))
                .collect();
            assert_eq!(failed, expected, "{replies:?} split at {split}");
            assert_eq!(state.refusal.as_deref(), refusal);
            let answered = replies.matches('\n').count();
            assert_eq!(state.unacknowledged.len(), 3 - answered);
            assert_eq!(state.timings.count(Command::Publish), answered as u64);
        }
    }

    #[test]
    fn replies_are_matched_to_batches_in_order() {
        check("", &[], None);
        check(":1\r\n:2\r\n", &[], None);
        check(
            ":1\r\n:0\r\n:1\r\n",
            &[("b", DeliveryFailure::NoSubscriber)],
            None,
        );
        let refused = "-NOPERM no channel\r\n:0\r\n";
        let failed = [
            ("a", DeliveryFailure::NotSent),
            ("b", DeliveryFailure::NoSubscriber),
        ];
        check(refused, &failed, Some("NOPERM no channel"));
        let unexpected = Some("unexpected reply +OK");
        check("+OK\r\n", &[("a", DeliveryFailure::Unknown)], unexpected);
        // A redirection does not close the connection.
        let moved = "-MOVED 7 127.0.0.1:7000\r\n:1\r\n";
        check(moved, &[("a", DeliveryFailure::NotSent)], None);
    }
}
