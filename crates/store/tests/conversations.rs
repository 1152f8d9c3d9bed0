//! Conversation settings in a real PostgreSQL: the NPC of a device, and the usage of turns.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::{cell::Cell, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Map, Value, json};
use switchboard_catalog::{CardRest, NpcSettings, TemplateSettings};
use switchboard_protocol::{
    id::{ApiKeyId, DeviceId, NpcId, OrgId, TemplateId},
    token::Scope,
};
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::{
    CountedCalls, CountedTurns, NewApiKey, NpcWrite, Org, OrgSettings, OrgWrite, Owner, Store,
    TemplateWrite, UsageCounter, testing::TestDatabase,
};
use uuid::Uuid;

async fn new_org(store: &Store, byte: u8) -> OrgId {
    let org = OrgId::from_uuid(Uuid::now_v7());
    let key = NewApiKey {
        id: ApiKeyId::from_uuid(Uuid::now_v7()),
        name: "key".to_owned(),
        prefix: "sb_abcdefgh".to_owned(),
        secret_hash: [byte; 32],
        scopes: [Scope::Admin].into_iter().collect(),
    };
    store.create_org(org, "an org", &key).await.unwrap();
    org
}

async fn new_npc(store: &Store, org: OrgId, devices: &[&str]) -> NpcId {
    let id = NpcId::from_uuid(Uuid::now_v7());
    let settings = NpcSettings {
        overrides: json!({"name": "Rex"}).as_object().unwrap().clone(),
        devices: devices.iter().map(|id| id.parse().unwrap()).collect(),
        ..NpcSettings::default()
    };
    let written = store.create_npc(org, id, &settings).await.unwrap();
    assert!(matches!(written, NpcWrite::Written(_)), "{written:?}");
    id
}

async fn set_default(store: &Store, org: OrgId, npc: Option<NpcId>) -> OrgWrite {
    let Org {
        version, settings, ..
    } = store.org(org).await.unwrap().unwrap();
    let settings = OrgSettings {
        default_npc: npc,
        ..settings
    };
    store.replace_org(org, version, &settings).await.unwrap()
}

async fn answering_npc(store: &Store, org: OrgId, device: &str) -> Option<NpcId> {
    let device: DeviceId = device.parse().unwrap();
    let npc = store.npc_for_device(org, &device).await.unwrap();
    npc.map(|npc| npc.id)
}

#[tokio::test]
async fn device_npc_precedes_default_npc() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let (org, other) = (new_org(&store, 1).await, new_org(&store, 2).await);
    let bound = new_npc(&store, org, &["toy-1"]).await;
    let theirs = new_npc(&store, other, &["toy-2"]).await;
    assert_eq!(answering_npc(&store, org, "toy-1").await, Some(bound));
    assert_eq!(answering_npc(&store, org, "toy-2").await, None);
    let default = new_npc(&store, org, &["toy-3", "toy-4"]).await;
    let written = set_default(&store, org, Some(default)).await;
    assert!(matches!(written, OrgWrite::Written(_)), "{written:?}");
    for (device, expected) in [("toy-1", bound), ("toy-2", default), ("toy-3", default)] {
        assert_eq!(
            answering_npc(&store, org, device).await,
            Some(expected),
            "{device}"
        );
    }
    let device: DeviceId = "toy-2".parse().unwrap();
    let found = store.npc_for_device(org, &device).await.unwrap();
    assert_eq!(found, store.npc_for_answers(org, default).await.unwrap());
    assert_eq!(answering_npc(&store, other, "toy-1").await, None);
    assert_eq!(answering_npc(&store, other, "toy-2").await, Some(theirs));
    let unknown_org = OrgId::from_uuid(Uuid::now_v7());
    assert_eq!(answering_npc(&store, unknown_org, "toy-1").await, None);
}

