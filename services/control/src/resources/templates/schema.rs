//! Request and response schemas of templates.
//!
//! Invariant: no member that the store sets is taken from a request.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use switchboard_catalog::{Prompt, TemplateSettings};
use switchboard_protocol::id::{OrgId, PictureId, TemplateId};
use switchboard_runtime::problem::Problem;
use switchboard_store::{Owner, Template};
use utoipa::ToSchema;

use super::rules;
use crate::http::{
    auth::operator_only,
    documents::{self, invalid},
    error::ControlError,
    merge,
};

/// Who can read a template.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(example = "private")]
#[serde(rename_all = "lowercase")]
enum Visibility {
    /// Every organisation; only the operator can write it.
    Public,
    /// The organisation that owns it.
    Private,
}

/// A template.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Template)]
pub(crate) struct TemplateView {
    /// Unique identifier.
    id: TemplateId,
    /// The organisation that owns it; null if it is public.
    org_id: Option<OrgId>,
    /// Who can read it.
    visibility: Visibility,
    #[serde(flatten)]
    settings: TemplateSettings,
    /// Version, starting at 1 and incremented by each change.
    #[schema(minimum = 1, example = 1)]
    version: i64,
    /// Time of creation (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// Time of the last change (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    updated_at: DateTime<Utc>,
}

/// A template to create.
#[derive(Serialize, ToSchema)]
pub(super) struct NewTemplate {
    /// `public` with the operator key, `private` otherwise. It can be omitted.
    visibility: Option<Visibility>,
    #[serde(flatten)]
    settings: TemplateSettings,
}

/// Members of the view that clients cannot change.
const READ_ONLY: [&str; 6] = [
    "id",
    "org_id",
    "visibility",
    "version",
    "created_at",
    "updated_at",
];

impl From<Template> for TemplateView {
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

/// The settings of a template that this owner creates.
pub(super) fn parse_new(
    mut document: Value,
    owner: Owner,
) -> Result<TemplateSettings, ControlError> {
    if let Some(visibility) = document
        .as_object_mut()
        .and_then(|members| members.remove("visibility"))
    {
        check_visibility(&visibility, owner)?;
    }
    Ok(parse(&document)?)
}

fn check_visibility(visibility: &Value, owner: Owner) -> Result<(), Problem> {
    match (visibility.as_str(), owner) {
        (Some("public"), Owner::Installation) | (Some("private"), Owner::Org(_)) => Ok(()),
        (Some("public"), Owner::Org(_)) => Err(operator_only(
            "Only the operator may make a template public.",
        )),
        (Some("private"), Owner::Installation) => Err(invalid(
            "/visibility",
            "The operator's templates are public; use a key of an organisation for private templates.",
        )),
        _ => Err(invalid(
            "/visibility",
            "`/visibility` must be \"public\" or \"private\".",
        )),
    }
}

/// The settings after a merge patch of the view.
pub(super) fn apply_patch(
    current: &Template,
    patch: Value,
) -> Result<TemplateSettings, ControlError> {
    let after = merge::apply(&TemplateView::from(current.clone()), patch, &READ_ONLY)?;
    Ok(parse(&after)?)
}

fn parse(document: &Value) -> Result<TemplateSettings, Problem> {
    parse_settings(document, "")
}

/// The settings at the pointer `base` in a body.
pub(crate) fn parse_settings(document: &Value, base: &str) -> Result<TemplateSettings, Problem> {
    let settings = documents::parse(document, base, rules::RULES)?;
    rules::check(&settings, base)?;
    Ok(settings)
}

/// The pointer to the id of this picture in the settings.
pub(crate) fn picture_pointer(settings: &TemplateSettings, picture: PictureId) -> String {
    let mut in_prompt = settings.prompt.iter().flat_map(Prompt::pictures);
    if settings.avatar == Some(picture) {
        return "/avatar".to_owned();
    }
    let found = in_prompt.find(|(_, id)| *id == picture);
    found.map_or_else(String::new, |(index, _)| {
        format!("/prompt/messages/{index}/content/picture_id")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A document with every setting of a template.
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
        let too_long = 40_000;
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
                    assert!(
                        parse(&document).is_err(),
                        "{place} has no limit of elements"
                    );
                }
                Value::String(_) => {
                    texts += 1;
                    *value = "x".repeat(too_long).into();
                    assert!(parse(&document).is_err(), "{place} has no limit");
                }
                _ => {}
            }
        }
        assert!(texts > 25, "{texts}");
        parse(&full()).unwrap();
    }

    #[test]
    fn omitted_conversation_settings_have_defaults() {
        fn check(document: Value, barge_in: bool, from_conversations: bool) {
            let settings = parse(&document).unwrap();
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
    fn invalid_value_is_reported_with_its_pointer() {
        fn check(place: &str, value: Value, pointer: &str) {
            let mut document = full();
            *document.pointer_mut(place).unwrap() = value;
            let problem = parse(&document).unwrap_err();
            assert_eq!(problem.pointer(), Some(pointer), "{}", problem.detail);
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
        check("/model", json!({"provider": "p"}), "/model/model");
        check("/persona", json!({"rôle": "x"}), "/persona/rôle");
    }
}
