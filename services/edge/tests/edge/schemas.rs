//! Schemas of one organisation cost others neither time nor memory: what is compiled and checked
//! runs off the workers, within budgets and rates.

use std::{num::NonZeroU32, time::Instant};

use serde_json::{Value, json};
use switchboard_bus::{Answer, Call};
use switchboard_edge::Config;
use switchboard_protocol::{
    frame::Kind,
    id::{DeviceKey, OrgId},
    outcome::{Delivered, Outcome},
};
use switchboard_runtime::budget::{Kind as BudgetKind, Owner, Permit};
use switchboard_test_support::eventually::eventually_true;
use tokio::task::{JoinHandle, JoinSet};
use uuid::Uuid;

use crate::{
    device::{Device, LIGHT},
    node::{Node, TEST_TIMEOUT, check},
};

/// Another organisation with a device of its own.
struct OtherOrg<'n> {
    node: &'n Node,
    org: OrgId,
    device: Device,
}

impl<'n> OtherOrg<'n> {
    async fn join(node: &'n Node) -> Self {
        let org = OrgId::from_uuid(Uuid::now_v7());
        let mut claims = node.claims("lamp");
        claims.org = org;
        let mut device = Device::connect(node.addr).await;
        device.authenticate(&node.sign(&claims)).await;
        device.register(LIGHT).await;
        Self { node, org, device }
    }

    fn key(&self) -> DeviceKey {
        DeviceKey {
            org: self.org,
            ..self.node.device_key("lamp")
        }
    }

