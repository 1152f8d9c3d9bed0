//! Request and response schemas of NPCs.
//!
//! Invariant: no member that the store sets is taken from a request, and every override is a
//! setting of templates.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use switchboard_catalog::{NpcSettings, TemplateSettings, merge_patch};
use switchboard_protocol::id::{DeviceId, NpcId, OrgId, PictureId, TemplateId};
use switchboard_runtime::problem::Problem;
use switchboard_store::Npc;
use utoipa::ToSchema;

use crate::{
    http::{
        documents::{self, child_pointer, invalid},
        limits::{Limit::Items, Rule, rule},
        merge,
    },
    resources::templates::{self, parse_settings},
};

/// The pointer to the overrides in a body.
const OVERRIDES: &str = "/overrides";

/// The limits, documented in docs/settings.md. Overrides have the limits of template settings.
pub(crate) const RULES: &[Rule] = &[rule("/device_ids", Items(0, 100))];

/// An NPC to create.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = NewNpc)]
#[serde(default)]
pub(crate) struct NpcDocument {
    /// The template of the NPC.
    template_id: Option<TemplateId>,
    /// The version of the template to use. Default: always the newest version.
    #[schema(minimum = 1, example = 1)]
    template_version: Option<i64>,
    /// A merge patch for the settings of the template, without nulls. Without a template: all
    /// settings, including a name.
    #[schema(value_type = Object)]
    overrides: Map<String, Value>,
    /// The devices of the NPC, without duplicates. A device has one NPC at most.
    #[schema(example = json!(["toy-1"]))]
    device_ids: Vec<DeviceId>,
}

/// An NPC.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Npc)]
pub(crate) struct NpcView {
    /// Unique identifier.
    id: NpcId,
    /// The organisation that owns it.
    org_id: OrgId,
    #[serde(flatten)]
    document: NpcDocument,
    /// The current settings: those of the template after the overrides.
    effective: TemplateSettings,
    /// The current version of the template; null without a template.
    #[schema(minimum = 1, example = 1)]
    effective_version: Option<i64>,
    /// JSON Pointers to overrides that no longer apply because the template changed.
    #[schema(max_items = 100, example = json!([]))]
    lapsed: Vec<String>,
    /// Version, starting at 1 and incremented by each change of the NPC itself.
    #[schema(minimum = 1, example = 1)]
    version: i64,
    /// Time of creation (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// Time of the last change (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    updated_at: DateTime<Utc>,
}

/// Members of the view that clients cannot change.
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

