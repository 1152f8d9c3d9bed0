//! Where messages of a spoken conversation begin and end, as the device indicates.

use switchboard_protocol::{
    frame::TaskId,
    message::{ListenMode, VoiceProblem},
};
use tokio::time::Instant;

use super::Session;

/// A message of a `manual` device, from its first audio until its turn begins or its END is sent.
pub(super) struct ManualMessage {
    pub(super) task: TaskId,
    /// The device is sending it.
    pub(super) is_open: bool,
    /// What was recognised so far.
    pub(super) words: String,
}

impl ManualMessage {
    const fn new(task: TaskId) -> Self {
        Self {
            task,
            is_open: true,
            words: String::new(),
        }
    }
}

impl Session<'_> {
    /// The device begins to listen. What is in progress ends.
    pub(super) fn listen(&mut self, task: TaskId, mode: Option<ListenMode>) {
        self.stop_answer();
        let is_heard = self.listener.is_hearing() || self.listener.is_recognizing();
        let dropped = match self.manual.take() {
            Some(message) => {
                // An open one on the same task begins again.
                if !message.is_open || message.task != task {
                    self.send_end(message.task);
                }
                Some(message.task)
            }
            None => is_heard.then_some(self.task),
        };
        if let Some(dropped) = dropped.filter(|dropped| *dropped != task) {
            self.handle.withdraw_picture(self.edge, dropped);
        }
        self.listener.start(mode);
        self.is_listening = true;
        self.stopped = None;
        self.closed = None;
        self.task = task;
        self.last_audio = Instant::now();
        if self.listener.mode() == ListenMode::Manual {
            self.manual = Some(ManualMessage::new(task));
        }
    }

    /// The device wants no answer on this task.
    pub(super) fn cancel(&mut self, task: TaskId) {
        let is_answer = self
            .answer
            .as_ref()
            .is_some_and(|answer| answer.task == task);
        let is_heard = self.listener.is_hearing() || self.listener.is_recognizing();
        let is_message = match &self.manual {
            Some(message) => message.task == task,
            None => is_heard && self.task == task,
        };
        if is_answer {
            self.stop_answer();
        }
        if is_message {
            self.listener.cancel();
            self.manual = None;
            if !is_answer {
                self.send_end(task);
            }
        }
        self.finish_speech();
    }

    /// The first audio of a `manual` message stops an answer that has begun. A message whose words are not
    /// known yet is extended.
    pub(super) fn open_message(&mut self, task: TaskId) {
        if let Some(message) = self.manual.as_mut().filter(|message| message.is_open) {
            message.task = task;
            return;
        }
        if self.answer.as_ref().is_some_and(|answer| answer.has_begun) {
            self.stop_answer();
        }
        let mut message = ManualMessage::new(task);
        if let Some(ended) = self.manual.take() {
            if ended.task != task {
                self.send_end(ended.task);
            }
            message.words = ended.words;
        }
        self.manual = Some(message);
        self.hold_answer();
    }

    /// The device sends END: the message of the task is complete.
    pub(super) fn close(&mut self, task: TaskId) {
        self.stopped.take_if(|stopped| *stopped == task);
        if self.listener.mode() == ListenMode::Manual {
            if self.has_open_message(task) {
                self.end_message();
            }
        } else if self.task == task {
            self.closed = Some(task);
            self.end_message();
        } else {
            // What is said continues on another task.
            self.handle.withdraw_picture(self.edge, task);
        }
    }

    /// The device sends `listen: stop`. In `manual`, END may follow.
    pub(super) fn stop_listening(&mut self, task: TaskId) {
        if self.listener.mode() == ListenMode::Manual {
            if self.has_open_message(task) {
                self.stopped = Some(task);
                self.end_message();
            }
        } else {
            self.end_message();
            self.is_listening = false;
        }
    }

    fn has_open_message(&self, task: TaskId) -> bool {
        let message = self.manual.as_ref();
        message.is_some_and(|message| message.is_open && message.task == task)
    }

    /// The message in progress is complete.
    pub(super) fn end_message(&mut self) {
        if let Some(message) = &mut self.manual {
            message.is_open = false;
        }
        self.end_utterance();
        self.finish_speech();
    }

    fn end_utterance(&mut self) {
        let recognizers = self.edge.voice.speech.recognizers.as_ref();
        match self.listener.end(recognizers) {
            Ok(heard) => heard.into_iter().for_each(|heard| self.take_heard(heard)),
            Err(error) => {
                tracing::debug!(device.id = %self.handle.key.device, %error, "audio is truncated");
                self.fail(VoiceProblem::BadAudio);
            }
        }
    }
}
