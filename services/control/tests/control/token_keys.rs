//! Publication of token keys and revocations, and the limit of live tokens.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use chrono::{TimeDelta, Utc};
use http::{Method, StatusCode};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use switchboard_bus::{Bus, BusConfig, LocalHub, TokenError};
use switchboard_control::Deps;
use switchboard_protocol::{
    id::{OrgId, TokenId},
    token::{AccessError, Claims, Scope, SignedKeySet, SigningKey},
};
use switchboard_store::{IssuedToken, MasterKeys};
use switchboard_test_support::{
    eventually::{eventually_some, eventually_true},
    redis_server::RedisServer,
};
use uuid::Uuid;

use crate::{
    installation::{Installation, OPERATOR_KEY, config},
    receiver::Receiver,
};

/// Within this, a change is in force on every node.
const IN_FORCE_TIMEOUT: Duration = Duration::from_secs(5);

impl Installation {
    /// A token of the organisation that is stored as revoked, and not published.
    async fn revoked_token(&self, org: OrgId) -> TokenId {
        let token = IssuedToken {
            id: TokenId::from_uuid(Uuid::now_v7()),
            org,
            subject: "client:app".to_owned(),
            scopes: [Scope::Call].into_iter().collect(),
            issued_at: Utc::now(),
            expires_at: Utc::now() + TimeDelta::hours(1),
        };
        self.store.add_token(&token).await.unwrap();
        let revoked = self.store.revoke_token(org, token.id).await.unwrap();
        revoked.unwrap().id
    }

    async fn issue(&self, key: &str, subject: &str) -> (StatusCode, Value) {
        let body = json!({"subject": subject, "scopes": ["read"]});
        self.send(Method::POST, "/v1/tokens", Some(key), Some(body))
            .await
    }
}

#[tokio::test]
async fn token_of_a_deleted_signing_key_is_refused_within_five_seconds() {
    let installation = Installation::start().await;
    installation.trusted().await;
    let org = installation.new_org("Toys").await;
    let (_, token) = installation.issue(&org.key, "client:app").await;
    let token = token["access_token"].as_str().unwrap();
    let (_, check) = installation.bus.verify_for_connection(token).unwrap();
    for sql in [
        "UPDATE signing_keys SET retired_at = now()",
        "DELETE FROM signing_keys WHERE retired_at IS NOT NULL",
    ] {
        let scoped = format!("SET switchboard.speaker = 'everyone'; {sql}");
        installation.database.execute(&scoped).await.unwrap();
    }
    let refused = eventually_true("the token is refused", || {
        installation.bus.verify(token) == Err(TokenError::Access(AccessError::UnknownKey))
    });
    tokio::time::timeout(IN_FORCE_TIMEOUT, refused)
        .await
        .unwrap();
    let rechecked = installation.bus.recheck(&check);
    assert_eq!(rechecked, Err(AccessError::UnknownKey));
    // The next key signs.
    let issued = async || {
        let (_, token) = installation.issue(&org.key, "client:app").await;
        let token = token["access_token"].as_str()?.to_owned();
        installation.bus.verify(&token).ok()
    };
    eventually_some("a token of the next key", issued).await;
}

#[tokio::test]
async fn keys_sign_as_before_after_they_are_encrypted() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let first = installation.start_another();
    installation.trusted().await;
    let org = installation.new_org("Toys").await;
    let (_, token) = installation.issue(&org.key, "client:app").await;
    let token = token["access_token"].as_str().unwrap();
    let receiver = Receiver::start(&[]).await;
    let document = receiver.webhook(&["device.online"]);
    let (webhook, secret) = installation.webhook(&org, document).await;
    installation.send_test_event(&org, &webhook).await;
    assert!(receiver.received(1).await[0].is_signed_with(&secret));
    first.stop();

    let key = MasterKeys::generate();
    let master_keys = MasterKeys::parse(key.expose_secret()).unwrap();
    let store = installation.store.clone().with_master_keys(master_keys);
    assert_eq!(store.rewrap_keys().await.unwrap().changed, 2);
    let registry = prometheus::Registry::new();
    // Another bus: its keys come from the database.
    let bus = BusConfig::local(&LocalHub::default(), "control");
    let bus = Bus::start(bus, &registry, &installation.shutdown).unwrap();
    let deps = Deps {
        store,
        bus: bus.clone(),
        ..installation.deps(&registry)
    };
    switchboard_control::start_workers(&config(), &deps, &installation.shutdown).unwrap();
    eventually_true("the token is valid", || bus.verify(token).is_ok()).await;
    installation.send_test_event(&org, &webhook).await;
    assert!(receiver.received(2).await[1].is_signed_with(&secret));

    // A process without the master key issues no token, and creates no other key.
    let (status, problem) = installation.issue(&org.key, "client:app").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{problem}");
    assert_eq!(deps.store.signing_keys().await.unwrap().len(), 1);
}

