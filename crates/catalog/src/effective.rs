//! The settings of an NPC, and its effective settings: the template's with the NPC's overrides.
//! Invariant: effective settings are valid, whatever the current version of the template is.

use serde_json::{Map, Value};
use switchboard_protocol::id::{DeviceId, PictureId, TemplateId};

use crate::{PromptMessage, TemplateSettings, merge_patch};

/// The settings of an NPC as its author wrote them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NpcSettings {
    /// The template that it is based on.
    pub template: Option<TemplateId>,
    /// The version of the template that it is pinned to; the latest version if not given.
    pub template_version: Option<i64>,
    /// A merge patch of the template's settings, without nulls; all settings without a template.
    pub overrides: Map<String, Value>,
    /// The devices that it is assigned to, each once.
    pub devices: Vec<DeviceId>,
}

/// The effective settings of an NPC, and the overrides that do not apply.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    /// The template's settings with the overrides applied.
    pub settings: TemplateSettings,
    /// Names of overrides that the current template makes invalid. Its member applies instead.
    pub lapsed: Vec<String>,
}

/// Applies overrides to a template's settings, as a merge patch. If the result is invalid, each member is
/// applied on its own, and those that would make it invalid lapse. Without a template they are the settings.
#[must_use]
pub fn apply_overrides(
    template: Option<&TemplateSettings>,
    overrides: &Map<String, Value>,
) -> Effective {
    let base = template.cloned().unwrap_or_default();
    let mut merged = serde_json::to_value(&base).unwrap_or_default();
    merge_patch::apply(&mut merged, Value::Object(overrides.clone()));
    if let Some(settings) = validate(merged) {
        return Effective {
            settings,
            lapsed: Vec::new(),
        };
    }
    let mut effective = Effective {
        settings: base,
        lapsed: Vec::new(),
    };
    for (name, value) in overrides {
        let mut next = serde_json::to_value(&effective.settings).unwrap_or_default();
        let patch = Map::from_iter([(name.clone(), value.clone())]);
        merge_patch::apply(&mut next, Value::Object(patch));
        match validate(next) {
            Some(settings) => effective.settings = settings,
            None => effective.lapsed.push(name.clone()),
        }
    }
    effective
}

/// Checks the relations between fields, which a new version of the template can break. Each field
/// was validated when it was written.
fn validate(settings: Value) -> Option<TemplateSettings> {
    let settings: TemplateSettings = serde_json::from_value(settings).ok()?;
    let is_renderable = settings.prompt.as_ref().is_none_or(|prompt| {
        !prompt.messages.is_empty() && prompt.undeclared_placeholder().is_none()
    });
    is_renderable.then_some(settings)
}

/// The pictures that the overrides themselves refer to, independently of the template.
#[must_use]
pub fn overridden_pictures(overrides: &Map<String, Value>) -> Vec<PictureId> {
    let avatar = overrides
        .get("avatar")
        .and_then(|avatar| serde_json::from_value(avatar.clone()).ok());
    let messages = overrides
        .get("prompt")
        .and_then(|prompt| prompt.get("messages"))
        .and_then(|messages| serde_json::from_value::<Vec<PromptMessage>>(messages.clone()).ok());
    let messages = messages.unwrap_or_default().into_iter();
    messages
        .filter_map(|message| message.content.picture())
        .chain(avatar)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn overrides_apply_or_lapse_with_the_template() {
        fn check(template: Value, overrides: Value, expected: Value, lapsed: &[&str]) {
            let template: TemplateSettings = serde_json::from_value(template).unwrap();
            let overrides = overrides.as_object().unwrap();
            let effective = apply_overrides(Some(&template), overrides);
            assert_eq!(effective.lapsed, lapsed);
            let settings = serde_json::to_value(&effective.settings).unwrap();
            for (name, value) in expected.as_object().unwrap() {
                assert_eq!(&settings[name], value, "{name}");
            }
        }
        let voice = json!({"voice_id": "v", "rate": 1.0, "pitch": null, "volume": null});
        check(
            json!({"name": "A", "voice": {"voice_id": "v", "rate": 2}, "tags": ["a"]}),
            json!({"voice": {"rate": 1}, "tags": ["b"], "persona": {"role": "r"}}),
            json!({"name": "A", "voice": voice, "tags": ["b"]}),
            &[],
        );
        check(
            json!({"name": "A"}),
            json!({"name": "B", "voice": {"rate": 1}, "model": {"temperature": 1}, "tags": ["b"]}),
            json!({"name": "B", "voice": null, "model": null, "tags": ["b"]}),
            &["model", "voice"],
        );
        check(
            json!({"name": "A", "conversation": {"barge_in": false}, "memory": {"retention_days": 3}}),
            json!({"memory": {"from_conversations": false}}),
            json!({
                "conversation": {"barge_in": false},
                "memory": {"retention_days": 3, "from_conversations": false},
            }),
            &[],
        );
        check(
            json!({"name": "A", "conversation": {"barge_in": false}}),
            json!({"conversation": {"barge_in": true}}),
            json!({"conversation": {"barge_in": true}, "memory": {"retention_days": null, "from_conversations": true}}),
            &[],
        );
        let messages = json!([{"role": "user", "content": {"type": "text", "text": "{{who}}"}}]);
        check(
            json!({"name": "A", "prompt": {"arguments": [{"name": "who"}], "messages": []}}),
            json!({"prompt": {"messages": messages}}),
            json!({}),
            &[],
        );
        check(
            json!({"name": "A"}),
            json!({"prompt": {"messages": messages}}),
            json!({"prompt": null}),
            &["prompt"],
        );
    }
}
