//! A spoken dialogue from the device's side: sends the microphone, plays and prints answers.

use std::time::Duration;

use switchboard_protocol::{
    frame::{Kind, TaskId},
    message::{AudioTerms, AuthAccepted, ListenMode, ServerVoice, VoiceProblem, VoiceState},
};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    Disconnect, Voice,
    microphone::{Microphone, Recording},
    speaker::Speaker,
    voice::FRAME_MS,
    wire::{ReceivedFrame, Wire, WireError},
};
use crate::exit::{self, print_stderr};

/// The task of all audio.
const TASK: TaskId = TaskId(*b"voice001");
/// Silence after the recording, in which the server notices its end.
const MAX_SILENT_FRAMES: u32 = 15_000 / FRAME_MS as u32;
/// What the microphone of the machine records this long after an answer may be the answer.
const ECHO_FRAMES: u32 = 300 / FRAME_MS as u32;
/// Time in which an answer begins that follows a problem or another answer. A synthesis may take 8 s.
const FOLLOWING_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that the loudspeaker of the machine has for the end of the last answer.
const PLAYBACK_TIMEOUT: Duration = Duration::from_secs(5);
const PLAYBACK_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Continues a conversation in which the server has stopped to listen.
const LISTEN: &[u8] = br#"{"listen":"start"}"#;

/// A dialogue. It is over when the recording has ended and its last message is answered.
pub(super) struct Dialogue {
    terms: AudioTerms,
    microphone: Option<Microphone>,
    recording: Option<Recording>,
    speaker: Option<Speaker>,
    seq: u16,
    /// Frames of silence sent after the recording.
    silent_frames: Option<u32>,
    /// An utterance was recognised and is not answered yet.
    is_waiting: bool,
    /// Any answer has arrived.
    was_answered: bool,
    /// Until then a further answer may begin.
    following_until: Option<Instant>,
    /// A user speaks at this machine, and reads in the terminal.
    is_live: bool,
    /// Frames of the microphone that are replaced by silence.
    muted_frames: u32,
    /// The server has stopped to listen.
    is_idle: bool,
    text: String,
}

impl Dialogue {
    /// Opens the microphone and the speaker.
    ///
    /// # Errors
    /// When one of them cannot be opened.
    pub(super) fn open(voice: &Voice) -> Result<Self, Disconnect> {
        let microphone = Microphone::open(&voice.microphone).map_err(failed)?;
        let speaker = Speaker::open(voice.speaker.as_ref()).map_err(failed)?;
        Ok(Self {
            terms: voice.terms(),
            microphone: Some(microphone),
            recording: None,
            speaker: Some(speaker),
            seq: 0,
            silent_frames: None,
            is_waiting: false,
            was_answered: false,
            following_until: None,
            is_live: voice.is_live(),
            muted_frames: 0,
            is_idle: false,
            text: String::new(),
        })
    }

    /// What the device offers.
    pub(super) const fn terms(&self) -> AudioTerms {
        self.terms
    }

    /// Begins to listen on the terms of the server.
    ///
    /// # Errors
    /// When the server accepts no audio, or the microphone does not record.
    pub(super) fn accept(&mut self, welcome: &AuthAccepted) -> Result<(), Disconnect> {
        let notice = welcome.audio_notice.as_deref();
        let Some(terms) = welcome.audio else {
            let reason = notice.unwrap_or("the server does not know audio");
            return Err(Disconnect::Voice(reason.to_owned()));
        };
        self.terms = terms;
        if let Some(notice) = notice {
            print_stderr(notice);
        }
        let microphone = self.microphone.take();
        let recording = microphone.map(|microphone| microphone.listen(terms.listen));
        self.recording = recording.transpose().map_err(failed)?;
        Ok(())
    }

    /// Waits for the next frame of the microphone; `None` at the end of the recording, and of the wait
    /// for a following answer.
    pub(super) async fn next_sound(&mut self) -> Option<Vec<u8>> {
        match (&mut self.recording, self.following_until) {
            (Some(recording), _) => return recording.next().await,
            (None, Some(until)) if self.was_answered => sleep_until(until).await,
            (None, _) => std::future::pending().await,
        }
        None
    }

    /// Sends a frame of the microphone, or what follows the recording: its end, or silence.
    ///
    /// # Errors
    /// When the connection or the microphone fails, or nothing is understood.
    pub(super) async fn send(
        &mut self,
        sound: Option<Vec<u8>>,
        wire: &mut Wire,
        limit_bytes: usize,
    ) -> Result<(), Disconnect> {
        let is_recorded = sound.is_some();
        if !is_recorded && let Some(recording) = &mut self.recording {
            recording
                .failure()
                .map_or(Ok(()), |failure| Err(Disconnect::Voice(failure)))?;
        }
        if !is_recorded && self.terms.listen == ListenMode::Manual {
            if self.recording.take().is_none() {
                return self.finish().await;
            }
            self.silent_frames = Some(0);
            self.is_waiting = true;
            // Those of earlier messages.
            (self.was_answered, self.following_until) = (false, None);
            wire.end_audio(TASK, self.seq).await?;
            return Ok(());
        }
        if is_recorded && std::mem::take(&mut self.is_idle) {
            wire.send(Kind::Voice, TASK, LISTEN).await?;
        }
        let is_muted = self.mute();
        let sound = sound.filter(|_| !is_muted);
        let sound = sound.unwrap_or_else(|| vec![0; 2 * self.terms.input.frame_samples()]);
        self.seq = wire.send_audio(TASK, self.seq, &sound, limit_bytes).await?;
        if !is_recorded {
            let frames = self.silent_frames.get_or_insert(0);
            *frames += 1;
            let is_late = self.was_answered || *frames > MAX_SILENT_FRAMES;
            if !self.is_waiting && is_late && !self.is_followed() {
                return self.finish().await;
            }
        }
        Ok(())
    }

