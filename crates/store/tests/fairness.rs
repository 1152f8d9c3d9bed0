//! Shares of organisations in connections and background jobs, in a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::time::Duration;

use prometheus::Registry;
use secrecy::ExposeSecret as _;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use switchboard_protocol::{
    id::{CallId, DeviceKey, OrgId, WebhookId},
    outcome::{Delivered, Outcome},
};
use switchboard_runtime::budget::{self, Budgets, Kind};
use switchboard_store::{
    AttemptsInFlight, CallClaim, CallDispatch, CallEnd, Expiry, JobTurn, NewStoredCall, Owner,
    QueueLimits, Store, WebhookEvent, WebhookSettings, testing::TestDatabase,
};
use tokio::task::JoinSet;
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(600);
const INSERT_TIMEOUT: Duration = Duration::from_secs(10);
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
/// Requests of the greedy organisation at the same time: four times the connections.
const GREEDY_REQUESTS: usize = 40;
/// Four fifths of the default number of connections.
const CONNECTION_SHARE: i64 = 8;

/// A database with two organisations. In the order of ids, the greedy one is the first.
struct Neighbours {
    database: TestDatabase,
    store: Store,
    greedy: OrgId,
    modest: OrgId,
}

impl Neighbours {
    async fn new() -> Self {
        let database = TestDatabase::create().await.unwrap();
        let [greedy, modest] = [1, 2].map(|id| OrgId::from_uuid(Uuid::from_u128(id)));
        for org in [greedy, modest] {
            let sql = format!(
                "INSERT INTO orgs (id, name) VALUES ('{}', 'an org')",
                org.uuid()
            );
            database.execute(&sql).await.unwrap();
        }
        Self {
            store: database.store(),
            database,
            greedy,
            modest,
        }
    }

    async fn connect(&self) -> PgConnection {
        let url = self.database.url().expose_secret();
        PgConnection::connect(url).await.unwrap()
    }

    /// A connection whose transaction holds what `sql` locks.
    async fn lock(&self, sql: &str) -> PgConnection {
        let mut connection = self.connect().await;
        let sql = AssertSqlSafe(format!("BEGIN; {sql}"));
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        connection
    }

    /// Waits until this many connections wait for a lock.
    async fn wait_for_blocked(&self, expected: i64) {
        self.wait_for_connections("wait_event_type = 'Lock'", expected)
            .await;
    }

    /// Waits until this many connections meet a condition.
    async fn wait_for_connections(&self, condition: &str, expected: i64) {
        let mut connection = self.connect().await;
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {condition}"
        );
        let deadline = tokio::time::Instant::now() + WAIT_TIMEOUT;
        loop {
            let query = sqlx::query_scalar::<_, i64>(AssertSqlSafe(sql.clone()));
            let found = query.fetch_one(&mut connection).await.unwrap();
            if found == expected {
                return;
            }
            let now = tokio::time::Instant::now();
            assert!(now < deadline, "{condition}: {found}, not {expected}");
            tokio::task::yield_now().await;
        }
    }

    /// Requests of the other organisation and of the process are answered.
    async fn assert_modest_org_is_served(&self) {
        let device = "toy-1".parse().unwrap();
        for _ in 0..20 {
            let found = self.store.device(self.modest, &device).await;
            assert!(found.unwrap().is_none());
            self.store.ping(WAIT_TIMEOUT).await.unwrap();
        }
        let call = enqueue(self.store.clone(), self.modest).await;
        assert!(call.is_ok());
    }

    async fn execute(&self, sql: &str) {
        self.database.execute(sql).await.unwrap();
    }
}

async fn enqueue(store: Store, org: OrgId) -> Result<(), String> {
    let device = DeviceKey {
        org,
        device: "toy-1".parse().unwrap(),
    };
    let call = NewStoredCall {
        id: CallId::from_uuid(Uuid::now_v7()),
        device: &device,
        service: "echo",
        timeout: Duration::from_secs(30),
        work: CallDispatch::Queued {
            params: b"{}",
            input: b"",
            expiry: Expiry::In(Duration::from_secs(3600)),
            limits: QueueLimits {
                per_device: 1_000,
                per_org: 1_000,
            },
        },
    };
    let inserted = store.insert_call(call, None, INSERT_TIMEOUT).await;
    inserted.map(drop).map_err(|error| error.to_string())
}

