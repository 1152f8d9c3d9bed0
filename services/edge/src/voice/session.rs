//! One spoken conversation: what happens when the user speaks, falls silent, or interrupts.

use std::{sync::Arc, time::Duration};

use switchboard_bus::NewMessage;
use switchboard_protocol::{
    frame::TaskId,
    message::{AudioTerms, Listen, ListenMode, ServerVoice, VoiceProblem, VoiceState},
};
use switchboard_speech::{SpeechError, Words};
use switchboard_voice::UtteranceEnd;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{
    listener::{Heard, Listener},
    metrics::{BargeIn, Stage, Stages, Utterance},
    notices::{NO_RECOGNITION, TOO_MANY_SESSIONS, describe},
    speaker::{Speaker, Synthesized},
    transcript::{self, MIN_SPEECH_PERCENT},
};
use crate::{
    edge::Edge,
    handle::{ConnectionHandle, ReplyChunk, VoiceFrame, VoiceInput},
    token_bucket::TokenBucket,
    turn_forwarder,
};

/// A conversation ends when the device has sent nothing for this long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// For how long the device's audio is ignored after a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);
/// The end of a wake word is in the audio that follows it.
const WAKE_WORD: Duration = Duration::from_millis(300);
/// Speech that interrupts an answer. With less, it was a noise, and the answer continues.
const MIN_INTERRUPTION: Duration = Duration::from_millis(300);
/// Audio that a device does not read. The rest of the answer is dropped then.
const MAX_BACKLOG_MS: u32 = 2_000;
/// Utterances of a conversation in a burst, and the interval of further ones. Each is a request to a
/// provider.
const UTTERANCE_BURST: u32 = 20;
const UTTERANCE_INTERVAL_MS: u32 = 3_000;
/// The state of a conversation.
///
/// ```text
///                   speech, or `manual`            end of speech              words
///   Idle ──listen──► Listening ──────────► Hearing ──────────────► Thinking ◄─────────┐
///    ▲                  ▲  ▲                  │ too little            │ first audio    │
///    │ 15 s of silence  │  └──────────────────┘                       ▼                │ words
///    └──────────────────┤ nothing recognised                       Speaking ──► Interrupted
///                       └──────────────────────────────────────────────┘ played     (realtime)
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Listening,
    Hearing,
    Thinking,
    Speaking,
}

struct Session<'a> {
    edge: &'a Arc<Edge>,
    handle: &'a Arc<ConnectionHandle>,
    terms: AudioTerms,
    listener: Listener,
    /// `None` where answers are text.
    speaker: Option<Speaker>,
    task: TaskId,
    phase: Phase,
    /// The turn that is being answered.
    turn: Option<u64>,
    /// What the user has said since the last answer.
    said: String,
    /// The words of the interrupted answer that were played, until the next message.
    played: Option<String>,
    /// When speech ended, until the answer begins.
    speech_ended: Option<Instant>,
    stages: Stages,
    /// Speech has stopped the answer; it continues unless there are words.
    is_interrupted: bool,
    /// The device stopped listening.
    is_stopped: bool,
    is_doubtful: bool,
    utterances: TokenBucket,
    last_input: Instant,
}

enum Event {
    Changed,
    Words(Result<Words, SpeechError>),
    Synthesized(Synthesized),
    Due,
}

/// Serves a conversation until it is over.
pub(super) async fn run(edge: &Arc<Edge>, handle: &Arc<ConnectionHandle>) {
    let Some((terms, changed)) = handle.voice() else {
        return;
    };
    let Ok(_permit) = edge.voice.sessions.try_acquire(handle.owner(), 1) else {
        return refuse(handle).await;
    };
    let sessions = &edge.metrics.voice.sessions;
    sessions.inc();
    let mut session = Session::new(edge, handle, terms);
    loop {
        let due = session.send_due();
        let event = session.next_event(&changed, due).await;
        if !session.handle_event(event).await || session.is_over() {
            break;
        }
    }
    sessions.dec();
}

