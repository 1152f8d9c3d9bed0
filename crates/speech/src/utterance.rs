//! An utterance, while it is being spoken: what a provider reads, and the words that it reports early.

use tokio::{
    sync::watch,
    time::{Duration, Instant, sleep_until},
};

use crate::{RATE, failure::Failure};

/// Maximum samples of an utterance: 30 s and its pre-roll. It takes 1 MiB.
const MAX_SAMPLES: usize = RATE as usize * 32;

/// Maximum bytes of a transcript.
const MAX_TRANSCRIPT_BYTES: usize = 8 * 1024;

/// The audio of an utterance, as far as it was spoken.
#[derive(Default)]
pub(crate) struct Spoken {
    samples: Vec<i16>,
    /// When it was complete. It may be continued: then its provider begins again.
    ended: Option<Instant>,
}

/// An utterance, as a provider sees it.
pub(crate) struct Utterance {
    spoken: watch::Receiver<Spoken>,
    partial: watch::Sender<String>,
    language: Option<String>,
}

impl Spoken {
    /// Adds audio. What exceeds the longest utterance is dropped.
    pub(crate) fn push(&mut self, pcm: &[i16]) {
        let room = MAX_SAMPLES.saturating_sub(self.samples.len());
        let pcm = pcm.get(..room.min(pcm.len())).unwrap_or_default();
        self.samples.extend_from_slice(pcm);
    }

    /// Its duration.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_millis(self.samples.len() as u64 * 1_000 / u64::from(RATE))
    }

    /// Completes it, unless it is complete.
    pub(crate) fn end(&mut self) {
        self.ended.get_or_insert_with(Instant::now);
    }

    /// Continues it.
    pub(crate) const fn resume(&mut self) {
        self.ended = None;
    }
}

impl Utterance {
    pub(crate) const fn new(
        spoken: watch::Receiver<Spoken>,
        partial: watch::Sender<String>,
        language: Option<String>,
    ) -> Self {
        Self {
            spoken,
            partial,
            language,
        }
    }

    /// The language in which it probably is, as ISO 639-1: the first part of the tag.
    pub(crate) fn language(&self) -> Option<&str> {
        let tag = self.language.as_deref()?;
        Some(tag.split('-').next().unwrap_or(tag))
    }

    /// Reports the words that were recognised so far.
    pub(crate) fn report(&self, words: &str) -> Result<(), Failure> {
        self.partial.send_replace(checked(words)?);
        Ok(())
    }

    /// The samples after the first `sent` ones, when there are any; `None` at the end.
    pub(crate) async fn after(&self, sent: usize) -> Option<Vec<i16>> {
        let mut spoken = self.spoken.clone();
        let is_due = |spoken: &Spoken| spoken.samples.len() > sent || spoken.ended.is_some();
        let spoken = spoken.wait_for(is_due).await.ok()?;
        let samples = spoken.samples.get(sent..)?;
        (!samples.is_empty()).then(|| samples.to_vec())
    }

    /// All samples, when it is complete.
    pub(crate) async fn all(&self) -> Vec<i16> {
        let mut spoken = self.spoken.clone();
        match spoken.wait_for(|spoken| spoken.ended.is_some()).await {
            Ok(spoken) => spoken.samples.clone(),
            Err(_) => Vec::new(),
        }
    }

    /// Waits until its transcript is late: for `limit` after its end, or after now if it has ended.
    pub(crate) async fn late(&self, limit: Duration) {
        let mut spoken = self.spoken.clone();
        // The sender exists as long as the recognition, which polls this.
        let _ = spoken.wait_for(|spoken| spoken.ended.is_some()).await;
        sleep_until(Instant::now() + limit).await;
    }

    /// Time since its end.
    pub(crate) fn since_end(&self) -> Duration {
        let ended = self.spoken.borrow().ended;
        ended.map(|ended| ended.elapsed()).unwrap_or_default()
    }
}

/// Trims words, and refuses more than an utterance can have.
pub(crate) fn checked(words: &str) -> Result<String, Failure> {
    if words.len() > MAX_TRANSCRIPT_BYTES {
        let detail = format!("a transcript of {} bytes", words.len());
        return Err(Failure::Invalid(detail));
    }
    Ok(words.trim().to_owned())
}
