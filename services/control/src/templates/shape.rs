//! Templates as documents: how they are shown, and how they are read from what people send.
//! Never: a field that the store writes taken from a request.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use switchboard_protocol::id::{OrgId, PictureId, TemplateId};
use switchboard_runtime::problem::Problem;
use switchboard_store::{Owner, Prompt, Template, TemplateSettings};
use utoipa::ToSchema;

use super::rules;
use crate::{
    access::forbidden,
    document::{self, invalid},
    error::ControlError,
    patch,
};

/// Who sees it.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(example = "private")]
#[serde(rename_all = "lowercase")]
enum Visibility {
    /// Every organisation; the operator writes it.
    Public,
    /// The organisation that made it.
    Private,
}

/// A template as it is shown.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Template)]
pub(crate) struct ShownTemplate {
    /// Its id.
    id: TemplateId,
    /// Whose it is; null when it is public.
    org_id: Option<OrgId>,
    /// Who sees it.
    visibility: Visibility,
    #[serde(flatten)]
    settings: TemplateSettings,
    /// 1 at first, one more with each change.
    #[schema(minimum = 1, example = 1)]
    version: i64,
    /// When it was made.
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// When it was changed last.
    #[schema(example = "2026-01-02T03:04:05Z")]
    updated_at: DateTime<Utc>,
}

/// A template as it is sent to be made.
#[derive(Serialize, ToSchema)]
pub(super) struct NewTemplate {
    /// `public` with the operator key, else `private`; that is also what it is when not given.
    visibility: Option<Visibility>,
    #[serde(flatten)]
    settings: TemplateSettings,
}

/// What is shown and not set.
const READ_ONLY: [&str; 6] = [
    "id",
    "org_id",
    "visibility",
    "version",
    "created_at",
    "updated_at",
];

impl From<Template> for ShownTemplate {
    fn from(template: Template) -> Self {
        Self {
            id: template.id,
            org_id: match template.owner {
                Owner::Org(org) => Some(org),
                Owner::Installation => None,
            },
            visibility: visibility(template.owner),
            settings: template.settings,
            version: template.version,
            created_at: template.created_at,
            updated_at: template.updated_at,
        }
    }
}

const fn visibility(owner: Owner) -> Visibility {
    if owner.is_public() {
        Visibility::Public
    } else {
        Visibility::Private
    }
}

/// The settings of a template that this author sends.
pub(super) fn created(
    mut document: Value,
    author: Owner,
) -> Result<TemplateSettings, ControlError> {
    if let Some(asked) = document
        .as_object_mut()
        .and_then(|members| members.remove("visibility"))
    {
        check_visibility(&asked, author)?;
    }
    Ok(read(&document)?)
}

fn check_visibility(asked: &Value, author: Owner) -> Result<(), Problem> {
    match (asked.as_str(), author) {
        (Some("public"), Owner::Installation) | (Some("private"), Owner::Org(_)) => Ok(()),
        (Some("public"), Owner::Org(_)) => {
            Err(forbidden("Only the operator may make a template public."))
        }
        (Some("private"), Owner::Installation) => Err(invalid(
            "/visibility",
            "What the operator makes is public; an organisation's own key makes private templates.",
        )),
        _ => Err(invalid(
            "/visibility",
            "`/visibility` must be \"public\" or \"private\".",
        )),
    }
}

/// The settings after a merge patch of the template as it is shown.
pub(super) fn patched(current: &Template, sent: Value) -> Result<TemplateSettings, ControlError> {
    let after = patch::merged(&ShownTemplate::from(current.clone()), sent, &READ_ONLY)?;
    Ok(read(&after)?)
}

fn read(document: &Value) -> Result<TemplateSettings, Problem> {
    read_at(document, "")
}

/// The settings that stand at `at` in a body.
pub(crate) fn read_at(document: &Value, at: &str) -> Result<TemplateSettings, Problem> {
    let settings = document::read(document, at, rules::RULES)?;
    rules::keep(&settings, at)?;
    Ok(settings)
}

