//! Sentences in English and Chinese, and the plan for each.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use serde_json::{Value, json};
use switchboard_rule_responder::{Offer, Plan, Service, Target, plan};

fn services(definitions: &Value) -> Vec<Service> {
    let definitions = definitions.as_object().unwrap().iter();
    definitions
        .map(|(name, definition)| Service::read(name, definition))
        .collect()
}

fn object(required: &[&str], properties: &Value) -> Value {
    json!({"type": "object", "required": required, "properties": properties})
}

/// A plan as text: `service {params}`, `service?missing`, `service!` when it is no command.
fn render(plan: &Plan<'_>) -> String {
    match plan {
        Plan::Call(target, params) => {
            format!("{} {}", target.service.name, Value::Object(params.clone()))
        }
        Plan::Missing(target, parameters) => {
            format!("{}?{}", target.service.name, parameters.join(","))
        }
        Plan::NoCommand(target) => format!("{}!", target.service.name),
        Plan::Ambiguous(targets) => {
            let name = |target: &Target<'_>| format!("{}/{}", target.device, target.service.name);
            targets.iter().map(name).collect::<Vec<_>>().join(" or ")
        }
        Plan::Talk(talk) => format!("{talk:?}"),
        Plan::Nothing => "-".to_owned(),
    }
}

