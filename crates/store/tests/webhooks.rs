//! Concurrent delivery attempts and disabling of webhooks in a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::time::Duration;

use secrecy::ExposeSecret as _;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use switchboard_protocol::{
    id::{ApiKeyId, DeliveryId, OrgId, WebhookId},
    token::Scope,
};
use switchboard_store::{
    AttemptOutcome, AttemptsInFlight, ClaimedDelivery, Delivery, DeliveryState, NewApiKey,
    Redelivery, Store, WebhookEvent, WebhookSettings, testing::TestDatabase,
};
use uuid::Uuid;

const DELIVERY_LEASE: Duration = Duration::from_secs(3600);
const FAILING_TIMEOUT: Duration = Duration::from_secs(3600);
const FAILED: AttemptOutcome = AttemptOutcome::Failed {
    status: Some(500),
    error: "status",
    retry_delay: Some(Duration::from_secs(60)),
};

/// A webhook with one delivery that is being attempted.
struct Post {
    database: TestDatabase,
    store: Store,
    org: OrgId,
    webhook: WebhookId,
    claimed: ClaimedDelivery,
}

impl Post {
    async fn new() -> Self {
        let database = TestDatabase::create().await.unwrap();
        let store = database.store();
        let org = OrgId::from_uuid(Uuid::now_v7());
        let key = NewApiKey {
            id: ApiKeyId::from_uuid(Uuid::now_v7()),
            name: "key".to_owned(),
            prefix: "sb_abcdefgh".to_owned(),
            secret_hash: [1; 32],
            scopes: [Scope::Admin].into_iter().collect(),
        };
        store.create_org(org, "an org", &key).await.unwrap();
        let webhook = WebhookId::from_uuid(Uuid::now_v7());
        let mut creation = store.begin(org).await.unwrap();
        let settings = settings("a");
        let created = creation.create_webhook(org, webhook, &settings, b"secret");
        assert!(created.await.unwrap().is_some());
        let id = DeliveryId::from_uuid(Uuid::now_v7());
        let added = creation.add_webhook_delivery(org, webhook, id, "webhook.test", "{}");
        assert!(matches!(added.await.unwrap(), Redelivery::Pending(_)));
        creation.commit().await.unwrap();
        let claimed = store
            .claim_deliveries(&unlimited(), DELIVERY_LEASE, 1)
            .await
            .unwrap();
        let claimed = claimed.into_iter().next().unwrap();
        Self {
            database,
            store,
            org,
            webhook,
            claimed,
        }
    }

    async fn connect(&self) -> PgConnection {
        let url = self.database.url().expose_secret();
        PgConnection::connect(url).await.unwrap()
    }

    async fn delivery(&self) -> Delivery {
        let found = self.store.webhook_delivery(self.org, self.claimed.id).await;
        found.unwrap().unwrap()
    }

    async fn set_failing_for_days(&self) {
        let since = "UPDATE webhooks SET failing_since = now() - interval '1 day'";
        self.database.execute(since).await.unwrap();
    }

    async fn disable(&self, reason: &str, failing_timeout: Option<Duration>) -> bool {
        let disabled = self
            .store
            .disable_webhook(&self.claimed, reason, failing_timeout);
        disabled.await.unwrap()
    }

    async fn change_url(&self) {
        let replaced = self
            .store
            .replace_webhook(self.org, self.webhook, 1, &settings("b"))
            .await
            .unwrap();
        assert_eq!(replaced.unwrap().failing_since, None);
    }
}

fn unlimited() -> AttemptsInFlight {
    AttemptsInFlight {
        share: 64,
        ..AttemptsInFlight::default()
    }
}

fn settings(path: &str) -> WebhookSettings {
    WebhookSettings {
        url: format!("https://example.com/{path}"),
        description: None,
        events: vec![WebhookEvent::CallFinished],
        enabled: true,
    }
}