/// A request for a token needs a key of the installation, whose rows have no organisation.
#[tokio::test]
async fn signing_keys_are_read_within_the_share_of_the_organisation() {
    let neighbours = Neighbours::new().await;
    let budgets = Budgets::new(&Registry::new()).unwrap();
    let store = neighbours.store.clone().with_budgets(&budgets);
    let connections = budgets.slots("database_connections", 1, Kind::Brief);
    let greedy = Owner::Org(neighbours.greedy).into();
    let share = connections.try_acquire(greedy, connections.share());
    assert!(store.signing_keys_for(neighbours.greedy).await.is_err());
    assert!(store.signing_keys_for(neighbours.modest).await.is_ok());
    assert!(store.signing_keys().await.is_ok());
    drop(share.unwrap());
    assert!(store.signing_keys_for(neighbours.greedy).await.is_ok());
}

#[tokio::test]
async fn org_that_waits_for_its_own_row_holds_one_connection() {
    let neighbours = Neighbours::new().await;
    let row = format!(
        "SELECT FROM orgs WHERE id = '{}' FOR UPDATE",
        neighbours.greedy.uuid()
    );
    let locked = neighbours.lock(&row).await;
    let mut greedy = JoinSet::new();
    for _ in 0..GREEDY_REQUESTS {
        greedy.spawn(enqueue(neighbours.store.clone(), neighbours.greedy));
    }
    neighbours.wait_for_blocked(1).await;
    neighbours.assert_modest_org_is_served().await;
    neighbours.wait_for_blocked(1).await;
    // The others still wait for their turn, and get it.
    locked.close().await.unwrap();
    let inserted = greedy.join_all().await;
    assert!(inserted.iter().any(Result::is_ok), "{inserted:?}");
}

#[tokio::test]
async fn org_holds_no_more_than_its_share_of_the_connections() {
    let neighbours = Neighbours::new().await;
    let (store, org) = (neighbours.store.clone(), neighbours.greedy);
    let webhook = WebhookId::from_uuid(Uuid::now_v7());
    let settings = WebhookSettings {
        url: "https://example.com/".to_owned(),
        description: None,
        events: vec![WebhookEvent::CallFinished],
        enabled: true,
    };
    let mut creation = store.begin_in_turn(org).await.unwrap();
    let created = creation.create_webhook(org, webhook, &settings, b"secret");
    created.await.unwrap().unwrap();
    creation.commit().await.unwrap();
    let _locked = neighbours.lock("SELECT FROM webhooks FOR UPDATE").await;
    let change = || {
        let (store, settings) = (neighbours.store.clone(), settings.clone());
        async move {
            let changed = store.replace_webhook(org, webhook, 1, &settings).await;
            changed.map(drop)
        }
    };
    // Cancelled requests leave statements behind, which hold their connections until they end.
    for _ in 0..3 {
        let mut greedy = JoinSet::new();
        for _ in 0..GREEDY_REQUESTS {
            greedy.spawn(change());
        }
        neighbours.wait_for_blocked(CONNECTION_SHARE).await;
        neighbours.assert_modest_org_is_served().await;
        neighbours.wait_for_blocked(CONNECTION_SHARE).await;
    }
}

#[tokio::test]
async fn ends_of_calls_of_an_org_leave_connections_to_others() {
    let neighbours = Neighbours::new().await;
    let (store, org) = (&neighbours.store, neighbours.greedy);
    enqueue(store.clone(), org).await.unwrap();
    let device = DeviceKey {
        org,
        device: "toy-1".parse().unwrap(),
    };
    let CallClaim::Call(call) = store.claim_call(&device, false).await.unwrap() else {
        panic!("the call is queued");
    };
    let _locked = neighbours.lock("SELECT FROM calls FOR UPDATE").await;
    let mut greedy = JoinSet::new();
    for _ in 0..GREEDY_REQUESTS {
        let (store, attempt) = (store.clone(), call.attempt());
        greedy.spawn(async move {
            let end = CallEnd {
                outcome: Outcome::Succeeded,
                delivered: Delivered::Yes,
                answer: b"{}".to_vec(),
                result_valid: true,
            };
            store.end_call(attempt, &end).await
        });
    }
    neighbours.wait_for_blocked(CONNECTION_SHARE).await;
    neighbours.assert_modest_org_is_served().await;
    neighbours.wait_for_blocked(CONNECTION_SHARE).await;
}

