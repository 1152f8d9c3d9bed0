//! The connection that packs leave through: a command is written where it arises, and its reply
//! is read with the next one or a moment later.
//! Never: waking up for a reply. Nothing watches this socket, it is looked at; so a lone call
//! costs each of its two ends one wake-up less.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::TcpStream,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use redis::ConnectionInfo;
use switchboard_runtime::metrics::Histograms;
use tokio::{io::Interest, net, sync::Notify, time::sleep};

use super::{dial::dial, live::COMMAND_LIMIT};
use crate::{backend::Undelivered, error::BusError, metrics::Command, node::NodeId};

/// What no later command has done is done after this: replies are read, and what the socket had
/// no room for is written. So late does a lone call to a node that is gone learn of it.
const LOOK_AFTER: Duration = Duration::from_millis(2);
/// What the buffer keeps of its size when it is empty.
const KEPT_BYTES: usize = 64 * 1024;

/// What a cluster refuses because it is to be said elsewhere, or later: the connection is as good as before.
const ELSEWHERE: [&str; 3] = ["MOVED ", "TRYAGAIN", "CLUSTERDOWN"];

/// Where a pack is published.
#[derive(Debug, Clone, Copy)]
pub(super) struct Channel<'a> {
    /// The command.
    pub(super) publish: &'static str,
    pub(super) name: &'a str,
}

/// What was tried with a pack so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    /// When it was to be sent for the first time.
    pub(super) since: Instant,
    /// It may have arrived once, though its server knew of nobody who heard it.
    pub(super) doubted: bool,
}

/// Takes back what did not arrive.
pub(super) trait Returns: Send + Sync {
    fn returned(&self, parcel: Returned);
}

/// A pack that did not arrive, as far as is known.
pub(super) struct Returned {
    pub(super) to: NodeId,
    pub(super) pack: Bytes,
    pub(super) why: Undelivered,
    /// What Redis had against it.
    pub(super) refusal: Option<String>,
    pub(super) attempt: Attempt,
    /// Which server said so, if one did.
    pub(super) server: Option<Arc<str>>,
}

pub(super) struct Publisher {
    /// The server that packs go to.
    pub(super) server: Arc<str>,
    /// Never blocks, and is not known to the runtime.
    socket: TcpStream,
    returns: Arc<dyn Returns>,
    state: Mutex<State>,
    /// There is something to look after.
    posted: Notify,
    /// Every pack has its reply.
    cleared: Notify,
}

struct State {
    open: bool,
    /// Bytes of commands that the socket had no room for yet.
    unwritten: Vec<u8>,
    /// Bytes that the socket took so far.
    written: u64,
    /// Packs without a reply, in the order of their commands.
    unanswered: VecDeque<Parcel>,
    /// The beginning of a reply whose end has not come yet.
    reply: Vec<u8>,
    refusal: Option<String>,
    /// Whether somebody looks after what is unwritten and unanswered.
    attended: bool,
    watched: Option<Watched>,
    /// How long replies take.
    commands: Histograms<Command>,
}

/// A published pack whose reply has not been read.
struct Parcel {
    to: NodeId,
    pack: Bytes,
    attempt: Attempt,
    posted_at: Instant,
    /// Where its command begins, counted like [`State::written`].
    begins: u64,
}

/// The socket a second time, for as long as somebody waits for replies every now and then.
struct Watched {
    stream: Arc<net::TcpStream>,
    used: bool,
}

/// Why a connection is no good any more.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("closed by Redis")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("no reply within {} s", COMMAND_LIMIT.as_secs())]
    Silent,
    #[error("Redis refused to publish: {0}")]
    Refused(String),
}

impl Parcel {
    fn returned(self, why: Undelivered, refusal: Option<String>) -> Returned {
        Returned {
            to: self.to,
            pack: self.pack,
            why,
            refusal,
            attempt: self.attempt,
            server: None,
        }
    }
}

impl Attempt {
    /// It is to be sent now.
    pub(super) fn first() -> Self {
        Self {
            since: Instant::now(),
            doubted: false,
        }
    }

    /// It may have arrived.
    pub(super) fn in_doubt(self) -> Self {
        Self {
            doubted: true,
            ..self
        }
    }
}

