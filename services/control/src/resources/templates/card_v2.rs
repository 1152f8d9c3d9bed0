//! Converts between Character Card V2 and the settings of a template.
//!
//! Invariant: no conversion loses data. Members of a card without a setting are stored in
//! `persona.card`; settings without a member in a card are exported in `extensions.switchboard`.
//! Macros such as `{{user}}` are not replaced.

use serde_json::{Map, Value, json};
use switchboard_catalog::{TemplateSettings, merge_patch};
use switchboard_runtime::problem::Problem;

use super::schema;
use crate::http::{documents::invalid, error::ControlError};

const SPEC: &str = "chara_card_v2";
const SPEC_VERSION: &str = "2.0";
/// The member of `extensions` that is ours.
const EXTENSION: &str = "switchboard";
/// The pointer to the settings that a card has no member for.
const EXTENSION_POINTER: &str = "/data/extensions/switchboard/template";
/// The texts of a card, and their names in a persona.
const TEXTS: [(&str, &str); 5] = [
    ("description", "description"),
    ("personality", "personality"),
    ("scenario", "scenario"),
    ("mes_example", "example_dialogue"),
    ("system_prompt", "system_prompt"),
];
/// Required texts of a card that templates have no setting for.
const OTHER_TEXTS: [&str; 4] = [
    "post_history_instructions",
    "creator_notes",
    "creator",
    "character_version",
];
/// The members of cards of version 1, which other programs repeat beside `data`.
const V1_MEMBERS: [&str; 6] = [
    "name",
    "description",
    "personality",
    "scenario",
    "first_mes",
    "mes_example",
];

/// The settings of a card.
///
/// # Errors
/// When it is not a card of version 2, or exceeds a limit. Pointers refer to the card.
pub(super) fn parse_card(card: Value) -> Result<TemplateSettings, Problem> {
    let Value::Object(mut root) = card else {
        return Err(invalid("", "A character card is a JSON object."));
    };
    check_spec(&root)?;
    root.retain(|name, _| !["spec", "spec_version"].contains(&name.as_str()));
    let Some(Value::Object(mut data)) = root.remove("data") else {
        return Err(invalid("/data", "`/data` must be an object."));
    };
    let extension = take_extension(&mut data)?;
    let mut document = template_document(root, data)?;
    merge_patch::apply(&mut document, extension);
    schema::parse_settings(&document, "").map_err(with_card_pointer)
}

/// The settings as a card.
pub(super) fn to_card(settings: &TemplateSettings) -> Value {
    let mut card = card_without_extension(settings);
    let parsed = parse_without_extension(&card).unwrap_or_default();
    if let Some(extension) = merge_patch::difference(&json!(parsed), &json!(settings))
        && let Some(Value::Object(extensions)) = card.pointer_mut("/data/extensions")
    {
        extensions.insert(EXTENSION.to_owned(), json!({"template": extension}));
    }
    card
}

/// The settings of a card without our extension.
fn parse_without_extension(card: &Value) -> Option<TemplateSettings> {
    let mut root = card.as_object()?.clone();
    let data = root.remove("data")?.as_object()?.clone();
    root.retain(|name, _| !["spec", "spec_version"].contains(&name.as_str()));
    serde_json::from_value(template_document(root, data).ok()?).ok()
}

fn check_spec(root: &Map<String, Value>) -> Result<(), Problem> {
    let member = |name: &str| root.get(name).and_then(Value::as_str);
    match (member("spec"), member("spec_version")) {
        (Some(SPEC), Some(SPEC_VERSION)) => Ok(()),
        (Some(SPEC), _) => Err(invalid("/spec_version", "`/spec_version` must be \"2.0\".")),
        (Some("chara_card_v3"), _) => Err(invalid(
            "/spec",
            "This is a Character Card V3; export it as V2 (`chara_card_v2`).",
        )),
        (None, _) if root.contains_key("first_mes") || root.contains_key("mes_example") => {
            Err(invalid(
                "/spec",
                "This is a Character Card V1, which has no `spec`; export it as V2 (`chara_card_v2`).",
            ))
        }
        _ => Err(invalid("/spec", "`/spec` must be \"chara_card_v2\".")),
    }
}

/// Takes the merge patch of the settings out of our extension.
fn take_extension(data: &mut Map<String, Value>) -> Result<Value, Problem> {
    let Some(extensions) = data.get_mut("extensions") else {
        return Ok(json!({}));
    };
    let Some(extensions) = extensions.as_object_mut() else {
        return Err(invalid(
            "/data/extensions",
            "`/data/extensions` must be an object.",
        ));
    };
    let Some(extension) = extensions.remove(EXTENSION) else {
        return Ok(json!({}));
    };
    match extension {
        Value::Object(mut extension) if extension.len() == 1 => {
            match extension.remove("template") {
                Some(patch @ Value::Object(_)) => Ok(patch),
                _ => Err(invalid(
                    EXTENSION_POINTER,
                    format!("`{EXTENSION_POINTER}` must be an object."),
                )),
            }
        }
        _ => {
            let place = "/data/extensions/switchboard";
            let detail = format!("`{place}` must be an object whose only member is `template`.");
            Err(invalid(place, detail))
        }
    }
}

