//! The registrations of one organisation do not fill the store that all share.

use switchboard_bus::{Bus, BusConfig, BusError, LocalHub, Presence};
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    outcome::Outcome,
};
use switchboard_runtime::shutdown::Shutdown;
use switchboard_test_support::{eventually::eventually, redis_server::RedisServer};
use uuid::Uuid;

use crate::{
    for_each_backend,
    test_edge::{TestEdge, TestSystem, call, device, org},
    turns,
};

/// The default limit, and the largest registration.
const LIMIT: usize = 8 * 1024 * 1024;
const MAX_BYTES: usize = 250 * 1024;
/// How many of them fit.
const FITTING: usize = LIMIT / MAX_BYTES;

/// A registration unlike the others.
fn distinct(number: usize) -> String {
    let head = format!("{{\"service-{number}\":\"");
    let fill = "x".repeat(MAX_BYTES - head.len() - 2);
    format!("{head}{fill}\"}}")
}

fn foreign(id: &str) -> DeviceKey {
    DeviceKey {
        org: OrgId::from_uuid(Uuid::from_u128(2)),
        ..device(id)
    }
}

async fn presence(bus: &Bus, device: &DeviceKey) -> Presence {
    bus.find(device).await.unwrap().unwrap()
}

/// Connects devices and lets each register a text of its own. Returns how many are refused.
async fn fill(edge: &TestEdge, devices: usize) -> usize {
    let mut refused = 0;
    for number in 0..devices {
        let toy = edge.connect_device(&format!("toy-{number}")).await;
        match edge.try_register(&toy, distinct(number)).await {
            Ok(_) => {}
            Err(BusError::RegistrationsFull { limit }) => {
                assert_eq!(limit, LIMIT as u64);
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    refused
}

#[tokio::test]
async fn registrations_of_one_organisation_have_a_bound() {
    for_each_backend(|system| async move {
        let (caller, edge) = system.start_with_edge("caller").await;
        assert_eq!(fill(&edge, FITTING + 2).await, 2);
        // A refused device is callable, with the registration that it had.
        let last = device(&format!("toy-{}", FITTING + 1));
        assert_eq!(presence(&caller, &last).await.digest, None);
        let answer = call(&caller, &last).await.unwrap();
        assert_eq!(answer.outcome, Outcome::Succeeded);
        // A known text takes no bytes, a device may replace its own, and another organisation has
        // a share of its own.
        let known = edge.try_register(&last, distinct(0)).await.unwrap();
        assert_eq!(presence(&caller, &last).await.digest, Some(known));
        let toy = device("toy-1");
        let replaced = edge.try_register(&toy, distinct(FITTING)).await.unwrap();
        let refused = edge.try_register(&last, distinct(1)).await;
        assert!(matches!(refused, Err(BusError::RegistrationsFull { .. })));
        assert_eq!(
            presence(&caller, &last).await.digest,
            Some(known),
            "it stays"
        );
        assert_eq!(presence(&caller, &toy).await.digest, Some(replaced));
        let other = foreign("toy-1");
        edge.connect(&other).await;
        edge.try_register(&other, distinct(0)).await.unwrap();
        // What is not used any more makes room.
        edge.disconnect(&toy);
        let fits = async || edge.try_register(&last, distinct(1)).await.is_ok();
        eventually(turns::TEST_TIMEOUT, fits, |fits| *fits).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_registrations_leave_room_in_redis() {
    let options = "--maxmemory 384mb --maxmemory-policy noeviction";
    let options: Vec<&str> = options.split(' ').collect();
    let server = RedisServer::start_with(&options);
    let system = TestSystem::with_url(server.url());
    let (caller, hostile) = system.start_with_edge("caller").await;
    let edge = system.start_edge("other").await;
    let refused = fill(&hostile, 900).await;
    assert_eq!(refused, 900 - FITTING);
    for number in 0..50 {
        let toy = foreign(&format!("toy-{number}"));
        edge.connect(&toy).await;
        edge.try_register(&toy, format!("{{\"lamp-{number}\":{{}}}}"))
            .await
            .unwrap();
        let answer = call(&caller, &toy).await.unwrap();
        assert_eq!(answer.outcome, Outcome::Succeeded);
    }
    let info: String = system.query(redis::cmd("INFO").arg("memory")).await;
    let used = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    let used: usize = used.unwrap().trim().parse().unwrap();
    assert!(used < 100 * 1024 * 1024, "{used} bytes");
    // A full Redis still lets devices go.
    system.configure("maxmemory", "1mb").await;
    let toy = foreign("toy-0");
    edge.disconnect(&toy);
    let gone = async || caller.find(&toy).await.unwrap();
    eventually(turns::TEST_TIMEOUT, gone, Option::is_none).await;
}

#[tokio::test]
async fn limit_is_a_setting() {
    let (hub, shutdown) = (LocalHub::default(), Shutdown::new());
    let config = BusConfig::local(&hub, "edge").with_registration_bytes(10);
    let bus = Bus::start(config, &prometheus::Registry::new(), &shutdown).unwrap();
    let toy = device("toy-1");
    let epoch = bus.claim(&toy).await.unwrap().epoch;
    let register = async |text: &'static str| {
        let json = bytes::Bytes::from_static(text.as_bytes());
        let digest = switchboard_protocol::schema::Digest::compute(&json);
        bus.register(&toy, epoch, None, (digest, &json)).await
    };
    let refused = register("{\"too\":\"long\"}").await;
    assert!(
        matches!(refused, Err(BusError::RegistrationsFull { limit: 10 })),
        "{refused:?}"
    );
    register("{\"a\":1}").await.unwrap();
    assert_eq!(toy.org, org());
    shutdown.stop();
}

/// Nodes of the former release replace and remove entries without ending their use of a text.
#[tokio::test]
async fn texts_that_former_nodes_leave_go_with_the_last_device() {
    let system = TestSystem::redis().await;
    let edge = system.start_edge("edge").await;
    let toys = ["toy-1", "toy-2", "toy-3"].map(device);
    edge.connect(&toys[0]).await;
    let digest = edge.register(&toys[0], "{}").await;
    let live: Vec<String> = system.query(redis::cmd("KEYS").arg("test:*:live")).await;
    let (live, services) = (&live[0], live[0].replace(":live", ":services"));
    let replace = async |toy: &DeviceKey, entry: &str| {
        let mut set = redis::cmd("HSET");
        set.arg(live).arg(toy.device.as_str()).arg(entry);
        system.query::<()>(&set).await;
    };
    let await_deleted = async || {
        let stored = async || {
            system
                .query::<usize>(redis::cmd("EXISTS").arg(&services))
                .await
        };
        eventually(turns::TEST_TIMEOUT, stored, |stored| *stored == 0).await;
    };
    // The device connects to such a node, and disconnects.
    replace(&toys[0], "9999999999999999 edge~old -").await;
    edge.disconnect(&toys[0]);
    let mut remove = redis::cmd("HDEL");
    system
        .query::<()>(remove.arg(live).arg(toys[0].device.as_str()))
        .await;
    let mut count = redis::cmd("HGET");
    let count: usize = system
        .query(count.arg(&services).arg(format!("#{digest}")))
        .await;
    assert_eq!(count, 1, "no entry uses it");
    edge.connect(&toys[1]).await;
    edge.disconnect(&toys[1]);
    await_deleted().await;
    // Such a node dies with its last device.
    edge.connect(&toys[2]).await;
    edge.register(&toys[2], "{}").await;
    replace(&toys[2], "5 edge~dead -").await;
    let mut expired = redis::cmd("ZADD");
    expired.arg("test:{nodes}").arg(1).arg("edge~dead");
    system.query::<()>(&expired).await;
    await_deleted().await;
}