impl Returned {
    /// It did not even leave.
    pub(super) fn unsent(to: &NodeId, pack: Bytes, attempt: Attempt) -> Self {
        Self {
            to: to.clone(),
            pack,
            why: Undelivered::Unsent,
            refusal: None,
            attempt,
            server: None,
        }
    }
}

impl Publisher {
    /// Connects and signs in.
    pub(super) async fn connect(
        info: &ConnectionInfo,
        returns: Arc<dyn Returns>,
        commands: Histograms<Command>,
    ) -> Result<Self, BusError> {
        Ok(Self {
            server: info.addr().to_string().into(),
            socket: dial(info).await?,
            returns,
            state: Mutex::new(State::new(commands)),
            posted: Notify::new(),
            cleared: Notify::new(),
        })
    }

    /// Takes a pack for a channel; [`Self::flush`] sends it. It is given back unless it arrived.
    pub(super) fn post(&self, channel: Channel<'_>, to: &NodeId, pack: Bytes, attempt: Attempt) {
        let mut state = self.state.lock();
        if !state.open {
            drop(state);
            self.returns.returned(Returned::unsent(to, pack, attempt));
            return;
        }
        let begins = state.written + state.unwritten.len() as u64;
        put_publish(&mut state.unwritten, channel, &pack);
        state.unanswered.push_back(Parcel {
            to: to.clone(),
            pack,
            attempt,
            posted_at: Instant::now(),
            begins,
        });
    }

    /// Writes what the socket takes.
    pub(super) fn flush(&self) {
        let mut state = self.state.lock();
        if state.unanswered.is_empty() {
            return;
        }
        // What went wrong is found again by whoever attends, and told.
        let _ = state.write(&self.socket);
        if !std::mem::replace(&mut state.attended, true) {
            self.posted.notify_one();
        }
    }

    /// Whether every pack has its reply, so that the next one should not wait for others.
    pub(super) fn is_clear(&self) -> bool {
        // As in `flush`.
        self.look().unwrap_or(false)
    }

    /// Moves what can be moved without waiting; whether every pack has its reply then.
    fn look(&self) -> Result<bool, Broken> {
        let mut failed = Vec::new();
        let mut state = self.state.lock();
        let moved = if state.unanswered.is_empty() {
            Ok(())
        } else {
            state.exchange(&self.socket, &mut failed)
        };
        let clear = state.unanswered.is_empty();
        drop(state);
        self.tell(failed);
        if clear {
            self.cleared.notify_waiters();
        }
        moved.map(|()| clear)
    }

    /// Waits until every pack has its reply: the pace of packs under load, when this process is
    /// awake anyway.
    pub(super) async fn clear(&self) {
        let Ok(replies) = self.watched() else {
            return sleep(LOOK_AFTER).await;
        };
        // Others read replies as well, and what they have read wakes no watch.
        let mut cleared = pin!(self.cleared.notified());
        cleared.as_mut().enable();
        if self.is_clear() {
            return;
        }
        let look = || match self.look() {
            Ok(false) => Err(io::ErrorKind::WouldBlock.into()),
            looked => Ok(looked),
        };
        loop {
            tokio::select! {
                _ = replies.readable() => {}
                () = &mut cleared => return,
            }
            match replies.try_io(Interest::READABLE, look) {
                Ok(Ok(_)) => return,
                // It stays readable for ever. Whoever attends finds it out, and closes it.
                Ok(Err(_)) => return sleep(LOOK_AFTER).await,
                Err(_) => {}
            }
        }
    }

    /// The socket as the runtime watches it: under load only.
    fn watched(&self) -> io::Result<Arc<net::TcpStream>> {
        let mut state = self.state.lock();
        let stream = match &state.watched {
            Some(watched) => Arc::clone(&watched.stream),
            None => Arc::new(net::TcpStream::from_std(self.socket.try_clone()?)?),
        };
        state.watched = Some(Watched {
            stream: Arc::clone(&stream),
            used: true,
        });
        Ok(stream)
    }

