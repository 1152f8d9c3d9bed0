//! What may stand in a template: the limits of every field, and what fields promise each other.
//! Never: a field of text without a limit.

use std::collections::BTreeSet;

use switchboard_protocol::id::VoiceId;
use switchboard_runtime::problem::Problem;
use switchboard_store::{Prompt, TemplateSettings, UriTemplate, placeholders};

use super::cards::misplaced;
use crate::{
    document::invalid,
    limits::{
        Limit::{Items, Line, Locale, Name, Number, Text},
        Rule, rule,
    },
};

/// The most bytes of what a character card says that templates have no field for.
const LARGEST_CARD_REST: usize = 262_144;

/// The limits; docs/settings.md repeats them.
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

/// Holds together what the fields of settings, which stand at `at` in the body, say each on its own.
pub(super) fn keep(settings: &TemplateSettings, at: &str) -> Result<(), Problem> {
    keep_voice(settings, at)?;
    keep_card(settings, at)?;
    let prompt = settings.prompt.as_ref();
    prompt.map_or(Ok(()), |prompt| keep_prompt(prompt, at))
}

/// What begins like an id of ours is one; whatever else it is, is a provider's.
fn keep_voice(settings: &TemplateSettings, at: &str) -> Result<(), Problem> {
    let named = settings.voice.as_ref().map(|voice| voice.voice_id.as_str());
    let ours = named.filter(|id| id.starts_with(VoiceId::PREFIX));
    if ours.is_some_and(|id| id.parse::<VoiceId>().is_err()) {
        let pointer = format!("{at}/voice/voice_id");
        let detail = format!(
            "`{pointer}` begins like the id of one of /v1/voices, and is none: those have 32 hexadecimal digits behind `{}`.",
            VoiceId::PREFIX
        );
        return Err(invalid(&pointer, detail));
    }
    Ok(())
}

fn keep_card(settings: &TemplateSettings, at: &str) -> Result<(), Problem> {
    let card = &settings.persona.card;
    let bytes = serde_json::to_vec(card).map_or(usize::MAX, |bytes| bytes.len());
    let (member, reason) = match misplaced(settings) {
        _ if bytes > LARGEST_CARD_REST => (
            String::new(),
            format!("must have {LARGEST_CARD_REST} bytes at most, written as JSON"),
        ),
        Some((member, reason)) => (member, reason.to_owned()),
        None => return Ok(()),
    };
    let pointer = format!("{at}/persona/card{member}");
    Err(invalid(&pointer, format!("`{pointer}` {reason}.")))
}

fn keep_prompt(prompt: &Prompt, at: &str) -> Result<(), Problem> {
    if prompt.messages.is_empty() {
        let pointer = format!("{at}/prompt/messages");
        let detail = format!("`{pointer}` must have at least one message.");
        return Err(invalid(&pointer, detail));
    }
    let mut names = BTreeSet::new();
    for (index, argument) in prompt.arguments.iter().enumerate() {
        if !names.insert(&argument.name) {
            let pointer = format!("{at}/prompt/arguments/{index}/name");
            let detail = format!(
                "`{pointer}`: another argument is called `{}`.",
                argument.name
            );
            return Err(invalid(&pointer, detail));
        }
    }
    if let Some((index, field, name)) = prompt.undeclared() {
        let pointer = format!("{at}/prompt/messages/{index}/content/{field}");
        let shown: String = name.chars().take(64).collect();
        let detail = format!(
            "`{pointer}` has the placeholder `{{{{{shown}}}}}`, and `{at}/prompt/arguments` declares no such argument."
        );
        return Err(invalid(&pointer, detail));
    }
    keep_uris(prompt, at)
}

/// What a URI with placeholders becomes is not known yet; the others must be good now.
fn keep_uris(prompt: &Prompt, at: &str) -> Result<(), Problem> {
    for (index, message) in prompt.messages.iter().enumerate() {
        let Some(("uri", uri)) = message.content.fillable() else {
            continue;
        };
        let is_filled = placeholders::segments(uri)
            .any(|segment| matches!(segment, placeholders::Segment::Placeholder { .. }));
        if is_filled {
            continue;
        }
        if let Err(error) = UriTemplate::parse_plain(uri) {
            let pointer = format!("{at}/prompt/messages/{index}/content/uri");
            return Err(invalid(&pointer, format!("`{pointer}`: {error}.")));
        }
    }
    Ok(())
}
