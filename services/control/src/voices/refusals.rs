//! Why something is not done with a voice, in words that say what would be right.
//! Never: a decision; those are the store's.

use http::StatusCode;
use switchboard_protocol::id::VoiceId;
use switchboard_runtime::problem::Problem;

pub(super) fn no_consent(parameter: &str) -> Problem {
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "consent_required",
        "Consent required",
        format!(
            "`{parameter}` is missing: nobody's voice is taken without consent. `consent_by` says whose voice it is, \
             `consent_statement` what they agreed to."
        ),
    )
    .with("parameter", parameter)
}

pub(super) fn consent_ended(what: &str) -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "consent_ended",
        "Consent ended",
        format!(
            "The consent to use this voice has ended, so it is not {what}. Send it again with a new consent."
        ),
    )
}

pub(super) fn unknown_provider(asked: &str, known: &[String]) -> Problem {
    let asked: String = asked.chars().take(64).collect();
    Problem::invalid_query(format!(
        "`provider` is `{asked}`; this installation has {}.",
        known.join(" and ")
    ))
}

pub(super) fn provider_missing(provider: &str) -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "provider_missing",
        "Provider missing",
        format!("This installation has no provider `{provider}` any more, which made this voice."),
    )
}

pub(super) fn in_use(id: VoiceId) -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "voice_in_use",
        "Voice in use",
        format!("A template or an NPC speaks with {id}; take it out of its `voice` first."),
    )
}
