//! The way of an answer to somebody who hears it over HTTP: what is not read yet waits here, within a bound.
//! Never: a wait for whoever reads, or more memory than the bound for one who does not.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::conversation::Called;

/// What may wait for one who reads slowly, in bytes of words and of calls. Protects memory.
const WAITING_BYTES: usize = 1024 * 1024;

/// What somebody hears over HTTP.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    Call(Called),
}

/// The end at which is spoken. Dropped, it ends the answer.
pub(crate) struct Line {
    shared: Arc<Shared>,
    /// They do not listen any more, or not fast enough.
    pub(crate) hung_up: CancellationToken,
}

/// The end at which is heard.
pub(crate) struct Listener(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Default)]
struct Waiting {
    pieces: VecDeque<Piece>,
    bytes: usize,
    is_ended: bool,
}

/// Both ends; whoever stops listening cancels the token.
pub(crate) fn line(hung_up: CancellationToken) -> (Line, Listener) {
    let shared = Arc::<Shared>::default();
    let listener = Listener(Arc::clone(&shared));
    (Line { shared, hung_up }, listener)
}

impl Line {
    /// Passes a piece on. One for whom too much waits already does not hear the rest.
    pub(crate) fn send(&self, piece: Piece) {
        if self.shared.waiting.lock().take(piece) {
            self.shared.changed.notify_one();
        } else {
            self.hung_up.cancel();
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.shared.waiting.lock().is_ended = true;
        self.shared.changed.notify_one();
    }
}

impl Listener {
    /// The next piece, words that wait together as one; none when the answer has ended.
    pub(crate) async fn next(&mut self) -> Option<Piece> {
        loop {
            let changed = self.0.changed.notified();
            {
                let mut waiting = self.0.waiting.lock();
                if let Some(piece) = waiting.pieces.pop_front() {
                    waiting.bytes = waiting.bytes.saturating_sub(piece.bytes());
                    return Some(piece);
                }
                if waiting.is_ended {
                    return None;
                }
            }
            changed.await;
        }
    }
}

impl Waiting {
    /// Whether there was room for it.
    fn take(&mut self, piece: Piece) -> bool {
        let bytes = self.bytes.saturating_add(piece.bytes());
        if bytes > WAITING_BYTES {
            return false;
        }
        self.bytes = bytes;
        match (self.pieces.back_mut(), piece) {
            (Some(Piece::Text(before)), Piece::Text(text)) => before.push_str(&text),
            (_, piece) => self.pieces.push_back(piece),
        }
        true
    }
}

impl Piece {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Call(called) => {
                let params = serde_json::to_string(&called.params).map_or(0, |text| text.len());
                called.tool.len() + params + called.result.len()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    fn text(text: impl Into<String>) -> Piece {
        Piece::Text(text.into())
    }

    fn call(result: String) -> Piece {
        Piece::Call(Called {
            device: "toy-1".parse().unwrap(),
            tool: "tool".to_owned(),
            params: Map::new(),
            result,
        })
    }

    #[tokio::test]
    async fn many_small_pieces_wait_as_one_and_nobody_is_cut_off_for_them() {
        let (line, mut listener) = line(CancellationToken::new());
        for _ in 0..100_000 {
            line.send(text("word "));
        }
        line.send(call("on".to_owned()));
        line.send(text("Done."));
        assert!(!line.hung_up.is_cancelled());
        drop(line);
        assert_eq!(listener.next().await, Some(text("word ".repeat(100_000))));
        assert_eq!(listener.next().await, Some(call("on".to_owned())));
        assert_eq!(listener.next().await, Some(text("Done.")));
        assert_eq!(listener.next().await, None);
    }

    #[tokio::test]
    async fn what_waits_is_bounded_by_its_bytes() {
        let (line, mut listener) = line(CancellationToken::new());
        let result = "x".repeat(WAITING_BYTES / 2);
        line.send(call(result.clone()));
        // What was heard waits no more.
        assert_eq!(listener.next().await, Some(call(result.clone())));
        line.send(call(result.clone()));
        assert!(!line.hung_up.is_cancelled());
        line.send(call(result));
        assert!(line.hung_up.is_cancelled());
        assert!(listener.0.waiting.lock().bytes <= WAITING_BYTES);
    }
}
