//! The payloads of VOICE frames: the course of a spoken conversation. (ours)

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{ListenMode, MessageError, utf8};

/// Maximum bytes of the words of a wake-up; the rest is cut.
const MAX_WAKE_BYTES: usize = 1024;
/// A VOICE message of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceVoice<'a> {
    /// The device begins or ends a message of its user.
    Listen(Listen),
    /// The user has said the wake word, with these words.
    Wake(Cow<'a, str>),
    /// The device has played this many milliseconds of the answer on this task.
    Played {
        /// Milliseconds from the beginning of the answer.
        ms: u32,
    },
}

/// A device begins or ends to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listen {
    /// Audio follows. Without a mode, that of AUTH holds.
    Start(Option<ListenMode>),
    /// The message is complete.
    Stop,
}

/// A VOICE message of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ServerVoice<'a> {
    /// What the server does now.
    State {
        /// The state.
        state: VoiceState,
    },
    /// The words of the user.
    Heard {
        /// The transcript.
        #[serde(borrow)]
        heard: Cow<'a, str>,
        /// Whether the transcript is complete.
        r#final: bool,
    },
    /// The audio of this sentence follows.
    Saying {
        /// The sentence.
        #[serde(borrow)]
        saying: Cow<'a, str>,
        /// The emotion that an emoji of the sentence expressed.
        #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
        emotion: Option<Cow<'a, str>>,
    },
    /// Why a message of the user has no answer.
    Problem {
        /// What is wrong.
        problem: VoiceProblem,
        /// The same for a person, with what would help.
        #[serde(borrow)]
        detail: Cow<'a, str>,
    },
}

/// What the server does in a spoken conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VoiceState {
    /// Waits for speech.
    Listening,
    /// Speech has begun.
    Heard,
    /// Speech has ended; the transcript and the answer are in progress.
    Thinking,
    /// The answer is being sent.
    Speaking,
    /// Ignores audio until `listen: start`.
    Idle,
}

/// Why a spoken message has no answer, or not all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VoiceProblem {
    /// The server has no provider of speech recognition.
    NoSpeechProvider,
    /// The provider of speech recognition failed.
    RecognitionFailed,
    /// The provider of speech synthesis failed: a part of the answer is not spoken.
    SynthesisFailed,
    /// The audio cannot be decoded.
    BadAudio,
    /// Audio arrived faster than it can have been recorded.
    TooFast,
    /// The organisation or the edge has no room for a further conversation.
    Overloaded,
    /// The device talks more often than the limit.
    TooMany,
}

impl<'a> DeviceVoice<'a> {
    /// Parses the payload of a VOICE frame. An unknown mode counts as `auto`.
    ///
    /// # Errors
    /// When it is not an object with exactly one of `listen`, `wake` and `played_ms`.
    pub fn parse(payload: &'a [u8]) -> Result<Self, MessageError> {
        #[derive(Deserialize)]
        struct Members<'a> {
            #[serde(default, borrow)]
            listen: Option<Cow<'a, str>>,
            #[serde(default, borrow)]
            mode: Option<Cow<'a, str>>,
            #[serde(default, borrow)]
            wake: Option<Cow<'a, str>>,
            #[serde(default)]
            played_ms: Option<u32>,
        }
        let members: Members<'a> = serde_json::from_str(utf8(payload)?)
            .map_err(|error| MessageError::from_json(&error, None))?;
        let mode = members.mode.as_deref().map(|mode| match mode {
            "manual" => ListenMode::Manual,
            "realtime" => ListenMode::Realtime,
            _ => ListenMode::Auto,
        });
        match (members.listen.as_deref(), members.wake, members.played_ms) {
            (Some("start"), None, None) => Ok(Self::Listen(Listen::Start(mode))),
            (Some("stop"), None, None) => Ok(Self::Listen(Listen::Stop)),
            (None, Some(words), None) => Ok(Self::Wake(cut(words))),
            (None, None, Some(ms)) => Ok(Self::Played { ms }),
            _ => {
                let detail = "a VOICE payload is `{\"listen\":\"start\"|\"stop\"}`, `{\"wake\":\"…\"}` \
                              or `{\"played_ms\":…}`";
                Err(MessageError::invalid(None, detail))
            }
        }
    }
}

/// The first [`MAX_WAKE_BYTES`], split between two characters.
fn cut(words: Cow<'_, str>) -> Cow<'_, str> {
    let end = words.floor_char_boundary(MAX_WAKE_BYTES);
    match words {
        Cow::Borrowed(words) => Cow::Borrowed(words.get(..end).unwrap_or_default()),
        Cow::Owned(mut words) => {
            words.truncate(end);
            Cow::Owned(words)
        }
    }
}

impl ServerVoice<'_> {
    /// Appends the payload of a VOICE frame.
    pub fn write(&self, out: &mut Vec<u8>) {
        super::write_json(out, self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_message_has_one_meaning() {
        fn check(payload: &str, expect: Option<DeviceVoice<'_>>) {
            assert_eq!(
                DeviceVoice::parse(payload.as_bytes()).ok(),
                expect,
                "{payload}"
            );
        }
        let start = |mode| Some(DeviceVoice::Listen(Listen::Start(mode)));
        check(r#"{"listen":"start"}"#, start(None));
        check(
            r#"{"listen":"start","mode":"realtime"}"#,
            start(Some(ListenMode::Realtime)),
        );
        check(
            r#"{"listen":"start","mode":"never heard of"}"#,
            start(Some(ListenMode::Auto)),
        );
        check(
            r#"{"listen":"stop"}"#,
            Some(DeviceVoice::Listen(Listen::Stop)),
        );
        check(r#"{"wake":"你好"}"#, Some(DeviceVoice::Wake("你好".into())));
        check(
            r#"{"played_ms":120}"#,
            Some(DeviceVoice::Played { ms: 120 }),
        );
        check(r#"{"listen":"detect"}"#, None);
        check(r#"{"listen":"start","wake":"x"}"#, None);
        check(r#"{"listen":"start","listen":"stop"}"#, None);
        check(r#"{"played_ms":-1}"#, None);
        check("{}", None);
        check("[]", None);
        let long = "好".repeat(4_000);
        let payload = format!(r#"{{"wake":"{long}"}}"#);
        let Ok(DeviceVoice::Wake(words)) = DeviceVoice::parse(payload.as_bytes()) else {
            panic!("the words are cut");
        };
        assert_eq!(words, "好".repeat(341));
    }

    #[test]
    fn server_message_is_what_a_device_reads() {
        fn check(message: &ServerVoice<'_>, expect: &str) {
            let mut payload = Vec::new();
            message.write(&mut payload);
            assert_eq!(String::from_utf8(payload).unwrap(), expect);
            assert_eq!(
                &serde_json::from_str::<ServerVoice<'_>>(expect).unwrap(),
                message
            );
        }
        let state = VoiceState::Thinking;
        check(&ServerVoice::State { state }, r#"{"state":"thinking"}"#);
        let (heard, r#final) = ("现在几点".into(), true);
        check(
            &ServerVoice::Heard { heard, r#final },
            r#"{"heard":"现在几点","final":true}"#,
        );
        let (saying, emotion) = ("Hello.".into(), Some("happy".into()));
        check(
            &ServerVoice::Saying { saying, emotion },
            r#"{"saying":"Hello.","emotion":"happy"}"#,
        );
        let (problem, detail) = (VoiceProblem::TooFast, "slower".into());
        check(
            &ServerVoice::Problem { problem, detail },
            r#"{"problem":"too_fast","detail":"slower"}"#,
        );
    }
}