    /// Looks after what those who publish leave: replies that nobody has read, bytes that had no
    /// room. Ends when the connection does, and says why and since when.
    pub(super) async fn attend(&self) -> (String, Instant) {
        loop {
            let idle = {
                let mut state = self.state.lock();
                state.attended = !state.unanswered.is_empty();
                !state.attended
            };
            if idle {
                self.posted.notified().await;
                continue;
            }
            sleep(LOOK_AFTER).await;
            let mut failed = Vec::new();
            let settled = self.state.lock().settle(&self.socket, &mut failed);
            self.tell(failed);
            self.is_clear();
            if let Err(broken) = settled {
                let since = self.close();
                return (format!("publishing failed: {broken}"), since);
            }
        }
    }

    /// Gives up: what has no reply is told to have failed. Returns since when nothing is known.
    pub(super) fn close(&self) -> Instant {
        let mut state = self.state.lock();
        state.open = false;
        let written = state.written;
        state.unwritten = Vec::new();
        let since = state.unanswered.front().map(|oldest| oldest.posted_at);
        let failed = state.unanswered.drain(..).map(|parcel| {
            let why = if parcel.begins < written {
                Undelivered::Unknown
            } else {
                Undelivered::Unsent
            };
            parcel.returned(why, None)
        });
        let failed: Vec<Returned> = failed.collect();
        drop(state);
        // What comes back goes before what has waited for it.
        self.tell(failed);
        self.cleared.notify_waiters();
        since.unwrap_or_else(Instant::now)
    }

    /// Never under the lock: who takes it back may publish.
    fn tell(&self, failed: Vec<Returned>) {
        for parcel in failed {
            let server = Some(Arc::clone(&self.server));
            self.returns.returned(Returned { server, ..parcel });
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.close();
    }
}

impl State {
    fn new(commands: Histograms<Command>) -> Self {
        Self {
            open: true,
            commands,
            unwritten: Vec::new(),
            written: 0,
            unanswered: VecDeque::new(),
            reply: Vec::new(),
            refusal: None,
            attended: false,
            watched: None,
        }
    }

    fn write(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        let mut taken = 0;
        let written = loop {
            match self.unwritten.get(taken..) {
                None | Some([]) => break Ok(()),
                Some(rest) => match socket.write(rest) {
                    Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => taken += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => break Err(error),
                },
            }
        };
        self.unwritten.drain(..taken);
        if self.unwritten.is_empty() {
            self.unwritten.shrink_to(KEPT_BYTES);
        }
        self.written += taken as u64;
        written
    }

