//! Voice activity: how likely it is that a window of audio contains speech.

use std::collections::VecDeque;

use earshot::Detector;
use rustvani_vad::SileroVad;

/// Samples of a window: 32 ms.
pub const WINDOW: usize = 512;
/// Samples that the light detector takes at a time: 16 ms.
const GATE_WINDOW: usize = 256;
/// The light detector suspects speech from this probability.
const GATE_THRESHOLD: f32 = 0.3;
/// The gate stays open for this many windows after the last suspicion: 320 ms.
const GATE_WINDOWS: u32 = 10;
/// Windows that the accurate detector receives before the one that opened the gate: it has a memory.
const WARM_UP_WINDOWS: usize = 4;

/// A detector of speech in a stream.
pub trait VoiceActivity: Send {
    /// Returns the probability of speech in the next window, 0 to 1.
    fn probability(&mut self, window: &[i16; WINDOW]) -> f32;

    /// Begins another stream.
    fn reset(&mut self);
}

/// The detector that is used: a light detector keeps an accurate one from running in quiet rooms.
///
/// The light one (`earshot`) never misses speech, but takes noise and music for it. The accurate one
/// (Silero) decides while the light one suspects speech. It has 1.3 MiB of weights, and exists only then.
pub struct GatedSilero {
    gate: Box<Detector>,
    /// Windows until the gate closes.
    open: u32,
    silero: Option<Silero>,
    /// The windows before the present one, for the warm-up.
    recent: VecDeque<[i16; WINDOW]>,
}

/// Silero's detector, in Rust, with its weights.
struct Silero(SileroVad);

impl GatedSilero {
    /// Creates a detector.
    #[must_use]
    pub fn new() -> Self {
        Self {
            gate: Detector::default_boxed(),
            open: 0,
            silero: None,
            recent: VecDeque::with_capacity(WARM_UP_WINDOWS),
        }
    }

    fn is_suspicious(&mut self, window: &[i16; WINDOW]) -> bool {
        let scores = window
            .as_chunks::<GATE_WINDOW>()
            .0
            .iter()
            .map(|part| self.gate.predict_i16(part));
        scores.fold(0.0, f32::max) >= GATE_THRESHOLD
    }
}

impl Default for GatedSilero {
    fn default() -> Self {
        Self::new()
    }
}

impl VoiceActivity for GatedSilero {
    fn probability(&mut self, window: &[i16; WINDOW]) -> f32 {
        if self.is_suspicious(window) {
            self.open = GATE_WINDOWS;
        } else {
            self.open = self.open.saturating_sub(1);
        }
        let probability = if self.open == 0 {
            self.silero = None;
            0.0
        } else {
            if self.silero.is_none() {
                self.silero = Silero::new();
                if let Some(silero) = &self.silero {
                    for window in &self.recent {
                        silero.probability(window);
                    }
                }
            }
            let silero = self.silero.as_ref();
            silero.map_or(0.0, |silero| silero.probability(window))
        };
        if self.recent.len() == WARM_UP_WINDOWS {
            self.recent.pop_front();
        }
        self.recent.push_back(*window);
        probability
    }

    fn reset(&mut self) {
        self.gate.reset();
        self.open = 0;
        self.silero = None;
        self.recent.clear();
    }
}

impl Silero {
    /// The weights are a part of the program, so nothing can fail that a test would not show.
    fn new() -> Option<Self> {
        SileroVad::new().ok().map(Self)
    }

    fn probability(&self, window: &[i16; WINDOW]) -> f32 {
        let mut bytes = [0; 2 * WINDOW];
        for (bytes, sample) in bytes.as_chunks_mut().0.iter_mut().zip(window) {
            *bytes = sample.to_le_bytes();
        }
        self.0.infer(&bytes).unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_and_tones_are_no_speech() {
        let mut activity = GatedSilero::new();
        for hz in [0.0, 100.0, 440.0, 1_000.0] {
            for n in 0..200 {
                let sample = |k: usize| {
                    let seconds = (n * WINDOW + k) as f32 / crate::RATE as f32;
                    ((std::f32::consts::TAU * hz * seconds).sin() * 10_000.0) as i16
                };
                let probability = activity.probability(&std::array::from_fn(sample));
                assert!(n < 10 || probability < 0.5, "{hz} Hz, {n}: {probability}");
            }
            activity.reset();
        }
        assert!(Silero::new().is_some());
    }
}