async fn run(connection: &mut PgConnection, sql: &str) {
    let sql = AssertSqlSafe(sql.to_owned());
    sqlx::raw_sql(sql).execute(connection).await.unwrap();
}

/// Waits until a connection waits for a lock in this database.
async fn wait_for_blocked_lock(connection: &mut PgConnection) {
    let waiting = "SELECT EXISTS (SELECT FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock')";
    let looking = async {
        while !sqlx::query_scalar::<_, bool>(waiting)
            .fetch_one(&mut *connection)
            .await
            .unwrap()
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), looking)
        .await
        .unwrap();
}

#[tokio::test]
async fn attempt_result_waits_for_disabling() {
    for end in [FAILED, AttemptOutcome::Delivered { status: 204 }] {
        let post = Post::new().await;
        let mut other = post.connect().await;
        let mut watch = post.connect().await;
        let disable = "BEGIN; UPDATE webhooks SET enabled = false";
        run(&mut other, disable).await;
        let ending = post
            .store
            .record_attempt(&post.claimed, &end, FAILING_TIMEOUT);
        let disabling = async {
            wait_for_blocked_lock(&mut watch).await;
            let fail_pending = "UPDATE webhook_deliveries SET state = 'failed', next_attempt_at = NULL, ended_at = now(),
                           last_error = 'webhook_disabled' WHERE state = 'pending'; COMMIT";
            run(&mut other, fail_pending).await;
        };
        let (ended, ()) = tokio::join!(ending, disabling);
        assert!(!ended.unwrap());
        let delivery = post.delivery().await;
        assert_eq!(delivery.state, DeliveryState::Failed);
        assert_eq!(delivery.last_error.as_deref(), Some("webhook_disabled"));
    }
}

#[tokio::test]
async fn redelivery_waits_for_disabling() {
    let post = Post::new().await;
    let given_up = AttemptOutcome::Failed {
        status: None,
        error: "timed_out",
        retry_delay: None,
    };
    let ended = post
        .store
        .record_attempt(&post.claimed, &given_up, FAILING_TIMEOUT);
    ended.await.unwrap();
    let mut other = post.connect().await;
    let mut watch = post.connect().await;
    run(&mut other, "BEGIN; UPDATE webhooks SET enabled = false").await;
    let mut creation = post.store.begin(post.org).await.unwrap();
    let disabling = async {
        wait_for_blocked_lock(&mut watch).await;
        let touch = "UPDATE webhook_deliveries SET last_error = 'webhook_disabled'; COMMIT";
        run(&mut other, touch).await;
    };
    let repeating = creation.redeliver(post.org, post.claimed.id);
    let (repeated, ()) = tokio::join!(repeating, disabling);
    assert_eq!(repeated.unwrap(), Redelivery::Disabled);
}

#[tokio::test]
async fn webhook_with_new_url_is_not_disabled() {
    let post = Post::new().await;
    post.set_failing_for_days().await;
    let end = post
        .store
        .record_attempt(&post.claimed, &FAILED, FAILING_TIMEOUT);
    assert!(end.await.unwrap(), "it has failed for too long");
    post.change_url().await;
    assert!(!post.disable("failing", Some(FAILING_TIMEOUT)).await);
    assert!(!post.disable("gone", None).await);
    assert_eq!(post.delivery().await.state, DeliveryState::Pending);
}

#[tokio::test]
async fn recovered_webhook_is_not_disabled() {
    let post = Post::new().await;
    post.set_failing_for_days().await;
    let arrived = "UPDATE webhooks SET failing_since = NULL";
    post.database.execute(arrived).await.unwrap();
    assert!(!post.disable("failing", Some(FAILING_TIMEOUT)).await);
    assert_eq!(post.delivery().await.state, DeliveryState::Pending);
    post.set_failing_for_days().await;
    assert!(post.disable("failing", Some(FAILING_TIMEOUT)).await);
    assert_eq!(post.delivery().await.state, DeliveryState::Failed);
    assert!(!post.disable("failing", Some(FAILING_TIMEOUT)).await);
}
