//! What a device learns about a conversation that cannot go on as it should.

use switchboard_protocol::message::VoiceProblem;

/// What a device learns when no provider recognises speech.
pub(super) const NO_RECOGNITION: &str = "No speech recognition is configured: what is said here cannot be \
                              understood. The operator sets --stt-kind and --stt-endpoint.";
/// The same without synthesis.
pub(super) const NO_SYNTHESIS: &str = "No speech synthesis is configured: answers arrive as text. The operator \
                            installs espeak-ng, or sets --tts-kind and --tts-endpoint.";

/// What went wrong, and what would be right.
pub(super) const fn describe(problem: VoiceProblem) -> &'static str {
    match problem {
        VoiceProblem::NoSpeechProvider => NO_RECOGNITION,
        VoiceProblem::RecognitionFailed => {
            "The speech could not be recognised: the service fails. Try again later."
        }
        VoiceProblem::SynthesisFailed => {
            "A part of the answer cannot be spoken: the service fails."
        }
        VoiceProblem::BadAudio => "The audio is not in the negotiated format.",
        VoiceProblem::TooFast => {
            "The audio arrives faster than it can have been recorded. Send it at the rate at which it is recorded."
        }
        VoiceProblem::Overloaded => {
            "There are too many conversations at the moment. Try again later."
        }
        VoiceProblem::TooMany => "Too much was said. Wait a moment.",
    }
}