    /// A call to its device succeeds within seconds.
    async fn is_served(&mut self) {
        let started = Instant::now();
        let call = Call {
            device: self.key(),
            ..self.node.prepare("lamp", r#"{"on":true}"#)
        };
        let answer = self.node.call(call);
        let id = self.device.expect(Kind::Control).await.call_id();
        self.device.result(&id, "done").await;
        check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
        let took = started.elapsed();
        assert!(took < TEST_TIMEOUT / 2, "the call took {took:?}");
    }
}

/// A service with this schema of its only parameter.
fn service(name: &str, text: &Value) -> String {
    let parameters = json!({ "type": "object", "properties": { "text": text } });
    json!({ name: { "parameters": parameters } }).to_string()
}

/// Services of which each has patterns that no other set has.
fn distinct(number: usize, services: usize, patterns: usize) -> String {
    let schema = |service: usize| {
        let pattern =
            |index| json!({ "pattern": format!("^.{{1,64}}x{number}y{service}z{index}") });
        let all: Vec<_> = (0..patterns).map(pattern).collect();
        json!({ "parameters": { "properties": { "text": { "maxLength": 99, "allOf": all } } } })
    };
    let set = (0..services).map(|index| (format!("s{index}"), schema(index)));
    Value::Object(set.collect()).to_string()
}

fn send(node: &Node, device: &str, text: &str) -> JoinHandle<Answer> {
    node.call(Call {
        service: "print".into(),
        // Their checks take a while, one after the other.
        timeout: TEST_TIMEOUT * 6,
        ..node.prepare(device, &json!({ "text": text }).to_string())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn costly_params_do_not_delay_other_organisations() {
    let node = Node::start(Config::default()).await;
    let mut other = OtherOrg::join(&node).await;
    let before = node.caller.find(&other.key()).await.unwrap().unwrap();
    // As costly as a pattern may be.
    let text = json!({ "type": "string", "pattern": "(?:a?){900}a{900}c", "maxLength": 700 });
    let mut devices = Vec::new();
    for id in ["one", "two"] {
        let mut device = node.device(id).await;
        device.register(&service("print", &text)).await;
        devices.push(device);
    }
    let costly: Vec<_> = (0..64)
        .map(|number| send(&node, ["one", "two"][number % 2], &"a".repeat(700)))
        .collect();
    other.is_served().await;
    other.is_served().await;
    let after = node.caller.find(&other.key()).await.unwrap().unwrap();
    assert_eq!(before.epoch, after.epoch, "the device is still connected");
    // Each is checked, and none reaches its device.
    for answer in costly {
        check(&answer.await.unwrap(), Outcome::Invalid, Delivered::No);
    }
}

#[tokio::test]
async fn costly_pattern_is_refused_with_its_remedy() {
    let node = Node::start(Config::default()).await;
    let mut device = node.lamp("toy").await;
    let text = json!({ "type": "string", "pattern": "(?:a?){900}a{900}c" });
    let answer = device.try_register(&service("print", &text)).await;
    assert_eq!(answer["result"]["success"], false);
    let error = answer["result"]["error"].as_str().unwrap();
    let place = "at `/parameters/properties/text/pattern`: the pattern `(?:a?){900}a{900}c`";
    assert!(
        error.contains(place) && error.contains("`maxLength`"),
        "{error}"
    );
}

#[tokio::test]
async fn calls_that_are_checked_in_the_pool_keep_their_order() {
    let node = Node::start(Config::default()).await;
    let mut device = node.device("toy").await;
    let text = json!({ "type": "string" });
    device.register(&service("print", &text)).await;
    // Large params are checked off the worker, small ones on it.
    let texts = [
        ("a", 40_000),
        ("b", 1),
        ("c", 1),
        ("d", 40_000),
        ("e", 40_000),
        ("f", 1),
    ];
    let texts = texts.map(|(letter, length)| letter.repeat(length));
    let answers: Vec<_> = texts.iter().map(|text| send(&node, "toy", text)).collect();
    for text in &texts {
        let frame = device.expect(Kind::Control).await.json();
        assert_eq!(frame["data"]["params"]["text"], **text);
    }
    drop(device);
    for answer in answers {
        check(&answer.await.unwrap(), Outcome::Lost, Delivered::Unknown);
    }
}

/// Has the edge check nothing off its workers.
fn pause_checks(node: &Node) -> Permit {
    pause(node, "validation_jobs")
}

/// Takes all of a budget.
fn pause(node: &Node, budget: &'static str) -> Permit {
    let jobs = node.budgets.slots(budget, 1, BudgetKind::Brief);
    jobs.try_acquire(Owner::System, jobs.free()).unwrap()
}

/// Requests that wait for a budget.
fn waiting(node: &Node, budget: &str) -> usize {
    let mut reports = node.budgets.report().into_iter();
    let report = reports.find(|report| report.budget == budget);
    report.unwrap().waiting
}

/// Sends a call whose params wait until checks continue.
async fn wait_for_check(node: &Node, call: Call) -> JoinHandle<Answer> {
    let waiting = || waiting(node, "validation_jobs");
    let before = waiting();
    let answer = node.call(call);
    eventually_true("the params wait", || waiting() == before + 1).await;
    answer
}

fn large_call(node: &Node) -> Call {
    let params = json!({ "text": "a".repeat(40_000) }).to_string();
    Call {
        service: "print".into(),
        ..node.prepare("toy", &params)
    }
}

#[tokio::test]
async fn call_that_waits_for_its_check_is_not_delivered_when_it_is_cancelled() {
    let node = Node::start(Config::default()).await;
    let mut device = node.device("toy").await;
    device
        .register(&service("print", &json!({ "type": "string" })))
        .await;
    let paused = pause_checks(&node);
    let answer = wait_for_check(&node, large_call(&node)).await;
    answer.abort();
    node.metric_is("calls_total", Some("cancelled"), 1.0).await;
    drop(paused);
    // No CANCEL for a call that the device does not know.
    device.sync().await;
    let answer = node.call(large_call(&node));
    let id = device.expect(Kind::Control).await.call_id();
    device.result(&id, "done").await;
    check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
}

#[tokio::test]
async fn call_that_waits_for_its_check_ends_before_its_caller_stops_waiting() {
    let node = Node::start(Config::default()).await;
    let mut device = node.device("toy").await;
    device
        .register(&service("print", &json!({ "type": "string" })))
        .await;
    let _paused = pause_checks(&node);
    let call = Call {
        timeout: TEST_TIMEOUT / 5,
        ..large_call(&node)
    };
    let (timeout, started) = (call.timeout, Instant::now());
    let answer = wait_for_check(&node, call).await.await.unwrap();
    check(&answer, Outcome::Overloaded, Delivered::No);
    let took = started.elapsed();
    assert!(took < timeout, "the answer took {took:?}");
    device.sync().await;
}

#[tokio::test]
async fn call_that_waits_for_its_check_is_not_delivered_when_its_connection_closes() {
    let node = Node::start(Config::default()).await;
    let claims = node.claims("toy");
    let mut device = Device::connect(node.addr).await;
    device.authenticate(&node.sign(&claims)).await;
    device
        .register(&service("print", &json!({ "type": "string" })))
        .await;
    let _paused = pause_checks(&node);
    let answer = wait_for_check(&node, large_call(&node)).await;
    node.caller
        .revoke(claims.id, claims.expires_at)
        .await
        .unwrap();
    device.expect_error("token_revoked").await;
    check(&answer.await.unwrap(), Outcome::Offline, Delivered::No);
}

#[tokio::test]
async fn compiled_schemas_of_one_organisation_are_bounded() {
    let mut config = Config::default();
    config.schema.schema_max_compiled_bytes = 2 * 1024 * 1024;
    let share = config.schema.schema_max_compiled_bytes / 2;
    let node = Node::start(config).await;
    let (mut devices, mut refused) = (Vec::new(), 0);
    for number in 0..12 {
        let mut device = node.device(&format!("toy-{number}")).await;
        let answer = device.try_register(&distinct(number, 1, 2)).await;
        if answer["result"]["success"] == false {
            refused += 1;
            let error = answer["result"]["error"].as_str().unwrap();
            for part in [
                "overloaded: the share of the budget `compiled_schemas` is exhausted",
                "`--schema-max-compiled-bytes`",
                "Try again in 5000 ms",
            ] {
                assert!(error.contains(part), "{error}");
            }
        }
        devices.push(device);
    }
    let used = node.budget_used("compiled_schemas");
    assert!(
        (share / 4..=share).contains(&used),
        "{used} of {share} bytes"
    );
    assert!((1..12).contains(&refused), "{refused} refused");

    let mut other = OtherOrg::join(&node).await;
    other.is_served().await;
    // The same services take no more memory.
    let mut same = node.device("same").await;
    same.register(&distinct(0, 1, 2)).await;
    assert!(node.budget_used("compiled_schemas") < used + 8 * 1024);

    drop((devices, same, other));
    eventually_true("the memory is returned", || {
        node.budget_used("compiled_schemas") == 0
    })
    .await;
}

#[tokio::test]
async fn rate_of_new_services_outlasts_a_reconnect() {
    async fn refusal(device: &mut Device, services: &str) -> Option<String> {
        let answer = device.try_register(services).await;
        let error = answer["result"]["error"].as_str();
        error.map(str::to_owned)
    }
    let mut config = Config::default();
    config.schema.schema_values_per_org_per_s = NonZeroU32::new(10).unwrap();
    let node = Node::start(config).await;
    let mut device = node.device("toy").await;
    let (mut number, mut error) = (0, None);
    while error.is_none() {
        assert!(number < 8, "no rate limit");
        error = refusal(&mut device, &distinct(number, 1, 1)).await;
        number += 1;
    }
    let error = error.unwrap();
    assert!(
        error.contains("registers new services too often"),
        "{error}"
    );
    assert!(error.contains("Try again in") && number > 1, "{error}");

    let mut device = node.device("toy").await;
    let error = refusal(&mut device, &distinct(number, 1, 1)).await;
    assert!(error.is_some_and(|error| error.contains("too often")));
    OtherOrg::join(&node).await.is_served().await;
    let mut same = node.device("same").await;
    let error = refusal(&mut same, LIGHT).await;
    assert_eq!(error, None, "another device registered the same services");
}

#[tokio::test]
async fn known_services_wait_for_no_compilation() {
    const BUDGET: &str = "compile_jobs";
    let node = Node::start(Config::default()).await;
    let _lamp = node.lamp("lamp").await;
    let mut new = node.device("new").await;
    let paused = pause(&node, BUDGET);
    let new = JoinSet::from_iter([async move {
        new.register(&distinct(1, 1, 1)).await;
    }]);
    eventually_true("new services wait", || waiting(&node, BUDGET) == 1).await;
    node.device("same").await.register(LIGHT).await;
    assert_eq!(waiting(&node, BUDGET), 1);
    drop(paused);
    new.join_all().await;
}

#[tokio::test]
async fn compilation_lets_another_organisation_go_first() {
    const BUDGET: &str = "compile_jobs";
    let node = Node::start(Config::default()).await;
    let jobs = node.budgets.slots(BUDGET, 1, BudgetKind::Brief);
    let all = jobs.free();
    let mut heavy = node.device("heavy").await;
    let paused = pause(&node, BUDGET);
    // One service, so that its patterns are the steps.
    let registered = JoinSet::from_iter([async move {
        heavy.register(&distinct(1, 1, 8)).await;
    }]);
    eventually_true("new services wait", || waiting(&node, BUDGET) == 1).await;
    let mut another = JoinSet::from_iter([async move {
        let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
        let owner = Owner::Org(Uuid::now_v7());
        jobs.acquire(owner, all, deadline).await
    }]);
    eventually_true("both wait", || waiting(&node, BUDGET) == 2).await;
    drop(paused);
    let permit = another.join_next().await.unwrap().unwrap().unwrap();
    // The device is in the middle of its services.
    assert_eq!(waiting(&node, BUDGET), 1);
    drop(permit);
    registered.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_new_registrations_do_not_delay_other_organisations() {
    let node = Node::start(Config::default()).await;
    let mut other = OtherOrg::join(&node).await;
    let mut registrations = JoinSet::new();
    for number in 0..40 {
        let mut device = node.device(&format!("toy-{number}")).await;
        registrations.spawn(async move {
            for round in 0..3 {
                device
                    .try_register(&distinct(number * 3 + round, 4, 2))
                    .await;
            }
        });
    }
    other.is_served().await;
    let started = Instant::now();
    other
        .device
        .register(&LIGHT.replace("Switch", "Turn"))
        .await;
    let took = started.elapsed();
    assert!(took < TEST_TIMEOUT / 2, "the registration took {took:?}");
    other.is_served().await;
    assert!(!registrations.is_empty());
    registrations.abort_all();
}