#[tokio::test]
async fn answers_need_neither_card_nor_prompt_nor_overrides() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let org = new_org(&store, 1).await;
    let messages = json!([{"role": "user", "content": {"type": "text", "text": "Hi"}}]);
    let card = json!({"data": {"creator": "c"}, "root": {}});
    let from_template = json!({
        "name": "Bello", "persona": {"role": "a dog", "card": card}, "prompt": {"messages": messages},
    });
    let settings: TemplateSettings = serde_json::from_value(from_template.clone()).unwrap();
    let template = TemplateId::from_uuid(Uuid::now_v7());
    let written = store.create_template(Owner::Org(org), template, &settings);
    assert!(matches!(written.await.unwrap(), TemplateWrite::Written(_)));
    let bases = [
        (None, from_template.clone()),
        (
            Some(template),
            json!({"persona": {"card": {"data": {"creator": "d"}}}}),
        ),
    ];
    for (template, overrides) in bases {
        let settings = NpcSettings {
            template,
            overrides: overrides.as_object().unwrap().clone(),
            ..NpcSettings::default()
        };
        let id = NpcId::from_uuid(Uuid::now_v7());
        let written = store.create_npc(org, id, &settings).await.unwrap();
        let NpcWrite::Written(whole) = written else {
            panic!("{written:?}");
        };
        assert!(whole.effective.settings.prompt.is_some());
        assert!(!whole.effective.settings.persona.card.data.is_empty());

        let mut expected = (*whole).clone();
        expected.settings.overrides = Map::new();
        expected.effective.settings.persona.card = CardRest::default();
        let found = store.npc_without_card(org, id).await.unwrap();
        assert_eq!(found, Some(expected.clone()));
        expected.effective.settings.prompt = None;
        let found = store.npc_for_answers(org, id).await.unwrap();
        assert_eq!(found, Some(expected));
        assert_eq!(store.npc(org, id).await.unwrap(), Some(*whole));
    }
}

#[tokio::test]
async fn default_npc_belongs_to_org_and_is_cleared() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let (org, other) = (new_org(&store, 1).await, new_org(&store, 2).await);
    let theirs = new_npc(&store, other, &[]).await;
    for unknown in [theirs, NpcId::from_uuid(Uuid::now_v7())] {
        let write = set_default(&store, org, Some(unknown)).await;
        assert_eq!(write, OrgWrite::UnknownNpc, "{unknown}");
    }
    let created = store.org(org).await.unwrap().unwrap();
    assert_eq!(
        (
            created.version,
            created.settings.default_npc,
            created.updated_at
        ),
        (1, None, created.created_at)
    );
    let npc = new_npc(&store, org, &[]).await;
    let OrgWrite::Written(set) = set_default(&store, org, Some(npc)).await else {
        unreachable!("the organisation exists");
    };
    assert_eq!((set.version, set.settings.default_npc), (2, Some(npc)));
    assert!(set.updated_at > created.updated_at);
    assert_eq!(store.org(org).await.unwrap(), Some(set.clone()));
    // Equal settings do not increase the version.
    assert_eq!(
        set_default(&store, org, Some(npc)).await,
        OrgWrite::Written(set.clone())
    );
    let stale = store.replace_org(org, 1, &created.settings).await.unwrap();
    assert_eq!(stale, OrgWrite::Stale);

    assert!(store.delete_npc(org, npc, 1).await.unwrap());
    let after = store.org(org).await.unwrap().unwrap();
    // The version increased when the default NPC was deleted.
    assert_eq!((after.version, after.settings.default_npc), (3, None));
    assert_eq!(after.settings.name, "an org");
    let theirs = store.org(other).await.unwrap().unwrap();
    assert_eq!(theirs.version, 1);
}

#[tokio::test]
async fn old_templates_use_default_conversation() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let owner = Owner::Org(new_org(&store, 1).await);
    let template = async |id| store.template(owner, id).await.unwrap().unwrap().settings;
    let make = async |document: Value| {
        let settings: TemplateSettings = serde_json::from_value(document).unwrap();
        let id = TemplateId::from_uuid(Uuid::now_v7());
        let written = store.create_template(owner, id, &settings).await.unwrap();
        assert!(matches!(written, TemplateWrite::Written(_)), "{written:?}");
        (id, settings)
    };
    let unusual = json!({
        "name": "A", "conversation": {"barge_in": false}, "memory": {"retention_days": 3, "from_conversations": false},
    });
    let (id, settings) = make(unusual).await;
    assert_eq!(template(id).await, settings);
    let listed = store.templates(owner, false, None, 10).await.unwrap();
    assert_eq!(listed.elements.first().unwrap().settings, settings);
    let mut usual = settings.clone();
    usual.conversation.barge_in = true;
    usual.memory.from_conversations = true;
    let written = store.replace_template(owner, id, 1, &usual).await.unwrap();
    assert!(matches!(written, TemplateWrite::Written(_)), "{written:?}");
    assert_eq!(template(id).await, usual);
    let version = store.template_version(owner, id, 1).await.unwrap();
    assert_eq!(version, Some(settings));

    // As an earlier version wrote it.
    let row = format!(
        "UPDATE templates SET memory = '{{\"retention_days\": 3}}', conversation = DEFAULT WHERE id = '{}'; \
         UPDATE template_versions SET settings = settings - 'conversation' - 'memory' WHERE version = 2",
        id.uuid()
    );
    database.execute(&row).await.unwrap();
    assert_eq!(template(id).await, usual);
    let version = store.template_version(owner, id, 2).await.unwrap().unwrap();
    assert!(version.conversation.barge_in && version.memory.from_conversations);
}