/// There is no room: the device learns that, and its audio is dropped for a while.
async fn refuse(handle: &ConnectionHandle) {
    let inputs = handle.take_voice_inputs().unwrap_or_default();
    let task = inputs.front().and_then(VoiceInput::task);
    let problem = ServerVoice::Problem {
        problem: VoiceProblem::Overloaded,
        detail: TOO_MANY_SESSIONS.into(),
    };
    handle.send_voice_message(task.unwrap_or(TaskId::MCP), &problem);
    tokio::time::sleep(REFUSAL_TIMEOUT).await;
    while handle.take_voice_inputs().is_some() && !handle.end_voice() {}
}

impl<'a> Session<'a> {
    fn new(edge: &'a Arc<Edge>, handle: &'a Arc<ConnectionHandle>, terms: AudioTerms) -> Self {
        let synthesizers = edge.voice.speech.synthesizers.clone();
        let speaker = terms
            .output
            .zip(synthesizers)
            .map(|(format, synthesizers)| Speaker::new(synthesizers, format));
        Self {
            edge,
            handle,
            terms,
            listener: Listener::new(terms),
            speaker,
            task: TaskId::MCP,
            phase: Phase::Listening,
            turn: None,
            said: String::new(),
            played: None,
            speech_ended: None,
            stages: Stages::default(),
            is_interrupted: false,
            is_stopped: false,
            is_doubtful: false,
            utterances: TokenBucket::new(UTTERANCE_BURST, edge.now_ms()),
            last_input: Instant::now(),
        }
    }

