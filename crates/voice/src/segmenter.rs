//! Finds the utterances in a stream: where speech begins, pauses and ends.

use std::collections::VecDeque;

use crate::{
    RATE,
    activity::{VoiceActivity, WINDOW},
    milliseconds,
    utterance::{Segment, SegmenterSettings, UtteranceEnd},
};

/// Milliseconds of a window.
const WINDOW_MS: u32 = WINDOW as u32 * 1_000 / RATE;

/// Splits a stream of audio into utterances.
///
/// ```text
///              min_speech_ms of speech             end_silence_ms of silence, or the maximum
///   Waiting ────────────────────────────► Speaking ────────────────────────────────────────► Waiting
///      ▲                                   │    ▲
///      │ less than min_utterance_ms        │    │ speech: Resumed
///      └───────────────────────────────────┴────┘ pause_ms of silence: Paused
/// ```
///
/// In a *manual* stream the device decides: the utterance begins at once and ends with [`Self::end`].
/// Silence before the first and after the last speech is left out, except for the pre-roll.
///
/// Times are those of the audio, not of a clock. Memory: the pre-roll, or in a manual stream the silence
/// since the last speech, at most `max_utterance_ms`.
pub struct Segmenter<V> {
    activity: V,
    settings: SegmenterSettings,
    is_manual: bool,
    /// Audio that does not fill a window.
    partial: Vec<i16>,
    /// Audio that belongs to the utterance only if speech follows.
    recent: VecDeque<i16>,
    /// Samples before the present window in which nothing was said.
    quiet_samples: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting {
        /// Consecutive windows of speech.
        voiced: u32,
        reported: bool,
    },
    Speaking {
        /// Windows of speech.
        voiced: u32,
        /// Samples of the utterance.
        samples: u64,
        /// Windows since the last speech.
        silent: u32,
        /// The same, where sound that may be speech counts as speech.
        quiet: u32,
        is_paused: bool,
    },
}

const WAITING: State = State::Waiting {
    voiced: 0,
    reported: false,
};

impl<V: VoiceActivity> Segmenter<V> {
    /// Begins a stream.
    #[must_use]
    pub fn new(activity: V, settings: SegmenterSettings) -> Self {
        Self {
            activity,
            settings,
            is_manual: false,
            partial: Vec::new(),
            recent: VecDeque::new(),
            quiet_samples: 0,
            state: WAITING,
        }
    }

    /// Begins another stream. In a manual one, an utterance begins at once.
    pub fn restart(&mut self, is_manual: bool) {
        self.activity.reset();
        self.is_manual = is_manual;
        self.partial.clear();
        self.recent.clear();
        self.quiet_samples = 0;
        self.state = WAITING;
    }

    /// Changes the silence that ends an utterance, also of the present one.
    pub fn set_end_silence_ms(&mut self, ms: u32) {
        self.settings.end_silence_ms = ms;
    }

    /// Changes the probability from which a window counts as speech.
    pub fn set_threshold(&mut self, on: f32) {
        self.settings.on = on;
    }

    /// Restarts the measurement of silence.
    pub fn restart_silence(&mut self) {
        if let State::Waiting { reported, .. } = &mut self.state {
            *reported = false;
            self.quiet_samples = 0;
        }
    }

    /// Returns whether an utterance is in progress.
    #[must_use]
    pub const fn is_speaking(&self) -> bool {
        matches!(self.state, State::Speaking { .. })
    }

    /// Returns the milliseconds of speech of the utterance in progress.
    #[must_use]
    pub const fn speech_ms(&self) -> u32 {
        match self.state {
            State::Speaking { voiced, .. } => voiced * WINDOW_MS,
            State::Waiting { .. } => 0,
        }
    }

