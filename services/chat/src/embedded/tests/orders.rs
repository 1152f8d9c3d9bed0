//! What is an order and what is not, and values that were said or only seem to be.
//! Never: a service called for what nobody asked to be done.

use serde_json::{Value, json};

use super::{check, home, home_in_chinese, object, player, robot};

fn house() -> Value {
    json!({
        "unlock_door": {"description": "Unlock the front door 打开门锁"},
        "open_door": {"description": "Open the door 开门"},
        "turn_on_light": {"description": "Turn the light on 开灯"},
        "turn_off_light": {"description": "Turn the light off 关灯"},
        "takePhoto": {"description": "Take a photo with the camera 拍照"},
        "dance": {"description": "Perform a dance 跳舞"},
        "send_message": {"description": "Send a message 发送消息", "parameters": object(json!({"text": {"type": "string"}}), &["text"])},
    })
}

#[test]
fn a_question_is_no_order() {
    let nothing = [
        "Is the front door unlocked?",
        "Who unlocked the door?",
        "Is the light on?",
        "Is the light on",
        "Have you taken a photo?",
        "Did you dance?",
        "Hey Bello, is the light on?",
        "The light is on?",
        "Should I turn on the light?",
        "Can you tell me whether the light is on",
        "Do you know who opened the door?",
        "Bello, have you sent the message?",
        "If it gets dark, turn on the light",
        "Turn on the light when I come home",
        "灯开着吗？",
        "灯关了没有？",
        "门开着吗？",
        "门开没开",
        "请问灯开着吗",
        "谁开了门？",
        "是不是开灯了",
        "灯是不是开着",
        "你拍照了吗",
        "帮我看看灯开着吗",
        "如果天黑了就开灯",
        "The light is on.",
        "Somebody unlocked the door",
        "I turned on the light",
        "Turn on the light, right?",
        "Check the door is unlocked",
        "我开灯了",
        "灯开了",
    ];
    check(&house(), &nothing.map(|text| (text, "-")));
    check(
        &home_in_chinese(),
        &[("灯开着吗？", "-"), ("灯关了没有？", "-")],
    );
    let table = [
        ("Can you turn on the light?", "turn_on_light {}"),
        ("Could you please unlock the door?", "unlock_door {}"),
        ("Hello, can you dance?", "dance {}"),
        ("Turn on the light, please?", "turn_on_light {}"),
        ("Do turn on the light", "turn_on_light {}"),
        ("Turn on the light if you can", "turn_on_light {}"),
        ("How are you? Turn on the light", "turn_on_light {}"),
        ("能不能开灯？", "turn_on_light {}"),
        ("可以开灯吗？", "turn_on_light {}"),
        ("你能把灯关了吗", "turn_off_light {}"),
        ("开灯好吗？", "turn_on_light {}"),
        ("麻烦你开灯", "turn_on_light {}"),
        ("开灯", "turn_on_light {}"),
        ("開燈", "turn_on_light {}"),
        (
            "Send a message: are you home?",
            "send_message {\"text\":\"are you home?\"}",
        ),
        (
            "Send a message: I will not come",
            "send_message {\"text\":\"I will not come\"}",
        ),
        (
            "Send a message I will not come",
            "send_message {\"text\":\"I will not come\"}",
        ),
        ("发送消息：我不来了", "send_message {\"text\":\"我不来了\"}"),
    ];
    check(&house(), &table);
}

#[test]
fn what_tells_is_preferred_to_what_does() {
    let mut house = house();
    house["get_lock_state"] =
        json!({"description": "Get the state of the door's lock 查询门锁状态"});
    house["light_status"] = json!({"description": "Tells about the light 灯的状态"});
    let table = [
        ("Is the front door unlocked?", "get_lock_state {}"),
        ("Is the light on?", "light_status {}"),
        ("Is the light off?", "light_status {}"),
        ("灯开着吗？", "light_status {}"),
        ("灯关了没有？", "light_status {}"),
        ("Turn on the light", "turn_on_light {}"),
        ("关灯", "turn_off_light {}"),
    ];
    check(&house, &table);
}

