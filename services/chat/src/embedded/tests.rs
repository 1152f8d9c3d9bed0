//! Sentences to several kinds of devices, and what becomes of them.

mod orders;

use serde_json::{Value, json};

use super::{Abilities, Ending, Language, Manner, Plan, Wording, plan, tell};

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required})
}

fn clock() -> Value {
    json!({
        "get_current_time": {"description": "Retrieve current date and time", "parameters": object(json!({
            "format": {"type": "string", "enum": ["simple", "detailed"], "description": "simple = short, detailed = full info"}}), &[])},
        "create_file": {"description": "Create a local file and write content", "parameters": object(json!({
            "filename": {"type": "string", "description": "Name of the file to create"},
            "content": {"type": "string", "description": "Text to write into the file"}}), &["filename", "content"])},
    })
}

fn clock_in_chinese() -> Value {
    json!({
        "get_current_time": {"description": "获取当前时间信息，包括日期和时间", "parameters": object(json!({
            "format": {"type": "string", "enum": ["simple", "detailed"], "description": "时间格式，simple为简单格式，detailed为详细格式"}}), &[])},
        "create_file": {"description": "在本地创建文件并写入内容", "parameters": object(json!({
            "filename": {"type": "string", "description": "文件名"},
            "content": {"type": "string", "description": "文件内容"}}), &["filename", "content"])},
    })
}

fn home() -> Value {
    json!({
        "turn_on_light": {"description": "Turn the light on"},
        "turn_off_light": {"description": "Turn the light off"},
        "set_brightness": {"description": "Set the brightness of the light in percent", "parameters": object(json!({
            "level": {"type": "integer", "minimum": 0, "maximum": 100}}), &["level"])},
        "set_color": {"description": "Change the color of the lamp", "parameters": object(json!({
            "color": {"type": "string", "enum": ["red", "green", "blue"]}}), &["color"])},
        "get_temperature": {"description": "Read the room temperature"},
    })
}

fn home_in_chinese() -> Value {
    json!({
        "灯控制": {"description": "控制灯的开关", "parameters": object(json!({"on": {"type": "boolean", "description": "是否打开"}}), &["on"])},
        "空调温度": {"description": "设置空调温度", "parameters": object(json!({"degrees": {"type": "number", "description": "温度"}}), &["degrees"])},
        "查询电量": {"description": "查询剩余电量"},
        "窗帘": {"description": "拉开或拉上窗帘", "parameters": object(json!({"action": {"type": "string", "enum": ["open", "close"]}}), &["action"])},
    })
}

fn robot() -> Value {
    json!({
        "move": {"description": "Move the robot", "parameters": object(json!({
            "direction": {"type": "string", "enum": ["forward", "backward", "left", "right"]},
            "distance": {"type": "number", "description": "metres"}}), &["direction"])},
        "stop": {"description": "Stop all motors"},
        "dance": {"description": "Perform a dance"},
        "battery_level": {"description": "Report battery percentage"},
        "takePhoto": {"description": "Take a photo with the camera"},
        "say": {"description": "Speak a sentence aloud", "parameters": object(json!({"text": {"type": "string"}}), &["text"])},
    })
}

fn player() -> Value {
    json!({
        "play_music": {"description": "播放音乐 play music", "parameters": object(json!({"song": {"type": "string", "description": "歌名"}}), &["song"])},
        "pause": {"description": "Pause the music 暂停播放"},
        "next_track": {"description": "Skip to the next song 下一首"},
        "set_volume": {"description": "Set volume 设置音量", "parameters": object(json!({"volume": {"type": "integer", "minimum": 0, "maximum": 100}}), &["volume"])},
        "get_volume": {"description": "Get the volume 查询音量"},
        "set_timer": {"description": "Start a countdown timer 倒计时", "parameters": object(json!({"seconds": {"type": "integer"}}), &["seconds"])},
        "weather": {"description": "Weather forecast 天气预报", "parameters": object(json!({"city": {"type": "string", "description": "城市"}}), &["city"])},
    })
}

/// A plan in a form that can stand in a table: `service {params}`, `service?missing`, or what else it is.
fn shown(services: &Value, text: &str) -> String {
    let abilities = Abilities::read(services.as_object().unwrap().clone());
    let said = Wording {
        text: text.to_owned(),
        ..Wording::default()
    };
    match plan(&abilities, &said).plan {
        Plan::Call {
            ability, params, ..
        } => format!("{} {}", ability.service, Value::Object(params)),
        Plan::Ask { ability, missing } => format!("{}?{}", ability.service, missing.join(",")),
        Plan::Choose(alike) => format!("choose of {}", alike.len()),
        Plan::ChooseDevice(alike) => format!("device of {}", alike.len()),
        Plan::Leave => "leave".to_owned(),
        Plan::Talk(talk) => format!("{talk:?}"),
        Plan::Unmatched => "-".to_owned(),
    }
}

