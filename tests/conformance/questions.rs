//! The fixture tools that request input before they answer, in one round or more. They are
//! stateless: the state is part of the request.

use serde_json::{Map, Value, json};

use super::tools::{Call, text};

/// The result of a tool that requests input; `None` for every other tool.
pub(super) fn result(call: &Call) -> Option<Value> {
    Some(match call.tool.as_str() {
        "test_input_required_result_elicitation" | "test_streaming_elicitation" => greeting(call),
        "test_input_required_result_sampling" => capital(call),
        "test_input_required_result_list_roots" => roots(call),
        "test_input_required_result_request_state"
        | "test_input_required_result_tampered_state" => confirmation(call),
        "test_input_required_result_multiple_inputs" => three_at_once(call),
        "test_input_required_result_multi_round" => two_rounds(call),
        "test_input_required_result_capabilities" => whoever_can(call),
        "test_missing_capability" | "test_sampling" => model(call),
        "test_elicitation" => contact(call),
        "test_elicitation_sep1034_defaults" => form(call, defaults()),
        "test_elicitation_sep1330_enums" => form(call, choices()),
        _ => return None,
    })
}

fn greeting(call: &Call) -> Value {
    match typed(call, "user_name", "name") {
        Some(name) => text(format!("Hello, {name}!")),
        None => ask([("user_name", ask_for("What is your name?", "name"))], None),
    }
}

fn capital(call: &Call) -> Value {
    match generated(call, "capital_question") {
        Some(message) => text(format!("The model says: {message}")),
        None => {
            let question = ask_model("What is the capital of France?", 100);
            ask([("capital_question", question)], None)
        }
    }
}

fn roots(call: &Call) -> Value {
    match named_roots(call) {
        Some(uris) => text(format!("The client's roots: {}", uris.join(", "))),
        None => ask([("client_roots", ask_roots())], None),
    }
}

fn confirmation(call: &Call) -> Value {
    let state = json!({"waits_for": "confirm"});
    match accepted(call, "confirm") {
        Some(_) if call.input["state"] == state => text("state-ok"),
        Some(_) => refusal("the state is not the one that was given out"),
        None => {
            let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]});
            ask(
                [("confirm", ask_person("Please confirm", schema))],
                Some(state),
            )
        }
    }
}

fn three_at_once(call: &Call) -> Value {
    let known = (
        typed(call, "user_name", "name"),
        generated(call, "greeting"),
        named_roots(call),
    );
    if let (Some(name), Some(greeting), Some(uris)) = known {
        return text(format!("{greeting} {name}, from {}", uris.join(", ")));
    }
    ask(
        [
            ("user_name", ask_for("What is your name?", "name")),
            ("greeting", ask_model("Generate a greeting", 50)),
            ("client_roots", ask_roots()),
        ],
        Some(json!({"waits_for": "all"})),
    )
}

fn two_rounds(call: &Call) -> Value {
    let state = &call.input["state"];
    match (state["round"].as_u64(), state["name"].as_str()) {
        (Some(2), Some(name)) => match typed(call, "step2", "color") {
            Some(color) => text(format!("{name} likes {color}.")),
            None => second_round(name),
        },
        _ => match typed(call, "step1", "name") {
            Some(name) => second_round(name),
            None => {
                let question = ask_for("Step 1: What is your name?", "name");
                ask([("step1", question)], Some(json!({"round": 1})))
            }
        },
    }
}

fn second_round(name: &str) -> Value {
    let question = ask_for("Step 2: What is your favorite color?", "color");
    ask(
        [("step2", question)],
        Some(json!({"round": 2, "name": name})),
    )
}

fn whoever_can(call: &Call) -> Value {
    if let Some(name) = typed(call, "user_name", "name") {
        return text(format!("The person says: {name}"));
    }
    if let Some(message) = generated(call, "greeting") {
        return text(format!("The model says: {message}"));
    }
    ask(
        [
            ("user_name", ask_for("What is your name?", "name")),
            ("greeting", ask_model("Generate a greeting", 50)),
        ],
        None,
    )
}

fn model(call: &Call) -> Value {
    match generated(call, "model") {
        Some(message) => text(format!("LLM response: {message}")),
        None => {
            let prompt = call.params["prompt"].as_str().unwrap_or("Say something");
            ask([("model", ask_model(prompt, 100))], None)
        }
    }
}

fn contact(call: &Call) -> Value {
    let message = call.params["message"]
        .as_str()
        .unwrap_or("Who are you, and where?");
    let schema = json!({
        "type": "object",
        "properties": {
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"},
        },
        "required": ["username", "email"],
    });
    match answer(call, "contact") {
        Some(answer) => text(format!("User response: {answer}")),
        None => ask([("contact", ask_person(message, schema))], None),
    }
}