#[test]
fn what_is_forbidden_is_left() {
    let left = [
        "Don't turn on the light",
        "No, please don't turn on the light",
        "I said don't turn on the light",
        "You shouldn't turn on the light",
        "Don't you dare turn on the light",
        "Can you not turn on the light",
        "Could you please not turn on the light?",
        "There is no need to turn on the light",
        "Never turn on the light",
        "Forget to turn on the light",
        "Turn on the light, no, don't",
        "Turn on the light. Never mind",
        "Turn on the light, but not now",
        "千万别开灯",
        "你别开灯",
        "现在别开灯",
        "不用开灯",
        "不能开灯",
        "不必开灯",
        "禁止开灯",
        "我不想开灯",
        "能不能别开灯",
        "別開燈",
        "请勿开灯",
        "别忘了不要开灯",
        "Please stop unlocking the door",
        "Unlock no doors",
        "灯不要打开",
        "开灯，算了",
        "开灯，不用了",
    ];
    check(&house(), &left.map(|text| (text, "leave")));
    check(&home(), &[("別開燈", "leave"), ("千万别开灯", "leave")]);
    let table = [
        ("Don't forget to turn on the light", "turn_on_light {}"),
        (
            "Please do not forget to turn on the light",
            "turn_on_light {}",
        ),
        ("Don't hesitate to turn on the light", "turn_on_light {}"),
        ("别忘了开灯", "turn_on_light {}"),
        ("不要忘记开灯", "turn_on_light {}"),
        ("别忘記開燈", "turn_on_light {}"),
        ("把别的灯打开", "turn_on_light {}"),
        ("No, turn on the light", "turn_on_light {}"),
        ("Don't dance, turn on the light", "turn_on_light {}"),
        ("Don't turn on the light, the door is open", "leave"),
        ("不要跳舞，开灯", "turn_on_light {}"),
        ("没关系，开灯", "turn_on_light {}"),
        (
            "Send a message: \"don't open the door\"",
            "send_message {\"text\":\"don't open the door\"}",
        ),
    ];
    check(&house(), &table);
}

fn one_of(service: &str, description: &str, values: Value) -> Value {
    let parameters = object(
        json!({"which": {"type": "string", "enum": values}}),
        &["which"],
    );
    json!({service: {"description": description, "parameters": parameters}})
}

#[test]
fn values_that_nobody_said_are_asked_for() {
    let doors = one_of(
        "unlock",
        "Unlock a door 开锁",
        json!(["front door", "back door"]),
    );
    let table = [
        ("Unlock the door", "unlock?which"),
        ("Unlock the front door", "unlock {\"which\":\"front door\"}"),
        ("Unlock the back one", "unlock {\"which\":\"back door\"}"),
        ("Unlock the front door and the back door", "unlock?which"),
        (
            "Unlock the front door, not the back door",
            "unlock {\"which\":\"front door\"}",
        ),
        ("把门解锁", "unlock?which"),
    ];
    check(&doors, &table);
    let lights = one_of(
        "light",
        "Turn a light on",
        json!(["kitchen light", "bedroom light"]),
    );
    let table = [
        ("Turn on the light", "light?which"),
        (
            "Turn on the kitchen light",
            "light {\"which\":\"kitchen light\"}",
        ),
        ("打开卧室的灯", "light {\"which\":\"bedroom light\"}"),
    ];
    check(&lights, &table);
    let modes = one_of("mode", "设置空调模式", json!(["制冷模式", "制热模式"]));
    let table = [
        ("设置空调模式", "mode?which"),
        ("空调设置为制热模式", "mode {\"which\":\"制热模式\"}"),
        ("空调模式设置为制冷", "mode {\"which\":\"制冷模式\"}"),
        (
            "空调模式设置为制冷不要制热",
            "mode {\"which\":\"制冷模式\"}",
        ),
    ];
    check(&modes, &table);
}

#[test]
fn a_value_is_said_whole_or_not_at_all() {
    let rooms = one_of("clean", "Clean a room", json!(["living room", "kitchen"]));
    let table = [
        ("Clean in the room", "clean?which"),
        ("Clean the living room", "clean {\"which\":\"living room\"}"),
        ("Clean the kitchen", "clean {\"which\":\"kitchen\"}"),
    ];
    check(&rooms, &table);
    let reds = one_of(
        "paint",
        "Set the color of the lamp",
        json!(["red", "dark red", "blue"]),
    );
    let table = [
        (
            "Set the lamp's color to dark red",
            "paint {\"which\":\"dark red\"}",
        ),
        ("Set the lamp's color to red", "paint {\"which\":\"red\"}"),
        (
            "Set the lamp's color to not red but blue",
            "paint {\"which\":\"blue\"}",
        ),
        ("Set the lamp's color to red or blue", "paint?which"),
    ];
    check(&reds, &table);
    let table = [
        ("Don't go left, go right", "move {\"direction\":\"right\"}"),
        ("不要向左走，向右走", "move {\"direction\":\"right\"}"),
        ("Go left and right", "move?direction"),
    ];
    check(&robot(), &table);
}

