//! What a device's user learns about a conversation that cannot go on as it should.

use switchboard_phrases::Phrase;
use switchboard_protocol::message::VoiceProblem;

/// What went wrong, and what would be right.
pub(super) const fn describe(problem: VoiceProblem) -> Phrase<'static> {
    match problem {
        VoiceProblem::NoSpeechProvider => Phrase::NoRecognition,
        VoiceProblem::RecognitionFailed => Phrase::RecognitionFailed,
        VoiceProblem::SynthesisFailed => Phrase::SynthesisFailed,
        VoiceProblem::BadAudio => Phrase::BadAudio,
        VoiceProblem::TooFast => Phrase::AudioTooFast,
        VoiceProblem::Overloaded => Phrase::TooManyConversations,
        VoiceProblem::TooMany => Phrase::TooMuchSaid,
    }
}
