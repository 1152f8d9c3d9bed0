//! The audio of an utterance, while it is being spoken.

use std::time::Duration;

use tokio::{sync::mpsc, time::Instant};

use crate::RATE;

/// Maximum samples of an utterance: 30 s and its pre-roll. It takes 1 MiB.
pub(crate) const MAX_SAMPLES: usize = RATE as usize * 32;

/// The audio of an utterance, as far as it was spoken.
pub(crate) struct Audio {
    samples: Vec<i16>,
    more: mpsc::Receiver<Vec<i16>>,
    ended: Option<Instant>,
}

impl Audio {
    pub(crate) const fn new(more: mpsc::Receiver<Vec<i16>>) -> Self {
        Self {
            samples: Vec::new(),
            more,
            ended: None,
        }
    }

    /// Time since the end of the utterance.
    pub(crate) fn since_end(&self) -> Duration {
        self.ended.map(|ended| ended.elapsed()).unwrap_or_default()
    }

    /// The samples after the first `sent` ones, when there are any; `None` at the end.
    pub(crate) async fn after(&mut self, sent: usize) -> Option<&[i16]> {
        while self.samples.len() <= sent {
            self.receive().await?;
        }
        self.samples.get(sent..)
    }

    /// All samples, when the utterance is complete.
    pub(crate) async fn all(&mut self) -> &[i16] {
        while self.receive().await.is_some() {}
        &self.samples
    }

    async fn receive(&mut self) -> Option<()> {
        let Some(piece) = self.more.recv().await else {
            self.ended.get_or_insert_with(Instant::now);
            return None;
        };
        let room = MAX_SAMPLES.saturating_sub(self.samples.len());
        let piece = piece.get(..room.min(piece.len())).unwrap_or_default();
        self.samples.extend_from_slice(piece);
        Some(())
    }
}