    /// Reads the replies that are there.
    fn read(&mut self, mut socket: &TcpStream, failed: &mut Vec<Returned>) -> Result<(), Broken> {
        let mut chunk = [0; 512];
        loop {
            match socket.read(&mut chunk) {
                Ok(0) => return Err(Broken::Closed),
                Ok(count) => {
                    self.take_replies(chunk.get(..count).unwrap_or_default(), failed);
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

    /// Reads and writes what goes without waiting.
    fn exchange(&mut self, socket: &TcpStream, failed: &mut Vec<Returned>) -> Result<(), Broken> {
        self.read(socket, failed)?;
        match self.write(socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn take_replies(&mut self, bytes: &[u8], failed: &mut Vec<Returned>) {
        let now = Instant::now();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.reply.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.take_reply(now, failed);
                self.reply.clear();
            }
        }
    }

    fn take_reply(&mut self, now: Instant, failed: &mut Vec<Returned>) {
        let parcel = self.unanswered.pop_front();
        if let Some(parcel) = &parcel {
            let took = now.saturating_duration_since(parcel.posted_at);
            self.commands.observe(Command::Publish, took);
        }
        let (why, refusal) = match receivers(&self.reply) {
            Ok(0) => (Undelivered::NobodyThere, None),
            Ok(_) => return,
            Err(answer) => match answer.strip_prefix('-') {
                Some(refusal) => (Undelivered::Unsent, Some(refusal.to_owned())),
                None => (Undelivered::Unknown, Some(answer)),
            },
        };
        let serious = |refusal: &&String| {
            let redirects = |known: &&str| refusal.starts_with(*known);
            !ELSEWHERE.iter().any(redirects)
        };
        if let Some(refusal) = refusal.as_ref().filter(serious) {
            self.refusal.get_or_insert_with(|| refusal.clone());
        }
        failed.extend(parcel.map(|parcel| parcel.returned(why, refusal)));
    }

    /// What is due to be looked after; whether the connection is still good.
    fn settle(&mut self, socket: &TcpStream, failed: &mut Vec<Returned>) -> Result<(), Broken> {
        self.watched
            .take_if(|watched| !std::mem::take(&mut watched.used));
        self.exchange(socket, failed)?;
        if let Some(refusal) = self.refusal.take() {
            return Err(Broken::Refused(refusal));
        }
        match self.unanswered.front() {
            Some(oldest) if oldest.posted_at.elapsed() > COMMAND_LIMIT => Err(Broken::Silent),
            _ => Ok(()),
        }
    }
}

/// One reply to `PUBLISH`: how many received it, or what Redis has against it.
fn receivers(line: &[u8]) -> Result<u64, String> {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    text.strip_prefix(':')
        .and_then(|count| count.parse().ok())
        .ok_or_else(|| text.to_owned())
}

fn put_publish(out: &mut Vec<u8>, channel: Channel<'_>, pack: &[u8]) {
    let Channel { publish, name } = channel;
    put_command(out, &[publish.as_bytes(), name.as_bytes(), pack]);
}

/// A command as the Redis serialization protocol has it: an array of bulk strings.
pub(super) fn put_command(out: &mut Vec<u8>, parts: &[&[u8]]) {
    // Writing to a vector does not fail.
    let _ = write!(out, "*{}\r\n", parts.len());
    for part in parts {
        let _ = write!(out, "${}\r\n", part.len());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(names: &[&str]) -> State {
        let commands = Histograms::new("test_seconds", "Test", "command", &[1.0]).unwrap();
        let mut state = State::new(commands);
        let parcels = names.iter().map(|name| Parcel {
            to: NodeId::from(*name),
            pack: Bytes::new(),
            attempt: Attempt::first(),
            posted_at: Instant::now(),
            begins: 0,
        });
        state.unanswered.extend(parcels);
        state
    }

    /// Who failed and why, and what Redis refused, for every way in which the replies can be cut.
    fn check(replies: &str, failed: &[(&str, Undelivered)], refusal: Option<&str>) {
        for cut in 0..=replies.len() {
            let mut state = waiting(&["a", "b", "c"]);
            let mut seen = Vec::new();
            let (head, tail) = replies.as_bytes().split_at(cut);
            state.take_replies(head, &mut seen);
            state.take_replies(tail, &mut seen);
            let seen: Vec<_> = seen
                .iter()
                .map(|parcel| (parcel.to.as_str(), parcel.why))
                .collect();
            assert_eq!(seen, failed, "{replies:?} cut at {cut}");
            assert_eq!(state.refusal.as_deref(), refusal);
            let answered = replies.matches('\n').count();
            assert_eq!(state.unanswered.len(), 3 - answered);
            assert_eq!(state.commands.count(Command::Publish), answered as u64);
        }
    }

    #[test]
    fn replies_belong_to_packs_in_order() {
        check("", &[], None);
        check(":1\r\n:2\r\n", &[], None);
        check(
            ":1\r\n:0\r\n:1\r\n",
            &[("b", Undelivered::NobodyThere)],
            None,
        );
        let refused = "-NOPERM no channel\r\n:0\r\n";
        let failed = [("a", Undelivered::Unsent), ("b", Undelivered::NobodyThere)];
        check(refused, &failed, Some("NOPERM no channel"));
        check("+OK\r\n", &[("a", Undelivered::Unknown)], Some("+OK"));
        // What a cluster wants to be said elsewhere does not break the connection.
        let moved = "-MOVED 7 127.0.0.1:7000\r\n:1\r\n";
        check(moved, &[("a", Undelivered::Unsent)], None);
    }

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut out = Vec::new();
        let channel = Channel {
            publish: "PUBLISH",
            name: "sb:in:节点",
        };
        put_publish(&mut out, channel, b"\r\n\0");
        let expected = "*3\r\n$7\r\nPUBLISH\r\n$12\r\nsb:in:节点\r\n$3\r\n\r\n\0\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