    /// Takes the next audio, and passes what it finds to `emit`.
    pub fn push(&mut self, mut pcm: &[i16], emit: &mut (impl FnMut(Segment<'_>) + ?Sized)) {
        while !pcm.is_empty() {
            let missing = WINDOW - self.partial.len();
            let (part, rest) = pcm.split_at(missing.min(pcm.len()));
            pcm = rest;
            self.partial.extend_from_slice(part);
            if let Ok(window) = <[i16; WINDOW]>::try_from(self.partial.as_slice()) {
                self.partial.clear();
                let probability = self.activity.probability(&window);
                self.take(&window, probability, emit);
            }
        }
    }

    /// Ends the utterance in progress, because the device says so.
    pub fn end(&mut self, emit: &mut (impl FnMut(Segment<'_>) + ?Sized)) {
        if let State::Speaking { .. } = self.state {
            self.finish(UtteranceEnd::Device, emit);
        } else if self.is_manual {
            emit(Segment::Dropped);
        }
        self.restart(false);
    }

    fn take(
        &mut self,
        window: &[i16; WINDOW],
        probability: f32,
        emit: &mut (impl FnMut(Segment<'_>) + ?Sized),
    ) {
        let SegmenterSettings {
            on, off, resume, ..
        } = self.settings;
        match self.state {
            State::Waiting { voiced, reported } => {
                let voiced = if probability >= on { voiced + 1 } else { 0 };
                self.wait(window, voiced, reported, emit);
            }
            State::Speaking {
                voiced,
                samples,
                silent,
                quiet,
                is_paused,
            } => {
                // A window between both thresholds continues speech, and begins none after a pause.
                let threshold = match silent {
                    0 => off,
                    // Noise prolongs nothing where the device decides.
                    _ if self.is_manual => on,
                    _ => resume.max(on),
                };
                let is_voiced = probability >= threshold;
                // It belongs to the utterance, and ends the pause, but does not prolong the utterance.
                let is_quiet = !is_voiced && probability < on;
                self.state = State::Speaking {
                    voiced: voiced + u32::from(is_voiced),
                    samples: samples + WINDOW as u64,
                    silent: if is_voiced { 0 } else { silent + 1 },
                    quiet: if is_quiet { quiet + 1 } else { 0 },
                    is_paused,
                };
                self.speak(window, is_voiced, emit);
            }
        }
    }

    fn wait(
        &mut self,
        window: &[i16; WINDOW],
        voiced: u32,
        reported: bool,
        emit: &mut (impl FnMut(Segment<'_>) + ?Sized),
    ) {
        self.recent.extend(window);
        let begins = voiced * WINDOW_MS >= self.settings.min_speech_ms;
        let kept = samples(self.settings.pre_roll_ms) + voiced as usize * WINDOW;
        let excess = self.recent.len().saturating_sub(kept);
        self.recent.drain(..excess);
        if begins {
            emit(Segment::Started);
            let audio = self.recent.make_contiguous();
            emit(Segment::Audio(audio));
            self.state = State::Speaking {
                voiced,
                samples: audio.len() as u64,
                silent: 0,
                quiet: 0,
                is_paused: false,
            };
            self.recent.clear();
            self.quiet_samples = 0;
            return;
        }
        self.quiet_samples += WINDOW as u64;
        let is_long = milliseconds(self.quiet_samples) >= u64::from(self.settings.nothing_ms);
        if is_long && !reported && !self.is_manual {
            emit(Segment::Nothing);
        }
        self.state = State::Waiting {
            voiced,
            reported: reported || is_long,
        };
    }

    fn speak(
        &mut self,
        window: &[i16; WINDOW],
        is_voiced: bool,
        emit: &mut (impl FnMut(Segment<'_>) + ?Sized),
    ) {
        let State::Speaking {
            samples,
            silent,
            quiet,
            is_paused,
            ..
        } = &mut self.state
        else {
            return;
        };
        let (silent_ms, quiet_ms) = (*silent * WINDOW_MS, *quiet * WINDOW_MS);
        let is_longest = milliseconds(*samples) >= u64::from(self.settings.max_utterance_ms);
        if self.is_manual && !is_voiced {
            // Belongs to the utterance if speech follows.
            self.recent.extend(window);
        } else {
            if *quiet == 0 && std::mem::take(is_paused) {
                emit(Segment::Resumed);
            }
            if !self.recent.is_empty() {
                emit(Segment::Audio(self.recent.make_contiguous()));
                self.recent.clear();
            }
            emit(Segment::Audio(window));
            if !self.is_manual && quiet_ms >= self.settings.pause_ms && !*is_paused {
                *is_paused = true;
                emit(Segment::Paused);
            }
        }
        if is_longest {
            self.finish(UtteranceEnd::Longest, emit);
        } else if !self.is_manual && silent_ms >= self.settings.end_silence_ms {
            self.finish(UtteranceEnd::Silence, emit);
        }
    }

    fn finish(&mut self, end: UtteranceEnd, emit: &mut (impl FnMut(Segment<'_>) + ?Sized)) {
        let State::Speaking {
            voiced,
            samples: length,
            silent,
            ..
        } = self.state
        else {
            return;
        };
        if self.is_manual {
            // As much silence as precedes an utterance.
            let tail = self.recent.len().min(samples(self.settings.pre_roll_ms));
            self.recent.truncate(tail);
            emit(Segment::Audio(self.recent.make_contiguous()));
        }
        let speech_ms = voiced * WINDOW_MS;
        if speech_ms < self.settings.min_utterance_ms && !self.is_manual {
            emit(Segment::Dropped);
        } else {
            emit(Segment::Ended {
                end,
                speech_ms,
                audio_ms: u32::try_from(milliseconds(length)).unwrap_or(u32::MAX),
                silence_ms: silent * WINDOW_MS,
            });
        }
        self.recent.clear();
        self.quiet_samples = 0;
        self.state = WAITING;
    }
}

/// Samples of a duration.
const fn samples(ms: u32) -> usize {
    RATE as usize / 1_000 * ms as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the probability of a window, in percent, from its first sample.
    struct Scripted;

    impl VoiceActivity for Scripted {
        fn probability(&mut self, window: &[i16; WINDOW]) -> f32 {
            f32::from(window[0]) / 100.0
        }

        fn reset(&mut self) {}
    }

    /// Feeds windows as `(count, percent)`, in pieces that fit none. Returns what was found: `S`tarted,
    /// `P`aused, `R`esumed, `E`nded with milliseconds of speech and audio, `D`ropped, `N`othing.
    fn found(is_manual: bool, script: &[(usize, i16)], ends: bool) -> String {
        let mut segmenter = Segmenter::new(Scripted, SegmenterSettings::default());
        segmenter.restart(is_manual);
        let pcm: Vec<i16> = script
            .iter()
            .flat_map(|(count, percent)| vec![*percent; count * WINDOW])
            .collect();
        let (mut found, mut audio) = (String::new(), 0);
        let mut emit = |segment: Segment<'_>| match segment {
            Segment::Started => found.push('S'),
            Segment::Audio(pcm) => audio += pcm.len(),
            Segment::Paused => found.push('P'),
            Segment::Resumed => found.push('R'),
            Segment::Ended { speech_ms, .. } => {
                let audio_ms = milliseconds(std::mem::take(&mut audio) as u64);
                found.push_str(&format!("E{speech_ms}/{audio_ms}"));
            }
            Segment::Dropped => {
                found.push('D');
                audio = 0;
            }
            Segment::Nothing => found.push('N'),
        };
        for piece in pcm.chunks(333) {
            segmenter.push(piece, &mut emit);
        }
        if ends {
            segmenter.end(&mut emit);
        }
        found
    }

    #[test]
    fn utterance_begins_and_ends_with_its_speech() {
        let check = |script: &[(usize, i16)], expect: &str| {
            assert_eq!(found(false, script, false), expect, "{script:?}");
        };
        // 64 ms are no speech; 10 windows are 320 ms; 16 windows of silence are 512 ms.
        check(&[(30, 0), (2, 90), (30, 0)], "");
        check(&[(30, 0), (10, 90), (15, 0)], "SP");
        check(&[(30, 0), (10, 90), (16, 0)], "SPE320/1232");
        // Without 400 ms before it.
        check(&[(10, 90), (40, 0)], "SPE320/832");
        // Speech continues at a lower probability than it begins; after a pause it does not.
        check(&[(10, 90), (10, 70), (30, 0)], "SPE640/1152");
        check(&[(10, 90), (5, 0), (30, 70)], "SPE320/832");
        check(&[(10, 90), (10, 0), (5, 96), (30, 0)], "SPRPE480/1312");
        // Sound that may be speech belongs to the utterance, and does not prolong it.
        check(&[(10, 90), (10, 0), (5, 90), (30, 0)], "SPRE320/832");
        check(&[(10, 90), (8, 0), (5, 90), (2, 0)], "SPR");
        check(&[(7, 90), (30, 0)], "SPD");
        check(
            &[(20, 90), (16, 0), (10, 90), (16, 0)],
            "SPE640/1152SPE320/832",
        );
    }

    #[test]
    fn endless_speech_is_split_and_endless_silence_is_reported_once() {
        assert_eq!(
            found(false, &[(2_000, 90)], false),
            "SE30016/30016SE30016/30016S"
        );
        assert_eq!(found(false, &[(2_000, 0)], false), "N");
        assert_eq!(
            found(false, &[(1_000, 0), (10, 90), (1_000, 0)], false),
            "NSPE320/1232N"
        );
    }

    #[test]
    fn manual_utterance_ends_with_the_device_and_has_little_silence() {
        let check = |script: &[(usize, i16)], expect: &str| {
            assert_eq!(found(true, script, true), expect, "{script:?}");
        };
        check(
            &[(100, 0), (10, 90), (100, 0), (10, 90), (100, 0)],
            "SE640/4640",
        );
        check(&[(5, 90)], "SE160/160");
        check(&[(100, 0)], "D");
        check(&[], "D");
        assert_eq!(found(false, &[(10, 90)], true), "SE320/320");
        assert_eq!(found(false, &[], true), "");
    }
}