    async fn next_event(&mut self, changed: &Notify, due: Option<Instant>) -> Event {
        let idle_at = self.turn.is_none().then(|| self.last_input + IDLE_TIMEOUT);
        let due = due.into_iter().chain(idle_at).min();
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
            words = self.listener.words() => Event::Words(words),
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
                }
                while let Some(chunk) = self.handle.next_spoken_chunk() {
                    self.take_reply(chunk);
                }
            }
            Event::Words(Ok(Words::Partial(words))) => self.send_heard(&words, false),
            Event::Words(Ok(Words::Final(words))) => self.take_transcript(words),
            Event::Words(Err(error)) => {
                self.fail(VoiceProblem::RecognitionFailed, &error.to_string());
            }
            Event::Synthesized(Synthesized::Failed(error)) => {
                tracing::warn!(device.id = %self.handle.key.device, %error,
                    "a sentence could not be spoken");
            }
            Event::Synthesized(Synthesized::Audio) | Event::Due => {}
        }
        true
    }

    /// Whether the device has sent nothing for long, and nothing is in progress.
    fn is_over(&self) -> bool {
        let is_silent = self.last_input.elapsed() >= IDLE_TIMEOUT;
        is_silent && self.turn.is_none() && self.handle.end_voice()
    }

    async fn take_input(&mut self, input: VoiceInput) {
        match input {
            VoiceInput::Audio { task, bytes } => {
                for piece in bytes.chunks(self.listener.slice_bytes()) {
                    if !self.take_audio(task, piece) {
                        break;
                    }
                    // Analysing a piece takes milliseconds.
                    tokio::task::yield_now().await;
                }
            }
            VoiceInput::End { task } => self.end_message(task),
            VoiceInput::Listen { task, listen } => {
                self.task = task;
                match listen {
                    Listen::Start(mode) => self.listen(mode),
                    Listen::Stop => {
                        self.end_message(task);
                        self.is_stopped = true;
                    }
                }
            }
            VoiceInput::Wake { task } => {
                self.task = task;
                self.listen(None);
                self.listener.ignore_for(WAKE_WORD);
            }
            VoiceInput::Cancel { task } if task == self.task => {
                self.stop_answer();
                self.set_phase(Phase::Listening);
            }
            VoiceInput::Played { ms } => {
                if let Some(speaker) = &mut self.speaker {
                    speaker.set_played(Duration::from_millis(ms.into()));
                }
            }
            VoiceInput::Cancel { .. } => {}
        }
    }

    /// The device begins to listen. An answer in progress ends.
    fn listen(&mut self, mode: Option<ListenMode>) {
        self.stop_answer();
        self.listener.start(mode);
        self.is_stopped = false;
        self.said.clear();
        self.set_phase(Phase::Listening);
    }

    /// Returns false where the rest of the audio is worth nothing.
    fn take_audio(&mut self, task: TaskId, bytes: &[u8]) -> bool {
        let is_idle = self.phase == Phase::Idle || self.is_stopped;
        let is_ignored = match self.listener.mode() {
            // The device may hear itself.
            ListenMode::Auto => is_idle || self.phase == Phase::Speaking,
            ListenMode::Realtime => is_idle,
            ListenMode::Manual => {
                self.is_stopped = false;
                self.stop_answer();
                false
            }
        };
        if is_ignored {
            return self.listener.skip(bytes);
        }
        self.task = task;
        let recognizers = self.edge.voice.speech.recognizers.as_ref();
        match self.listener.push(recognizers, bytes) {
            Ok(heard) => heard.into_iter().for_each(|heard| self.take_heard(heard)),
            Err(problem) => {
                self.fail(problem, describe(problem));
                return false;
            }
        }
        if self.phase == Phase::Speaking
            && !self.is_interrupted
            && self.listener.speech() >= MIN_INTERRUPTION
        {
            self.interrupt();
        }
        true
    }

    fn end_message(&mut self, task: TaskId) {
        self.task = task;
        let recognizers = self.edge.voice.speech.recognizers.as_ref();
        match self.listener.end(recognizers) {
            Ok(heard) => heard.into_iter().for_each(|heard| self.take_heard(heard)),
            Err(error) => self.fail(VoiceProblem::BadAudio, &error.to_string()),
        }
    }

    fn take_heard(&mut self, heard: Heard) {
        let utterances = &self.edge.metrics.voice.utterances;
        match heard {
            Heard::Began => {
                // If it is no interruption, the lead hides the pause of an answer.
                if let Some(speaker) = self.speaker.as_mut().filter(|_| self.turn.is_some()) {
                    speaker.hold();
                }
                if self.phase != Phase::Speaking {
                    self.set_phase(Phase::Hearing);
                }
            }
            Heard::Nothing => {
                utterances.inc(Utterance::Nothing);
                self.resume();
            }
            Heard::Silence => self.set_phase(Phase::Idle),
            Heard::Ended {
                end,
                silence,
                speech_percent,
            } => {
                utterances.inc(match end {
                    UtteranceEnd::Silence => Utterance::Silence,
                    UtteranceEnd::Longest => Utterance::Longest,
                    UtteranceEnd::Device => Utterance::Device,
                });
                self.is_doubtful = speech_percent < MIN_SPEECH_PERCENT;
                self.speech_ended = Instant::now().checked_sub(silence);
                if let Some(ended) = self.speech_ended {
                    self.stages.begin(&self.edge.metrics.voice, ended);
                }
                self.recognize();
            }
        }
    }

    /// An utterance is complete.
    fn recognize(&mut self) {
        if self.edge.voice.speech.recognizers.is_none() {
            self.fail(VoiceProblem::NoSpeechProvider, NO_RECOGNITION);
            if let Some(speaker) = &mut self.speaker {
                speaker.push(NO_RECOGNITION, true);
            }
            return;
        }
        let now_ms = self.edge.now_ms();
        let taken = self
            .utterances
            .take(UTTERANCE_BURST, UTTERANCE_INTERVAL_MS, now_ms);
        if taken.is_err() {
            self.listener.cancel();
            return self.fail(VoiceProblem::TooMany, describe(VoiceProblem::TooMany));
        }
        if !self.is_interrupted && self.phase != Phase::Speaking {
            self.set_phase(Phase::Thinking);
        }
    }

    /// Tells the device what its user said.
    fn send_heard(&self, words: &str, is_final: bool) {
        if self.terms.captions && !words.is_empty() {
            let message = ServerVoice::Heard {
                heard: words.into(),
                r#final: is_final,
            };
            self.handle.send_voice_message(self.task, &message);
        }
    }

    fn take_transcript(&mut self, words: String) {
        let is_noise =
            words.is_empty() || (self.is_doubtful && transcript::is_invented(&words));
        self.listener.count_words(!is_noise);
        if is_noise || (self.is_interrupted && transcript::is_backchannel(&words)) {
            self.edge.metrics.voice.utterances.inc(Utterance::Nothing);
            return self.resume();
        }
        self.stages
            .end(&self.edge.metrics.voice, Stage::Recognition);
        self.send_heard(&words, true);
        let barge_ins = &self.edge.metrics.voice.barge_ins;
        if self.phase == Phase::Speaking {
            barge_ins.inc(BargeIn::Cancelled);
            self.stop_answer();
        }
        // Words before the answer has begun extend the message, and replace its turn.
        if let Some(speaker) = &mut self.speaker {
            speaker.clear();
            if self.turn.is_some() {
                self.played.get_or_insert_default();
            }
        }
        if !self.said.is_empty() {
            self.said.push(' ');
        }
        self.said.push_str(&words);
        self.is_interrupted = false;
        let message = NewMessage {
            text: self.said.clone(),
            is_spoken: true,
            played: self.played.take(),
        };
        let (turn, starts) = self.handle.begin_spoken_turn(self.edge, self.task, message);
        self.turn = Some(turn);
        self.handle.set_answering(true);
        if starts {
            let (edge, handle) = (Arc::clone(self.edge), Arc::clone(self.handle));
            self.edge.tasks.spawn(turn_forwarder::run(edge, handle));
        }
        self.set_phase(Phase::Thinking);
    }

    /// Takes a part of the reply. Parts of an earlier turn are dropped.
    fn take_reply(&mut self, chunk: ReplyChunk) {
        if self.turn != Some(chunk.serial) {
            return;
        }
        let Some(speaker) = &mut self.speaker else {
            let (task, text) = (chunk.task, chunk.text);
            self.handle.send_voice([VoiceFrame::Text { task, text }]);
            if chunk.is_last {
                self.end_answer();
            }
            return;
        };
        if !chunk.text.is_empty() {
            self.stages.end(&self.edge.metrics.voice, Stage::Reply);
        }
        if let Some(style) = chunk.style {
            self.listener.set_language(style.language.clone());
            speaker.set_style(*style);
        }
        speaker.push(&chunk.text, chunk.is_last);
    }

    /// Sends what is due to the device. Returns when to look again.
    fn send_due(&mut self) -> Option<Instant> {
        let (task, captions) = (self.task, self.terms.captions);
        let speaker = self.speaker.as_mut()?;
        let (frames, next) = speaker.due(task, captions);
        let has_audio = frames
            .iter()
            .any(|frame| matches!(frame, VoiceFrame::Audio { .. }));
        let (is_done, unplayed) = (speaker.is_done(), speaker.unplayed());
        if has_audio && self.phase != Phase::Speaking {
            self.set_phase(Phase::Speaking);
            if let Some(ended) = self.speech_ended.take() {
                let seconds = ended.elapsed().as_secs_f64();
                let metrics = &self.edge.metrics.voice;
                metrics.response_seconds.observe(seconds);
                self.stages.end(metrics, Stage::Synthesis);
            }
        }
        self.handle.send_voice(frames);
        if self.handle.voice_backlog_ms() > MAX_BACKLOG_MS {
            self.edge.metrics.voice.late.inc();
            self.stop_answer();
            self.set_phase(Phase::Listening);
            return None;
        }
        if !is_done {
            return next;
        }
        if unplayed.is_zero() {
            self.end_answer();
            return None;
        }
        Some(Instant::now() + unplayed)
    }

    /// Speech interrupts the answer: the device drops what it has. The answer continues if the speech has
    /// no words.
    fn interrupt(&mut self) {
        self.is_interrupted = true;
        self.played = self.speaker.as_ref().map(Speaker::played_words);
        self.handle.drop_voice_audio();
        let task = self.task;
        self.handle
            .send_voice([VoiceFrame::Cancel { task }, VoiceFrame::End { task }]);
    }

    /// What was heard was nothing: continues what it interrupted.
    fn resume(&mut self) {
        let Some(speaker) = self.speaker.as_mut().filter(|_| self.turn.is_some()) else {
            if self.phase == Phase::Idle || self.listener.is_recognizing() {
                return;
            }
            if self.listener.mode() == ListenMode::Manual && self.turn.is_none() {
                // The device has ended its message, and waits for an answer.
                self.handle
                    .send_voice([VoiceFrame::End { task: self.task }]);
            }
            self.set_phase(Phase::Listening);
            return;
        };
        speaker.release();
        if std::mem::take(&mut self.is_interrupted) {
            speaker.repeat_sentence();
            self.played = None;
        }
        if self.phase == Phase::Speaking {
            self.edge.metrics.voice.barge_ins.inc(BargeIn::Resumed);
        } else {
            self.set_phase(Phase::Thinking);
        }
    }

    /// Ends the answer early, if there is one.
    fn stop_answer(&mut self) {
        if self.turn.take().is_none() {
            return;
        }
        if !self.is_interrupted {
            self.played = self.speaker.as_ref().map(Speaker::played_words);
        }
        let task = self.task;
        let edge = self.edge;
        self.handle.update_turns(edge, |turns| turns.cancel(task));
        if let Some(speaker) = &mut self.speaker {
            speaker.clear();
        }
        self.handle.drop_voice_audio();
        if !std::mem::take(&mut self.is_interrupted) {
            let frames = [VoiceFrame::Cancel { task }, VoiceFrame::End { task }];
            self.handle.send_voice(frames);
        }
        self.handle.set_answering(false);
        self.said.clear();
    }

    /// The answer was sent and played.
    fn end_answer(&mut self) {
        if let Some(speaker) = &mut self.speaker {
            speaker.clear();
        }
        self.turn = None;
        self.said.clear();
        self.played = None;
        self.speech_ended = None;
        self.handle
            .send_voice([VoiceFrame::End { task: self.task }]);
        self.handle.set_answering(false);
        if self.listener.mode() == ListenMode::Auto {
            // What arrived in the meantime may be the device's own sound.
            self.listener.cancel();
        }
        self.set_phase(Phase::Listening);
    }

    fn fail(&mut self, problem: VoiceProblem, detail: &str) {
        self.edge.metrics.voice.utterances.inc(Utterance::Failed);
        let message = ServerVoice::Problem {
            problem,
            detail: detail.into(),
        };
        self.handle.send_voice_message(self.task, &message);
        self.resume();
    }

    fn set_phase(&mut self, phase: Phase) {
        if self.phase == phase {
            return;
        }
        self.phase = phase;
        self.listener.set_speaking(phase == Phase::Speaking);
        if phase == Phase::Speaking && self.listener.mode() == ListenMode::Auto {
            self.listener.cancel();
        }
        let state = match phase {
            Phase::Idle => VoiceState::Idle,
            Phase::Listening => VoiceState::Listening,
            Phase::Hearing => VoiceState::Heard,
            Phase::Thinking => VoiceState::Thinking,
            Phase::Speaking => VoiceState::Speaking,
        };
        self.handle
            .send_voice_message(self.task, &ServerVoice::State { state });
    }
}
