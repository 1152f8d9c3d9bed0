//! Conversions between cards and templates, in both directions.

use proptest::{collection, option, prelude::*};
use serde_json::{Map, Value, json};
use switchboard_catalog::TemplateSettings;

use super::card_v2;

fn text() -> impl Strategy<Value = String> {
    "[a-zÄ-ü一-丏{}\"\\\\/~ \n]{0,12}"
}

fn line() -> impl Strategy<Value = String> {
    "[a-zÄ-ü一-丏]{1,12}"
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            collection::btree_map(text(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Some of these members, with arbitrary values.
fn members(names: &'static [&'static str]) -> impl Strategy<Value = Map<String, Value>> {
    let name = proptest::sample::select(names).prop_map(str::to_owned);
    collection::btree_map(name, any_json(), 0..5).prop_map(|members| members.into_iter().collect())
}

fn extensions() -> impl Strategy<Value = Map<String, Value>> {
    members(&["fav", "world", "depth_prompt", "a/b"])
}

const OTHERS: &[&str] = &["character_book", "nickname", "x", "a/b", "~"];
const OTHER_TEXTS: &[&str] = &[
    "post_history_instructions",
    "creator_notes",
    "creator",
    "character_version",
];

prop_compose! {
    fn template()(
        (name, tags, locale) in (line(), collection::vec(line(), 0..3), option::of(Just("de"))),
        texts in collection::vec(option::of(text()), 8),
        greeting in collection::vec(text(), 0..4),
        topics in collection::vec(line(), 0..3),
        (model, voice) in (any::<bool>(), any::<bool>()),
        (allow, prompt) in (option::of(collection::vec(line(), 0..3)), any::<bool>()),
        (days, keeps, barges) in (option::of(1_u32..99), any::<bool>(), any::<bool>()),
        (kept, others, mut root) in (members(OTHER_TEXTS), members(OTHERS), members(&["fav", "name", "chat"])),
        extensions in option::of(extensions()),
    ) -> TemplateSettings {
        let mut data = kept;
        data.extend(others);
        data.extend(extensions.map(|members| ("extensions".to_owned(), Value::Object(members))));
        // A merge patch cannot set a copy to null.
        if let Some(copy) = root.get_mut("name") {
            *copy = json!("former name");
        }
        root.retain(|_, value| !value.is_null());
        let prompt = prompt.then(|| json!({
            "name": "p", "arguments": [{"name": "who"}],
            "messages": [{"role": "user", "content": {"type": "text", "text": "{{who}}"}}],
        }));
        let settings = json!({
            "name": name, "tags": tags, "locale": locale,
            "persona": {
                "role": texts[0], "description": texts[1], "personality": texts[2], "backstory": texts[3],
                "scenario": texts[4], "example_dialogue": texts[5], "dialogue_style": texts[6],
                "system_prompt": texts[7], "greeting": greeting, "forbidden_topics": topics,
                "card": {"data": data, "root": root},
            },
            "model": model.then(|| json!({"provider": "p", "model": "m", "max_tokens": 7})),
            "voice": voice.then(|| json!({"voice_id": "v", "rate": 1.5})),
            "tools": {"allow": allow, "deny": []}, "prompt": prompt,
            "memory": {"retention_days": days, "from_conversations": keeps}, "conversation": {"barge_in": barges},
        });
        serde_json::from_value(settings).unwrap()
    }
}

prop_compose! {
    fn foreign_card()(
        texts in collection::vec(text(), 10),
        name in line(),
        tags in collection::vec(line(), 0..3),
        greetings in collection::vec(text(), 0..3),
        (others, extensions) in (members(OTHERS), extensions()),
        mut root in members(&["fav", "chat", "create_date", "a/b"]),
    ) -> Value {
        let mut data = json!({
            "name": name, "description": texts[0], "personality": texts[1], "scenario": texts[2],
            "first_mes": texts[3], "mes_example": texts[4], "creator_notes": texts[5], "system_prompt": texts[6],
            "post_history_instructions": texts[7], "creator": texts[8], "character_version": texts[9],
            "alternate_greetings": greetings, "tags": tags, "extensions": extensions,
        });
        data.as_object_mut().unwrap().extend(others);
        // Other programs repeat the members of version 1.
        root.insert("name".to_owned(), name.into());
        root.insert("description".to_owned(), texts[0].clone().into());
        root.extend([
            ("spec".to_owned(), json!("chara_card_v2")),
            ("spec_version".to_owned(), json!("2.0")),
            ("data".to_owned(), data),
        ]);
        Value::Object(root)
    }
}

proptest! {
    #[test]
    fn template_survives_export_and_import(settings in template()) {
        let card = card_v2::to_card(&settings);
        let back = card_v2::parse_card(card.clone());
        prop_assert_eq!(back.map_err(|problem| problem.detail), Ok(settings), "{}", card);
    }

    #[test]
    fn card_survives_import_and_export(card in foreign_card()) {
        let settings = card_v2::parse_card(card.clone()).map_err(|problem| problem.detail);
        let settings = settings.map_err(TestCaseError::fail)?;
        prop_assert_eq!(card_v2::to_card(&settings), card);
    }

    /// A modified card is rejected, or becomes a template that survives export and import.
    #[test]
    fn modified_card_is_rejected_or_survives(mut card in foreign_card(), at in 0_usize..13, value in any_json()) {
        let members = card["data"].as_object_mut().unwrap();
        let name = members.keys().nth(at).unwrap().clone();
        members.insert(name, value);
        if let Ok(settings) = card_v2::parse_card(card) {
            let again = card_v2::parse_card(card_v2::to_card(&settings)).map_err(|problem| problem.detail);
            prop_assert_eq!(again, Ok(settings));
        }
    }
}

#[test]
fn non_default_conversation_is_in_the_extension() {
    fn check(settings: Value, expected: Value) {
        let settings: TemplateSettings = serde_json::from_value(settings).unwrap();
        let card = card_v2::to_card(&settings);
        assert_eq!(card["data"]["extensions"], expected);
        assert_eq!(card_v2::parse_card(card).unwrap(), settings);
    }
    check(
        json!({"name": "Bello", "conversation": {"barge_in": true}}),
        json!({}),
    );
    let non_default =
        json!({"conversation": {"barge_in": false}, "memory": {"from_conversations": false}});
    let mut settings = non_default.clone();
    settings["name"] = "Bello".into();
    check(settings, json!({"switchboard": {"template": non_default}}));
}

#[test]
fn edited_card_overrides_the_extension() {
    let settings: TemplateSettings = serde_json::from_value(json!({
        "name": "Bello", "persona": {"role": "a dog", "description": "Loud.", "greeting": ["Woof!"]},
    }))
    .unwrap();
    let mut card = card_v2::to_card(&settings);
    assert_eq!(
        card["data"]["extensions"],
        json!({"switchboard": {"template": {"persona": {"role": "a dog"}}}})
    );
    card["data"]["description"] = "Quiet.".into();
    let edited = card_v2::parse_card(card).unwrap();
    assert_eq!(edited.persona.description.as_deref(), Some("Quiet."));
    assert_eq!(edited.persona.role.as_deref(), Some("a dog"));
}

fn check(place: &str, value: Value, pointer: &str) {
    let mut card = json!({
        "spec": "chara_card_v2", "spec_version": "2.0",
        "data": {
            "name": "Bello", "description": "", "personality": "", "scenario": "", "first_mes": "", "mes_example": "",
            "system_prompt": "", "tags": ["dog"], "alternate_greetings": ["a", "b"], "creator": "", "character_book": {},
            "extensions": {"switchboard": {"template": {"locale": "de", "skills_book_ids": []}}},
        },
    });
    card_v2::parse_card(card.clone()).unwrap();
    *card.pointer_mut(place).unwrap() = value;
    let problem = card_v2::parse_card(card).unwrap_err();
    assert_eq!(problem.pointer(), Some(pointer), "{}", problem.detail);
    assert!(
        pointer.is_empty() || problem.detail.contains(pointer) || pointer == "/spec",
        "{}",
        problem.detail
    );
}

#[test]
fn exceeded_limit_is_a_pointer_into_the_card() {
    let long = || Value::from("x".repeat(40_000));
    for name in [
        "description",
        "personality",
        "scenario",
        "mes_example",
        "system_prompt",
        "first_mes",
    ] {
        let place = format!("/data/{name}");
        check(&place, long(), &place);
        check(&place, json!(7), &place);
    }
    check("/data/name", json!(""), "/data/name");
    check("/data/name", json!(null), "/data/name");
    check("/data/tags/0", json!(" dog"), "/data/tags/0");
    check("/data/tags", json!("dog"), "/data/tags");
    check(
        "/data/alternate_greetings/1",
        long(),
        "/data/alternate_greetings/1",
    );
    check(
        "/data/alternate_greetings",
        json!("x"),
        "/data/alternate_greetings",
    );
    check(
        "/data/alternate_greetings",
        json!(vec!["x"; 16]),
        "/data/alternate_greetings",
    );
    check("/data/character_book", json!("x".repeat(300_000)), "/data");
    check("/data/creator", json!("\0"), "/data/creator");
}

#[test]
fn invalid_card_is_rejected() {
    check("/data/extensions", json!([]), "/data/extensions");
    let ours = "/data/extensions/switchboard";
    check(ours, json!([]), ours);
    check(ours, json!({"x": 1}), &format!("{ours}/template"));
    check(
        &format!("{ours}/template"),
        json!([]),
        &format!("{ours}/template"),
    );
    let locale = format!("{ours}/template/locale");
    check(&locale, json!("no language"), &locale);
    check(
        &format!("{ours}/template"),
        json!({"mood": 1}),
        &format!("{ours}/template/mood"),
    );
    check("/data", json!([]), "/data");
    check("/spec", json!("chara_card_v3"), "/spec");
    check("/spec", json!("other"), "/spec");
    check("/spec_version", json!("3.0"), "/spec_version");
    check("", json!([]), "");
    check("", json!({"name": "Bello", "first_mes": "Woof!"}), "/spec");
}
