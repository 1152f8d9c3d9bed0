//! What holds for an NPC: its template's settings with its own put over them.
//! Never: settings that are not whole, whatever the template has become since the NPC's own were written.

use serde_json::{Map, Value};

use crate::{
    merge_patch,
    templates::{PromptMessage, TemplateSettings},
};
use switchboard_protocol::id::PictureId;

/// What holds, and what does not any more.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    /// What holds.
    pub settings: TemplateSettings,
    /// Members of the overrides that have nothing to stand on since the template changed, such as a voice's rate
    /// without a voice. The template's own member holds instead.
    pub lapsed: Vec<String>,
}

/// A template's settings with overrides put over them, as a merge patch, member by member. Without a template the
/// overrides are all there is.
#[must_use]
pub fn apply_overrides(
    template: Option<&TemplateSettings>,
    overrides: &Map<String, Value>,
) -> Effective {
    let base = template.cloned().unwrap_or_default();
    let mut whole = serde_json::to_value(&base).unwrap_or_default();
    merge_patch::apply(&mut whole, Value::Object(overrides.clone()));
    if let Some(settings) = usable(whole) {
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
        match usable(next) {
            Some(settings) => effective.settings = settings,
            None => effective.lapsed.push(name.clone()),
        }
    }
    effective
}

/// What fields promise each other is all that a template's change can break: each of them was checked on its own.
fn usable(settings: Value) -> Option<TemplateSettings> {
    let settings: TemplateSettings = serde_json::from_value(settings).ok()?;
    let speaks = settings
        .prompt
        .as_ref()
        .is_none_or(|prompt| !prompt.messages.is_empty() && prompt.undeclared().is_none());
    speaks.then_some(settings)
}

/// The pictures that overrides name, so whatever the template becomes.
pub(super) fn pictures(overrides: &Map<String, Value>) -> Vec<PictureId> {
    let avatar = overrides
        .get("avatar")
        .and_then(|avatar| serde_json::from_value(avatar.clone()).ok());
    let messages = overrides
        .get("prompt")
        .and_then(|prompt| prompt.get("messages"))
        .and_then(|messages| serde_json::from_value::<Vec<PromptMessage>>(messages.clone()).ok());
    let shown = messages.unwrap_or_default().into_iter();
    shown
        .filter_map(|message| message.content.picture())
        .chain(avatar)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn overrides_stay_and_lapse_when_they_have_nothing_to_stand_on() {
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
        let says = json!([{"role": "user", "content": {"type": "text", "text": "{{who}}"}}]);
        check(
            json!({"name": "A", "prompt": {"arguments": [{"name": "who"}], "messages": []}}),
            json!({"prompt": {"messages": says}}),
            json!({}),
            &[],
        );
        check(
            json!({"name": "A"}),
            json!({"prompt": {"messages": says}}),
            json!({"prompt": null}),
            &["prompt"],
        );
    }
}