#[tokio::test]
async fn signed_keys_are_published_and_restored() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let key = MasterKeys::generate();
    let master_keys = MasterKeys::parse(key.expose_secret()).unwrap();
    let pin = master_keys.key_set_key().unwrap().verifying_key();
    let server = RedisServer::start();
    let start = |name: &str| {
        let config = BusConfig::redis(&server.url().into(), name, "test");
        let config = config.pinning(std::slice::from_ref(&pin));
        Bus::start(config, &prometheus::Registry::new(), &installation.shutdown).unwrap()
    };
    let edge = start("edge");
    let deps = Deps {
        store: installation.store.clone().with_master_keys(master_keys),
        bus: start("control"),
        ..installation.deps(&prometheus::Registry::new())
    };
    switchboard_control::start_workers(&config(), &deps, &installation.shutdown).unwrap();
    eventually_true("the keys are adopted", || edge.has_keys()).await;
    let published = async || edge.key_set().await.unwrap().unwrap();
    let first = published().await;

    // A foreign key is published: the edge refuses it, and control replaces it.
    let foreign = SigningKey::from_seed(&[6; 32]);
    let expires_at = u64::try_from(Utc::now().timestamp()).unwrap() + 60;
    let set = SignedKeySet {
        keys: vec![foreign.verifying_key()],
        sequence: 1 << 52,
        expires_at,
    };
    let signed = foreign.sign_key_set(&set).unwrap();
    redis_reply(&server, &format!("SET test:{{trust}}:signed-keys {signed}"));
    redis_reply(&server, "SET test:{trust}:version 7");
    eventually_some("control publishes its keys again", async || {
        let found = published().await;
        (found.version != 7 && found.signed != Some(signed.clone())).then_some(())
    })
    .await;
    eventually_true("they are adopted", || edge.key_set_refusal().is_none()).await;
    assert_eq!(published().await.keys, first.keys);

    // The signing key is deleted: the next one is signed, and adopted.
    for sql in [
        "UPDATE signing_keys SET retired_at = now()",
        "DELETE FROM signing_keys WHERE retired_at IS NOT NULL",
    ] {
        let scoped = format!("SET switchboard.speaker = 'everyone'; {sql}");
        installation.database.execute(&scoped).await.unwrap();
    }
    let next = async || {
        let keys = published().await.keys;
        (keys != first.keys).then_some(())
    };
    eventually_some("the next key is published", next).await;
    let signing = deps.store.signing_keys().await.unwrap();
    let signing = SigningKey::from_seed(signing[0].seed.expose_secret());
    let now = u64::try_from(Utc::now().timestamp()).unwrap();
    let claims = Claims {
        id: TokenId::from_uuid(Uuid::now_v7()),
        org: OrgId::from_uuid(Uuid::now_v7()),
        subject: "client:app".parse().unwrap(),
        scopes: [Scope::Call].into_iter().collect(),
        restrictions: None,
        issued_at: now,
        expires_at: now + 60,
    };
    let (token, forged) = (
        signing.sign(&claims).unwrap(),
        foreign.sign(&claims).unwrap(),
    );
    eventually_true("the next key is adopted", || edge.verify(&token).is_ok()).await;
    let refused = Err(TokenError::Access(AccessError::UnknownKey));
    assert_eq!(edge.verify(&forged), refused);
}

#[tokio::test]
async fn unreadable_quotas_are_replaced() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let server = RedisServer::start();
    redis_reply(&server, "SET test:quotas unreadable");
    let start = |name: &str| {
        let config = BusConfig::redis(&server.url().into(), name, "test");
        Bus::start(config, &prometheus::Registry::new(), &installation.shutdown).unwrap()
    };
    let edge = start("edge");
    assert!(edge.published_quotas().await.is_err());
    let deps = Deps {
        bus: start("control"),
        ..installation.deps(&prometheus::Registry::new())
    };
    switchboard_control::start_workers(&config(), &deps, &installation.shutdown).unwrap();
    eventually_true("the keys are published", || edge.has_keys()).await;
    assert!(edge.published_quotas().await.unwrap().is_some());
}

/// The reply of Redis to a command, without parsing.
fn redis_reply(server: &RedisServer, command: &str) -> String {
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket
        .write_all(format!("{command}\r\nQUIT\r\n").as_bytes())
        .unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    reply
}

/// How many revocations were written to Redis.
fn writes(server: &RedisServer) -> u64 {
    let stats = redis_reply(server, "INFO commandstats");
    let count = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_zadd:calls="));
    let count = count.and_then(|line| line.split(',').next()?.parse().ok());
    count.unwrap_or_default()
}

#[tokio::test]
async fn one_revocation_among_many_does_not_rewrite_the_others() {
    const MANY: u64 = 300;
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let org = installation.new_org("Toys").await.id();
    for _ in 0..MANY {
        installation.revoked_token(org).await;
    }
    let server = RedisServer::start();
    let bus = |name: &str| {
        let config = BusConfig::redis(&server.url().into(), name, "test");
        Bus::start(config, &prometheus::Registry::new(), &installation.shutdown).unwrap()
    };
    let (control, edge) = (bus("control"), bus("edge"));
    let registry = prometheus::Registry::new();
    let deps = Deps {
        bus: control,
        ..installation.deps(&registry)
    };
    switchboard_control::start_workers(&config(), &deps, &installation.shutdown).unwrap();
    let revocations = async || Some(edge.key_set().await.ok()??.revocations);
    let published = async |count: u64| {
        eventually_some("the revocations are published", async || {
            revocations().await.filter(|found| *found as u64 == count)
        })
        .await;
    };
    published(MANY).await;
    let before = writes(&server);
    assert!(before >= MANY, "{before}");
    // Each of them is found by a later round of the worker than the former.
    for number in 1..=3 {
        let newest = installation.revoked_token(org).await;
        eventually_true("the node knows it", || edge.is_revoked(newest)).await;
        published(MANY + number).await;
    }
    // Leases of nodes are renewed by a few writes.
    let written = writes(&server) - before;
    assert!(written < MANY / 2, "{written} writes for three revocations");

    // A Redis without data has all of them again.
    let newest = installation.revoked_token(org).await;
    redis_reply(&server, "FLUSHDB");
    published(MANY + 4).await;
    eventually_true("the node knows it", || edge.is_revoked(newest)).await;
}
