//! Messages of the edge to users: in the language of their own message, of the device, or of the
//! organisation.

use std::fs;

use serde_json::{Value, json};
use switchboard_bus::{QuotaLimits, SpeakingStyle};
use switchboard_edge::Config;
use switchboard_protocol::frame::{Kind, TaskId};
use switchboard_speech::ProviderKind;
use switchboard_test_support::eventually::{eventually, eventually_true};

use crate::{
    device::Device,
    node::{Node, TEST_TIMEOUT},
    voice::{FRAME_BYTES, Fixture, recording, speak},
};

const TASK: TaskId = TaskId(*b"task0001");
/// Longer than the limit, and in no language.
const NUMBERS: &str = "0123456789012345";

/// An edge that refuses messages of more than a word.
async fn start() -> Node {
    Node::start(Config {
        device_max_turn_bytes: 10,
        ..Config::default()
    })
    .await
}

/// Connects a device with these members of AUTH. Returns the answer.
async fn connect(node: &Node, id: &str, members: Value) -> (Device, Value) {
    let mut device = Device::connect(node.addr).await;
    let mut payload = members;
    payload["token"] = node.token(id).into();
    let payload = payload.to_string();
    device
        .send(Kind::Auth, TaskId::MCP, 0, payload.as_bytes())
        .await;
    let mut answer = device.expect(Kind::Auth).await.json();
    assert_eq!(answer["data"]["success"], true, "{answer}");
    (device, answer["data"].take())
}

/// What the user reads about a message that is too long.
async fn refusal(device: &mut Device, text: &str) -> String {
    device.send(Kind::Text, TASK, 0, text.as_bytes()).await;
    device.send(Kind::End, TASK, 1, b"").await;
    let notice = device.expect(Kind::Text).await;
    device.expect(Kind::End).await;
    String::from_utf8(notice.payload).unwrap()
}

/// Names the languages of organisations, as control does.
async fn publish(node: &Node, locale: &str) {
    let quotas = QuotaLimits {
        locales: vec![(node.org, locale.to_owned())],
        approving: None,
        ..QuotaLimits::default()
    };
    node.caller.publish_quotas(&quotas).await.unwrap();
    let is_known = || node.bus.org_locale(node.org, str::to_owned).as_deref() == Some(locale);
    eventually_true("the edge knows the language", is_known).await;
}

#[tokio::test]
async fn notice_is_in_the_language_of_the_message_or_of_the_device() {
    let node = start().await;
    let english = "That was too long. Please say it in fewer words.";
    let (mut device, answer) = connect(&node, "toy-1", json!({"locale": "zh-CN"})).await;
    assert_eq!(answer.get("locale_notice"), None, "{answer}");
    let chinese = "这段话太长了。请说得简短一些。";
    assert_eq!(refusal(&mut device, NUMBERS).await, chinese);
    assert_eq!(refusal(&mut device, "现在几点了？请告诉我").await, chinese);
    assert_eq!(refusal(&mut device, "What time is it?").await, english);
    // Frames split a message anywhere.
    device.send(Kind::Text, TASK, 0, b"What time").await;
    device.send(Kind::Text, TASK, 1, b" is it").await;
    device.send(Kind::End, TASK, 2, b"").await;
    assert_eq!(device.expect(Kind::Text).await.payload, english.as_bytes());
    device.expect(Kind::End).await;

    let (mut device, _) = connect(&node, "toy-2", json!({"locale": "zh-TW"})).await;
    let traditional = "這段話太長了。請說得簡短一些。";
    assert_eq!(refusal(&mut device, NUMBERS).await, traditional);
    let mut device = node.device("toy-3").await;
    assert_eq!(refusal(&mut device, NUMBERS).await, english);
    let german = "Das war zu lang. Bitte mit weniger Worten sagen.";
    assert_eq!(refusal(&mut device, "Wie spät ist es?").await, german);
}

#[tokio::test]
async fn message_that_does_not_decide_is_answered_in_the_language_of_the_device() {
    let node = start().await;
    let (mut device, _) = connect(&node, "toy-1", json!({"locale": "ja"})).await;
    let japanese = "長すぎます。もう少し短く言ってください。";
    for text in ["OK OK OK OK", "Stop! Stop!", "Saat kaç oldu acaba?"] {
        assert_eq!(refusal(&mut device, text).await, japanese, "{text}");
    }
}

#[tokio::test]
async fn language_without_a_table_is_not_mistaken_for_another() {
    let node = start().await;
    let german = "Das war zu lang. Bitte mit weniger Worten sagen.";
    let (mut device, _) = connect(&node, "toy-1", json!({"locale": "tr"})).await;
    assert!(
        refusal(&mut device, "Saat kaç oldu?")
            .await
            .starts_with("That was")
    );
    publish(&node, "de").await;
    for text in ["Saat kaç oldu?", "What time is it?"] {
        assert_eq!(refusal(&mut device, text).await, german, "{text}");
    }
}

#[tokio::test]
async fn notice_after_the_message_was_handed_over_is_in_its_language() {
    let node = Node::start(Config {
        turn_patience_ms: 50,
        ..Config::default()
    })
    .await;
    let (mut device, _) = connect(&node, "toy-1", json!({"locale": "zh-CN"})).await;
    let notice = refusal(&mut device, "Wie spät ist es?").await;
    assert!(notice.starts_with("Niemand antwortet"), "{notice}");
    let notice = refusal(&mut device, NUMBERS).await;
    assert!(notice.starts_with("没有"), "{notice}");
}