#[tokio::test]
async fn cancelled_transaction_is_rolled_back() {
    let neighbours = Neighbours::new().await;
    let (store, org) = (&neighbours.store, neighbours.greedy);
    let is_open = "state LIKE 'idle in transaction%'";
    let transaction = store.begin(org).await.unwrap();
    neighbours.wait_for_connections(is_open, 1).await;
    drop(transaction);
    neighbours.wait_for_connections(is_open, 0).await;
    neighbours.assert_modest_org_is_served().await;
}

/// Adds books that wait to be parsed.
async fn add_books(neighbours: &Neighbours, org: OrgId, count: usize, size: usize) {
    let sql = format!(
        "INSERT INTO skills_books (id, org_id, name, mime_type, locale, size_bytes, sha256, state)
         SELECT gen_random_uuid(), '{}', 'a book', 'text/plain', 'en', {size}, sha256('a'), 'parsing'
         FROM generate_series(1, {count})",
        org.uuid()
    );
    neighbours.execute(&sql).await;
}

/// The owner of the next book.
async fn claim_book(store: &Store, turn: &mut JobTurn) -> Option<Owner> {
    let claimed = store.claim_skills_book(Uuid::now_v7(), LEASE, turn).await;
    claimed.unwrap().map(|job| job.owner)
}

#[tokio::test]
async fn book_waits_for_one_book_of_another_org() {
    let neighbours = Neighbours::new().await;
    let (greedy, modest) = (neighbours.greedy.into(), neighbours.modest.into());
    let (store, turn) = (&neighbours.store, &mut JobTurn::default());
    add_books(&neighbours, neighbours.greedy, 4, 16 * 1024 * 1024).await;
    assert_eq!(claim_book(store, turn).await, Some(greedy));
    add_books(&neighbours, neighbours.modest, 1, 360).await;
    assert_eq!(claim_book(store, turn).await, Some(modest));
    assert_eq!(claim_book(store, turn).await, Some(greedy));
    // After a restart of the process, the turns begin again.
    add_books(&neighbours, neighbours.modest, 2, 360).await;
    let turn = &mut JobTurn::default();
    let mut rest = Vec::new();
    while let Some(owner) = claim_book(store, turn).await {
        rest.push(owner);
    }
    assert_eq!(rest, [greedy, modest, greedy, modest]);
}

#[tokio::test]
async fn owner_at_its_share_gets_no_further_job() {
    let neighbours = Neighbours::new().await;
    let (store, turn) = (&neighbours.store, &mut JobTurn::default());
    add_books(&neighbours, neighbours.greedy, 3, 16).await;
    let budgets = Budgets::new(&Registry::new()).unwrap();
    let budget = budgets.slots("ingestion_jobs", 2, Kind::quarter_of(2));
    let first = claim_book(store, turn).await.unwrap();
    let permit = budget.try_acquire(first.into(), 1).unwrap();
    turn.pass_over_full_shares(&budget);
    assert_eq!(claim_book(store, turn).await, None);
    add_books(&neighbours, neighbours.modest, 1, 16).await;
    let next = claim_book(store, turn).await.unwrap();
    assert_eq!(next, neighbours.modest.into());
    let _other = budget.try_acquire(next.into(), 1).unwrap();
    drop(permit);
    turn.pass_over_full_shares(&budget);
    assert_eq!(claim_book(store, turn).await, Some(first));
    assert_eq!(budget.holders().len(), 1);
    assert!(budget.try_acquire(budget::Owner::System, 1).is_ok());
}

/// Adds voices that wait for their training.
async fn add_voices(neighbours: &Neighbours, org: OrgId, count: usize) {
    let sql = format!(
        "INSERT INTO voices (id, org_id, name, languages, labels, consent_by, consent_statement,
                             consent_agreed_at, mime_type, duration_ms, sample_rate_hz, channels, size_bytes,
                             sha256, provider)
         SELECT gen_random_uuid(), '{}', 'a voice', '{{}}', '{{}}', 'a person', 'yes', now(), 'audio/wav', 1, 1, 1,
                1, sha256('a'), 'a provider'
         FROM generate_series(1, {count})",
        org.uuid()
    );
    neighbours.execute(&sql).await;
}