    /// Whether the microphone may record the loudspeaker of the machine, and the server would take that
    /// for its user.
    fn mute(&mut self) -> bool {
        let is_playing = self.speaker.as_mut().is_some_and(Speaker::is_playing);
        self.muted_frames = match is_playing {
            true => ECHO_FRAMES,
            false => self.muted_frames.saturating_sub(1),
        };
        self.muted_frames > 0 && self.terms.listen == ListenMode::Auto
    }

    /// Whether a further answer may begin.
    fn is_followed(&self) -> bool {
        self.following_until
            .is_some_and(|until| Instant::now() < until)
    }

    /// Plays and prints what the server sends.
    ///
    /// # Errors
    /// [`Disconnect::Answered`] after the last answer, and when the server ends the conversation.
    pub(super) async fn take(&mut self, received: &ReceivedFrame) -> Result<(), Disconnect> {
        if received.task != TASK {
            return Ok(());
        }
        match received.kind {
            Kind::Audio => {
                if let Some(speaker) = &mut self.speaker {
                    speaker.play(&received.payload).map_err(failed)?;
                }
            }
            Kind::Text => {
                self.following_until = None;
                let text = String::from_utf8_lossy(&received.payload);
                self.text.push_str(&text);
            }
            Kind::Voice => self.print(&received.payload)?,
            // The end of this answer follows; it may have been replaced by another.
            Kind::Cancel => {
                self.following_until = Some(Instant::now() + FOLLOWING_ANSWER_TIMEOUT);
                self.speaker.iter_mut().for_each(Speaker::stop);
            }
            Kind::End => {
                let text = std::mem::take(&mut self.text);
                if !text.is_empty() {
                    self.print_line("says", &text)?;
                }
                self.speaker.iter_mut().for_each(Speaker::end_answer);
                self.is_waiting = false;
                self.was_answered = true;
                if self.silent_frames.is_some() && !self.is_followed() {
                    return self.finish().await;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn print(&mut self, payload: &[u8]) -> Result<(), Disconnect> {
        match serde_json::from_slice(payload) {
            Ok(ServerVoice::Heard { heard, r#final }) if r#final => {
                self.is_waiting = true;
                self.following_until = None;
                self.print_line("heard", &heard)
            }
            Ok(ServerVoice::Saying { saying, .. }) => {
                self.is_waiting = true;
                self.following_until = None;
                self.print_line("says", &saying)
            }
            Ok(ServerVoice::Problem { problem, detail }) => self.take_problem(problem, &detail),
            Ok(ServerVoice::State { state }) => {
                self.is_idle = state == VoiceState::Idle;
                Ok(())
            }
            Ok(ServerVoice::Heard { .. }) => Ok(()),
            Err(error) => {
                print_stderr(&format!("ignoring an invalid message: {error}"));
                Ok(())
            }
        }
    }

    fn take_problem(&mut self, problem: VoiceProblem, detail: &str) -> Result<(), Disconnect> {
        if problem == VoiceProblem::Overloaded {
            let refused = format!("the server refused the conversation: {detail}");
            return Err(Disconnect::Voice(refused));
        }
        print_stderr(detail);
        if problem == VoiceProblem::NoSpeechProvider && self.terms.output.is_some() {
            // The server sends it.
            self.following_until = Some(Instant::now() + FOLLOWING_ANSWER_TIMEOUT);
        }
        self.was_answered = self.silent_frames.is_some();
        Ok(())
    }

    /// Prints a line about the dialogue: as JSON, or as text for the user at the machine.
    fn print_line(&self, event: &str, text: &str) -> Result<(), Disconnect> {
        let line = match (self.is_live, event) {
            (true, "heard") => format!("> {text}"),
            (true, _) => text.to_owned(),
            (false, _) => serde_json::json!({ "event": event, "text": text }).to_string(),
        };
        exit::print(&line)
            .map_err(|_| WireError::Unexpected("stdout, which is closed".to_owned()).into())
    }

    /// Completes what is played.
    async fn finish(&mut self) -> Result<(), Disconnect> {
        if let Some(mut speaker) = self.speaker.take() {
            speaker.end_answer();
            let played = async {
                while speaker.is_playing() {
                    sleep(PLAYBACK_POLL_INTERVAL).await;
                }
            };
            // What is not played by then is dropped.
            let _ = timeout(PLAYBACK_TIMEOUT, played).await;
            speaker.finish().map_err(failed)?;
        }
        Err(Disconnect::Answered)
    }
}

fn failed(error: anyhow::Error) -> Disconnect {
    Disconnect::Voice(format!("{error:#}"))
}
