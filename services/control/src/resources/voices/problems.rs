//! Problems of voice requests.

use switchboard_protocol::id::VoiceId;
use switchboard_runtime::problem::{Problem, ProblemKind};

pub(super) fn no_consent(parameter: &str) -> Problem {
    Problem::new(
        ProblemKind::ConsentRequired,
        format!(
            "`{parameter}` is missing: a voice needs the consent of its speaker. `consent_by` is the name of the speaker, \
             `consent_statement` the text that they agreed to."
        ),
    )
    .with("parameter", parameter)
}

pub(super) fn consent_ended(action: &str) -> Problem {
    Problem::new(
        ProblemKind::ConsentEnded,
        format!(
            "The consent to use this voice has ended, so it cannot be {action}. Create it again with a new consent."
        ),
    )
}

pub(super) fn unknown_provider(provider: &str, known: &[String]) -> Problem {
    let provider: String = provider.chars().take(64).collect();
    Problem::invalid_query(format!(
        "`provider` is `{provider}`; this installation has {}.",
        known.join(" and ")
    ))
}

pub(super) fn provider_missing(provider: &str) -> Problem {
    Problem::new(
        ProblemKind::ProviderMissing,
        format!("The provider `{provider}` of this voice is no longer configured."),
    )
}

pub(super) fn in_use(id: VoiceId) -> Problem {
    Problem::new(
        ProblemKind::VoiceInUse,
        format!("A template or an NPC uses {id}. Remove it from its `voice` first."),
    )
}