/// The owner of the next voice.
async fn claim_voice(store: &Store, turn: &mut JobTurn) -> Option<Owner> {
    let claimed = store.claim_voice(Uuid::now_v7(), LEASE, "a provider", turn);
    claimed.await.unwrap().map(|job| job.owner)
}

#[tokio::test]
async fn voices_are_claimed_in_turns() {
    let neighbours = Neighbours::new().await;
    let (greedy, modest) = (neighbours.greedy, neighbours.modest);
    for (org, count) in [(greedy, 3), (modest, 2)] {
        add_voices(&neighbours, org, count).await;
    }
    let (store, turn) = (&neighbours.store, &mut JobTurn::default());
    let mut claimed = Vec::new();
    while let Some(owner) = claim_voice(store, turn).await {
        claimed.push(owner);
    }
    let [greedy, modest] = [greedy, modest].map(Owner::from);
    assert_eq!(claimed, [greedy, modest, greedy, modest, greedy]);
    let other = store.claim_voice(Uuid::now_v7(), LEASE, "another provider", turn);
    assert!(other.await.unwrap().is_none());
}

#[tokio::test]
async fn jobs_of_a_suspended_org_wait() {
    let neighbours = Neighbours::new().await;
    let (store, suspended, other) = (&neighbours.store, neighbours.greedy, neighbours.modest);
    for org in [suspended, other] {
        add_books(&neighbours, org, 1, 16).await;
        add_voices(&neighbours, org, 1).await;
    }
    store.set_suspended(suspended, true).await.unwrap();
    let (books, voices) = (&mut JobTurn::default(), &mut JobTurn::default());
    assert_eq!(claim_book(store, books).await, Some(other.into()));
    assert_eq!(claim_book(store, books).await, None);
    assert_eq!(claim_voice(store, voices).await, Some(other.into()));
    assert_eq!(claim_voice(store, voices).await, None);
    store.set_suspended(suspended, false).await.unwrap();
    assert_eq!(claim_book(store, books).await, Some(suspended.into()));
    assert_eq!(claim_voice(store, voices).await, Some(suspended.into()));
}

#[tokio::test]
async fn voice_of_a_suspended_org_is_deleted_at_the_end_of_its_consent() {
    let neighbours = Neighbours::new().await;
    let (store, org) = (&neighbours.store, neighbours.greedy);
    add_voices(&neighbours, org, 1).await;
    store.set_suspended(org, true).await.unwrap();
    let ended = "UPDATE voices SET consent_agreed_at = now() - interval '2 h', consent_expires_at = now() - interval '1 h'";
    neighbours.execute(ended).await;
    let turn = &mut JobTurn::default();
    let claimed = store.claim_voice(Uuid::now_v7(), LEASE, "a provider", turn);
    assert!(claimed.await.unwrap().unwrap().consent_ended);
}

#[tokio::test]
async fn texts_of_suspended_orgs_wait_and_take_no_place() {
    let neighbours = Neighbours::new().await;
    let (store, suspended, other) = (&neighbours.store, neighbours.greedy, neighbours.modest);
    add_model(&neighbours).await;
    add_texts(&neighbours, &format!("'{}'", suspended.uuid()), 4).await;
    add_texts(&neighbours, &format!("'{}'", other.uuid()), 2).await;
    let model = store.embedding_model().await.unwrap().unwrap();
    let turn = &mut JobTurn::default();
    let mut claim = async |limit| {
        let texts = store.claim_texts_to_embed(&model, limit, LEASE, turn);
        let texts = texts.await.unwrap().unwrap();
        texts.iter().map(|text| text.owner).collect::<Vec<_>>()
    };
    store.set_suspended(suspended, true).await.unwrap();
    // The suspended organisation is the first in the order of ids.
    assert_eq!(claim(1).await, [Owner::from(other)]);
    assert_eq!(claim(9).await, [Owner::from(other)]);
    assert_eq!(claim(9).await, []);
    store.set_suspended(suspended, false).await.unwrap();
    assert_eq!(claim(9).await, [Owner::from(suspended); 4]);
}

