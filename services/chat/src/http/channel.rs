//! A channel for an answer over HTTP, bounded by bytes. Adjacent texts are merged while they wait.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::conversation::model::ToolCallRecord;

/// Maximum bytes of texts and calls that wait for a slow reader.
pub(crate) const MAX_BUFFER_BYTES: usize = 128 * 1024;

/// A part of an answer.
#[derive(Debug, PartialEq)]
pub(crate) enum StreamItem {
    Text(String),
    Call(ToolCallRecord),
}

/// The sending half. Dropping it ends the answer.
pub(crate) struct SseSender {
    shared: Arc<Shared>,
    /// Cancelled when the client has disconnected or reads too slowly.
    pub(crate) disconnected: CancellationToken,
}

/// The receiving half.
pub(crate) struct SseReceiver(Arc<Shared>);

#[derive(Default)]
struct Shared {
    buffer: Mutex<Buffer>,
    changed: Notify,
}

#[derive(Default)]
struct Buffer {
    items: VecDeque<StreamItem>,
    bytes: usize,
    is_ended: bool,
}

/// Creates a channel. The receiver's owner cancels the token when it stops reading.
pub(crate) fn channel(disconnected: CancellationToken) -> (SseSender, SseReceiver) {
    let shared = Arc::<Shared>::default();
    let receiver = SseReceiver(Arc::clone(&shared));
    let sender = SseSender {
        shared,
        disconnected,
    };
    (sender, receiver)
}

impl SseSender {
    /// Sends an item without waiting. When the buffer is full the client counts as disconnected.
    pub(crate) fn send(&self, item: StreamItem) {
        if self.shared.buffer.lock().try_push(item) {
            self.shared.changed.notify_one();
        } else {
            self.disconnected.cancel();
        }
    }
}

impl Drop for SseSender {
    fn drop(&mut self) {
        self.shared.buffer.lock().is_ended = true;
        self.shared.changed.notify_one();
    }
}

impl SseReceiver {
    /// The next item; `None` when the answer has ended.
    pub(crate) async fn next(&mut self) -> Option<StreamItem> {
        loop {
            let changed = self.0.changed.notified();
            {
                let mut buffer = self.0.buffer.lock();
                if let Some(item) = buffer.items.pop_front() {
                    buffer.bytes = buffer.bytes.saturating_sub(item.bytes());
                    return Some(item);
                }
                if buffer.is_ended {
                    return None;
                }
            }
            changed.await;
        }
    }
}

impl Buffer {
    /// Adds an item, unless the buffer is full.
    fn try_push(&mut self, item: StreamItem) -> bool {
        let bytes = self.bytes.saturating_add(item.bytes());
        if bytes > MAX_BUFFER_BYTES {
            return false;
        }
        self.bytes = bytes;
        match (self.items.back_mut(), item) {
            (Some(StreamItem::Text(before)), StreamItem::Text(text)) => before.push_str(&text),
            (_, item) => self.items.push_back(item),
        }
        true
    }
}

impl StreamItem {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Call(call) => {
                let params = serde_json::to_string(&call.params).map_or(0, |text| text.len());
                call.tool.len() + params + call.result.len()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    fn text(text: impl Into<String>) -> StreamItem {
        StreamItem::Text(text.into())
    }

    fn call(result: String) -> StreamItem {
        StreamItem::Call(ToolCallRecord {
            device: "toy-1".parse().unwrap(),
            tool: "tool".to_owned(),
            params: Map::new(),
            result,
        })
    }

    #[tokio::test]
    async fn waiting_texts_are_merged_within_the_bound() {
        let (sender, mut receiver) = channel(CancellationToken::new());
        for _ in 0..20_000 {
            sender.send(text("word "));
        }
        sender.send(call("on".to_owned()));
        sender.send(text("Done."));
        assert!(!sender.disconnected.is_cancelled());
        drop(sender);
        assert_eq!(receiver.next().await, Some(text("word ".repeat(20_000))));
        assert_eq!(receiver.next().await, Some(call("on".to_owned())));
        assert_eq!(receiver.next().await, Some(text("Done.")));
        assert_eq!(receiver.next().await, None);
    }

    #[tokio::test]
    async fn full_buffer_disconnects_the_client() {
        let (sender, mut receiver) = channel(CancellationToken::new());
        let result = "x".repeat(MAX_BUFFER_BYTES / 2);
        sender.send(call(result.clone()));
        // A received item frees its bytes.
        assert_eq!(receiver.next().await, Some(call(result.clone())));
        sender.send(call(result.clone()));
        assert!(!sender.disconnected.is_cancelled());
        sender.send(call(result));
        assert!(sender.disconnected.is_cancelled());
        assert!(receiver.0.buffer.lock().bytes <= MAX_BUFFER_BYTES);
    }
}
