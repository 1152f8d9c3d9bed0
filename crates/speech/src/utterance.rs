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
    end: Option<End>,
}

/// Where an utterance ends.
#[derive(Clone, Copy)]
struct End {
    samples: usize,
    at: Instant,
    /// The user may not continue.
    is_final: bool,
}

/// An utterance, as a provider sees it.
pub(crate) struct Utterance {
    spoken: watch::Receiver<Spoken>,
    partial: watch::Sender<String>,
    language: Option<String>,
    /// The provider receives the end of each pause, in case that it is final.
    is_early: bool,
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
        let samples = self.end.map_or(self.samples.len(), |end| end.samples);
        Duration::from_millis(samples as u64 * 1_000 / u64::from(RATE))
    }

    /// The user pauses. If this is the end, what follows does not belong to the utterance.
    pub(crate) fn pause(&mut self) {
        self.end = Some(End {
            samples: self.samples.len(),
            at: Instant::now(),
            is_final: false,
        });
    }

    /// The user continues: the audio of the pause belongs to the utterance.
    pub(crate) const fn resume(&mut self) {
        self.end = None;
    }

    /// Completes it: at the pause, if the user pauses.
    pub(crate) fn finish(&mut self) {
        if self.end.is_none() {
            self.pause();
        }
        if let Some(end) = &mut self.end {
            end.is_final = true;
        }
    }

    /// Whether the user pauses, and may continue.
    pub(crate) fn is_paused(&self) -> bool {
        self.end.is_some_and(|end| !end.is_final)
    }

    /// Whether it is complete.
    pub(crate) fn is_finished(&self) -> bool {
        self.end.is_some_and(|end| end.is_final)
    }

    fn end(&self, is_early: bool) -> Option<End> {
        self.end.filter(|end| is_early || end.is_final)
    }

    /// The samples before its end.
    fn audio(&self, is_early: bool) -> &[i16] {
        let end = self.end(is_early).map(|end| end.samples);
        let samples = self.samples.get(..end.unwrap_or(self.samples.len()));
        samples.unwrap_or_default()
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
            is_early: false,
        }
    }

    /// Whether the next provider receives the end of each pause.
    pub(crate) const fn set_early(&mut self, is_early: bool) {
        self.is_early = is_early;
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
        let early = self.is_early;
        let is_due =
            |spoken: &Spoken| spoken.audio(early).len() > sent || spoken.end(early).is_some();
        let spoken = spoken.wait_for(is_due).await.ok()?;
        let samples = spoken.audio(early).get(sent..)?;
        (!samples.is_empty()).then(|| samples.to_vec())
    }

    /// All samples, when it is complete.
    pub(crate) async fn all(&self) -> Vec<i16> {
        let mut spoken = self.spoken.clone();
        let early = self.is_early;
        match spoken.wait_for(|spoken| spoken.end(early).is_some()).await {
            Ok(spoken) => spoken.audio(early).to_vec(),
            Err(_) => Vec::new(),
        }
    }

    /// Waits until it is complete.
    pub(crate) async fn finished(&self) {
        let mut spoken = self.spoken.clone();
        // The sender exists as long as the recognition, which polls this.
        let _ = spoken.wait_for(Spoken::is_finished).await;
    }

    /// Waits until its transcript is late: for `limit` after its end, or after now if it has ended.
    pub(crate) async fn late(&self, limit: Duration) {
        let mut spoken = self.spoken.clone();
        let early = self.is_early;
        // The sender exists as long as the recognition, which polls this.
        let _ = spoken.wait_for(|spoken| spoken.end(early).is_some()).await;
        sleep_until(Instant::now() + limit).await;
    }

    /// Whether the provider can have received all of it.
    pub(crate) fn is_complete(&self) -> bool {
        self.spoken.borrow().end(self.is_early).is_some()
    }

    /// Time since its end.
    pub(crate) fn since_end(&self) -> Duration {
        let end = self.spoken.borrow().end(self.is_early);
        end.map(|end| end.at.elapsed()).unwrap_or_default()
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