async fn add_model(neighbours: &Neighbours) {
    neighbours
        .execute("INSERT INTO embedding_models (model, dimensions, filled) VALUES ('m', 3, true)")
        .await;
}

/// Adds memories that wait for their embedding, of the owner of this SQL expression.
async fn add_texts(neighbours: &Neighbours, org: &str, count: usize) {
    let sql = format!(
        "WITH template AS (
             INSERT INTO templates (id, org_id, name, tags, persona, tools, skills_book_ids, memory, prompt_name)
             VALUES (gen_random_uuid(), {org}, 'a template', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', 'a-template')
             RETURNING id, org_id)
         INSERT INTO memories (id, org_id, template_id, text, importance, metadata, mime_type)
         SELECT gen_random_uuid(), org_id, id, 'a text', 0.5, '{{}}', 'text/plain'
         FROM template, generate_series(1, {count})"
    );
    neighbours.execute(&sql).await;
}

#[tokio::test]
async fn batch_of_texts_is_divided_among_owners() {
    let neighbours = Neighbours::new().await;
    let (greedy, modest) = (neighbours.greedy, neighbours.modest);
    add_model(&neighbours).await;
    for (org, count) in [
        (format!("'{}'", greedy.uuid()), 100),
        (format!("'{}'", modest.uuid()), 5),
        ("NULL".to_owned(), 1),
    ] {
        add_texts(&neighbours, &org, count).await;
    }
    let (store, turn) = (&neighbours.store, &mut JobTurn::default());
    let model = store.embedding_model().await.unwrap().unwrap();
    let mut claim = async |limit| {
        let texts = store.claim_texts_to_embed(&model, limit, LEASE, turn);
        let texts = texts.await.unwrap().unwrap();
        let of = |owner: Owner| texts.iter().filter(|text| text.owner == owner).count();
        [
            of(greedy.into()),
            of(modest.into()),
            of(Owner::Installation),
        ]
    };
    assert_eq!(claim(9).await, [3, 3, 1]);
    assert_eq!(claim(9).await, [4, 2, 0]);
    assert_eq!(claim(9).await, [9, 0, 0]);
    // Fewer texts than owners: they take turns.
    neighbours
        .execute("UPDATE embedding_queue SET due_at = now()")
        .await;
    let mut claims = Vec::new();
    for _ in 0..4 {
        claims.push(claim(1).await);
    }
    assert_eq!(claims, [[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]]);
}

#[tokio::test]
async fn deliveries_are_claimed_from_the_org_with_the_fewest_attempts() {
    let neighbours = Neighbours::new().await;
    let (greedy, modest) = (neighbours.greedy, neighbours.modest);
    for (org, webhooks) in [(greedy, 16), (modest, 2)] {
        let sql = format!(
            "INSERT INTO webhooks (id, org_id, url, events, enabled, secret)
             SELECT gen_random_uuid(), '{}', 'https://example.com/', '{{call.finished}}', true, 'secret'
             FROM generate_series(1, {webhooks})",
            org.uuid()
        );
        neighbours.execute(&sql).await;
    }
    let deliveries = "INSERT INTO webhook_deliveries (id, org_id, webhook_id, event, event_id, payload, next_attempt_at)
         SELECT gen_random_uuid(), org_id, id, 'call.finished', gen_random_uuid(), '{}', now() - age * interval '1 min'
         FROM webhooks, generate_series(1, 50) age";
    neighbours.execute(deliveries).await;
    let claim = async |by_org: &[(OrgId, usize)], limit| {
        let in_flight = AttemptsInFlight {
            by_org: by_org.to_vec(),
            share: 4,
            ..AttemptsInFlight::default()
        };
        let claimed = neighbours.store.claim_deliveries(&in_flight, LEASE, limit);
        let claimed = claimed.await.unwrap();
        let of = |org| claimed.iter().filter(|one| one.org == org).count();
        [of(greedy), of(modest)]
    };
    assert_eq!(claim(&[], 8).await, [4, 2]);
    assert_eq!(claim(&[], 2).await, [1, 1]);
    assert_eq!(claim(&[(greedy, 3)], 8).await, [1, 2]);
    assert_eq!(claim(&[(greedy, 3), (modest, 1)], 2).await, [0, 2]);
    assert_eq!(claim(&[(greedy, 4), (modest, 2)], 8).await, [0, 2]);
}
