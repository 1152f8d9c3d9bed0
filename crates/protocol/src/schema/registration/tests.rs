//! Services that are accepted, services that are refused, and hostile schemas within bounds.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;

/// More than any check may take, in a debug build on a busy machine.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

fn build(services: &str) -> Result<Registration, RegisterError> {
    let services = RawValue::from_string(services.to_owned()).unwrap();
    Registration::build(&services, &SchemaLimits::default())
}

fn with_parameters(parameters: Value) -> Result<Registration, RegisterError> {
    build(&json!({ "s": { "parameters": parameters } }).to_string())
}

/// The result of checking params against these parameters: `ok`, or `pointer: detail` per line.
fn check_params(parameters: Value, params: &str) -> String {
    let registration = with_parameters(parameters).unwrap();
    let params = RawValue::from_string(params.to_owned()).unwrap();
    match registration.service("s").unwrap().check(&params) {
        Ok(()) => "ok".to_owned(),
        Err(violations) => {
            let line = |v: &Violation| format!("{}: {}", v.pointer, v.detail);
            violations.iter().map(line).collect::<Vec<_>>().join("\n")
        }
    }
}

#[test]
fn service_is_found_by_name() {
    let json = r#"{"b":{"timeout_ms":5000},"时间":{"description":"获取","x":1},"a":{}}"#;
    let registration = build(json).unwrap();
    assert_eq!(
        (registration.len(), &registration.json[..]),
        (3, json.as_bytes())
    );
    assert_eq!(registration.digest, Digest::compute(json.as_bytes()));
    assert_eq!(registration.service("b").unwrap().timeout_ms, Some(5000));
    assert_eq!(&*registration.service("时间").unwrap().name, "时间");
    assert!(registration.service("c").is_none() && build("{}").unwrap().is_empty());
}

/// Checks that services are refused with this code, by an error that contains this sentence.
fn refused(services: &str, code: &str, sentence: &str) {
    let error = build(services).unwrap_err();
    assert_eq!(error.code(), code, "{services}: {error}");
    assert!(error.to_string().contains(sentence), "{services}: {error}");
}

