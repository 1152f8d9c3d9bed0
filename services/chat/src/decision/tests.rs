//! Which device is meant, and what becomes of questions that are asked back.

use serde_json::json;

use super::*;

fn device(id: &str) -> DeviceKey {
    DeviceKey {
        org: "org_0000000000000000000000000000abcd".parse().unwrap(),
        device: id.parse().unwrap(),
    }
}

/// What an own reading of the same services can do; each has its words in an order of its own.
fn lamp() -> Abilities {
    let services = json!({
        "set_brightness": {"description": "Set the brightness of the reading lamp in the room, in percent of the most", "parameters":
            {"type": "object", "required": ["level"], "properties": {"level": {"type": "integer"}}}},
        "turn_on_light": {"description": "Turn the light of the lamp on"},
        "turn_off_light": {"description": "Turn the light of the lamp off"},
    });
    Abilities::read(services.as_object().unwrap().clone())
}

/// Which devices are meant: the one that is called for, or those that are asked about.
fn meant(ids: &[&str], text: &str) -> Vec<String> {
    let devices: Vec<_> = ids.iter().map(|id| device(id)).collect();
    let abilities: Vec<_> = ids.iter().map(|_| lamp()).collect();
    let offers: Vec<_> = devices.iter().zip(&abilities).collect();
    let decision = decide(&offers, text, None);
    let meant = match decision.plan {
        Plan::Call { .. } => decision.device.into_iter().collect(),
        Plan::ChooseDevice(alike) => alike,
        other => panic!("{text}: {other:?}"),
    };
    let mut meant: Vec<_> = meant
        .into_iter()
        .map(|key| key.device.to_string())
        .collect();
    meant.sort();
    meant
}

#[test]
fn of_two_devices_that_are_alike_none_is_taken_by_chance() {
    let text = "Please set the brightness of the reading lamp in this room to 40 percent";
    for _ in 0..100 {
        assert_eq!(meant(&["hall", "kitchen"], text), ["hall", "kitchen"]);
    }
}

#[test]
fn a_device_is_named_by_its_whole_id() {
    let ids = ["lamp-1", "lamp-10", "lamp", "Hall"];
    let check = |text: &str, expected: &[&str]| assert_eq!(meant(&ids, text), expected, "{text}");
    check("Turn on the light of lamp-10", &["lamp-10"]);
    check("Turn on the light of lamp-1.", &["lamp-1"]);
    check("Turn on the light in the HALL", &["Hall"]);
    check(
        "Turn on the light of lamp-1 and lamp-10",
        &["lamp-1", "lamp-10"],
    );
    check("打开lamp-10的灯", &["lamp-10"]);
    // Of an id that nobody has, none is part.
    let mut all = ids.to_vec();
    all.sort_unstable();
    check("Turn on the light of lamp-100", &all);
    check("Turn on the light in the hallway", &all);
}

/// A call or what else becomes of a sentence, behind what was asked back before.
fn follows(services: &serde_json::Value, before: Option<&str>, text: &str) -> String {
    let device = device("lamp-2");
    let abilities = Abilities::read(services.as_object().unwrap().clone());
    let offers = [(&device, &abilities)];
    match decide(&offers, text, before).plan {
        Plan::Call {
            ability, params, ..
        } => format!("{} {}", ability.service, serde_json::Value::Object(params)),
        Plan::Ask { ability, missing } => format!("{}?{}", ability.service, missing.join(",")),
        Plan::Leave => "leave".to_owned(),
        Plan::Unmatched => "-".to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn the_digits_of_an_id_are_no_number() {
    let abilities = lamp();
    let (one, other) = (device("lamp-1"), device("lamp-2"));
    let check = |ids: &[&DeviceKey], text: &str, expected: serde_json::Value| {
        let offers: Vec<_> = ids.iter().map(|id| (*id, &abilities)).collect();
        let Plan::Call { params, .. } = decide(&offers, text, None).plan else {
            panic!("{text}");
        };
        assert_eq!(serde_json::Value::Object(params), expected, "{text}");
    };
    let both = [&one, &other];
    check(
        &both,
        "Set the brightness of lamp-2 to 40",
        json!({"level": 40}),
    );
    check(
        &both,
        "Set the brightness to 40 on lamp-2",
        json!({"level": 40}),
    );
    check(
        &both,
        "lamp-2的亮度 brightness 设置为40",
        json!({"level": 40}),
    );
    check(
        &[&other],
        "Set the brightness of lamp-2 to 40",
        json!({"level": 40}),
    );
}

#[test]
fn a_question_back_can_be_declined() {
    let messages = json!({"send_message": {"description": "Send a message 发送消息", "parameters":
        {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}}});
    let check = |before: &str, text: &str, expected: &str| {
        assert_eq!(follows(&messages, Some(before), text), expected, "{text}");
    };
    for no in [
        "forget it",
        "Forget it, please",
        "never mind",
        "no",
        "No, thanks",
        "cancel",
        "stop",
        "I don't know yet",
        "not now",
        "算了",
        "算了吧",
        "不用了",
        "取消",
        "不要了",
        "我不知道",
        "取消发送",
    ] {
        check("Send a message", no, "leave");
        check("发送消息", no, "leave");
    }
    check("Send a message", "I do not want to", "leave");
    check("Send a message", "I do not see why", "-");
    check("Send a message", "What do you mean?", "-");
    check("发送消息", "我还没想好怎么说", "-");
    check(
        "Send a message",
        "hurry",
        "send_message {\"text\":\"hurry\"}",
    );
    check(
        "Send a message",
        "“I do not know”",
        "send_message {\"text\":\"I do not know\"}",
    );
    check("发送消息", "晚饭好了", "send_message {\"text\":\"晚饭好\"}");
}

#[test]
fn an_answer_is_taken_for_what_was_asked_back() {
    let heater = json!({"set_temperature": {"description": "Set the temperature 设置温度", "parameters":
        {"type": "object", "required": ["degrees"], "properties": {"degrees": {"type": "number"}}}}});
    let check = |before: &str, text: &str| {
        let seen = follows(&heater, Some(before), text);
        assert_eq!(seen, "set_temperature {\"degrees\":26}", "{text}");
    };
    check("Raise the temperature by 2 degrees", "26");
    check("温度调高两度", "26度");
    let fan = json!({"fan": {"description": "Control the fan", "parameters":
        {"type": "object", "required": ["action"], "properties": {"action": {"type": "string", "enum": ["run", "stop"]}}}}});
    assert_eq!(
        follows(&fan, Some("Control the fan"), "stop"),
        "fan {\"action\":\"stop\"}"
    );
    let robot = json!({"stop": {"description": "Stop all motors"}, "move": {"description": "Move the robot", "parameters":
        {"type": "object", "required": ["direction"], "properties": {"direction": {"type": "string", "enum": ["left", "right"]}}}}});
    assert_eq!(follows(&robot, Some("Move"), "stop"), "stop {}");
}