fn check(services: &Value, table: &[(&str, &str)]) {
    let wrong: Vec<String> = table
        .iter()
        .filter_map(|(text, expected)| {
            let seen = shown(services, text);
            (seen != *expected).then(|| format!("{text}: {seen}, not {expected}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_clock_that_keeps_files() {
    let table = [
        ("What time is it?", "get_current_time {}"),
        ("what's the time", "get_current_time {}"),
        ("Tell me the date please", "get_current_time {}"),
        (
            "Give me the full time",
            "get_current_time {\"format\":\"detailed\"}",
        ),
        (
            "Create a file called notes.txt with the content hello world",
            "create_file {\"content\":\"hello world\",\"filename\":\"notes.txt\"}",
        ),
        (
            "Create a file \"a.txt\" with content \"milk, eggs\"",
            "create_file {\"content\":\"milk, eggs\",\"filename\":\"a.txt\"}",
        ),
        ("Create a file", "create_file?filename,content"),
        ("What is the capital of France?", "-"),
        ("Who are you?", "Who"),
        ("hello", "Greeting"),
        ("What can you do?", "Abilities"),
    ];
    check(&clock(), &table);
}

#[test]
fn the_same_in_chinese() {
    let table = [
        ("现在几点了?", "get_current_time {}"),
        ("现在几点了？", "get_current_time {}"),
        ("请告诉我现在的时间", "get_current_time {}"),
        ("今天几号", "get_current_time {}"),
        (
            "给我详细的时间",
            "get_current_time {\"format\":\"detailed\"}",
        ),
        ("创建一个文件", "create_file?filename,content"),
        (
            "新建文件“笔记.txt”，内容“你好”",
            "create_file {\"content\":\"你好\",\"filename\":\"笔记.txt\"}",
        ),
        ("法国的首都是哪里", "-"),
        ("你是谁？", "Who"),
        ("你好", "Greeting"),
        ("谢谢", "Thanks"),
        ("你能做什么？", "Abilities"),
    ];
    check(&clock_in_chinese(), &table);
    check(&clock(), &[("现在几点了?", "get_current_time {}")]);
    check(
        &clock_in_chinese(),
        &[("What time is it?", "get_current_time {}")],
    );
}

#[test]
fn a_home() {
    let table = [
        ("Turn on the light", "turn_on_light {}"),
        ("Please switch the lamp off", "turn_off_light {}"),
        ("turn the lights off!", "turn_off_light {}"),
        ("Don't turn on the light", "leave"),
        ("Set the brightness to 40", "set_brightness {\"level\":40}"),
        ("Set the brightness", "set_brightness?level"),
        (
            "Make the lamp's color blue",
            "set_color {\"color\":\"blue\"}",
        ),
        ("How warm is it?", "get_temperature {}"),
        ("What is the temperature?", "get_temperature {}"),
        // What is said besides is no talk where a service fits.
        ("Help me turn on the light", "turn_on_light {}"),
        ("Hello, turn on the light", "turn_on_light {}"),
        ("Help", "Abilities"),
        ("Help me", "Abilities"),
    ];
    check(&home(), &table);
    let only_on = json!({"turn_on_light": {"description": "Turn the light on"}});
    check(
        &only_on,
        &[
            ("Turn off the light", "-"),
            ("关灯", "-"),
            ("开灯", "turn_on_light {}"),
        ],
    );
}

#[test]
fn a_home_in_chinese() {
    let table = [
        ("打开灯", "灯控制 {\"on\":true}"),
        ("请把灯关掉", "灯控制 {\"on\":false}"),
        ("帮我开灯", "灯控制 {\"on\":true}"),
        ("不要开灯", "leave"),
        ("空调调到26度", "空调温度 {\"degrees\":26}"),
        ("空调温度设为二十三度", "空调温度 {\"degrees\":23}"),
        ("还剩多少电量？", "查询电量 {}"),
        ("拉上窗帘", "窗帘 {\"action\":\"close\"}"),
        ("打开窗帘", "窗帘 {\"action\":\"open\"}"),
    ];
    check(&home_in_chinese(), &table);
}

#[test]
fn a_robot() {
    let table = [
        (
            "Move forward 2.5 meters",
            "move {\"direction\":\"forward\",\"distance\":2.5}",
        ),
        ("go left", "move {\"direction\":\"left\"}"),
        ("Move!", "move?direction"),
        ("stop", "stop {}"),
        (
            "向前走三米",
            "move {\"direction\":\"forward\",\"distance\":3}",
        ),
        ("停下", "stop {}"),
        ("跳个舞吧，跳舞", "dance {}"),
        ("Could you dance for me?", "dance {}"),
        ("How much battery is left?", "battery_level {}"),
        ("电池还有多少电", "battery_level {}"),
        ("Take a picture", "takePhoto {}"),
        ("拍照", "takePhoto {}"),
        (
            "Say hello to everyone",
            "say {\"text\":\"hello to everyone\"}",
        ),
        ("说“早上好”", "say {\"text\":\"早上好\"}"),
    ];
    check(&robot(), &table);
}

#[test]
fn a_player() {
    let table = [
        ("Play \"Yesterday\"", "play_music {\"song\":\"Yesterday\"}"),
        ("play some jazz music", "play_music {\"song\":\"jazz\"}"),
        ("播放周杰伦的歌", "play_music {\"song\":\"周杰伦\"}"),
        ("播放音乐", "play_music?song"),
        ("下一首", "next_track {}"),
        ("暂停", "pause {}"),
        ("Set the volume to 30 percent", "set_volume {\"volume\":30}"),
        ("把音量调到五十", "set_volume {\"volume\":50}"),
        ("What is the volume?", "get_volume {}"),
        ("音量是多少？", "get_volume {}"),
        ("Start a timer for 5 minutes", "set_timer {\"seconds\":300}"),
        ("倒计时十分钟", "set_timer {\"seconds\":600}"),
        (
            "What's the weather in Paris?",
            "weather {\"city\":\"Paris\"}",
        ),
        ("北京天气怎么样？", "weather {\"city\":\"北京\"}"),
    ];
    check(&player(), &table);
}

#[test]
fn results_are_told_as_they_were_asked_for() {
    fn told(language: Language, asked: bool, topic: Option<&str>, data: Value, expected: &str) {
        let manner = Manner {
            asked,
            yes_or_no: asked,
            topic: topic.map(str::to_owned),
        };
        assert_eq!(tell(language, &manner, &Ending::Done(data)), expected);
    }
    use Language::{Chinese, English};
    told(English, true, Some("time"), json!("09:15"), "It is 09:15.");
    told(English, false, None, json!("lit"), "Done: lit.");
    told(English, false, None, Value::Null, "Done.");
    told(English, true, None, json!(true), "Yes.");
    told(
        English,
        true,
        None,
        json!({"room_a": 21.5}),
        "Here it is: room a: 21.5.",
    );
    told(Chinese, true, Some("几点"), json!("09:15"), "现在是09:15。");
    told(Chinese, true, Some("电量"), json!(80), "电量是80。");
    told(Chinese, false, None, Value::Null, "好了。");
    let manner = Manner {
        asked: true,
        yes_or_no: false,
        topic: None,
    };
    assert_eq!(
        tell(English, &manner, &Ending::Failed("no signal".into())),
        "That did not work: no signal."
    );
    assert_eq!(
        tell(Chinese, &manner, &Ending::Failed("没信号".into())),
        "没有成功：没信号。"
    );
}

#[test]
fn numbers_are_given_whole() {
    let brightness = |level: &str| format!("set_brightness {{\"level\":{level}}}");
    let timer = |seconds: &str| format!("set_timer {{\"seconds\":{seconds}}}");
    let table = [
        ("Set the brightness to twenty five", brightness("25")),
        (
            "Set the brightness to twenty-five percent",
            brightness("25"),
        ),
        ("Set the brightness to sixteen", brightness("16")),
        ("Set the brightness to one hundred", brightness("100")),
        ("Set the brightness to two hundred", brightness("200")),
        ("Set the brightness to one", brightness("1")),
        ("Set the brightness to minus five", brightness("-5")),
        (
            "Set the brightness of this one",
            "set_brightness?level".to_owned(),
        ),
    ];
    let table: Vec<_> = table.iter().map(|(said, call)| (*said, &**call)).collect();
    check(&home(), &table);
    let table = [
        ("Start a timer for one minute", timer("60")),
        ("Start a timer for two and a half minutes", timer("150")),
        ("Start a timer for ninety seconds", timer("90")),
        ("Start a timer for 1,200 seconds", timer("1200")),
    ];
    let table: Vec<_> = table.iter().map(|(said, call)| (*said, &**call)).collect();
    check(&player(), &table);
    let freezer = json!({"set_freezer": {"description": "设置冰柜温度 Set the freezer temperature", "parameters": object(json!({
        "degrees": {"type": "number", "description": "温度 temperature"}}), &["degrees"])}});
    let colder = "set_freezer {\"degrees\":-18}";
    let table = [
        ("冰柜温度设为零下十八度", colder),
        ("Set the freezer temperature to minus eighteen", colder),
        ("Set the freezer temperature to -18", colder),
    ];
    check(&freezer, &table);
    // Which one is meant is no number where none is needed.
    let lamp = json!({"turn_on_light": {"description": "Turn the light on", "parameters": object(json!({
        "level": {"type": "integer"}}), &[])}});
    let table = [
        ("Turn on the light, one more time", "turn_on_light {}"),
        (
            "Turn on the light at level two",
            "turn_on_light {\"level\":2}",
        ),
    ];
    check(&lamp, &table);
}
