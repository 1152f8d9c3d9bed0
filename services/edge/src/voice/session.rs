//! One spoken conversation: what happens when the user speaks, falls silent, or interrupts.

mod answering;
mod messages;

use std::{sync::Arc, time::Duration};

use switchboard_bus::Played;
use switchboard_phrases::Phrase;
use switchboard_protocol::{
    frame::TaskId,
    message::{AudioTerms, Listen, ListenMode, ServerVoice, VoiceProblem, VoiceState},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use self::messages::ManualMessage;
use super::{
    answer::{Answer, MIN_INTERRUPTION},
    listener::{Heard, Listener, Recognized, Utterance},
    metrics::{BargeIn, Stage, Stages, UtteranceEnd},
    notices::describe,
    speaker::{Speaker, Synthesized},
    transcript,
};
use crate::{
    edge::Edge,
    handle::{ConnectionHandle, VoiceFrame, VoiceInput},
    token_bucket::TokenBucket,
};

/// A conversation ends when the device has sent nothing for this long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// An utterance ends when no audio arrives for this long: the device has stopped sending.
const STALL_TIMEOUT: Duration = Duration::from_secs(1);
/// The same for a `manual` message, in which users may think.
const MANUAL_STALL_TIMEOUT: Duration = Duration::from_secs(15);
/// The end of a wake word is in the audio that follows it.
const WAKE_WORD: Duration = Duration::from_millis(300);
/// Audio that a device does not read. The rest of the answer is dropped then.
const MAX_BACKLOG_MS: u32 = 2_000;
/// Utterances of a conversation in a burst, and the interval of further ones. Each is a request to a
/// provider.
const UTTERANCE_BURST: u32 = 20;
const UTTERANCE_INTERVAL_MS: u32 = 3_000;

/// A conversation. Its state follows from what is in progress ([`Self::state`]):
///
/// ```text
///                   speech                 end of speech              words
///   Idle ──listen──► Listening ──────────► Heard ────────────────► Thinking ◄─────────┐
///    ▲                  ▲  ▲                  │ too little            │ first audio    │
///    │ 15 s of silence, │  └──────────────────┘                       ▼                │ words
///    │ `listen: stop`   │ nothing recognised                       Speaking ──► interrupted
///    └──────────────────┴──────────────────────────────────────────────┘ played     (realtime)
/// ```
///
/// Words before the answer has begun extend the message and replace its turn; later ones stop the answer
/// and begin another message. Nothing of an answer is sent while the user speaks.
pub(super) struct Session<'a> {
    edge: &'a Arc<Edge>,
    handle: &'a Arc<ConnectionHandle>,
    terms: AudioTerms,
    listener: Listener<'a>,
    /// `None` where answers are text.
    speaker: Option<Speaker>,
    /// The task of the latest input.
    task: TaskId,
    /// Audio is analysed. Does not apply to `manual` devices.
    is_listening: bool,
    manual: Option<ManualMessage>,
    /// The task whose `manual` message ended with `listen: stop`. Its audio is ignored until the END of
    /// either side.
    stopped: Option<TaskId>,
    /// A task that the device has closed in another mode. Its picture waits for its words that are being
    /// recognised.
    closed: Option<TaskId>,
    answer: Option<Answer>,
    /// What was played of the last answer that was stopped, until the next message.
    played: Option<Played>,
    /// The state that the device knows.
    reported: VoiceState,
    /// When speech ended, until the answer begins.
    speech_ended: Option<Instant>,
    stages: Stages,
    utterances: TokenBucket,
    /// The utterance in progress is one too many, and is not recognised.
    is_refused: bool,
    last_input: Instant,
    last_audio: Instant,
}