/// Where the settings name this picture.
pub(crate) fn place_of(settings: &TemplateSettings, picture: PictureId) -> String {
    let mut shown = settings.prompt.iter().flat_map(Prompt::pictures);
    if settings.avatar == Some(picture) {
        return "/avatar".to_owned();
    }
    let place = shown.find(|(_, id)| *id == picture);
    place.map_or_else(String::new, |(index, _)| {
        format!("/prompt/messages/{index}/content/picture_id")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A document with every field that a template has.
    fn full() -> Value {
        json!({
            "name": "Bello", "avatar": null, "locale": "de-DE", "tags": ["dog"],
            "persona": {
                "role": "a dog", "description": "d", "personality": "p", "backstory": "b", "scenario": "s",
                "greeting": ["g"], "example_dialogue": "e", "dialogue_style": "y", "system_prompt": "s",
                "forbidden_topics": ["f"],
            },
            "model": {"provider": "p", "model": "m", "temperature": 0.5, "max_tokens": 100},
            "voice": {"voice_id": "v", "rate": 1, "pitch": 1, "volume": 1},
            "tools": {"allow": ["a"], "deny": ["d"]}, "skills_book_ids": [],
            "memory": {"retention_days": 3, "from_conversations": false}, "conversation": {"barge_in": false},
            "prompt": {
                "name": "bello", "title": "t", "description": "d",
                "arguments": [{"name": "who", "title": "t", "description": "d", "required": true, "question": "q",
                               "values": ["v"]}],
                "messages": [
                    {"role": "user", "content": {"type": "text", "text": "{{who}}"}},
                    {"role": "assistant", "content": {"type": "resource", "uri": "notes://{{who}}"}},
                ],
            },
        })
    }

    #[test]
    fn every_text_has_a_limit() {
        let longest = 40_000;
        let mut places = vec![String::new()];
        let mut texts = 0;
        while let Some(place) = places.pop() {
            let mut document = full();
            let value = document.pointer_mut(&place).unwrap();
            match value {
                Value::Object(members) => {
                    places.extend(members.keys().map(|name| format!("{place}/{name}")))
                }
                Value::Array(elements) => {
                    places.extend((0..elements.len()).map(|index| format!("{place}/{index}")));
                    let first = elements.first().cloned();
                    let Some(first) = first else { continue };
                    *elements = vec![first; 300];
                    assert!(read(&document).is_err(), "{place} has no limit of elements");
                }
                Value::String(_) => {
                    texts += 1;
                    *value = "x".repeat(longest).into();
                    assert!(read(&document).is_err(), "{place} has no limit");
                }
                _ => {}
            }
        }
        assert!(texts > 25, "{texts}");
        read(&full()).unwrap();
    }

    #[test]
    fn what_is_not_said_of_conversations_holds_as_usual() {
        fn check(document: Value, barge_in: bool, from_conversations: bool) {
            let settings = read(&document).unwrap();
            assert_eq!(settings.conversation.barge_in, barge_in, "{document}");
            let kept = settings.memory.from_conversations;
            assert_eq!(kept, from_conversations, "{document}");
        }
        check(json!({"name": "A"}), true, true);
        check(
            json!({"name": "A", "conversation": {}, "memory": {"retention_days": 3}}),
            true,
            true,
        );
        check(
            json!({"name": "A", "conversation": {"barge_in": false}}),
            false,
            true,
        );
        check(
            json!({"name": "A", "memory": {"from_conversations": false}}),
            true,
            false,
        );
    }

    #[test]
    fn what_does_not_fit_is_pointed_at() {
        fn check(place: &str, value: Value, pointer: &str) {
            let mut document = full();
            *document.pointer_mut(place).unwrap() = value;
            let problem = read(&document).unwrap_err();
            assert_eq!(problem.extra["pointer"], pointer, "{}", problem.detail);
        }
        let text = "/prompt/messages/0/content/text";
        check(text, "{{whom}}".into(), text);
        let uri = "/prompt/messages/1/content/uri";
        check(uri, "notes://{{what}}".into(), uri);
        check(uri, "no uri".into(), uri);
        check("/prompt/messages", json!([]), "/prompt/messages");
        check(
            "/prompt/arguments",
            json!([{"name": "who"}, {"name": "who"}]),
            "/prompt/arguments/1/name",
        );
        check("/prompt", json!({}), "/prompt/messages");
        check("/voice/rate", json!(9), "/voice/rate");
        let barge_in = "/conversation/barge_in";
        check(barge_in, json!("yes"), barge_in);
        check(barge_in, json!(null), barge_in);
        check(
            "/conversation",
            json!({"bargein": true}),
            "/conversation/bargein",
        );
        check("/conversation", json!(true), "/conversation");
        let kept = "/memory/from_conversations";
        check(kept, json!(1), kept);
        check("/skills_book_ids", json!(["a book"]), "/skills_book_ids/0");
        check("/model", json!({"provider": "p"}), "/model");
        check("/persona", json!({"rôle": "x"}), "/persona/rôle");
    }
}
