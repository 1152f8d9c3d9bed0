//! Compatibility tests of what is stored in PostgreSQL: names of the schema, JSON in columns, and
//! the payloads of webhooks.
//!
//! Rows outlive the release that wrote them. See `tests/compatibility` for the frozen values.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use chrono::DateTime;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use switchboard_catalog::{NpcSettings, TemplateSettings};
use switchboard_protocol::{
    id::{ApiKeyId, DeviceKey, NpcId, OrgId, PictureId, TemplateId, WebhookId},
    schema::Digest,
    token::Scope,
};
use switchboard_store::{
    DeviceEvent, DeviceEventKind, NewApiKey, Owner, Store, WebhookEvent, WebhookSettings,
    testing::TestDatabase,
};
use switchboard_test_support::snapshot;
use uuid::Uuid;

/// The lines that a query of one text column returns.
async fn lines(database: &TestDatabase, sql: &str) -> Vec<String> {
    let mut connection = PgConnection::connect(database.url().expose_secret())
        .await
        .unwrap();
    let query = sqlx::query_scalar::<_, String>(AssertSqlSafe(sql.to_owned()));
    query.fetch_all(&mut connection).await.unwrap()
}

async fn new_org(store: &Store) -> OrgId {
    let org = OrgId::from_uuid(Uuid::from_u128(7));
    let key = NewApiKey {
        id: ApiKeyId::from_uuid(Uuid::from_u128(8)),
        name: "key".to_owned(),
        prefix: "sb_abcdefgh".to_owned(),
        secret_hash: [1; 32],
        scopes: Scope::ALL.into_iter().collect(),
    };
    store.create_org(org, "an org", &key).await.unwrap();
    org
}

/// Names, and the checksums of migrations: a database that has seen a migration refuses a release
/// in which its file is another, even when only a comment differs.
const SCHEMA: &str = "
SELECT * FROM (
    SELECT 'column ' || table_name || '.' || column_name || ' ' || udt_name
        || CASE is_nullable WHEN 'YES' THEN ' null' ELSE '' END
    FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> '_sqlx_migrations'
    UNION ALL
    SELECT 'migration ' || version || ' ' || encode(checksum, 'hex') FROM _sqlx_migrations
    UNION ALL
    SELECT 'function ' || proname || '(' || pg_get_function_identity_arguments(p.oid) || ')'
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE nspname = 'public' AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = p.oid AND deptype = 'e')
    UNION ALL
    SELECT 'policy ' || tablename || ' ' || policyname || ' ' || coalesce(qual, '')
    FROM pg_policies WHERE schemaname = 'public'
    UNION ALL
    SELECT 'constraint ' || conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype = 'c'
) names(line) ORDER BY line COLLATE \"C\"";

#[tokio::test]
async fn names_of_the_schema_are_unchanged() {
    let database = TestDatabase::create().await.unwrap();
    let lines = lines(&database, SCHEMA).await.into_iter();
    let one_line = |line: String| line.split_whitespace().collect::<Vec<_>>().join(" ");
    snapshot::check("store-schema.txt", lines.map(one_line));
}

/// Every field of a template, each with another value than the default.
fn all_settings() -> Value {
    let texts = |name: &str| json!([name]);
    json!({
        "name": "Bello", "avatar": null, "locale": "de-DE", "tags": texts("dog"),
        "persona": {
            "role": "r", "description": "d", "personality": "p", "backstory": "b", "scenario": "s",
            "greeting": texts("Woof!"), "example_dialogue": "e", "dialogue_style": "y",
            "system_prompt": "k", "forbidden_topics": texts("cats"),
            "card": {"data": {"creator": "c"}, "root": {"spec": "x"}},
        },
        "model": {"provider": "openai", "model": "gpt-5", "temperature": 0.5, "max_tokens": 9},
        "voice": {"voice_id": "warm-1", "rate": 1.5, "pitch": 0.5, "volume": 2.0},
        "tools": {"allow": texts("a"), "deny": texts("b")},
        "skills_book_ids": [],
        "memory": {"retention_days": 5, "from_conversations": false},
        "conversation": {"barge_in": false},
        "prompt": {
            "name": "greet", "title": "t", "description": "d",
            "arguments": [{"name": "who", "title": "t", "description": "d", "required": true, "question": "a", "values": ["v"]}],
            "messages": [
                {"role": "user", "content": {"type": "text", "text": "{{who}}"}},
                {"role": "assistant", "content": {"type": "resource", "uri": "a:{{who}}"}},
            ],
        },
    })
}

#[test]
fn settings_keep_their_json() {
    let check = |stored: Value| {
        let settings: TemplateSettings = serde_json::from_value(stored.clone()).unwrap();
        let written = serde_json::to_value(settings).unwrap();
        assert_eq!(written, stored, "compatibility break: JSON of settings");
    };
    check(all_settings());
    let mut other = all_settings();
    other["avatar"] = json!(PictureId::from_uuid(Uuid::from_u128(7)));
    other["skills_book_ids"] = json!(["skb_00000000000000000000000000000007"]);
    other["prompt"]["messages"] = json!([
        {"role": "user", "content": {"type": "image", "picture_id": "pic_00000000000000000000000000000007"}},
    ]);
    check(other);
    // What an earlier release left out has its default.
    let first: TemplateSettings = serde_json::from_value(json!({"name": "T"})).unwrap();
    let first = serde_json::to_string(&first).unwrap();
    snapshot::check("store-default-settings.txt", [first]);
}