fn check(services: &[Service], table: &[(&str, &str)]) {
    let offers = [Offer {
        device: "toy-1",
        services,
    }];
    let wrong: Vec<String> = table
        .iter()
        .map(|(text, expected)| (text, render(&plan(&offers, text)), expected))
        .filter(|(_, seen, expected)| seen != *expected)
        .map(|(text, seen, expected)| format!("{text}: {seen}, not {expected}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The services of the supplement, in one language.
fn supplement(time: &str, file: &str, name: &str, content: &str) -> Vec<Service> {
    let format = json!({"format": {"type": "string", "enum": ["simple", "detailed"]}});
    let parts = json!({
        "filename": {"type": "string", "description": name},
        "content": {"type": "string", "description": content},
    });
    services(&json!({
        "get_current_time": {"description": time, "parameters": object(&[], &format)},
        "create_file": {"description": file, "parameters": object(&["filename", "content"], &parts)},
    }))
}

#[test]
fn supplement_dialogue_calls_the_service() {
    let english = supplement(
        "Retrieve current date and time",
        "Create a local file and write content",
        "Name of the file to create",
        "Text to write into the file",
    );
    let chinese = supplement(
        "获取当前时间信息，包括日期和时间",
        "在本地创建文件并写入内容",
        "文件名",
        "文件内容",
    );
    let both = [
        ("What time is it?", "get_current_time {}"),
        ("what's the time", "get_current_time {}"),
        ("Tell me the time please", "get_current_time {}"),
        ("Get the current time", "get_current_time {}"),
        ("get_current_time", "get_current_time {}"),
        (
            "Give me the detailed time",
            r#"get_current_time {"format":"detailed"}"#,
        ),
        ("现在几点了?", "get_current_time {}"),
        ("现在几点了？", "get_current_time {}"),
        ("请告诉我现在的时间", "get_current_time {}"),
        ("What is the time in Paris, France?", "-"),
        ("What is the capital of France?", "-"),
        ("法国的首都是哪里", "-"),
        ("Who are you?", "Identity"),
        ("你是谁？", "Identity"),
        ("Hello!", "Greeting"),
        ("你好", "Greeting"),
        ("Thank you.", "Thanks"),
        ("谢谢", "Thanks"),
        ("What can you do?", "Abilities"),
        ("你能做什么？", "Abilities"),
    ];
    check(&english, &both);
    check(&chinese, &both);
    let table = [
        (
            "Create a file \"a.txt\" with content \"milk, eggs\"",
            r#"create_file {"content":"milk, eggs","filename":"a.txt"}"#,
        ),
        (
            "Create a file with the content “milk” and the filename “a.txt”",
            r#"create_file {"content":"milk","filename":"a.txt"}"#,
        ),
        ("Create a file", "create_file?content,filename"),
        ("Create a file \"a.txt\"", "create_file?content"),
        ("Create a file called a.txt", "create_file?content,filename"),
    ];
    check(&english, &table);
    let table = [
        (
            "新建文件“笔记.txt”，内容“你好”",
            r#"create_file {"content":"你好","filename":"笔记.txt"}"#,
        ),
        (
            "创建文件，内容为“你好”，文件名为“笔记.txt”",
            r#"create_file {"content":"你好","filename":"笔记.txt"}"#,
        ),
        ("创建文件", "create_file?content,filename"),
        ("今天几号", "get_current_time {}"),
    ];
    check(&chinese, &table);
}

/// A home with services in English names and descriptions of both languages.
fn home() -> Vec<Service> {
    let level = json!({"level": {"type": "integer", "minimum": 0, "maximum": 100}});
    let color = json!({"color": {"type": "string", "enum": ["red", "dark red", "blue"]}});
    let degrees = json!({"degrees": {"type": "number", "description": "温度"}});
    let seconds = json!({"seconds": {"type": "integer"}});
    services(&json!({
        "turn_on_light": {"description": "Turn the light on 开灯"},
        "turn_off_light": {"description": "Turn the light off 关灯"},
        "unlock_door": {"description": "Unlock the front door 打开门锁"},
        "set_brightness": {"description": "Set the brightness of the light in percent", "parameters": object(&["level"], &level)},
        "set_color": {"description": "Change the color of the lamp", "parameters": object(&["color"], &color)},
        "set_heater": {"description": "Set the temperature of the heater 设置空调温度", "parameters": object(&["degrees"], &degrees)},
        "set_timer": {"description": "Start a countdown timer 倒计时", "parameters": object(&["seconds"], &seconds)},
        "get_temperature": {"description": "Read the room temperature"},
        "battery_level": {"description": "Battery percentage 剩余电量", "annotations": {"readOnlyHint": true}},
        "dance": {"description": "Perform a dance until told to stop 跳舞"},
        "takePhoto": {"description": "Take a photo with the camera 拍照"},
        "说话": {"description": "Say a sentence aloud", "parameters": object(&["text"], &json!({"text": {"type": "string"}}))},
        "窗帘": {"description": "拉开或拉上窗帘", "parameters": object(&["action"], &json!({"action": {"type": "string", "enum": ["open", "close"]}}))},
        "风扇控制": {"description": "控制风扇的开关", "parameters": object(&["on"], &json!({"on": {"type": "boolean", "description": "是否打开"}}))},
    }))
}

#[test]
fn plain_command_calls_the_service() {
    let table = [
        ("Turn on the light", "turn_on_light {}"),
        ("Please switch the lamp off", "turn_off_light {}"),
        ("turn the lights off!", "turn_off_light {}"),
        ("Hello, turn on the light", "turn_on_light {}"),
        ("Set the brightness to 40", r#"set_brightness {"level":40}"#),
        (
            "Set the brightness to 40 percent",
            r#"set_brightness {"level":40}"#,
        ),
        (
            "Set the brightness to 40%",
            r#"set_brightness {"level":40}"#,
        ),
        (
            "Set the temperature to -18",
            r#"set_heater {"degrees":-18}"#,
        ),
        (
            "Set the temperature to 22.5 degrees",
            r#"set_heater {"degrees":22.5}"#,
        ),
        (
            "Change the color to dark red",
            r#"set_color {"color":"dark red"}"#,
        ),
        (
            "Set a timer for 1,200 seconds",
            r#"set_timer {"seconds":1200}"#,
        ),
        ("Dance!", "dance {}"),
        ("Take a picture", "takePhoto {}"),
        (
            "Say \"hello to everyone\"",
            r#"说话 {"text":"hello to everyone"}"#,
        ),
        ("打开灯", "turn_on_light {}"),
        ("请把灯关掉", "turn_off_light {}"),
        ("帮我开灯", "turn_on_light {}"),
        ("開燈", "turn_on_light {}"),
        ("空调调到26度", r#"set_heater {"degrees":26}"#),
        ("空调调到-5度", r#"set_heater {"degrees":-5}"#),
        ("空调温度设为二十三度", r#"set_heater {"degrees":23}"#),
        ("空调温度设为零下十八度", r#"set_heater {"degrees":-18}"#),
        ("倒计时一千零二十秒", r#"set_timer {"seconds":1020}"#),
        ("倒计时三百秒", r#"set_timer {"seconds":300}"#),
        ("打开窗帘", r#"窗帘 {"action":"open"}"#),
        ("拉上窗帘", r#"窗帘 {"action":"close"}"#),
        ("打开风扇", r#"风扇控制 {"on":true}"#),
        ("关掉风扇的开关", r#"风扇控制 {"on":false}"#),
        ("拍照", "takePhoto {}"),
        ("跳舞吧", "dance {}"),
        ("说“现在几点？不要”", r#"说话 {"text":"现在几点？不要"}"#),
        ("说“早上好”", r#"说话 {"text":"早上好"}"#),
    ];
    check(&home(), &table);
}

#[test]
fn read_only_service_answers_questions() {
    let table = [
        ("How warm is it?", "get_temperature {}"),
        ("What is the temperature?", "get_temperature {}"),
        ("How much battery is left?", "battery_level {}"),
        ("Is the battery full?", "-"),
        ("还剩多少电量？", "battery_level {}"),
        ("温度是多少？", "get_temperature {}"),
    ];
    check(&home(), &table);
}

#[test]
fn missing_or_unclear_value_does_not_act() {
    let table = [
        ("Set the brightness", "set_brightness?level"),
        ("Set the brightness of this one", "set_brightness?level"),
        ("Set the brightness to 5 6", "set_brightness?level"),
        ("Set the brightness to 5-10", "set_brightness?level"),
        ("Set the brightness to 2.5", "set_brightness?level"),
        ("Set the brightness to 2 dozen", "set_brightness!"),
        ("Set the color to red or blue", "-"),
        ("Change the color to green", "set_color?color"),
        ("Set a timer for 5 minutes", "set_timer?seconds"),
        ("Say hello", "说话?text"),
        ("空调温度设为二十多度", "set_heater!"),
        ("空调温度设为三万", "set_heater!"),
        ("空调温度设为二百五", "set_heater!"),
        ("空调温度设为三十五百", "set_heater!"),
        ("空调调高两度", "-"),
        ("倒计时两三秒", "set_timer!"),
        ("控制风扇", "风扇控制!"),
    ];
    check(&home(), &table);
}

/// Sentences that must not call a service.
const NO_COMMANDS: &[&str] = &[
    // Negations.
    "Don't turn on the light",
    "Do not turn on the light",
    "Please never turn on the light",
    "I said don't turn on the light",
    "Turn on the light, no, don't",
    "Turn on the light. Never mind",
    "There is no need to turn on the light",
    "Forget to turn on the light",
    "Don't dance, turn on the light",
    "Unlock no doors",
    "Stop the dance",
    "千万别开灯",
    "不要开灯",
    "不用开灯",
    "能不能别开灯",
    "請勿開燈",
    "我不想开灯",
    "开灯，算了",
    // Questions.
    "Is the light on?",
    "Is the front door unlocked",
    "Turn on the light?",
    "Could you turn on the light?",
    "Can you unlock the door",
    "Should I turn on the light?",
    "Who unlocked the door?",
    "Why did you turn on the light",
    "灯开着吗？",
    "能不能开灯",
    "可以开灯吗",
    "谁开了门锁",
    "要不要跳舞",
    // Conditions.
    "If it gets dark, turn on the light",
    "Turn on the light when I come home",
    "Turn on the light unless it is day",
    "Turn on the light as soon as it is dark",
    "Turn on the light every day",
    "如果天黑了就开灯",
    "天黑的时候开灯",
    "要是冷就把空调调到26度",
    "每天开灯",
    // Later times.
    "Turn on the light at 8",
    "Turn on the light at eight",
    "Turn on the light at 8:30",
    "Turn on the light tomorrow",
    "Turn on the light later",
    "Turn on the light in ten minutes",
    "Turn on the light in an hour",
    "Set the brightness to 40 in 10 seconds",
    "Set the brightness to 40 at 8",
    "Turn off the light after the dance",
    "明天开灯",
    "八点开灯",
    "晚上八点把灯关掉",
    "十分钟后开灯",
    "等会儿开灯",
    "过一会儿跳舞",
    "什么时候开灯",
    "几点开灯",
    // Statements, and words that are not understood.
    "The light is on.",
    "I turned on the light",
    "Somebody unlocked the door",
    "The light on",
    "Turn the light",
    "Switch the light",
    "Turn on the light and the radio",
    "Turn on the light for 5 seconds",
    "Turn on the light once more",
    "Turn the brightness up by 10",
    "He wants to dance",
    "灯开了",
    "我开灯了",
    "灯开",
    "把隔壁的灯打开",
];

#[test]
fn sentence_that_is_no_plain_command_never_acts() {
    let home = home();
    let offers = [Offer {
        device: "toy-1",
        services: &home,
    }];
    for text in NO_COMMANDS {
        let plan = plan(&offers, text);
        assert!(!matches!(plan, Plan::Call(..)), "{text}: {plan:?}");
    }
}

#[test]
fn opposite_action_never_acts() {
    let only_on =
        services(&json!({"turn_on_light": {"description": "Turn the light on, never off"}}));
    check(
        &only_on,
        &[
            ("Turn off the light", "-"),
            ("关灯", "-"),
            ("开灯", "turn_on_light {}"),
        ],
    );
    let pause = services(&json!({"pause": {"description": "Pause the music 暂停播放音乐"}}));
    check(
        &pause,
        &[
            ("播放音乐", "-"),
            ("Play the music", "-"),
            ("暂停", "pause {}"),
        ],
    );
}

#[test]
fn annotation_decides_what_is_read_only() {
    let lamp = |hint: bool| {
        let annotations = json!({"readOnlyHint": hint});
        services(&json!({"get_light": {"description": "Light", "annotations": annotations}}))
    };
    check(
        &lamp(true),
        &[
            ("Is the light on?", "-"),
            ("What light is it?", "get_light {}"),
        ],
    );
    check(&lamp(false), &[("What light is it?", "get_light!")]);
}

#[test]
fn device_id_in_the_words_selects_the_device() {
    let level = json!({"level": {"type": "integer"}});
    let lamp = services(&json!({
        "turn_on_light": {"description": "Turn the light on"},
        "set_brightness": {"description": "Set the brightness", "parameters": object(&["level"], &level)},
    }));
    let offers = ["lamp-1", "lamp-10", "Hall"].map(|device| Offer {
        device,
        services: &lamp,
    });
    let check = |text: &str, expected: &str| {
        let seen = match plan(&offers, text) {
            Plan::Call(target, params) => {
                format!("{} {}", target.device, Value::Object(params))
            }
            other => render(&other),
        };
        assert_eq!(seen, expected, "{text}");
    };
    check("Turn on the light of lamp-10", "lamp-10 {}");
    check("Turn on the light of lamp-1.", "lamp-1 {}");
    check("Turn on the light in the HALL", "Hall {}");
    check("打开lamp-10的灯", "lamp-10 {}");
    check(
        "Set the brightness of lamp-1 to 40",
        r#"lamp-1 {"level":40}"#,
    );
    check(
        "Set the brightness to 40 on lamp-1",
        r#"lamp-1 {"level":40}"#,
    );
    let all = "lamp-1/turn_on_light or lamp-10/turn_on_light or Hall/turn_on_light";
    check("Turn on the light", all);
    check(
        "Turn on the light of lamp-1 and lamp-10",
        "lamp-1/turn_on_light or lamp-10/turn_on_light",
    );
    check("Turn on the light of lamp-100", all);
    check("Turn on the light in the hallway", all);
}