/// This year's hours until now.
fn whole_year() -> (DateTime<Utc>, DateTime<Utc>) {
    let now = Utc::now();
    (now - TimeDelta::days(300), now)
}

#[tokio::test]
async fn usage_is_written_when_draining() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let (org, other) = (new_org(&store, 1).await, new_org(&store, 2).await);
    let unknown_org = OrgId::from_uuid(Uuid::now_v7());
    let at = Utc::now() - TimeDelta::hours(1);
    let (turns, calls) = (UsageCounter::default(), UsageCounter::default());
    for org in [org, org, unknown_org, other] {
        assert!(turns.count(&CountedTurns::new(org, at, 100, 20, 0.25)));
    }
    for milliseconds in [2_500, 1_700] {
        assert!(turns.count(&CountedTurns::speech(org, at, milliseconds)));
    }
    let took = Duration::from_micros(1_500);
    assert!(calls.count(&CountedCalls::new(org, at, "succeeded", took)));
    let shutdown = Shutdown::new();
    shutdown.drain();
    // Turns that are in flight when draining begins are counted too.
    let first = Cell::new(true);
    let under_way = || {
        let goes_on = first.replace(false);
        if goes_on {
            assert!(turns.count(&CountedTurns::new(org, at, 1, 1, 0.5)));
        }
        goes_on
    };
    turns.run(under_way, store.clone(), shutdown.clone()).await;
    calls.run(|| false, store.clone(), shutdown).await;
    let (from, to) = whole_year();
    let used = store.turn_usage(org, from, to, true).await.unwrap();
    let sums: Vec<_> = used
        .iter()
        .map(|one| {
            (
                one.turns,
                one.prompt_tokens,
                one.completion_tokens,
                one.cost,
                one.speech_ms,
            )
        })
        .collect();
    assert_eq!(sums, [(3, 201, 41, 1.0, 4_200)]);
    let used = store.turn_usage(other, from, to, false).await.unwrap();
    assert_eq!(used.first().map(|one| one.turns), Some(1));
    assert!(
        store
            .turn_usage(unknown_org, from, to, true)
            .await
            .unwrap()
            .is_empty()
    );
    let used = store.usage(org, from, to, true).await.unwrap();
    let sums: Vec<_> = used
        .iter()
        .map(|one| (one.calls, one.milliseconds))
        .collect();
    assert_eq!(sums, [(1, 1)]);
}

#[tokio::test]
async fn repeated_usage_batch_counts_once() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let org = new_org(&store, 1).await;
    let (one, two) = (Uuid::now_v7(), Uuid::now_v7());
    let (from, to) = whole_year();
    let batch = [
        CountedTurns::new(org, to - TimeDelta::hours(3), 10, 1, 0.5),
        CountedTurns::new(org, to - TimeDelta::hours(2), 10, 1, 0.0),
    ];
    for (counter, number) in [(one, 1), (one, 1), (two, 1), (one, 2)] {
        store.add_turn_usage(counter, number, &batch).await.unwrap();
    }
    let used = store.turn_usage(org, from, to, false).await.unwrap();
    let sums: Vec<_> = used.iter().map(|one| (one.turns, one.cost)).collect();
    assert_eq!(sums, [(3, 1.5), (3, 0.0)]);
    assert!(used.is_sorted_by_key(|one| one.start));
    // The older hour is deleted, the newer one remains.
    let between = used.first().map(|one| one.start).unwrap() + TimeDelta::minutes(30);
    let retention = (Utc::now() - between).to_std().unwrap();
    assert_eq!(store.purge_usage(retention).await.unwrap(), 1);
    assert_eq!(
        store.turn_usage(org, from, to, false).await.unwrap(),
        used[1..]
    );
}
