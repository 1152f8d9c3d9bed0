//! The master of Redis and the primary of PostgreSQL are killed under load. Their replicas take
//! over, no acknowledged write is lost, and no call is executed twice or reported wrongly.

mod deployment;
mod load;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use reqwest::StatusCode;
use serde_json::Value;
use switchboard_test_support::eventually::eventually;

use deployment::Deployment;
use load::{Client, Load, Log, Sent, Work};

/// Upper bound for a failover and every other wait. Typical times are in docs/performance.md.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
/// Successes in a row that show that a worker is served: its calls reach every edge.
const SERVED: usize = 6;
/// Plain calls of each caller while there is no primary: a second or more.
const CALLS_WITHOUT_PRIMARY: usize = 30;

/// Waits until this holds for all workers.
async fn until(load: &mut Load, holds: impl Fn(&Log) -> bool) {
    let Load { logs, tasks, .. } = load;
    let behind = async || {
        let behind = logs.iter().filter(|log| !holds(log));
        behind.map(|log| log.work).collect::<Vec<_>>()
    };
    tokio::select! {
        _ = eventually(WAIT_TIMEOUT, behind, Vec::is_empty) => {}
        Some(ended) = tasks.join_next() => {
            ended.unwrap();
            panic!("a worker ended early");
        }
    }
}

/// Waits until all workers are served.
async fn until_served(load: &mut Load, from: Instant) {
    until(load, |log| log.successes(from) >= SERVED).await;
}

fn report(fault: &str, load: &Load, at: Instant) {
    for work in [Work::Calls, Work::QueuedCalls, Work::Settings, Work::Turns] {
        let logs = load.logs.iter().filter(|log| log.work == work);
        let logs: Vec<_> = logs.collect();
        let longest = logs.iter().map(|log| log.interruption(at)).max();
        let slowest = logs.iter().map(|log| log.slowest(at)).max();
        let failed: usize = logs.iter().map(|log| log.failures(at)).sum();
        println!(
            "{fault}: {work:?} interrupted for {:.2?}, {failed} failed, the slowest took {:.2?}",
            longest.unwrap_or_default(),
            slowest.unwrap_or_default()
        );
    }
}

/// Kills the master of Redis, and waits for the replica.
async fn fail_redis(deployment: &mut Deployment, load: &mut Load) {
    let master = deployment.redis.master().await;
    let killed = Instant::now();
    deployment.redis.servers[master].kill();
    until_served(load, killed).await;
    report("Redis", load, killed);
    let settings = load.logs.iter().filter(|log| log.work == Work::Settings);
    for log in settings {
        assert_eq!(log.failures(killed), 0, "settings do not need Redis");
    }
}

/// Kills the primary of PostgreSQL, and promotes its standby after some seconds.
async fn fail_postgres(deployment: &mut Deployment, load: &mut Load) {
    let killed = Instant::now();
    deployment.postgres.kill_primary();
    until(load, |log| match log.work {
        Work::Calls => log.successes(killed) >= CALLS_WITHOUT_PRIMARY,
        Work::Settings => log.failures(killed) > 0,
        Work::QueuedCalls | Work::Turns => true,
    })
    .await;
    let promoted = Instant::now();
    tokio::task::block_in_place(|| deployment.postgres.promote());
    until_served(load, promoted).await;
    println!("PostgreSQL: promoted after {:.2?}", promoted - killed);
    report("PostgreSQL", load, killed);
    let calls = load.logs.iter().filter(|log| log.work == Work::Calls);
    for log in calls {
        assert_eq!(
            log.failures(killed),
            0,
            "plain calls do not need PostgreSQL"
        );
    }
}

/// Checks what the callers of plain calls received against what devices executed.
fn check_calls(calls: &[(String, Value)], executed: &HashMap<String, usize>) -> usize {
    let mut succeeded = 0;
    for (text, answer) in calls {
        let times = executed.get(text).copied().unwrap_or_default();
        match (answer["outcome"].as_str(), answer["delivered"].as_str()) {
            (Some("succeeded"), Some("yes")) => {
                succeeded += 1;
                assert_eq!(answer["result"]["data"]["text"], *text, "{answer}");
                assert_eq!(times, 1, "{answer}");
            }
            (Some("lost" | "timed_out"), Some("unknown")) => {}
            (_, Some("no")) => assert_eq!(times, 0, "{text}: {answer}"),
            _ => panic!("{text}: {answer}"),
        }
    }
    succeeded
}

