//! The speaking side of a conversation: the text of a reply becomes sentences, those audio, and that
//! frames of the device at the rate at which it plays them.

use std::{collections::VecDeque, time::Duration};

use switchboard_bus::SpeakingStyle;
use switchboard_phrases::Language;
use switchboard_protocol::{
    frame::TaskId,
    message::{AudioFormat, ServerVoice},
};
use switchboard_speech::{Pcm, SpeechError, SpokenStyle, Synthesis, Synthesizers};
use switchboard_voice::{Due, EncodedFrame, Encoder, Pacer, Sentence, SentenceCutter};
use tokio::time::Instant;

use super::progress::Progress;
use crate::handle::VoiceFrame;

/// Audio that the device has before it plays it.
const LEAD: Duration = Duration::from_millis(300);
/// Text that waits for its end is spoken when no more has arrived for this long.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(700);
/// Audio that is synthesised ahead of what is sent. Providers wait when there is more.
const MAX_AHEAD: Duration = Duration::from_secs(5);
/// Audio that can be repeated after an interruption; of a longer sentence, only its rest is sent.
const MAX_REPEATED: Duration = Duration::from_secs(15);
/// The rate of the encoder's input until the first audio is there.
const USUAL_RATE: u32 = 24_000;

/// What is queued for the device.
enum Item {
    Audio(EncodedFrame),
    /// The audio of this sentence follows.
    Begin(Sentence),
}

impl Item {
    /// How long it plays.
    fn plays(&self) -> Duration {
        match self {
            Self::Audio(frame) => Duration::from_millis(frame.ms.into()),
            Self::Begin(_) => Duration::ZERO,
        }
    }
}

/// What became of a sentence.
pub(super) enum Synthesized {
    /// More audio is queued.
    Audio,
    /// A sentence cannot be spoken.
    Failed(SpeechError),
}

/// Speaks one reply after the other.
///
/// ```text
///   text ─► SentenceCutter ─► waiting sentences ─► Synthesis (one) ─► Encoder ─► Pacer ─► frames
/// ```
///
/// While it is on hold nothing is sent. Then the reply continues, or begins again with the sentence that
/// was interrupted ([`Self::repeat_sentence`]), or is dropped.
pub(super) struct Speaker {
    synthesizers: Synthesizers,
    began: Instant,
    encoder: Encoder,
    cutter: SentenceCutter,
    last_text: Instant,
    /// The text of the reply is complete.
    is_whole: bool,
    waiting: VecDeque<Sentence>,
    style: SpokenStyle,
    /// The tag of the language where the style names none. `None` for English, which providers speak by
    /// default.
    language: Option<&'static str>,
    synthesis: Option<Synthesis>,
    pacer: Pacer<Item>,
    /// What was sent of the present sentence.
    sent: Vec<Item>,
    progress: Progress,
    /// Audio of the answer before that of the pacer.
    played_before: Duration,
    /// What the device reported as played, and when.
    reported: Option<(Duration, Instant)>,
    /// When the next audio is due.
    due_at: Option<Instant>,
    lag: Option<Duration>,
}

impl Speaker {
    pub(super) fn new(synthesizers: Synthesizers, format: AudioFormat) -> Self {
        Self {
            synthesizers,
            began: Instant::now(),
            encoder: Encoder::new(format, USUAL_RATE),
            cutter: SentenceCutter::default(),
            last_text: Instant::now(),
            is_whole: false,
            waiting: VecDeque::new(),
            style: SpokenStyle::default(),
            language: None,
            synthesis: None,
            pacer: Pacer::new(LEAD),
            sent: Vec::new(),
            progress: Progress::default(),
            played_before: Duration::ZERO,
            reported: None,
            due_at: None,
            lag: None,
        }
    }

    pub(super) fn set_style(&mut self, style: SpeakingStyle) {
        let SpeakingStyle {
            voice,
            language,
            rate,
            is_recorded: _,
        } = style;
        self.style = SpokenStyle {
            voice,
            language,
            rate,
        };
    }

    /// Sets the language of replies whose style names none.
    pub(super) fn set_language(&mut self, language: Language) {
        self.language = (language != Language::English).then(|| language.tag());
    }

