//! Publication of token keys and revocations, and the limit of live tokens.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use chrono::{TimeDelta, Utc};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use switchboard_bus::{Bus, BusConfig, TokenError};
use switchboard_control::Deps;
use switchboard_protocol::{
    id::{OrgId, TokenId},
    token::{AccessError, Scope},
};
use switchboard_store::IssuedToken;
use switchboard_test_support::{
    eventually::{eventually_some, eventually_true},
    redis_server::RedisServer,
};
use uuid::Uuid;

use crate::installation::{Installation, OPERATOR_KEY, config};

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

#[tokio::test]
async fn live_tokens_of_an_organisation_are_limited() {
    let installation = Installation::with_tokens_per_org(3).await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Others").await,
    );
    for number in 0..3 {
        let (status, token) = installation
            .issue(&org.key, &format!("client:{number}"))
            .await;
        assert_eq!(status, StatusCode::CREATED, "{token}");
    }
    let (status, problem) = installation.issue(&org.key, "client:more").await;
    assert_eq!(
        (status, &problem["type"], &problem["limit"]),
        (
            StatusCode::CONFLICT,
            &json!("/problems/too_many_tokens"),
            &json!(3)
        )
    );
    let (status, token) = installation.issue(&other.key, "client:app").await;
    assert_eq!(status, StatusCode::CREATED, "{token}");
}