/// Checks that every accepted call has ended as devices know it.
async fn check_queued(
    client: &Client,
    calls: &[(String, Option<String>)],
    executed: impl Fn() -> HashMap<String, usize>,
) -> usize {
    let mut succeeded = 0;
    let accepted = calls
        .iter()
        .filter_map(|(text, id)| Some((text, id.as_ref()?)));
    for (text, id) in accepted {
        let path = format!("/v1/calls/{id}?wait_ms=2000");
        let call = async || {
            let answer = client.get(&path).send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK, "{text} was accepted");
            answer.json::<Value>().await.unwrap()
        };
        let ended = eventually(WAIT_TIMEOUT, call, |call| call["state"] == "ended").await;
        let times = executed().get(text).copied().unwrap_or_default();
        match (ended["outcome"].as_str(), ended["delivered"].as_str()) {
            (Some("succeeded"), Some("yes")) => {
                succeeded += 1;
                assert_eq!(times, 1, "{ended}");
            }
            (Some("lost" | "timed_out"), Some("unknown")) => {}
            _ => panic!("{text}: {ended}"),
        }
    }
    succeeded
}

/// Checks that every acknowledged template exists once, and creates the others.
async fn check_templates(client: &Client, sent: &[(String, Option<String>)]) {
    let mut stored: HashMap<String, Vec<String>> = HashMap::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/templates?limit=200{cursor}");
        let page: Value = client
            .get(&path)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        for template in page["templates"].as_array().unwrap() {
            let text = |field: &str| template[field].as_str().unwrap().to_owned();
            stored.entry(text("name")).or_default().push(text("id"));
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    for (name, id) in sent {
        let found = stored.remove(name).unwrap_or_default();
        match id {
            Some(id) => assert_eq!(found, std::slice::from_ref(id), "{name} was acknowledged"),
            None => {
                let again = client.create_template(name).send().await.unwrap();
                assert_eq!(again.status(), StatusCode::CREATED, "{name}");
                let again: Value = again.json().await.unwrap();
                let is_same = found.iter().all(|id| again["id"] == *id);
                assert!(is_same && found.len() <= 1, "{name}: {found:?}, {again}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i6_i9_failover_of_redis_and_postgres_loses_no_acknowledged_write() {
    let mut deployment = Deployment::start().await;
    let begun = Instant::now();
    let mut load = deployment.load().await;
    until_served(&mut load, begun).await;
    fail_redis(&mut deployment, &mut load).await;
    fail_postgres(&mut deployment, &mut load).await;
    let sent = load.finish().await;
    let control = deployment.client(&deployment.controls[1]);
    let gateway = deployment.client(&deployment.gateways[0]);
    for sent in &sent {
        match sent {
            Sent::Calls(calls) => {
                let succeeded = check_calls(calls, &deployment.executed());
                println!("{} plain calls, {succeeded} succeeded", calls.len());
            }
            Sent::Queued(calls) => {
                let executed = || deployment.executed();
                let succeeded = check_queued(&gateway, calls, executed).await;
                let accepted = calls.iter().filter(|(_, id)| id.is_some()).count();
                println!("{accepted} queued calls accepted, {succeeded} succeeded");
            }
            Sent::Templates(templates) => {
                check_templates(&control, templates).await;
                let acknowledged = templates.iter().filter(|(_, id)| id.is_some()).count();
                println!(
                    "{acknowledged} of {} templates acknowledged",
                    templates.len()
                );
            }
            Sent::Turns(answered, missed) => {
                println!("{answered} turns answered, {missed} not");
            }
        }
    }
    for (text, times) in deployment.executed() {
        assert_eq!(times, 1, "{text} was executed twice");
    }
}