#[test]
fn a_flag_needs_a_word_for_on_or_off() {
    let flags = |required: &[&str]| json!({"play_music": {"description": "Play music 播放音乐", "parameters": object(json!({"shuffle": {"type": "boolean"}}), required)}});
    let table = [
        ("Play music", "play_music {}"),
        (
            "Play music without shuffle",
            "play_music {\"shuffle\":false}",
        ),
        ("Play music with shuffle", "play_music {\"shuffle\":true}"),
        ("Play music, shuffle off", "play_music {\"shuffle\":false}"),
    ];
    check(&flags(&[]), &table);
    let table = [
        ("Play music", "play_music?shuffle"),
        ("Play music shuffle", "play_music?shuffle"),
        ("Play music, shuffle on", "play_music {\"shuffle\":true}"),
    ];
    check(&flags(&["shuffle"]), &table);
    check(
        &home_in_chinese(),
        &[
            ("打开灯的开关", "灯控制 {\"on\":true}"),
            ("控制灯", "灯控制?on"),
        ],
    );
}

#[test]
fn a_change_is_not_what_it_is_to_be() {
    let table = [
        ("空调调高两度", "空调温度?degrees"),
        ("空调温度降低2度", "空调温度?degrees"),
        ("空调温度调高到26度", "空调温度 {\"degrees\":26}"),
        ("空调温度设为二十三点五度", "空调温度 {\"degrees\":23.5}"),
        ("空调温度设为二十三度半", "空调温度 {\"degrees\":23.5}"),
        ("空调温度设为二十多度", "空调温度?degrees"),
        ("空调温度设为三万", "空调温度 {\"degrees\":30000}"),
        ("空调温度设为3万", "空调温度 {\"degrees\":30000}"),
    ];
    check(&home_in_chinese(), &table);
    let table = [
        ("Turn the volume up by 10", "set_volume?volume"),
        ("Turn the volume up to 10", "set_volume {\"volume\":10}"),
        ("Set the volume 10 louder", "set_volume?volume"),
        ("Set the volume to five six", "set_volume?volume"),
        ("Set the volume to 5-10", "set_volume?volume"),
        (
            "Set the volume of speaker-7 to 30",
            "set_volume {\"volume\":30}",
        ),
        ("Set the volume to 2 dozen", "set_volume?volume"),
        ("音量设置为两三", "set_volume?volume"),
    ];
    check(&player(), &table);
    let heater = json!({"set_temperature": {"description": "Set the temperature", "parameters": object(json!({"degrees": {"type": "number"}}), &["degrees"])}});
    let table = [
        (
            "Raise the temperature by 2 degrees",
            "set_temperature?degrees",
        ),
        (
            "Raise the temperature to 22 degrees",
            "set_temperature {\"degrees\":22}",
        ),
    ];
    check(&heater, &table);
    let louder = json!({"volume_up": {"description": "Turn the volume up", "parameters": object(json!({"step": {"type": "integer"}}), &["step"])}});
    check(
        &louder,
        &[("Turn the volume up by 10", "volume_up {\"step\":10}")],
    );
}

#[test]
fn times_are_added_up() {
    let timer = |seconds: &str| format!("set_timer {{\"seconds\":{seconds}}}");
    let table = [
        ("Set a timer for 1 minute 30 seconds", timer("90")),
        ("Set a timer for 1 hour 30 minutes", timer("5400")),
        ("Set a timer for one hour and thirty minutes", timer("5400")),
        ("Set a timer for an hour and a half", timer("5400")),
        ("Set a timer for half an hour", timer("1800")),
        (
            "Set a timer for 1 hour, 2 minutes and 3 seconds",
            timer("3723"),
        ),
        ("倒计时一小时三十分钟", timer("5400")),
        ("倒计时两个半小时", timer("9000")),
        ("倒计时一个半小时", timer("5400")),
        ("倒计时半个小时", timer("1800")),
        ("倒计时一分三十秒", timer("90")),
        (
            "Set a timer for 1 minute 30",
            "set_timer?seconds".to_owned(),
        ),
        (
            "Set a timer for three quarters of an hour",
            "set_timer?seconds".to_owned(),
        ),
        ("倒计时一分三十", "set_timer?seconds".to_owned()),
        ("倒计时两三分钟", "set_timer?seconds".to_owned()),
    ];
    let table: Vec<_> = table.iter().map(|(said, call)| (*said, &**call)).collect();
    check(&player(), &table);
}
