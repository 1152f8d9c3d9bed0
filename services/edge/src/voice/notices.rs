//! What a device learns about a conversation that cannot go on as it should.

use switchboard_protocol::message::VoiceProblem;

/// What a device learns when no provider recognises speech.
pub(super) const NO_RECOGNITION: &str = "No speech recognition is configured: what is said here cannot be \
                              understood. The operator sets --stt-kind and --stt-endpoint.";
/// The same without synthesis.
pub(super) const NO_SYNTHESIS: &str = "No speech synthesis is configured: answers arrive as text. The operator \
                            installs espeak-ng, or sets --tts-kind and --tts-endpoint.";
/// There is no room for a further conversation.
pub(super) const TOO_MANY_SESSIONS: &str =
    "There are too many conversations at the moment. Try again later.";

/// What would be right.
pub(super) const fn describe(problem: VoiceProblem) -> &'static str {
    match problem {
        VoiceProblem::TooFast => {
            "The audio arrives faster than it can have been recorded. Send it at the rate at which it is recorded."
        }
        VoiceProblem::TooMany => "Too much was said. Wait a moment.",
        _ => "The audio is not in the negotiated format.",
    }
}
