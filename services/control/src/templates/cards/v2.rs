//! Character Card V2 as a template's settings, and the way back. Nothing is lost on either way: what templates have
//! no field for is kept in `persona.card`, what cards have no place for stands in `extensions.switchboard`.
//! Never: a macro such as `{{user}}` replaced; a card is kept as it is written.

use serde_json::{Map, Value, json};
use switchboard_runtime::problem::Problem;
use switchboard_store::{TemplateSettings, merge_patch};

use super::super::shape;
use crate::{document::invalid, error::ControlError};

const SPEC: &str = "chara_card_v2";
const SPEC_VERSION: &str = "2.0";
/// Our member of `extensions`.
const OURS: &str = "switchboard";
/// Where in a card a template stands, as far as cards have no place for it.
const OUR_PLACE: &str = "/data/extensions/switchboard/template";
/// Texts of a card, and what they are called in a persona.
const TEXTS: [(&str, &str); 5] = [
    ("description", "description"),
    ("personality", "personality"),
    ("scenario", "scenario"),
    ("mes_example", "example_dialogue"),
    ("system_prompt", "system_prompt"),
];
/// Texts that a card always has, if only empty, and templates have no field for.
const KEPT_TEXTS: [&str; 4] = [
    "post_history_instructions",
    "creator_notes",
    "creator",
    "character_version",
];
/// What cards of the first version are made of; other programs repeat it beside `data`.
const V1: [&str; 6] = [
    "name",
    "description",
    "personality",
    "scenario",
    "first_mes",
    "mes_example",
];

/// The settings that a card stands for.
///
/// # Errors
/// When it is no such card or breaks a limit; the pointer is one into the card.
pub(super) fn settings(card: Value) -> Result<TemplateSettings, Problem> {
    let Value::Object(mut root) = card else {
        return Err(invalid("", "A character card is a JSON object."));
    };
    check_spec(&root)?;
    root.retain(|name, _| !["spec", "spec_version"].contains(&name.as_str()));
    let Some(Value::Object(mut data)) = root.remove("data") else {
        return Err(invalid("/data", "`/data` must be an object."));
    };
    let ours = taken_ours(&mut data)?;
    let mut document = document(root, data)?;
    merge_patch::apply(&mut document, ours);
    shape::read_at(&document, "").map_err(pointed)
}

/// The card that stands for settings.
pub(super) fn card(settings: &TemplateSettings) -> Value {
    let mut card = plain(settings);
    let comes_back = back(&card).unwrap_or_default();
    let wanted = json!(settings);
    if let Some(ours) = merge_patch::difference(&json!(comes_back), &wanted)
        && let Some(Value::Object(extensions)) = card.pointer_mut("/data/extensions")
    {
        extensions.insert(OURS.to_owned(), json!({"template": ours}));
    }
    card
}

/// What a card without anything of ours would become.
fn back(card: &Value) -> Option<TemplateSettings> {
    let mut root = card.as_object()?.clone();
    let data = root.remove("data")?.as_object()?.clone();
    root.retain(|name, _| !["spec", "spec_version"].contains(&name.as_str()));
    serde_json::from_value(document(root, data).ok()?).ok()
}

fn check_spec(root: &Map<String, Value>) -> Result<(), Problem> {
    let said = |name: &str| root.get(name).and_then(Value::as_str);
    match (said("spec"), said("spec_version")) {
        (Some(SPEC), Some(SPEC_VERSION)) => Ok(()),
        (Some(SPEC), _) => Err(invalid("/spec_version", "`/spec_version` must be \"2.0\".")),
        (Some("chara_card_v3"), _) => Err(invalid(
            "/spec",
            "This is a Character Card V3; export it as V2 (`chara_card_v2`).",
        )),
        (None, _) if root.contains_key("first_mes") || root.contains_key("mes_example") => {
            Err(invalid(
                "/spec",
                "This is a Character Card V1, which says no `spec`; export it as V2 (`chara_card_v2`).",
            ))
        }
        _ => Err(invalid("/spec", "`/spec` must be \"chara_card_v2\".")),
    }
}

