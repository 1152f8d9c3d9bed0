//! A spoken dialogue from the device's side: sends the microphone, plays and prints answers.

use switchboard_protocol::{
    frame::{Kind, TaskId},
    message::{AudioTerms, AuthAccepted, ListenMode, ServerVoice},
};

use super::{
    Disconnect, Voice,
    voice::{FRAME_MS, Microphone, Recording, Speaker},
    wire::{ReceivedFrame, Wire, WireError},
};
use crate::exit::{self, print_stderr};

/// The task of all audio.
const TASK: TaskId = TaskId(*b"voice001");
/// Silence after the recording, in which the server notices its end.
const MAX_SILENT_FRAMES: u32 = 15_000 / FRAME_MS as u32;

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
    text: String,
}

impl Dialogue {
    /// Opens the microphone and the speaker.
    ///
    /// # Errors
    /// When one of them cannot be opened.
    pub(super) fn open(voice: &Voice) -> Result<Self, Disconnect> {
        let failed = |error: anyhow::Error| Disconnect::Voice(format!("{error:#}"));
        let microphone = voice.open_microphone().map_err(failed)?;
        let speaker = voice.open_speaker().map_err(failed)?;
        Ok(Self {
            terms: voice.terms(),
            microphone: Some(microphone),
            recording: None,
            speaker: Some(speaker),
            seq: 0,
            silent_frames: None,
            is_waiting: false,
            was_answered: false,
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
    /// When the server accepts no audio.
    pub(super) fn accept(&mut self, welcome: &AuthAccepted) -> Result<(), Disconnect> {
        let notice = welcome.audio_notice.as_deref();
        if welcome.audio.is_none() {
            let reason = notice.unwrap_or("the server does not know audio");
            return Err(Disconnect::Voice(reason.to_owned()));
        }
        if let Some(notice) = notice {
            print_stderr(notice);
        }
        self.recording = self.microphone.take().map(Microphone::listen);
        Ok(())
    }

    /// Waits for the next frame of the microphone; `None` at the end of the recording.
    pub(super) async fn next_sound(&mut self) -> Option<Vec<u8>> {
        match &mut self.recording {
            Some(recording) => recording.next().await,
            None => std::future::pending().await,
        }
    }

    /// Sends a frame of the microphone, or what follows the recording: its end, or silence.
    ///
    /// # Errors
    /// When the connection fails, or nothing is understood.
    pub(super) async fn send(
        &mut self,
        sound: Option<Vec<u8>>,
        wire: &mut Wire,
        limit_bytes: usize,
    ) -> Result<(), Disconnect> {
        let is_recorded = sound.is_some();
        if !is_recorded && self.terms.listen == ListenMode::Manual {
            self.recording = None;
            self.silent_frames = Some(0);
            self.is_waiting = true;
            wire.end_audio(TASK, self.seq).await?;
            return Ok(());
        }
        let sound = sound.unwrap_or_else(|| vec![0; 2 * self.terms.input.frame_samples()]);
        self.seq = wire.send_audio(TASK, self.seq, &sound, limit_bytes).await?;
        if !is_recorded {
            let frames = self.silent_frames.get_or_insert(0);
            *frames += 1;
            if !self.is_waiting && (self.was_answered || *frames > MAX_SILENT_FRAMES) {
                return self.finish();
            }
        }
        Ok(())
    }

    /// Plays and prints what the server sends.
    ///
    /// # Errors
    /// [`Disconnect::Answered`] after the last answer.
    pub(super) fn take(&mut self, received: &ReceivedFrame) -> Result<(), Disconnect> {
        if received.task != TASK {
            return Ok(());
        }
        match received.kind {
            Kind::Audio => {
                if let Some(speaker) = &mut self.speaker {
                    let played = speaker.play(&received.payload);
                    played.map_err(|error| Disconnect::Voice(format!("{error:#}")))?;
                }
            }
            Kind::Text => self
                .text
                .push_str(&String::from_utf8_lossy(&received.payload)),
            Kind::Voice => self.print(&received.payload)?,
            Kind::End => {
                let text = std::mem::take(&mut self.text);
                if !text.is_empty() {
                    print("says", &text)?;
                }
                self.is_waiting = false;
                self.was_answered = true;
                if self.silent_frames.is_some() {
                    return self.finish();
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn print(&mut self, payload: &[u8]) -> Result<(), Disconnect> {
        match serde_json::from_slice(payload) {
            Ok(ServerVoice::Heard { heard, .. }) => {
                self.is_waiting = true;
                print("heard", &heard)
            }
            Ok(ServerVoice::Saying { saying, .. }) => print("says", &saying),
            Ok(ServerVoice::Problem { detail, .. }) => {
                print_stderr(&detail);
                self.was_answered = self.silent_frames.is_some();
                Ok(())
            }
            Ok(ServerVoice::State { .. }) => Ok(()),
            Err(error) => {
                print_stderr(&format!("ignoring an invalid message: {error}"));
                Ok(())
            }
        }
    }

    fn finish(&mut self) -> Result<(), Disconnect> {
        if let Some(speaker) = self.speaker.take() {
            let finished = speaker.finish();
            finished.map_err(|error| Disconnect::Voice(format!("{error:#}")))?;
        }
        Err(Disconnect::Answered)
    }
}

/// Prints a line about the dialogue, as JSON.
fn print(event: &str, text: &str) -> Result<(), Disconnect> {
    let line = serde_json::json!({ "event": event, "text": text });
    exit::print(&line.to_string())
        .map_err(|_| WireError::Unexpected("stdout, which is closed".to_owned()).into())
}