fn form(call: &Call, properties: Value) -> Value {
    match answer(call, "form") {
        Some(answer) => text(format!("Elicitation completed: {answer}")),
        None => {
            let schema = json!({"type": "object", "properties": properties});
            ask(
                [("form", ask_person("Please fill in what applies", schema))],
                None,
            )
        }
    }
}

fn defaults() -> Value {
    json!({
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": true},
    })
}

fn choices() -> Value {
    let options = ["option1", "option2", "option3"];
    let titled = json!([
        {"const": "value1", "title": "First Option"},
        {"const": "value2", "title": "Second Option"},
        {"const": "value3", "title": "Third Option"},
    ]);
    json!({
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    })
}

fn ask<const N: usize>(requests: [(&str, Value); N], state: Option<Value>) -> Value {
    let requests = requests.map(|(name, request)| (name.to_owned(), request));
    let mut wanted = json!({"requests": Map::from_iter(requests)});
    if let (Some(state), Value::Object(members)) = (state, &mut wanted) {
        members.insert("state".to_owned(), state);
    }
    json!({"success": false, "error": "more has to be known first", "input_required": wanted})
}

fn refusal(why: &str) -> Value {
    json!({"success": false, "error": why})
}

fn ask_person(message: &str, schema: Value) -> Value {
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
}

/// Requests one text.
fn ask_for(message: &str, field: &str) -> Value {
    let schema =
        json!({"type": "object", "properties": {field: {"type": "string"}}, "required": [field]});
    ask_person(message, schema)
}

fn ask_model(prompt: &str, max_tokens: u32) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": prompt}});
    json!({"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": max_tokens}})
}

fn ask_roots() -> Value {
    json!({"method": "roots/list", "params": {}})
}

/// The response to one input request, if present.
fn answer<'a>(call: &'a Call, question: &str) -> Option<&'a Value> {
    call.input["responses"].get(question)
}

/// The form of a user.
fn accepted<'a>(call: &'a Call, question: &str) -> Option<&'a Value> {
    let answer = answer(call, question)?;
    (answer["action"] == "accept").then(|| &answer["content"])
}

/// One text of a user's form.
fn typed<'a>(call: &'a Call, question: &str, field: &str) -> Option<&'a str> {
    accepted(call, question)?[field].as_str()
}

/// The text of a model.
fn generated<'a>(call: &'a Call, question: &str) -> Option<&'a str> {
    answer(call, question)?["content"]["text"].as_str()
}

fn named_roots(call: &Call) -> Option<Vec<&str>> {
    let roots = answer(call, "client_roots")?["roots"].as_array()?;
    Some(
        roots
            .iter()
            .filter_map(|root| root["uri"].as_str())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str, input: Value) -> Call {
        Call {
            id: "1".to_owned(),
            tool: tool.to_owned(),
            params: json!({}),
            input,
        }
    }

    #[test]
    fn input_request_repeats_until_answered() {
        #[track_caller]
        fn check(tool: &str, input: Value, expected: &str) {
            let result = result(&call(tool, input)).unwrap();
            let found = match result["content"][0]["text"].as_str() {
                Some(text) => text.to_owned(),
                None => {
                    let requests = result["input_required"]["requests"].as_object().unwrap();
                    let names: Vec<_> = requests.keys().map(String::as_str).collect();
                    format!("?{}", names.join("?"))
                }
            };
            assert_eq!(found, expected, "{tool}");
        }
        let person = |field: &str| json!({"action": "accept", "content": {field: "Ada"}});
        let elicitation = "test_input_required_result_elicitation";
        check(elicitation, Value::Null, "?user_name");
        check(
            elicitation,
            json!({"responses": {"other": person("name")}}),
            "?user_name",
        );
        check(
            elicitation,
            json!({"responses": {"user_name": person("name")}}),
            "Hello, Ada!",
        );
        let rounds = "test_input_required_result_multi_round";
        check(rounds, Value::Null, "?step1");
        check(
            rounds,
            json!({"responses": {"step1": person("name")}, "state": {"round": 1}}),
            "?step2",
        );
        check(
            rounds,
            json!({"responses": {"step2": person("color")}, "state": {"round": 2, "name": "Ada"}}),
            "Ada likes Ada.",
        );
        let state = "test_input_required_result_request_state";
        let answered = json!({"confirm": {"action": "accept", "content": {"ok": true}}});
        check(
            state,
            json!({"responses": answered, "state": {"waits_for": "confirm"}}),
            "state-ok",
        );
    }
}
