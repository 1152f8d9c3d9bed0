//! NPCs as documents: how they are shown, and how they are read from what people send.
//! Never: a field that the store writes taken from a request, or an override that its template does not know.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use switchboard_protocol::id::{DeviceId, NpcId, OrgId, PictureId, TemplateId};
use switchboard_runtime::problem::Problem;
use switchboard_store::{Npc, NpcSettings, TemplateSettings};
use utoipa::ToSchema;

use crate::{
    document::{self, invalid, member},
    limits::{Limit::Items, Rule, rule},
    merge_patch, patch,
    templates::{self, read_at},
};

/// Where overrides stand in a body.
const OVERRIDES: &str = "/overrides";

/// The limits; docs/settings.md repeats them. Overrides have those of a template.
pub(crate) const RULES: &[Rule] = &[rule("/device_ids", Items(0, 100))];

/// An NPC as it is sent.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = NewNpc)]
#[serde(default)]
pub(crate) struct Document {
    /// What it is made from.
    template_id: Option<TemplateId>,
    /// With which version of its template it stays; it follows the newest when not given.
    #[schema(minimum = 1, example = 1)]
    template_version: Option<i64>,
    /// A merge patch of the template's settings, without nulls; all settings, with a name, when there is no template.
    #[schema(value_type = Object)]
    overrides: Map<String, Value>,
    /// The devices that it speaks through, each once. A device speaks for one NPC at most.
    #[schema(example = json!(["toy-1"]))]
    device_ids: Vec<DeviceId>,
}

/// An NPC as it is shown.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Npc)]
pub(crate) struct ShownNpc {
    /// Its id.
    id: NpcId,
    /// Whose it is.
    org_id: OrgId,
    #[serde(flatten)]
    document: Document,
    /// What holds now: the template's settings with the overrides put over them.
    effective: TemplateSettings,
    /// The template's version that holds now; null without a template.
    #[schema(minimum = 1, example = 1)]
    effective_version: Option<i64>,
    /// Overrides that have nothing to stand on any more since the template changed, as JSON Pointers.
    #[schema(max_items = 100, example = json!([]))]
    lapsed: Vec<String>,
    /// 1 at first, one more with each change of its own.
    #[schema(minimum = 1, example = 1)]
    version: i64,
    /// When it was made.
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// When it was changed last.
    #[schema(example = "2026-01-02T03:04:05Z")]
    updated_at: DateTime<Utc>,
}

/// What is shown and not set.
const READ_ONLY: [&str; 8] = [
    "id",
    "org_id",
    "effective",
    "effective_version",
    "lapsed",
    "version",
    "created_at",
    "updated_at",
];

impl From<Npc> for ShownNpc {
    fn from(npc: Npc) -> Self {
        let lapsed = npc.effective.lapsed.iter();
        Self {
            id: npc.id,
            org_id: npc.org,
            lapsed: lapsed.map(|name| member(OVERRIDES, name)).collect(),
            document: Document {
                template_id: npc.settings.template,
                template_version: npc.settings.template_version,
                overrides: npc.settings.overrides,
                device_ids: npc.settings.devices,
            },
            effective: npc.effective.settings,
            effective_version: npc.effective_version,
            version: npc.version,
            created_at: npc.created_at,
            updated_at: npc.updated_at,
        }
    }
}

/// The settings of an NPC that is sent.
pub(super) fn created(document: &Value) -> Result<NpcSettings, Problem> {
    let document: Document = document::read(document, "", RULES)?;
    refuse_null(&document.overrides)?;
    settings(document)
}

/// The settings after a merge patch of the NPC as it is shown.
pub(super) fn patched(current: &Npc, mut sent: Value) -> Result<NpcSettings, Problem> {
    if let Some(members) = sent.as_object_mut() {
        members.retain(|name, value| name != "effective" || !holds_the_same(value, current));
    }
    let after = patch::merged(&ShownNpc::from(current.clone()), sent, &READ_ONLY)?;
    settings(document::read(&after, "", RULES)?)
}

/// Others write numbers in other ways: 1 and 1.0 are the same.
fn holds_the_same(sent: &Value, current: &Npc) -> bool {
    let held = &current.effective.settings;
    let mut after = serde_json::to_value(held).unwrap_or(Value::Null);
    merge_patch::apply(&mut after, sent.clone());
    TemplateSettings::deserialize(&after).is_ok_and(|after| after == *held)
}

fn settings(document: Document) -> Result<NpcSettings, Problem> {
    if document.template_version.is_some() && document.template_id.is_none() {
        return Err(invalid(
            "/template_version",
            "`/template_version` is a version of the template that `/template_id` names, and it names none.",
        ));
    }
    let devices = document.device_ids;
    for (index, device) in devices.iter().enumerate() {
        if devices.iter().take(index).any(|other| other == device) {
            let pointer = format!("/device_ids/{index}");
            let detail = format!("`{pointer}` stands in the list already.");
            return Err(invalid(&pointer, detail));
        }
    }
    Ok(NpcSettings {
        template: document.template_id,
        template_version: document.template_version,
        overrides: document.overrides,
        devices,
    })
}