#[tokio::test]
async fn unknown_language_falls_back_to_that_of_the_organisation() {
    let node = start().await;
    publish(&node, "de-AT").await;
    let german = "Das war zu lang. Bitte mit weniger Worten sagen.";
    let (mut device, answer) = connect(&node, "toy-1", json!({"locale": "tlh"})).await;
    assert_eq!(answer.get("locale_notice"), None, "{answer}");
    assert_eq!(refusal(&mut device, NUMBERS).await, german);
    let (mut device, _) = connect(&node, "toy-2", json!({"locale": "es-MX"})).await;
    let spanish = "Eso fue demasiado largo. Dígalo con menos palabras, por favor.";
    assert_eq!(refusal(&mut device, NUMBERS).await, spanish);
    // It applies to connections that are open.
    let mut device = node.device("toy-3").await;
    assert_eq!(refusal(&mut device, NUMBERS).await, german);
    publish(&node, "fr").await;
    let french = "C'était trop long. Veuillez le dire en moins de mots.";
    assert_eq!(refusal(&mut device, NUMBERS).await, french);
    let (_, mut foreign) = node.foreign_device("toy-4").await;
    assert!(refusal(&mut foreign, NUMBERS).await.starts_with("That was"));
}

#[tokio::test]
async fn invalid_locale_is_explained_and_ignored() {
    let node = start().await;
    for (number, locale) in [
        json!("zh_CN"),
        json!(""),
        json!("x".repeat(2_000)),
        json!(7),
        json!({"language": "zh"}),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("toy-{number}");
        let (mut device, answer) = connect(&node, &id, json!({"locale": locale})).await;
        let notice = answer["locale_notice"].as_str().unwrap();
        let expected = "a language tag like de or zh-Hans-CN, of at most 35 characters";
        assert!(notice.contains(expected) && notice.len() < 256, "{notice}");
        assert!(refusal(&mut device, NUMBERS).await.starts_with("That was"));
    }
}

#[tokio::test]
async fn locale_of_the_device_reaches_the_worker() {
    let node = start().await;
    for (id, members, expected) in [
        ("toy-1", json!({"locale": "zh-CN"}), Some("zh-CN")),
        ("toy-2", json!({"locale": "zh_CN"}), None),
        ("toy-3", json!({}), None),
    ] {
        let (mut device, _) = connect(&node, id, members).await;
        device.send(Kind::Text, TASK, 0, b"hello").await;
        device.send(Kind::End, TASK, 1, b"").await;
        let turns = node.caller.claim_turns(1, TEST_TIMEOUT).await.unwrap();
        assert_eq!(turns[0].locale.as_deref(), expected, "{id}");
        node.caller.complete_turn(&turns[0].id).await.unwrap();
    }
}

#[tokio::test]
async fn missing_speech_provider_is_explained_in_the_language_of_the_device() {
    let node = start().await;
    let audio = json!({"in": {"codec": "pcm_s16le", "rate": 16_000}});
    let members = json!({"locale": "de", "client": {"audio": audio}});
    let (_device, answer) = connect(&node, "toy", members).await;
    let notice = answer["audio_notice"].as_str().unwrap();
    let expected = "Es ist keine Spracherkennung eingerichtet";
    assert!(notice.starts_with(expected), "{notice}");
}

#[tokio::test]
async fn answer_is_spoken_in_the_language_of_the_user_or_of_the_character() {
    let folder = tempfile::tempdir().unwrap();
    let (script, spoken) = (folder.path().join("speak.sh"), folder.path().join("spoken"));
    let program = format!(
        "echo \"$1 $(cat)\" >> {}; head -c 3200 /dev/zero",
        spoken.display()
    );
    fs::write(&script, program).unwrap();
    let heard = "cat > /dev/null; echo wie spät ist es";
    let fixture = Fixture::with(heard, |config| {
        config.speech.tts_kind = Some(ProviderKind::Command);
        config.speech.tts_endpoint = Some(format!("sh {} {{language}}", script.display()));
    })
    .await;
    let mut utterance = recording();
    utterance.extend(vec![0; 15 * FRAME_BYTES]);
    for (id, language, expected) in [("toy-1", None, "de "), ("toy-2", Some("fr"), "fr ")] {
        let (mut device, _) = fixture.device(id, &json!({})).await;
        speak(&mut device, 0, &utterance, &mut Vec::new()).await;
        let turn = fixture.turn().await;
        let style = SpeakingStyle {
            language: language.map(str::to_owned),
            ..SpeakingStyle::default()
        };
        if !style.is_default() {
            fixture.node.caller.send_style(&turn, &style);
        }
        let answer = format!("{id} antwortet.");
        fixture.node.caller.send_text(&turn, &answer);
        fixture.node.caller.finish_reply(&turn);
        let expected = format!("{expected}{answer}");
        let lines = async || fs::read_to_string(&spoken).unwrap_or_default();
        let lines = eventually(TEST_TIMEOUT, lines, |lines| lines.contains(&expected)).await;
        assert!(lines.contains(&expected), "{lines}, not {expected}");
    }
}