/// The merge patch of a template that we put into a card.
fn taken_ours(data: &mut Map<String, Value>) -> Result<Value, Problem> {
    let Some(extensions) = data.get_mut("extensions") else {
        return Ok(json!({}));
    };
    let Some(extensions) = extensions.as_object_mut() else {
        return Err(invalid(
            "/data/extensions",
            "`/data/extensions` must be an object.",
        ));
    };
    let Some(ours) = extensions.remove(OURS) else {
        return Ok(json!({}));
    };
    match ours {
        Value::Object(mut ours) if ours.len() == 1 => match ours.remove("template") {
            Some(patch @ Value::Object(_)) => Ok(patch),
            _ => Err(invalid(
                OUR_PLACE,
                format!("`{OUR_PLACE}` must be an object."),
            )),
        },
        _ => {
            let place = "/data/extensions/switchboard";
            let detail = format!("`{place}` must be an object with the one member `template`.");
            Err(invalid(place, detail))
        }
    }
}

/// A card's members as a document of a template.
fn document(root: Map<String, Value>, mut data: Map<String, Value>) -> Result<Value, Problem> {
    let mut persona = Map::new();
    for (from, to) in TEXTS {
        if let Some(text) = data.remove(from).filter(|text| text != "") {
            persona.insert(to.to_owned(), text);
        }
    }
    persona.insert("greeting".to_owned(), greeting(&mut data)?);
    let name = data.remove("name").unwrap_or(Value::Null);
    let tags = data.remove("tags").unwrap_or_else(|| json!([]));
    for name in KEPT_TEXTS {
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

/// The first greeting and the others as one list; empty when there is none.
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

/// The card, without what it has no place for.
fn plain(settings: &TemplateSettings) -> Value {
    let persona = json!(settings.persona);
    let mut data = settings.persona.card.data.clone();
    for name in KEPT_TEXTS {
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
    for name in V1 {
        // A copy that was there says what holds now.
        if let (Some(copy), Some(now)) = (root.get_mut(name), data.get(name)) {
            *copy = now.clone();
        }
    }
    root.insert("spec".to_owned(), json!(SPEC));
    root.insert("spec_version".to_owned(), json!(SPEC_VERSION));
    root.insert("data".to_owned(), Value::Object(data));
    Value::Object(root)
}

/// Members of `persona.card` that would not come back as what they are.
pub(crate) fn misplaced(settings: &TemplateSettings) -> Option<(String, &'static str)> {
    let rest = &settings.persona.card;
    let has_field = |name: &str| {
        let texts = TEXTS.iter().map(|(from, _)| *from);
        texts
            .chain(["name", "tags", "first_mes", "alternate_greetings"])
            .any(|field| field == name)
    };
    if let Some(name) = rest.data.keys().find(|name| has_field(name)) {
        return Some((format!("/data/{name}"), "is a field of the template itself"));
    }
    let reserved = ["spec", "spec_version", "data"];
    if let Some(name) = reserved.iter().find(|name| rest.root.contains_key(**name)) {
        return Some((
            format!("/root/{name}"),
            "is written when the card is exported",
        ));
    }
    let extensions = rest.data.get("extensions");
    if extensions.is_some_and(|value| !value.is_object() || value.get(OURS).is_some()) {
        let reason = "must be an object without `switchboard`";
        return Some(("/data/extensions".to_owned(), reason));
    }
    None
}

/// The same refusal, with a pointer into the card.
pub(super) fn in_card(error: ControlError) -> ControlError {
    match error {
        ControlError::Refused(problem) => ControlError::Refused(pointed(problem)),
        other => other,
    }
}

fn pointed(mut problem: Problem) -> Problem {
    let Some(pointer) = problem.extra.get("pointer").and_then(Value::as_str) else {
        return problem;
    };
    let (pointer, place) = (pointer.to_owned(), place(pointer));
    problem.detail = problem
        .detail
        .replace(&format!("`{pointer}`"), &format!("`{place}`"));
    problem.with("pointer", place)
}

/// Where in a card something of a template stands.
fn place(pointer: &str) -> String {
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
        None => format!("{OUR_PLACE}{pointer}"),
    }
}