enum Event {
    Changed,
    Recognized(Recognized),
    Synthesized(Synthesized),
    Due,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        edge: &'a Arc<Edge>,
        handle: &'a Arc<ConnectionHandle>,
        terms: AudioTerms,
    ) -> Self {
        let synthesizers = edge.voice.speech.synthesizers.clone();
        let speaker = terms
            .output
            .zip(synthesizers)
            .map(|(format, synthesizers)| Speaker::new(synthesizers, format));
        Self {
            edge,
            handle,
            terms,
            listener: Listener::new(terms, &edge.metrics.voice),
            speaker,
            task: TaskId::MCP,
            is_listening: true,
            manual: None,
            stopped: None,
            closed: None,
            answer: None,
            played: None,
            reported: VoiceState::Listening,
            speech_ended: None,
            stages: Stages::default(),
            utterances: TokenBucket::default(),
            is_refused: false,
            last_input: Instant::now(),
            last_audio: Instant::now(),
        }
    }

    /// Serves the conversation until it is over.
    pub(super) async fn run(mut self, changed: &Notify) {
        loop {
            let due = self.send_due();
            self.report_state();
            let event = self.next_event(changed, due).await;
            if !self.handle_event(event).await || self.is_over() {
                return;
            }
        }
    }

    async fn next_event(&mut self, changed: &Notify, due: Option<Instant>) -> Event {
        let due = due.into_iter().chain(self.next_timeout()).min();
        let due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let synthesized = async {
            match &mut self.speaker {
                Some(speaker) => speaker.synthesized().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = changed.notified() => Event::Changed,
            recognized = self.listener.recognized() => Event::Recognized(recognized),
            synthesized = synthesized => Event::Synthesized(synthesized),
            () = due => Event::Due,
        }
    }

    /// Handles an event. Returns false when the connection has closed.
    async fn handle_event(&mut self, event: Event) -> bool {
        match event {
            Event::Changed => {
                let Some(inputs) = self.handle.take_voice_inputs() else {
                    return false;
                };
                for input in inputs {
                    self.last_input = Instant::now();
                    self.take_input(input).await;
                    // A codec may have been created.
                    tokio::task::yield_now().await;
                }
                while let Some(chunk) = self.handle.next_spoken_chunk() {
                    self.take_reply(chunk);
                }
            }
            Event::Recognized(Recognized::Partial(words)) => self.send_heard(&words, false),
            Event::Recognized(Recognized::Words {
                utterance,
                words,
                audio,
                recorded,
            }) => {
                let ms = u32::try_from(audio.as_millis()).unwrap_or(u32::MAX);
                self.handle.count_audio(ms);
                self.take_words(utterance, &words, &recorded);
            }
            Event::Recognized(Recognized::Failed(error)) => {
                tracing::warn!(device.id = %self.handle.key.device, %error,
                    "an utterance was not recognised");
                self.fail(VoiceProblem::RecognitionFailed);
            }
            Event::Synthesized(Synthesized::Failed(error)) => {
                tracing::warn!(device.id = %self.handle.key.device, %error,
                    "a sentence was not spoken");
                let answer = self.answer.as_mut();
                if answer.is_some_and(|answer| !std::mem::replace(&mut answer.has_failed, true)) {
                    self.send_problem(VoiceProblem::SynthesisFailed);
                }
            }
            Event::Synthesized(Synthesized::Audio) | Event::Due => {}
        }
        if self.stalled_at().is_some_and(|at| at <= Instant::now()) {
            self.end_message();
        }
        true
    }

    /// When the utterance or the message in progress ends unless more audio arrives.
    fn stalled_at(&self) -> Option<Instant> {
        let timeout = match self.listener.mode() {
            ListenMode::Manual => MANUAL_STALL_TIMEOUT,
            ListenMode::Auto | ListenMode::Realtime => STALL_TIMEOUT,
        };
        self.is_hearing().then(|| self.last_audio + timeout)
    }

    fn is_working(&self) -> bool {
        self.answer.is_some() || self.listener.is_recognizing()
    }

    fn next_timeout(&self) -> Option<Instant> {
        let idle_at = (!self.is_working()).then(|| self.last_input + IDLE_TIMEOUT);
        let hold = self.answer.as_ref().and_then(Answer::held_until);
        let timeouts = [self.stalled_at(), idle_at, hold];
        timeouts.into_iter().flatten().min()
    }

    /// Whether the device has sent nothing for long, and nothing is in progress.
    fn is_over(&self) -> bool {
        let is_silent = self.last_input.elapsed() >= IDLE_TIMEOUT;
        is_silent && !self.is_working() && self.handle.end_voice()
    }

    async fn take_input(&mut self, input: VoiceInput) {
        match input {
            VoiceInput::Audio { task, bytes } => {
                self.last_audio = Instant::now();
                for piece in bytes.chunks(self.listener.slice_bytes()) {
                    if !self.take_audio(task, piece) {
                        break;
                    }
                    // Analysing a piece takes milliseconds.
                    tokio::task::yield_now().await;
                }
            }
            VoiceInput::Gap => self.listener.continue_after_gap(),
            VoiceInput::End { task } => self.close(task),
            VoiceInput::Listen { task, listen } => match listen {
                Listen::Start(mode) => self.listen(task, mode),
                Listen::Stop => self.stop_listening(task),
            },
            VoiceInput::Wake { task } => {
                self.listen(task, None);
                self.listener.ignore_for(WAKE_WORD);
            }
            VoiceInput::Cancel { task } => self.cancel(task),
            VoiceInput::Played { ms } => {
                if let Some(speaker) = &mut self.speaker {
                    speaker.set_played(Duration::from_millis(ms.into()));
                }
            }
        }
    }

    /// Returns false where the rest of the audio is worth nothing.
    fn take_audio(&mut self, task: TaskId, bytes: &[u8]) -> bool {
        let has_begun = self.answer.as_ref().is_some_and(|answer| answer.has_begun);
        let is_ignored = match self.listener.mode() {
            // The device may hear itself.
            ListenMode::Auto => !self.is_listening || has_begun,
            ListenMode::Realtime => !self.is_listening,
            ListenMode::Manual => self.stopped == Some(task),
        };
        if is_ignored {
            return self.listener.skip(bytes);
        }
        if self.listener.mode() == ListenMode::Manual {
            self.open_message(task);
        }
        if task != self.task && (self.is_hearing() || self.listener.is_recognizing()) {
            // The message continues on this task.
            self.handle.move_picture(self.task, task);
        }
        self.task = task;
        let recognizers = self.edge.voice.speech.recognizers.as_ref();
        match self.listener.push(recognizers, bytes) {
            Ok(heard) => heard.into_iter().for_each(|heard| self.take_heard(heard)),
            Err(problem) => {
                self.fail(problem);
                return false;
            }
        }
        if self.listener.mode() == ListenMode::Realtime
            && self.listener.speech() >= MIN_INTERRUPTION
        {
            self.interrupt();
        }
        true
    }

    fn take_heard(&mut self, heard: Heard) {
        match heard {
            Heard::Began => {
                let now_ms = self.edge.now_ms();
                let taken = self
                    .utterances
                    .take(UTTERANCE_BURST, UTTERANCE_INTERVAL_MS, now_ms);
                self.is_refused = taken.is_err();
                if self.is_refused {
                    self.listener.drop_last();
                }
                self.hold_answer();
            }
            Heard::Nothing => {
                self.count(UtteranceEnd::Nothing);
                self.finish_speech();
            }
            Heard::Silence => {
                let is_listening = self.state() == VoiceState::Listening;
                self.is_listening &= !is_listening;
            }
            Heard::Ended { utterance, silence } => {
                self.speech_ended = Instant::now().checked_sub(silence);
                if let Some(ended) = self.speech_ended {
                    self.stages.begin(&self.edge.metrics.voice, ended);
                }
                self.admit(utterance);
            }
        }
    }

    /// An utterance is complete. Its recognition continues if there is a provider.
    fn admit(&mut self, utterance: Utterance) {
        if self.is_refused {
            return self.fail(VoiceProblem::TooMany);
        }
        if self.edge.voice.speech.recognizers.is_some() {
            return;
        }
        self.count(utterance.end.into());
        self.send_problem(VoiceProblem::NoSpeechProvider);
        if self.answer.is_none()
            && let Some(speaker) = &mut self.speaker
        {
            let language = self.handle.language(self.edge);
            speaker.set_language(language);
            speaker.push(&Phrase::NoRecognition.text(language), true);
            self.answer = Some(Answer::new(None, self.task, String::new(), None));
        } else {
            self.finish_speech();
        }
    }

    fn take_words(&mut self, utterance: Utterance, words: &str, recorded: &[u8]) {
        let is_doubtful = utterance.speech_percent < transcript::MIN_SPEECH_PERCENT;
        let is_noise = words.is_empty() || (is_doubtful && transcript::is_invented(words));
        self.listener.count_words(!is_noise);
        let has_begun = self.answer.as_ref().is_some_and(|answer| answer.has_begun);
        if is_noise || (has_begun && transcript::is_backchannel(words)) {
            self.count(UtteranceEnd::Nothing);
            return self.finish_speech();
        }
        self.count(utterance.end.into());
        self.stages
            .end(&self.edge.metrics.voice, Stage::Recognition);
        self.send_heard(words, true);
        if has_begun {
            self.edge.metrics.voice.barge_ins.inc(BargeIn::Cancelled);
            self.stop_answer();
        }
        self.listener.keep_recorded(recorded);
        match &mut self.manual {
            // Its other utterances belong to the message as well.
            Some(message) => {
                append(&mut message.words, words);
                self.finish_speech();
            }
            None => self.begin_turn(self.task, words),
        }
    }

    /// Ends a message that has no answer.
    fn send_end(&mut self, task: TaskId) {
        self.stopped.take_if(|stopped| *stopped == task);
        self.handle.send_voice([VoiceFrame::Unanswered { task }]);
    }

    /// Sends the device the words of its user.
    fn send_heard(&self, words: &str, is_final: bool) {
        if self.terms.captions && !words.is_empty() {
            let message = ServerVoice::Heard {
                heard: words.into(),
                r#final: is_final,
            };
            self.handle.send_voice_message(self.task, &message);
        }
    }

    /// An utterance has no words because of this.
    fn fail(&mut self, problem: VoiceProblem) {
        self.count(UtteranceEnd::Failed);
        self.send_problem(problem);
        self.finish_speech();
    }

    fn send_problem(&self, problem: VoiceProblem) {
        let detail = describe(problem).text(self.handle.language(self.edge));
        let message = ServerVoice::Problem { problem, detail };
        self.handle.send_voice_message(self.task, &message);
    }

    fn count(&self, end: UtteranceEnd) {
        self.edge.metrics.voice.utterances.inc(end);
    }

    fn state(&self) -> VoiceState {
        match &self.answer {
            Some(answer) if answer.has_begun => VoiceState::Speaking,
            _ if self.listener.is_hearing() => VoiceState::Heard,
            Some(_) => VoiceState::Thinking,
            None if self.listener.is_recognizing() => VoiceState::Thinking,
            None if self.is_listening => VoiceState::Listening,
            None => VoiceState::Idle,
        }
    }

    /// Tells the device the state, if it has changed. A draining connection waits for the end of what is
    /// in progress.
    fn report_state(&mut self) {
        let state = self.state();
        if std::mem::replace(&mut self.reported, state) == state {
            return;
        }
        self.listener.set_speaking(state == VoiceState::Speaking);
        let is_idle = matches!(state, VoiceState::Listening | VoiceState::Idle);
        self.handle.set_answering(!is_idle);
        let answer = self.answer.as_ref().filter(|answer| answer.has_begun);
        let task = answer.map_or(self.task, |answer| answer.task);
        self.handle
            .send_voice_message(task, &ServerVoice::State { state });
    }
}

/// Appends words to a message.
fn append(message: &mut String, words: &str) {
    if !message.is_empty() && !words.is_empty() {
        message.push(' ');
    }
    message.push_str(words);
}