/// In a merge patch null takes back; where nothing is there yet, it would say nothing.
fn refuse_null(overrides: &Map<String, Value>) -> Result<(), Problem> {
    let mut open = vec![(OVERRIDES.to_owned(), overrides)];
    while let Some((place, members)) = open.pop() {
        for (name, value) in members {
            let pointer = member(&place, name);
            match value {
                Value::Null => {
                    let detail =
                        format!("`{pointer}` is null, which overrides nothing; leave it out.");
                    return Err(invalid(&pointer, detail));
                }
                Value::Object(members) => open.push((pointer, members)),
                _ => {}
            }
        }
    }
    Ok(())
}

/// What holds with these overrides, if it keeps the rules of templates. The template has kept them, so whatever does
/// not is pointed at in the overrides.
pub(super) fn effective(
    template: Option<&TemplateSettings>,
    overrides: &Map<String, Value>,
) -> Result<TemplateSettings, Problem> {
    let base = template.map(serde_json::to_value).and_then(Result::ok);
    let mut whole = base.unwrap_or_else(|| Value::Object(Map::new()));
    merge_patch::apply(&mut whole, Value::Object(overrides.clone()));
    read_at(&whole, OVERRIDES)
}

/// Where an NPC names this picture: in its overrides, else by its template's version.
pub(super) fn place_of(
    settings: &NpcSettings,
    effective: Option<&TemplateSettings>,
    picture: PictureId,
) -> String {
    let place = effective.map(|effective| templates::place_of(effective, picture));
    let place = place.unwrap_or_default();
    let overrides = Value::Object(settings.overrides.clone());
    match overrides.pointer(&place) {
        Some(_) => format!("{OVERRIDES}{place}"),
        None => "/template_version".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_sent_is_checked() {
        fn check(document: Value, pointer: Option<&str>) {
            let refused = created(&document).err();
            let place = refused
                .as_ref()
                .and_then(|problem| problem.extra.get("pointer"));
            assert_eq!(place, pointer.map(Value::from).as_ref(), "{document}");
        }
        let template = format!("tpl_{}", "0".repeat(32));
        check(json!({"overrides": {"name": "A"}}), None);
        check(
            json!({"template_id": template, "template_version": 1, "device_ids": ["toy-1", "toy-2"]}),
            None,
        );
        check(json!({"template_version": 1}), Some("/template_version"));
        check(json!({"template_id": "tpl_1"}), Some("/template_id"));
        check(json!({"device_ids": ["a b"]}), Some("/device_ids/0"));
        check(
            json!({"device_ids": ["a", "b", "a"]}),
            Some("/device_ids/2"),
        );
        check(json!({"device_ids": vec!["a"; 101]}), Some("/device_ids"));
        check(json!({"overrides": []}), Some("/overrides"));
        check(
            json!({"overrides": {"persona": {"role": null}}}),
            Some("/overrides/persona/role"),
        );
        check(json!({"name": "A"}), Some("/name"));
        check(json!({"version": 1}), Some("/version"));
        check(json!([]), Some(""));
    }

    #[test]
    fn what_will_hold_keeps_the_rules_of_templates() {
        fn check(template: Option<Value>, overrides: Value, pointer: Option<&str>) {
            let template = template.map(|template| read_at(&template, "").unwrap());
            let refused = effective(template.as_ref(), overrides.as_object().unwrap()).err();
            let place = refused
                .as_ref()
                .and_then(|problem| problem.extra.get("pointer"));
            assert_eq!(place, pointer.map(Value::from).as_ref(), "{overrides}");
        }
        let says =
            |text: &str| json!([{"role": "user", "content": {"type": "text", "text": text}}]);
        let template = Some(json!({
            "name": "A", "voice": {"voice_id": "v"}, "tags": ["a"],
            "prompt": {"arguments": [{"name": "who"}], "messages": says("{{who}}")},
        }));
        check(template.clone(), json!({}), None);
        check(
            template.clone(),
            json!({"voice": {"rate": 2}, "tags": []}),
            None,
        );
        check(
            template.clone(),
            json!({"prompt": {"messages": says("Hello, {{who}}")}}),
            None,
        );
        check(
            template.clone(),
            json!({"prompt": {"messages": says("{{whom}}")}}),
            Some("/overrides/prompt/messages/0/content/text"),
        );
        check(
            template.clone(),
            json!({"prompt": {"arguments": []}}),
            Some("/overrides/prompt/messages/0/content/text"),
        );
        check(
            template.clone(),
            json!({"voice": {"rate": 9}}),
            Some("/overrides/voice/rate"),
        );
        check(
            template.clone(),
            json!({"model": {"temperature": 1}}),
            Some("/overrides/model"),
        );
        check(
            template.clone(),
            json!({"nmae": "B"}),
            Some("/overrides/nmae"),
        );
        check(template.clone(), json!({"id": "B"}), Some("/overrides/id"));
        check(template, json!({"name": ""}), Some("/overrides/name"));
        check(None, json!({"name": "A"}), None);
        check(None, json!({"tags": ["a"]}), Some("/overrides"));
    }
}
