//! Validation of template settings: the limits of every member, and conditions between members.
//!
//! Invariant: every text has a limit.

use std::collections::BTreeSet;

use switchboard_catalog::{Prompt, TemplateSettings, UriTemplate, placeholders};
use switchboard_protocol::id::VoiceId;
use switchboard_runtime::problem::Problem;

use super::card_v2::misplaced_member;
use crate::http::{
    documents::invalid,
    limits::{
        Limit::{Items, Line, Locale, Name, Number, Text},
        Rule, rule,
    },
};

/// The maximum size of `persona.card`: the members of a card that templates have no setting for.
const MAX_CARD_REST_BYTES: usize = 262_144;

/// The limits, documented in docs/settings.md.
pub(crate) const RULES: &[Rule] = &[
    rule("/name", Line(100)),
    rule("/locale", Locale),
    rule("/tags", Items(0, 32)),
    rule("/tags/*", Line(50)),
    rule("/persona/role", Text(200)),
    rule("/persona/description", Text(16_000)),
    rule("/persona/personality", Text(8_000)),
    rule("/persona/backstory", Text(16_000)),
    rule("/persona/scenario", Text(8_000)),
    rule("/persona/greeting", Items(0, 16)),
    rule("/persona/greeting/*", Text(8_000)),
    rule("/persona/example_dialogue", Text(16_000)),
    rule("/persona/dialogue_style", Text(4_000)),
    rule("/persona/system_prompt", Text(32_000)),
    rule("/persona/forbidden_topics", Items(0, 64)),
    rule("/persona/forbidden_topics/*", Line(200)),
    rule("/model/provider", Line(64)),
    rule("/model/model", Line(128)),
    rule("/model/temperature", Number(0.0, 2.0)),
    rule("/model/max_tokens", Number(1.0, 1_000_000.0)),
    rule("/voice/voice_id", Line(128)),
    rule("/voice/rate", Number(0.25, 4.0)),
    rule("/voice/pitch", Number(0.25, 4.0)),
    rule("/voice/volume", Number(0.0, 4.0)),
    rule("/tools/allow", Items(0, 256)),
    rule("/tools/allow/*", Line(128)),
    rule("/tools/deny", Items(0, 256)),
    rule("/tools/deny/*", Line(128)),
    rule("/skills_book_ids", Items(0, 16)),
    rule("/memory/retention_days", Number(1.0, 36_500.0)),
    rule("/prompt/name", Name),
    rule("/prompt/title", Line(100)),
    rule("/prompt/description", Text(2_000)),
    rule("/prompt/arguments", Items(0, 32)),
    rule("/prompt/arguments/*/name", Name),
    rule("/prompt/arguments/*/title", Line(100)),
    rule("/prompt/arguments/*/description", Text(1_000)),
    rule("/prompt/arguments/*/question", Text(500)),
    rule("/prompt/arguments/*/values", Items(0, 100)),
    rule("/prompt/arguments/*/values/*", Text(200)),
    rule("/prompt/messages", Items(1, 64)),
    rule("/prompt/messages/*/content/text", Text(32_000)),
    rule("/prompt/messages/*/content/uri", Line(512)),
];

/// Checks the conditions between members of the settings at the pointer `base` in the body.
pub(super) fn check(settings: &TemplateSettings, base: &str) -> Result<(), Problem> {
    check_voice(settings, base)?;
    check_card(settings, base)?;
    let prompt = settings.prompt.as_ref();
    prompt.map_or(Ok(()), |prompt| check_prompt(prompt, base))
}

/// An id with our prefix must be a valid one; any other id is one of a provider.
fn check_voice(settings: &TemplateSettings, base: &str) -> Result<(), Problem> {
    let id = settings.voice.as_ref().map(|voice| voice.voice_id.as_str());
    let ours = id.filter(|id| id.starts_with(VoiceId::PREFIX));
    if ours.is_some_and(|id| id.parse::<VoiceId>().is_err()) {
        let pointer = format!("{base}/voice/voice_id");
        let detail = format!(
            "`{pointer}` begins like the id of a voice of /v1/voices, but those have 32 hexadecimal digits after `{}`.",
            VoiceId::PREFIX
        );
        return Err(invalid(&pointer, detail));
    }
    Ok(())
}

fn check_card(settings: &TemplateSettings, base: &str) -> Result<(), Problem> {
    let card = &settings.persona.card;
    let bytes = serde_json::to_vec(card).map_or(usize::MAX, |bytes| bytes.len());
    let (member, reason) = match misplaced_member(settings) {
        _ if bytes > MAX_CARD_REST_BYTES => (
            String::new(),
            format!("must have at most {MAX_CARD_REST_BYTES} bytes as JSON"),
        ),
        Some((member, reason)) => (member, reason.to_owned()),
        None => return Ok(()),
    };
    let pointer = format!("{base}/persona/card{member}");
    Err(invalid(&pointer, format!("`{pointer}` {reason}.")))
}

fn check_prompt(prompt: &Prompt, base: &str) -> Result<(), Problem> {
    if prompt.messages.is_empty() {
        let pointer = format!("{base}/prompt/messages");
        let detail = format!("`{pointer}` must have at least one message.");
        return Err(invalid(&pointer, detail));
    }
    let mut names = BTreeSet::new();
    for (index, argument) in prompt.arguments.iter().enumerate() {
        if !names.insert(&argument.name) {
            let pointer = format!("{base}/prompt/arguments/{index}/name");
            let detail = format!(
                "`{pointer}`: another argument has the name `{}`.",
                argument.name
            );
            return Err(invalid(&pointer, detail));
        }
    }
    if let Some((index, field, name)) = prompt.undeclared_placeholder() {
        let pointer = format!("{base}/prompt/messages/{index}/content/{field}");
        let name: String = name.chars().take(64).collect();
        let detail = format!(
            "`{pointer}` has the placeholder `{{{{{name}}}}}`, and `{base}/prompt/arguments` declares no such argument."
        );
        return Err(invalid(&pointer, detail));
    }
    check_uris(prompt, base)
}

/// URIs with placeholders are checked when they are filled; others must be valid.
fn check_uris(prompt: &Prompt, base: &str) -> Result<(), Problem> {
    for (index, message) in prompt.messages.iter().enumerate() {
        let Some(("uri", uri)) = message.content.template_text() else {
            continue;
        };
        let has_placeholders = placeholders::segments(uri)
            .any(|segment| matches!(segment, placeholders::Segment::Placeholder { .. }));
        if has_placeholders {
            continue;
        }
        if let Err(error) = UriTemplate::parse_plain(uri) {
            let pointer = format!("{base}/prompt/messages/{index}/content/uri");
            return Err(invalid(&pointer, format!("`{pointer}`: {error}.")));
        }
    }
    Ok(())
}