impl From<Npc> for NpcView {
    fn from(npc: Npc) -> Self {
        let lapsed = npc.effective.lapsed.iter();
        Self {
            id: npc.id,
            org_id: npc.org,
            lapsed: lapsed.map(|name| child_pointer(OVERRIDES, name)).collect(),
            document: NpcDocument {
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

/// The settings of an NPC to create.
pub(super) fn parse_new(document: &Value) -> Result<NpcSettings, Problem> {
    let document: NpcDocument = documents::parse(document, "", RULES)?;
    reject_null(&document.overrides)?;
    into_settings(document)
}

/// The settings after a merge patch of the view.
pub(super) fn apply_patch(current: &Npc, mut patch: Value) -> Result<NpcSettings, Problem> {
    if let Some(members) = patch.as_object_mut() {
        members.retain(|name, value| name != "effective" || !is_unchanged(value, current));
    }
    let after = merge::apply(&NpcView::from(current.clone()), patch, &READ_ONLY)?;
    into_settings(documents::parse(&after, "", RULES)?)
}

/// Whether these effective settings are the current ones. Clients may write numbers in another
/// form: 1 and 1.0 are equal.
fn is_unchanged(sent: &Value, current: &Npc) -> bool {
    let before = &current.effective.settings;
    let mut after = serde_json::to_value(before).unwrap_or(Value::Null);
    merge_patch::apply(&mut after, sent.clone());
    TemplateSettings::deserialize(&after).is_ok_and(|after| after == *before)
}

fn into_settings(document: NpcDocument) -> Result<NpcSettings, Problem> {
    if document.template_version.is_some() && document.template_id.is_none() {
        return Err(invalid(
            "/template_version",
            "`/template_version` is a version of the template in `/template_id`, which is missing.",
        ));
    }
    let devices = document.device_ids;
    for (index, device) in devices.iter().enumerate() {
        if devices.iter().take(index).any(|other| other == device) {
            let pointer = format!("/device_ids/{index}");
            let detail = format!("`{pointer}` is a duplicate.");
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

/// In a merge patch, null removes a member. A new NPC has nothing to remove.
fn reject_null(overrides: &Map<String, Value>) -> Result<(), Problem> {
    let mut open = vec![(OVERRIDES.to_owned(), overrides)];
    while let Some((place, members)) = open.pop() {
        for (name, value) in members {
            let pointer = child_pointer(&place, name);
            match value {
                Value::Null => {
                    let detail = format!("`{pointer}` is null, which overrides nothing; omit it.");
                    return Err(invalid(&pointer, detail));
                }
                Value::Object(members) => open.push((pointer, members)),
                _ => {}
            }
        }
    }
    Ok(())
}

/// The settings after these overrides, if they are valid. The settings of the template are valid,
/// so pointers of problems refer to the overrides.
pub(super) fn effective(
    template: Option<&TemplateSettings>,
    overrides: &Map<String, Value>,
) -> Result<TemplateSettings, Problem> {
    let base = template.map(serde_json::to_value).and_then(Result::ok);
    let mut settings = base.unwrap_or_else(|| Value::Object(Map::new()));
    merge_patch::apply(&mut settings, Value::Object(overrides.clone()));
    parse_settings(&settings, OVERRIDES)
}

/// The pointer to this picture: into the overrides, or to the version of the template.
pub(super) fn picture_pointer(
    settings: &NpcSettings,
    effective: Option<&TemplateSettings>,
    picture: PictureId,
) -> String {
    let pointer = effective.map(|effective| templates::picture_pointer(effective, picture));
    let pointer = pointer.unwrap_or_default();
    let overrides = Value::Object(settings.overrides.clone());
    match overrides.pointer(&pointer) {
        Some(_) => format!("{OVERRIDES}{pointer}"),
        None => "/template_version".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_npc_is_rejected_with_its_pointer() {
        fn check(document: Value, pointer: Option<&str>) {
            let refused = parse_new(&document).err();
            let place = refused.as_ref().and_then(Problem::pointer);
            assert_eq!(place, pointer, "{document}");
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
    fn effective_settings_are_validated() {
        fn check(template: Option<Value>, overrides: Value, pointer: Option<&str>) {
            let template = template.map(|template| parse_settings(&template, "").unwrap());
            let refused = effective(template.as_ref(), overrides.as_object().unwrap()).err();
            let place = refused.as_ref().and_then(Problem::pointer);
            assert_eq!(place, pointer, "{overrides}");
        }
        let message =
            |text: &str| json!([{"role": "user", "content": {"type": "text", "text": text}}]);
        let template = Some(json!({
            "name": "A", "voice": {"voice_id": "v"}, "tags": ["a"],
            "prompt": {"arguments": [{"name": "who"}], "messages": message("{{who}}")},
        }));
        check(template.clone(), json!({}), None);
        check(
            template.clone(),
            json!({"voice": {"rate": 2}, "tags": []}),
            None,
        );
        check(
            template.clone(),
            json!({"prompt": {"messages": message("Hello, {{who}}")}}),
            None,
        );
        check(
            template.clone(),
            json!({"prompt": {"messages": message("{{whom}}")}}),
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
            Some("/overrides/model/provider"),
        );
        check(
            template.clone(),
            json!({"nmae": "B"}),
            Some("/overrides/nmae"),
        );
        check(template.clone(), json!({"id": "B"}), Some("/overrides/id"));
        check(template, json!({"name": ""}), Some("/overrides/name"));
        check(None, json!({"name": "A"}), None);
        check(None, json!({"tags": ["a"]}), Some("/overrides/name"));
    }
}
