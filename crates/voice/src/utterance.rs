//! What a segmenter finds, and its settings.

/// When an utterance begins and ends. Durations are in milliseconds of audio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SegmenterSettings {
    /// The probability from which a window counts as speech.
    pub on: f32,
    /// The probability below which speech pauses.
    pub off: f32,
    /// The probability from which speech continues after a pause: noise must not prolong an utterance.
    pub resume: f32,
    /// Speech that begins an utterance.
    pub min_speech_ms: u32,
    /// Audio before the beginning that belongs to the utterance.
    pub pre_roll_ms: u32,
    /// Silence after which recognition may begin, in case that the utterance is over.
    pub pause_ms: u32,
    /// Silence that ends an utterance.
    pub end_silence_ms: u32,
    /// An utterance with less speech is dropped.
    pub min_utterance_ms: u32,
    /// An utterance ends when it has this duration.
    pub max_utterance_ms: u32,
    /// The segmenter reports once that nothing was said for this long.
    pub nothing_ms: u32,
}

impl Default for SegmenterSettings {
    fn default() -> Self {
        Self {
            on: 0.8,
            off: 0.7,
            resume: 0.95,
            min_speech_ms: 96,
            pre_roll_ms: 400,
            pause_ms: 250,
            end_silence_ms: 500,
            min_utterance_ms: 250,
            max_utterance_ms: 30_000,
            nothing_ms: 15_000,
        }
    }
}

/// Why an utterance ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UtteranceEnd {
    /// Silence followed.
    Silence,
    /// It had its maximum duration.
    Longest,
    /// The device ended it.
    Device,
}

/// What the segmenter finds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Segment<'a> {
    /// An utterance has begun.
    Started,
    /// The next audio of the utterance.
    Audio(&'a [i16]),
    /// The utterance pauses, and may be over.
    Paused,
    /// The utterance continues after a pause.
    Resumed,
    /// The utterance is complete.
    Ended {
        /// Why it ended.
        end: UtteranceEnd,
        /// Milliseconds of speech in it.
        speech_ms: u32,
        /// Milliseconds of audio in it.
        audio_ms: u32,
        /// Milliseconds from the last speech to the present end of the stream.
        silence_ms: u32,
    },
    /// The utterance had too little speech.
    Dropped,
    /// Nothing was said for a long time.
    Nothing,
}
