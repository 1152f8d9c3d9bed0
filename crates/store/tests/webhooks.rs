//! Webhooks that are attempted and disabled at the same time, against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::time::Duration;

use secrecy::ExposeSecret as _;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use switchboard_protocol::{
    access::Scope,
    id::{ApiKeyId, DeliveryId, OrgId, WebhookId},
};
use switchboard_store::{
    AttemptEnd, ClaimedDelivery, Delivery, DeliveryState, NewApiKey, Redelivery, Store,
    WebhookEvent, WebhookSettings, testing::TestDatabase,
};
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(3600);
const FAILED: AttemptEnd = AttemptEnd::Failed {
    status: Some(500),
    error: "status",
    pause: Some(Duration::from_secs(60)),
};

/// A webhook with one delivery, which somebody attempts.
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
        let made = creation.create_webhook(org, webhook, &settings, b"secret");
        assert!(made.await.unwrap().is_some());
        let id = DeliveryId::from_uuid(Uuid::now_v7());
        let added = creation.add_webhook_delivery(org, webhook, id, "webhook.test", "{}");
        assert!(matches!(added.await.unwrap(), Redelivery::Waits(_)));
        creation.commit().await.unwrap();
        let claimed = store.claim_deliveries(&[], PATIENCE, 1).await.unwrap();
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

    async fn fail_for_days(&self) {
        let since = "UPDATE webhooks SET failing_since = now() - interval '1 day'";
        self.database.execute(since).await.unwrap();
    }

    async fn disable(&self, reason: &str, patience: Option<Duration>) -> bool {
        let disabled = self.store.disable_webhook(&self.claimed, reason, patience);
        disabled.await.unwrap()
    }

    async fn lead_elsewhere(&self) {
        let replaced = self
            .store
            .replace_webhook(self.org, self.webhook, 1, &settings("b"))
            .await
            .unwrap();
        assert_eq!(replaced.unwrap().failing_since, None);
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

/// Waits until somebody waits for a lock in this database.
async fn somebody_waits(connection: &mut PgConnection) {
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
async fn an_attempt_that_ends_while_its_webhook_is_disabled_waits_for_that() {
    for end in [FAILED, AttemptEnd::Arrived { status: 204 }] {
        let post = Post::new().await;
        let mut other = post.connect().await;
        let mut watch = post.connect().await;
        let disable = "BEGIN; UPDATE webhooks SET enabled = false";
        run(&mut other, disable).await;
        let ending = post.store.end_attempt(&post.claimed, &end, PATIENCE);
        let disabling = async {
            somebody_waits(&mut watch).await;
            let give_up = "UPDATE webhook_deliveries SET state = 'failed', next_attempt_at = NULL, ended_at = now(),
                           last_error = 'webhook_disabled' WHERE state = 'pending'; COMMIT";
            run(&mut other, give_up).await;
        };
        let (ended, ()) = tokio::join!(ending, disabling);
        assert!(!ended.unwrap());
        let delivery = post.delivery().await;
        assert_eq!(delivery.state, DeliveryState::Failed);
        assert_eq!(delivery.last_error.as_deref(), Some("webhook_disabled"));
    }
}

#[tokio::test]
async fn what_is_repeated_while_its_webhook_is_disabled_waits_for_that() {
    let post = Post::new().await;
    let given_up = AttemptEnd::Failed {
        status: None,
        error: "timed_out",
        pause: None,
    };
    let ended = post.store.end_attempt(&post.claimed, &given_up, PATIENCE);
    ended.await.unwrap();
    let mut other = post.connect().await;
    let mut watch = post.connect().await;
    run(&mut other, "BEGIN; UPDATE webhooks SET enabled = false").await;
    let mut creation = post.store.begin(post.org).await.unwrap();
    let disabling = async {
        somebody_waits(&mut watch).await;
        let touch = "UPDATE webhook_deliveries SET last_error = 'webhook_disabled'; COMMIT";
        run(&mut other, touch).await;
    };
    let repeating = creation.redeliver(post.org, post.claimed.id);
    let (repeated, ()) = tokio::join!(repeating, disabling);
    assert_eq!(repeated.unwrap(), Redelivery::Disabled);
}

#[tokio::test]
async fn a_webhook_that_leads_elsewhere_meanwhile_is_not_disabled() {
    let post = Post::new().await;
    post.fail_for_days().await;
    let end = post.store.end_attempt(&post.claimed, &FAILED, PATIENCE);
    assert!(end.await.unwrap(), "nothing has arrived for too long");
    post.lead_elsewhere().await;
    assert!(!post.disable("failing", Some(PATIENCE)).await);
    assert!(!post.disable("gone", None).await);
    assert_eq!(post.delivery().await.state, DeliveryState::Pending);
}

#[tokio::test]
async fn a_webhook_at_which_something_arrives_meanwhile_is_not_disabled() {
    let post = Post::new().await;
    post.fail_for_days().await;
    let arrived = "UPDATE webhooks SET failing_since = NULL";
    post.database.execute(arrived).await.unwrap();
    assert!(!post.disable("failing", Some(PATIENCE)).await);
    assert_eq!(post.delivery().await.state, DeliveryState::Pending);
    post.fail_for_days().await;
    assert!(post.disable("failing", Some(PATIENCE)).await);
    assert_eq!(post.delivery().await.state, DeliveryState::Failed);
    assert!(!post.disable("failing", Some(PATIENCE)).await);
}