#[test]
fn malformed_set_of_services_is_refused() {
    refused("[]", "services_not_an_object", "is an object");
    refused(
        r#"{"a":{},"b":{},"a":{}}"#,
        "duplicate_service",
        "service `a` is repeated",
    );
    let twice = r#"{"a":{"parameters":{"type":"object","type":"object"}}}"#;
    refused(twice, "duplicate_key", "`/a/parameters`");
    let many: Map<String, Value> = (0..129).map(|i| (format!("s{i}"), json!({}))).collect();
    refused(
        &Value::from(many).to_string(),
        "too_many_services",
        "129 services are too many",
    );
    refused(r#"{"":{}}"#, "bad_service_name", "1 to 128 bytes");
    refused(r#"{"a\n":{}}"#, "bad_service_name", "control");
    refused(
        &format!(r#"{{"{}":{{}}}}"#, "长".repeat(43)),
        "bad_service_name",
        "长",
    );
}

#[test]
fn malformed_service_is_refused() {
    refused(
        r#"{"a":true}"#,
        "bad_service",
        "service `a`: a service is an object",
    );
    refused(
        r#"{"a":{"description":5}}"#,
        "bad_service",
        "`description` is a string",
    );
    refused(
        r#"{"a":{"annotations":[]}}"#,
        "bad_service",
        "`annotations` are an object",
    );
    for timeout in ["0", "300001", "1.5", "\"1\"", "-1", "null"] {
        let services = format!(r#"{{"a":{{"timeout_ms":{timeout}}}}}"#);
        refused(
            &services,
            "bad_service",
            "`timeout_ms` is an integer from 1 to 300000",
        );
    }
    let long = format!(r#"{{"a":{{"description":"{}"}}}}"#, "x".repeat(4097));
    refused(&long, "bad_service", "at most 4096 bytes");
}

#[test]
fn bad_schema_error_has_place_and_remedy() {
    fn check(service: &str, sentence: &str) {
        refused(&format!(r#"{{"a":{service}}}"#), "bad_schema", sentence);
    }
    check(r#"{"parameters":true}"#, "service `a`, at `/parameters`");
    check(
        r#"{"parameters":{"type":"string"}}"#,
        "at `/parameters/type`",
    );
    check(
        r#"{"output":{"properties":{"a":{"$id":"x"}}}}"#,
        "at `/output/properties/a/$id`: `$id` is allowed at the root of a schema only",
    );
    check(r#"{"output":{"$id":1}}"#, "at `/output/$id`");
    check(r#"{"output":{"minimum":"x"}}"#, "at `/output/minimum`");
    let placeholder = r#"{"parameters":{"properties":{"p":{"type":"string|number"}}}}"#;
    check(placeholder, r#"a `type` is "string", "number", "integer""#);
}

#[test]
fn schema_may_have_an_id_at_its_root() {
    for id in [
        "x",
        "https://example.com/schemas/a.json",
        "urn:example:a",
        "https://json-schema.org/draft/2020-12/schema",
        "",
        "%",
    ] {
        let parameters = json!({
            "$id": id,
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$defs": { "n": { "type": "integer" } },
            "properties": { "n": { "$ref": "#/$defs/n" } },
        });
        assert_eq!(check_params(parameters.clone(), r#"{"n":1}"#), "ok", "{id}");
        let wrong = check_params(parameters, r#"{"n":"1"}"#);
        assert!(wrong.starts_with("/n: "), "{id}: {wrong}");
    }
}

#[test]
fn total_cost_of_services_is_limited() {
    let parameters = json!({ "enum": (0..400).collect::<Vec<_>>() });
    let services = |count: usize, parameters: &Value| {
        let service = |index| (format!("s{index}"), json!({ "parameters": parameters }));
        Value::from((0..count).map(service).collect::<Map<_, _>>()).to_string()
    };
    assert!(build(&services(59, &parameters)).is_ok());
    let modest = json!({ "enum": (0..150).collect::<Vec<_>>() });
    assert!(build(&services(128, &modest)).is_ok());
    assert_eq!(
        build(&services(60, &parameters)).unwrap_err().code(),
        "schemas_too_expansive"
    );
}

#[test]
fn params_are_checked_against_the_schema() {
    fn check(params: &str, expect: &str) {
        let parameters = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "minLength": 2, "maxLength": 4 },
                "level": { "type": "integer", "minimum": 1, "maximum": 3 },
                "mode": { "enum": ["a", "b"] },
            },
            "required": ["name"],
        });
        let check_params = check_params(parameters, params);
        assert!(
            check_params.starts_with(expect),
            "{params} is {check_params}"
        );
    }
    check(r#"{"name":"玩具","level":2,"mode":"a","more":[]}"#, "ok");
    check("{}", r#": "name" is a required property"#);
    check(r#"{"name":5}"#, r#"/name: 5 is not of type "string""#);
    check(
        r#"{"name":"x"}"#,
        r#"/name: "x" is shorter than 2 characters"#,
    );
    check(
        r#"{"name":"xxxxx"}"#,
        r#"/name: "xxxxx" is longer than 4 characters"#,
    );
    check(
        r#"{"name":"ab","level":0}"#,
        "/level: 0 is less than the minimum of 1",
    );
    check(
        r#"{"name":"ab","level":4}"#,
        "/level: 4 is greater than the maximum of 3",
    );
    check(r#"{"name":"ab","mode":"c"}"#, r#"/mode: "c" is not one of"#);
    check("[]", ": the params must be a JSON object");
    check("null", ": the params must be a JSON object");
    check(r#"{"name":"ab","name":5}"#, ": `name` is repeated here");
    check(
        r#"{"name":"ab","x":1e999}"#,
        "/x: the number is out of range: a number is from",
    );
    let deep = format!(
        r#"{{"name":"ab","x":{}1{}}}"#,
        "[".repeat(127),
        "]".repeat(127)
    );
    let at = "/0".repeat(15);
    check(
        &deep,
        &format!("/x{at}: arrays and objects are nested at most 127 deep"),
    );
}

#[test]
fn service_without_parameters_accepts_any_object() {
    let registration = build(r#"{"s":{}}"#).unwrap();
    let service = registration.service("s").unwrap();
    assert_eq!(service.check(&raw(&json!({ "a": [1] }))), Ok(()));
    assert!(service.check(&raw(&json!([1]))).is_err());
}

#[test]
fn result_is_checked_against_the_output_schema() {
    let output = json!({
        "type": ["object", "null"],
        "properties": {"n": {"type": "integer"}, "text": {"type": "string"}},
    });
    let services = json!({"s": {"output": output}, "silent": {}}).to_string();
    let registration = build(&services).unwrap();
    let service = registration.service("s").unwrap();
    let check = |result: &str, expect: &str| {
        let result = RawValue::from_string(result.to_owned()).unwrap();
        let checked = match service.try_check_result(&result) {
            Ok(checked) => checked,
            Err(left) => service.finish_result_check(&result, left),
        };
        let found =
            checked.map_or_else(|violations| violations[0].pointer.clone(), |()| "ok".into());
        assert_eq!(found, expect, "{result}");
        let silent = registration.service("silent").unwrap();
        assert_eq!(silent.try_check_result(&result), Ok(Ok(())));
    };
    check(r#"{"success":true,"data":{"n":1}}"#, "ok");
    check(r#"{"success":true,"data":{"n":"1"}}"#, "/n");
    check(r#"{"data":1,"success":true,"data":{"n":2}}"#, "ok");
    // Absent data counts as null.
    check(r#"{"success":true}"#, "ok");
    check(r#"{"success":true,"data":[]}"#, "");
    check(r#"{"success":true,"data":{"n":1,"n":2}}"#, "");
    check(r#"{"success":true,"data":{"n":1e999}}"#, "/n");
    let long = "a".repeat(MAX_QUICK_BYTES);
    check(&json!({"data": {"text": long}}).to_string(), "ok");
    check(&json!({"data": {"text": long, "n": ""}}).to_string(), "/n");
    assert!(service.has_output() && !registration.service("silent").unwrap().has_output());
}

#[test]
fn format_is_not_asserted() {
    let parameters = json!({ "properties": { "p": { "format": "email" } } });
    assert_eq!(check_params(parameters, r#"{"p":"none"}"#), "ok");
}

#[test]
fn pattern_syntax_is_that_of_a_linear_engine() {
    fn check(pattern: &str, text: &str, expect: bool) {
        let parameters = json!({ "properties": { "p": { "pattern": pattern } } });
        let params = json!({ "p": text }).to_string();
        assert_eq!(
            check_params(parameters, &params) == "ok",
            expect,
            "{pattern} on {text}"
        );
    }
    check(
        "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        "0188a3c4-0000-7000-8000-0123456789ab",
        true,
    );
    check(r"^\d{4}-\d{2}-\d{2}$", "2025-01-22", true);
    check(r"^[\w.+-]+@[\w-]+\.[\w.]+$", "a.b@example.com", true);
    check(r"^1[3-9]\d{9}$", "13800138000", true);
    check("^#[0-9a-fA-F]{6}$", "#12345g", false);
    check(r"^\p{L}+$", "玩具", true);
    check("^[\u{4e00}-\u{9fa5}]{1,20}$", "玩具", true);
    check("^[\\p{L}\\p{N} _-]+$", "玩具 1", true);
    check("^.{1,64}$", "", false);
    check(r"^[\w.-]{1,64}$", "a.txt", true);
    check(
        "^((25[0-5]|2[0-4]\\d|1?\\d?\\d)(\\.|$)){4}$",
        "10.0.0.255",
        true,
    );

    for refused in ["(?=a)", r"(a)\1", "a(", "(a{200}){200}"] {
        let error = with_parameters(json!({ "properties": { "p": { "pattern": refused } } }));
        let error = error.unwrap_err().to_string();
        let place = "at `/parameters/properties/p/pattern`: the pattern is too large";
        assert!(error.contains(place), "{refused}: {error}");
    }
}

#[test]
fn violations_are_few_and_short() {
    let parameters = json!({ "additionalProperties": { "type": "integer" } });
    let long = "长".repeat(1000);
    let params: Map<String, Value> = (0..50)
        .map(|i| (format!("{i}{long}"), json!(long)))
        .collect();
    let registration = with_parameters(parameters).unwrap();
    let violations = registration
        .service("s")
        .unwrap()
        .check(&raw(&params.into()))
        .unwrap_err();
    assert_eq!(violations.len(), 16);
    for violation in violations {
        assert!(
            violation.pointer.len() < 300 && violation.detail.len() < 300,
            "{violation:?}"
        );
        assert!(
            violation.detail.contains("is not of type \"integer\""),
            "{violation:?}"
        );
    }
}

/// Registers and checks within the time limit. Returns the result or the error.
fn check_bounded(parameters: Value, params: &Value) -> String {
    let started = Instant::now();
    let outcome = match with_parameters(parameters) {
        Err(error) => error.to_string(),
        Ok(registration) => {
            let check_params = registration.service("s").unwrap().check(&raw(params));
            check_params.map_or_else(
                |violations| violations[0].detail.clone(),
                |()| "ok".to_owned(),
            )
        }
    };
    let took = started.elapsed();
    assert!(took < CHECK_TIMEOUT, "took {took:?}: {outcome}");
    outcome
}

#[test]
fn reference_bomb_is_refused_in_time() {
    // Without a budget, these 1.4 kB make `jsonschema` collect errors for half a minute and
    // gigabytes.
    let link = |next: usize| {
        let reference = json!({ "$ref": format!("#/$defs/d{next}") });
        json!({ "anyOf": [reference, reference, reference] })
    };
    let mut defs: Map<String, Value> = (0..14)
        .map(|index| (format!("d{index}"), link(index + 1)))
        .collect();
    defs.insert("d14".into(), json!({ "type": "string" }));
    let bomb = json!({ "$defs": defs, "properties": { "p": { "$ref": "#/$defs/d0" } } });
    assert!(bomb.to_string().len() < 1500);
    let outcome = check_bounded(bomb, &json!({ "p": 1 }));
    assert!(outcome.contains("at most 2000 values"), "{outcome}");
}

#[test]
fn worst_case_schema_is_checked_in_time() {
    let leaf = json!({ "$defs": { "l": { "anyOf": vec![json!({ "type": "string" }); 40] } } });
    let mut bomb = leaf;
    bomb["properties"] =
        json!({ "p": { "items": { "anyOf": vec![json!({ "$ref": "#/$defs/l" }); 15] } } });
    for length in [1, 10, 100, 1000, 100_000] {
        check_bounded(bomb.clone(), &json!({ "p": vec![1; length] }));
    }
}

#[test]
fn unaffordable_errors_are_not_collected() {
    let each = json!({ "const": "x".repeat(10_000) });
    let outcome = check_bounded(
        json!({ "additionalProperties": { "items": each } }),
        &json!({ "p": vec![1; 60_000] }),
    );
    assert!(
        outcome.contains("too large to list the places"),
        "{outcome}"
    );

    let each = vec![json!({ "type": "string" }); 200];
    let parameters = json!({ "additionalProperties": { "items": { "anyOf": each } } });
    let outcome = check_bounded(parameters.clone(), &json!({ "p": vec![1; 3_000] }));
    assert!(
        outcome.contains("too large to list the places"),
        "{outcome}"
    );
    let outcome = check_bounded(parameters, &json!({ "p": vec![1; 60_000] }));
    assert!(
        outcome.contains("too large for this service's schema"),
        "{outcome}"
    );

    let parameters = json!({ "additionalProperties": { "items": { "type": "string" } } });
    let outcome = check_bounded(parameters, &json!({ "k".repeat(100_000): vec![1; 10_000] }));
    assert!(
        outcome.contains("too large to list the places"),
        "{outcome}"
    );
}

#[test]
fn costly_pattern_needs_a_max_length_that_is_checked_first() {
    let parameters = |max_length: Option<usize>| {
        let mut p = json!({ "type": "string", "pattern": "(?:a?){900}a{900}c" });
        if let Some(max_length) = max_length {
            p["maxLength"] = max_length.into();
        }
        json!({ "properties": { "p": p } })
    };
    let params = |length: usize| json!({ "p": "a".repeat(length) });
    let refused = check_bounded(parameters(None), &params(8_150));
    let place = "at `/parameters/properties/p/pattern`: the pattern `(?:a?){900}a{900}c` may take";
    assert!(refused.contains(place), "{refused}");
    assert!(refused.contains("a `maxLength` of at most"), "{refused}");
    let long = check_bounded(parameters(Some(100)), &params(8_150));
    assert!(long.contains("is longer than 100 characters"), "{long}");
    let short = check_bounded(parameters(Some(100)), &params(100));
    assert!(short.contains("does not match"), "{short}");
}

#[test]
fn steps_of_all_patterns_of_a_check_are_bounded() {
    let mixed: String = (0..200_000_u32)
        .map(|i| {
            if i.wrapping_mul(2_654_435_761) >> 31 == 0 {
                'a'
            } else {
                'b'
            }
        })
        .collect();
    for pattern in [
        "^[ab]*a[ab]{140}$",
        "(a?b?){60}[ab]{60}c",
        "([^x]{0,9}a){9}c",
    ] {
        let item = json!({ "pattern": pattern, "maxLength": 200 });
        let parameters = json!({ "additionalProperties": { "items": item } });
        let texts: Vec<_> = mixed
            .as_bytes()
            .chunks(200)
            .map(String::from_utf8_lossy)
            .collect();
        let outcome = check_bounded(parameters, &json!({ "p": texts }));
        assert!(outcome.contains("too large"), "{pattern}: {outcome}");
    }
    let parameters = json!({ "patternProperties": { "^[a-z]{1,200}z$": {} } });
    let params: Map<String, Value> = (0..90)
        .map(|i| (format!("{i}{}", &mixed[..200]), json!(1)))
        .collect();
    let outcome = check_bounded(parameters, &params.into());
    assert!(
        outcome.contains("too large for this service's schema"),
        "{outcome}"
    );
}

#[test]
fn only_quick_checks_are_made_at_once() {
    fn check(parameters: Value, params: &Value, expect: Result<bool, Deferred>) {
        let registration = with_parameters(parameters).unwrap();
        let service = registration.service("s").unwrap();
        let params = raw(params);
        let at_once = service.try_check(&params);
        let is_ok = at_once.as_ref().map(Result::is_ok);
        assert_eq!(is_ok, expect.as_ref().copied(), "{params:.80}");
        let checked = at_once.unwrap_or_else(|left| service.finish_check(&params, left));
        assert_eq!(checked, service.check(&params), "{params:.80}");
    }
    let ordinary = json!({ "properties": {
        "id": { "type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$" },
        "mode": { "enum": ["on", "off"] },
        "level": { "type": "integer", "minimum": 0, "maximum": 100 },
    } });
    let id = "0188a3c4-0000-7000-8000-0123456789ab";
    check(
        ordinary.clone(),
        &json!({ "id": id, "mode": "on", "level": 5 }),
        Ok(true),
    );
    check(
        ordinary.clone(),
        &json!({ "id": "x", "mode": "up" }),
        Ok(false),
    );
    check(
        ordinary,
        &json!({ "id": "x".repeat(20_000) }),
        Err(Deferred::Check),
    );
    check(
        json!({}),
        &json!({ "p": vec![1; 10_000] }),
        Err(Deferred::Check),
    );
    let costly =
        json!({ "properties": { "p": { "pattern": "(?:a?){900}a{900}c", "maxLength": 700 } } });
    check(
        costly.clone(),
        &json!({ "p": "a".repeat(700) }),
        Err(Deferred::Check),
    );
    check(costly, &json!({}), Ok(true));
    // A large form: 180 values in the schema, 60 in the params.
    let form =
        |value: Value| Value::Object((0..60).map(|i| (format!("p{i}"), value.clone())).collect());
    let large = json!({ "properties": form(json!({ "type": "integer", "minimum": 0 })) });
    check(large.clone(), &form(json!(1)), Ok(true));
    check(large, &form(json!(-1)), Err(Deferred::Places));
}

#[test]
fn work_and_memory_follow_the_schemas() {
    let measure = |services: &Value| {
        MeasuredServices::measure(&raw(services), &SchemaLimits::default()).unwrap()
    };
    let small = measure(&json!({ "a": {} }));
    assert_eq!(small.work(), 1);
    assert!(small.memory_bytes() < 512);
    let pattern = json!({ "properties": { "p": { "pattern": "^[a-z]{1,64}$" } } });
    let larger = measure(&json!({ "a": { "parameters": pattern } }));
    assert_eq!(larger.work(), 1 + 4 + 64);
    let without_patterns = larger.memory_bytes();
    let registration = larger.into_compilation().finish().unwrap();
    assert!(registration.memory_bytes() > without_patterns);
}

#[test]
fn unique_items_and_long_chains_are_bounded() {
    let mut nested = json!({ "uniqueItems": true });
    for _ in 0..6 {
        nested = json!({ "uniqueItems": true, "items": nested });
    }
    let mut value = json!([1, 2]);
    for _ in 0..6 {
        value = json!([value, value, value]);
    }
    check_bounded(
        json!({ "properties": { "p": nested } }),
        &json!({ "p": value }),
    );

    // The maximum depth of references, on a thread with the stack of a server's.
    let link = |next: usize| json!({ "items": { "$ref": format!("#/$defs/d{next}") } });
    let mut defs: Map<String, Value> = (0..13)
        .map(|index| (format!("d{index}"), link(index + 1)))
        .collect();
    defs.insert("d13".into(), json!({ "type": "string" }));
    let chain = json!({ "$defs": defs, "properties": { "p": { "$ref": "#/$defs/d0" } } });
    let value = (0..13).fold(json!(1), |inner, _| json!([inner]));
    let outcome = check_bounded(chain, &json!({ "p": value }));
    assert!(outcome.contains("is not of type \"string\""), "{outcome}");
}