    /// Appends text of the reply.
    pub(super) fn push(&mut self, text: &str, is_whole: bool) {
        self.cutter.push(text);
        self.last_text = Instant::now();
        self.is_whole |= is_whole;
        let cutter = &mut self.cutter;
        self.waiting
            .extend(std::iter::from_fn(|| cutter.next_sentence()));
        if self.is_whole {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let cutter = &mut self.cutter;
        self.waiting.extend(std::iter::from_fn(|| cutter.flush()));
    }

    /// Drops the reply.
    pub(super) fn clear(&mut self) {
        self.cutter = SentenceCutter::default();
        self.waiting.clear();
        self.synthesis = None;
        self.encoder.clear();
        self.pacer = Pacer::new(LEAD);
        self.sent.clear();
        self.progress = Progress::default();
        (self.played_before, self.reported) = (Duration::ZERO, None);
        self.is_whole = false;
        self.style = SpokenStyle::default();
    }

    pub(super) fn hold(&mut self) {
        self.pacer.hold();
        self.due_at = None;
    }

    pub(super) fn release(&mut self) {
        self.pacer.release();
    }

    /// Sends the interrupted sentence again from its beginning: the device has dropped what it had.
    pub(super) fn repeat_sentence(&mut self) {
        let now = self.began.elapsed();
        self.played_before += self.pacer.played(now) + self.pacer.unplayed(now);
        self.played_before = self.played_before.saturating_sub(self.repeatable());
        let waiting: Vec<Item> = self.pacer.clear().collect();
        self.pacer = Pacer::new(LEAD);
        let sent = std::mem::take(&mut self.sent);
        for item in sent.into_iter().chain(waiting) {
            self.queue(item);
        }
    }

    /// How late the last audio was taken that had to wait for its time.
    pub(super) fn take_lag(&mut self) -> Option<Duration> {
        self.lag.take()
    }

    /// Whether everything was sent and played.
    pub(super) fn is_done(&self) -> bool {
        self.is_whole
            && self.cutter.is_empty()
            && self.waiting.is_empty()
            && self.synthesis.is_none()
            && self.pacer.is_empty()
    }

    /// The device reports how much of the answer it has played.
    pub(super) fn set_played(&mut self, played: Duration) {
        self.reported = Some((played, Instant::now()));
    }

    /// Returns the words of the answer that the device has played: by the time that has passed, and not
    /// more than it reports. `None` when it has played the whole answer.
    pub(super) fn played_words(&self) -> Option<String> {
        let paced = self.played_before + self.pacer.played(self.began.elapsed());
        let reported = self.reported.map(|(played, at)| played + at.elapsed());
        let played = reported.map_or(paced, |reported| reported.min(paced));
        let is_complete = self.is_done() && played >= self.progress.total();
        (!is_complete).then(|| self.progress.words(played))
    }

    /// How long the device still plays what was sent.
    pub(super) fn unplayed(&self) -> Duration {
        self.pacer.unplayed(self.began.elapsed())
    }

    /// Waits for audio of the present sentence; for ever, if there is none to be made.
    pub(super) async fn synthesized(&mut self) -> Synthesized {
        if self.pacer.waiting() >= MAX_AHEAD {
            // Looked at again when audio was sent.
            return std::future::pending().await;
        }
        if self.synthesis.is_none() {
            self.begin_sentence();
        }
        let Some(synthesis) = &mut self.synthesis else {
            return std::future::pending().await;
        };
        match synthesis.next().await {
            Some(Ok(Pcm { samples, rate })) => {
                let mut frames = Vec::new();
                self.encoder.set_input_rate(rate);
                self.encoder.encode(&samples, &mut frames);
                self.queue_frames(frames);
                Synthesized::Audio
            }
            Some(Err(error)) => {
                self.end_sentence();
                Synthesized::Failed(error)
            }
            None => {
                self.end_sentence();
                Synthesized::Audio
            }
        }
    }

    fn begin_sentence(&mut self) {
        while let Some(sentence) = self.waiting.pop_front() {
            let text = sentence.text.clone();
            self.progress.begin(&text);
            self.queue(Item::Begin(sentence));
            if !text.is_empty() {
                let mut style = self.style.clone();
                style.language = style.language.or_else(|| self.language.map(str::to_owned));
                self.synthesis = Some(self.synthesizers.begin(text, style));
                return;
            }
        }
    }

    /// The next sentence begins with a frame of its own.
    fn end_sentence(&mut self) {
        self.synthesis = None;
        let mut frames = Vec::new();
        self.encoder.finish(&mut frames);
        self.queue_frames(frames);
    }

    fn queue_frames(&mut self, frames: Vec<EncodedFrame>) {
        for item in frames.into_iter().map(Item::Audio) {
            self.progress.add(item.plays());
            self.queue(item);
        }
    }

    fn queue(&mut self, item: Item) {
        let plays = item.plays();
        self.pacer.push(item, plays);
    }

    /// What was sent of the present sentence.
    fn repeatable(&self) -> Duration {
        self.sent.iter().map(Item::plays).sum()
    }

    /// Takes what is due, and returns when to look again.
    pub(super) fn due(
        &mut self,
        task: TaskId,
        captions: bool,
    ) -> (Vec<VoiceFrame>, Option<Instant>) {
        if !self.cutter.is_empty() && self.last_text.elapsed() >= FLUSH_TIMEOUT {
            self.flush();
        }
        let mut frames = Vec::new();
        let now = self.began.elapsed();
        let next = loop {
            match self.pacer.next(now) {
                Due::Item(item) => {
                    self.lag = self.due_at.take().map(|due| due.elapsed()).or(self.lag);
                    frames.extend(frame(task, &item, captions));
                    let is_long = self.repeatable() >= MAX_REPEATED;
                    if is_long || matches!(item, Item::Begin(_)) {
                        self.sent.clear();
                    }
                    self.sent.push(item);
                }
                Due::After(wait) => {
                    self.due_at = Some(Instant::now() + wait);
                    break self.due_at;
                }
                Due::Nothing => break None,
            }
        };
        let flush_at = (!self.cutter.is_empty()).then(|| self.last_text + FLUSH_TIMEOUT);
        (frames, next.into_iter().chain(flush_at).min())
    }
}

fn frame(task: TaskId, item: &Item, captions: bool) -> Option<VoiceFrame> {
    match item {
        Item::Audio(EncodedFrame { bytes, ms }) => Some(VoiceFrame::Audio {
            task,
            bytes: bytes.clone(),
            ms: *ms,
        }),
        Item::Begin(sentence) if captions => {
            let mut payload = Vec::new();
            let saying = ServerVoice::Saying {
                saying: sentence.text.as_str().into(),
                emotion: sentence.emotion.map(Into::into),
            };
            saying.write(&mut payload);
            Some(VoiceFrame::Message { task, payload })
        }
        Item::Begin(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use switchboard_protocol::message::Codec;
    use switchboard_speech::{Config, ProviderKind, Speech};
    use tokio::time::{advance, pause};

    use super::*;

    const FRAME: Duration = Duration::from_millis(100);

    /// Each of its sentences plays for two seconds.
    fn speaker() -> Speaker {
        let config = Config {
            tts_kind: Some(ProviderKind::Command),
            tts_endpoint: Some("head -c 64000 /dev/zero".to_owned()),
            ..Config::default()
        };
        let speech = Speech::from_config(&config, &Registry::new()).unwrap();
        let format = AudioFormat {
            codec: Codec::PcmS16le,
            rate: 16_000,
            frame_ms: 100,
        };
        Speaker::new(speech.synthesizers.unwrap(), format)
    }

    async fn play(speaker: &mut Speaker, frames: u32) {
        for _ in 0..frames {
            speaker.due(TaskId::MCP, false);
            advance(FRAME).await;
        }
    }

    #[tokio::test]
    async fn words_of_a_repeated_sentence_count_once() {
        let mut speaker = speaker();
        speaker.push("One two three four. Five six seven eight.", true);
        while !speaker.waiting.is_empty() || speaker.synthesis.is_some() {
            speaker.synthesized().await;
        }
        pause();
        play(&mut speaker, 10).await;
        let check = |speaker: &Speaker, expect: Option<&str>| {
            assert_eq!(speaker.played_words().as_deref(), expect);
        };
        check(&speaker, Some("One two"));
        speaker.repeat_sentence();
        check(&speaker, Some(""));
        play(&mut speaker, 30).await;
        check(&speaker, Some("One two three four. Five six"));
        speaker.set_played(Duration::from_millis(2_000));
        check(&speaker, Some("One two three four."));
        speaker.repeat_sentence();
        check(&speaker, Some("One two three four."));
        play(&mut speaker, 10).await;
        check(&speaker, Some("One two three four. Five six"));
        speaker.set_played(Duration::from_millis(3_000));
        play(&mut speaker, 20).await;
        check(&speaker, None);
    }
}