/// The members of a card as a template document.
fn template_document(
    root: Map<String, Value>,
    mut data: Map<String, Value>,
) -> Result<Value, Problem> {
    let mut persona = Map::new();
    for (from, to) in TEXTS {
        if let Some(text) = data.remove(from).filter(|text| text != "") {
            persona.insert(to.to_owned(), text);
        }
    }
    persona.insert("greeting".to_owned(), greeting(&mut data)?);
    let name = data.remove("name").unwrap_or(Value::Null);
    let tags = data.remove("tags").unwrap_or_else(|| json!([]));
    for name in OTHER_TEXTS {
        if data.get(name).is_some_and(|text| text == "") {
            data.remove(name);
        }
    }
    if data.get("extensions") == Some(&json!({})) {
        data.remove("extensions");
    }
    persona.insert("card".to_owned(), json!({"data": data, "root": root}));
    Ok(json!({"name": name, "tags": tags, "persona": persona}))
}

/// All greetings, the first one first.
fn greeting(data: &mut Map<String, Value>) -> Result<Value, Problem> {
    let first = data.remove("first_mes").unwrap_or_else(|| json!(""));
    let others = match data.remove("alternate_greetings") {
        None => Vec::new(),
        Some(Value::Array(others)) => others,
        Some(_) => {
            let place = "/data/alternate_greetings";
            return Err(invalid(place, format!("`{place}` must be an array.")));
        }
    };
    if first == "" && others.is_empty() {
        return Ok(json!([]));
    }
    let mut all = vec![first];
    all.extend(others);
    Ok(all.into())
}

/// The card with all settings that cards have a member for.
fn card_without_extension(settings: &TemplateSettings) -> Value {
    let persona = json!(settings.persona);
    let mut data = settings.persona.card.data.clone();
    for name in OTHER_TEXTS {
        data.entry(name).or_insert_with(|| json!(""));
    }
    data.entry("extensions").or_insert_with(|| json!({}));
    for (to, from) in TEXTS {
        let text = persona[from].as_str().unwrap_or_default();
        data.insert(to.to_owned(), json!(text));
    }
    let (first, others) = match settings.persona.greeting.split_first() {
        Some((first, others)) => (first.as_str(), others),
        None => ("", [].as_slice()),
    };
    data.insert("name".to_owned(), json!(settings.name));
    data.insert("tags".to_owned(), json!(settings.tags));
    data.insert("first_mes".to_owned(), json!(first));
    data.insert("alternate_greetings".to_owned(), json!(others));
    let mut root = settings.persona.card.root.clone();
    for name in V1_MEMBERS {
        // An existing copy gets the current value.
        if let (Some(copy), Some(current)) = (root.get_mut(name), data.get(name)) {
            *copy = current.clone();
        }
    }
    root.insert("spec".to_owned(), json!(SPEC));
    root.insert("spec_version".to_owned(), json!(SPEC_VERSION));
    root.insert("data".to_owned(), Value::Object(data));
    Value::Object(root)
}

/// A member of `persona.card` that an export followed by an import would not restore.
pub(super) fn misplaced_member(settings: &TemplateSettings) -> Option<(String, &'static str)> {
    let rest = &settings.persona.card;
    let has_field = |name: &str| {
        let texts = TEXTS.iter().map(|(from, _)| *from);
        texts
            .chain(["name", "tags", "first_mes", "alternate_greetings"])
            .any(|field| field == name)
    };
    if let Some(name) = rest.data.keys().find(|name| has_field(name)) {
        return Some((
            format!("/data/{name}"),
            "is a setting of the template itself",
        ));
    }
    let reserved = ["spec", "spec_version", "data"];
    if let Some(name) = reserved.iter().find(|name| rest.root.contains_key(**name)) {
        return Some((
            format!("/root/{name}"),
            "is written when the card is exported",
        ));
    }
    let extensions = rest.data.get("extensions");
    if extensions.is_some_and(|value| !value.is_object() || value.get(EXTENSION).is_some()) {
        let reason = "must be an object without `switchboard`";
        return Some(("/data/extensions".to_owned(), reason));
    }
    None
}

/// The same error, with a pointer into the card.
pub(super) fn point_into_card(error: ControlError) -> ControlError {
    match error {
        ControlError::Problem(problem) => ControlError::Problem(with_card_pointer(problem)),
        other => other,
    }
}

fn with_card_pointer(mut problem: Problem) -> Problem {
    let Some(pointer) = problem.pointer() else {
        return problem;
    };
    let (pointer, in_card) = (pointer.to_owned(), card_pointer(pointer));
    problem.detail = problem
        .detail
        .replace(&format!("`{pointer}`"), &format!("`{in_card}`"));
    problem.at(in_card)
}

/// The pointer into a card for a pointer into a template.
fn card_pointer(pointer: &str) -> String {
    if let Some(index) = pointer.strip_prefix("/persona/greeting") {
        return match index
            .strip_prefix('/')
            .and_then(|index| index.parse::<usize>().ok())
        {
            Some(0) => "/data/first_mes".to_owned(),
            Some(index) => format!("/data/alternate_greetings/{}", index.saturating_sub(1)),
            None => "/data/alternate_greetings".to_owned(),
        };
    }
    if let Some((from, _)) = TEXTS
        .iter()
        .find(|(_, to)| pointer.strip_prefix("/persona/") == Some(*to))
    {
        return format!("/data/{from}");
    }
    match pointer.strip_prefix("/persona/card") {
        Some("") => "/data".to_owned(),
        Some(rest) => rest.strip_prefix("/root").unwrap_or(rest).to_owned(),
        None if pointer == "/name" || pointer.starts_with("/tags") => format!("/data{pointer}"),
        None => format!("{EXTENSION_POINTER}{pointer}"),
    }
}