#[tokio::test]
async fn rows_of_templates_and_npcs_are_unchanged() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let owner = Owner::from(new_org(&store).await);
    let org = OrgId::from_uuid(Uuid::from_u128(7));
    let settings: TemplateSettings = serde_json::from_value(all_settings()).unwrap();
    let template = TemplateId::from_uuid(Uuid::from_u128(9));
    store
        .create_template(owner, template, &settings)
        .await
        .unwrap();
    let npc = NpcId::from_uuid(Uuid::from_u128(10));
    let Value::Object(overrides) = json!({"name": "Rex", "persona": {"role": "guard"}}) else {
        return;
    };
    let bound = NpcSettings {
        template: Some(template),
        template_version: Some(1),
        overrides,
        devices: vec!["toy-1".parse().unwrap()],
    };
    store.create_npc(org, npc, &bound).await.unwrap();
    let rows = |table: &str| {
        format!(
            "SELECT '{table} ' || (to_jsonb(row) - 'created_at' - 'updated_at')::text
             FROM {table} row ORDER BY 1"
        )
    };
    let mut all = Vec::new();
    for table in [
        "orgs",
        "api_keys",
        "templates",
        "template_versions",
        "npcs",
        "npc_devices",
    ] {
        all.extend(lines(&database, &rows(table)).await);
    }
    snapshot::check("store-rows.txt", all);
    let read = store.template(owner, template).await.unwrap().unwrap();
    assert_eq!(serde_json::to_value(read.settings).unwrap(), all_settings());
}

/// A call that a device answered, and one that it was not there for.
const CALLS: &str = r#"
INSERT INTO calls (call_id, org_id, device_id, mode, state, service, params, input, timeout_ms, expires_at)
SELECT ('00000000-0000-0000-0000-00000000000' || n)::uuid, '00000000-0000-0000-0000-000000000007', 'toy-1',
       'queued', 'queued', 'echo', '{}', '', 1000, now() + interval '1 day' FROM generate_series(1, 2) n;
UPDATE calls SET state = 'ended', outcome = 'succeeded', delivered = 'yes', ended_at = now(),
                 answer = '{"success":true,"data":[1]}' WHERE call_id = '00000000-0000-0000-0000-000000000001';
UPDATE calls SET state = 'ended', outcome = 'expired', delivered = 'no', ended_at = now(),
                 answer = '{"detail":"too late","errors":[{"a":1}]}' WHERE call_id = '00000000-0000-0000-0000-000000000002'"#;

#[tokio::test]
async fn payloads_of_webhooks_are_unchanged() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let org = new_org(&store).await;
    let settings = WebhookSettings {
        url: "https://example.org".to_owned(),
        description: None,
        events: WebhookEvent::ALL.to_vec(),
        enabled: true,
    };
    let mut creation = store.begin(org).await.unwrap();
    let webhook = WebhookId::from_uuid(Uuid::from_u128(9));
    creation
        .create_webhook(org, webhook, &settings, b"secret")
        .await
        .unwrap();
    creation.commit().await.unwrap();
    let device_event = |epoch, kind| DeviceEvent {
        device: DeviceKey {
            org,
            device: "toy-1".parse().unwrap(),
        },
        epoch,
        at: DateTime::UNIX_EPOCH,
        kind,
    };
    let registered = DeviceEventKind::Registered {
        digest: Digest::compute(b"{}"),
        services: Some("{}".to_owned()),
    };
    let event = DeviceEventKind::Custom {
        id: Uuid::from_u128(11),
        name: "button".to_owned(),
        data: Some("{\"id\": 1}".to_owned()),
    };
    let events = [DeviceEventKind::Connected, registered, event].map(|kind| device_event(1, kind));
    store.record_device_events(&events).await.unwrap();
    let left = DeviceEventKind::Disconnected {
        reason: "idle_timeout",
    };
    let payloads =
        "SELECT event || ' ' || coalesce(payload, '') FROM webhook_deliveries ORDER BY id";
    let mut all = lines(&database, payloads).await;
    // The newer event of a device replaces the one that was not sent.
    store
        .record_device_events(&[device_event(1, left)])
        .await
        .unwrap();
    database
        .execute("DELETE FROM webhook_deliveries")
        .await
        .unwrap();
    store
        .record_device_events(&[device_event(2, DeviceEventKind::Connected)])
        .await
        .unwrap();
    database
        .execute("DELETE FROM webhook_deliveries")
        .await
        .unwrap();
    let left = DeviceEventKind::Disconnected { reason: "closed" };
    store
        .record_device_events(&[device_event(2, left)])
        .await
        .unwrap();
    database.execute(CALLS).await.unwrap();
    all.extend(lines(&database, payloads).await);
    snapshot::check(
        "webhook-payloads.txt",
        all.iter().map(|line| mask_times(line)),
    );
}

/// The text with each RFC 3339 time as `<time>`, so that its form is kept as well.
fn mask_times(line: &str) -> String {
    let parts = line.split('"').map(|part| {
        let is_time = part.len() == 27 && part.ends_with('Z') && part.as_bytes()[10] == b'T';
        if is_time { "<time>" } else { part }
    });
    parts.collect::<Vec<_>>().join("\"")
}
