//! The cache of NPCs by device.

use chrono::Utc;
use switchboard_bus::{BusConfig, CatalogEvent, LocalHub};
use switchboard_catalog::{Effective, NpcSettings, TemplateSettings};
use switchboard_protocol::{
    id::{ApiKeyId, OrgId},
    token::Scope,
};
use switchboard_runtime::{
    budget::{Budgets, Kind, Owner},
    shutdown::Shutdown,
};
use switchboard_store::{NewApiKey, testing::TestDatabase};
use uuid::Uuid;

use super::*;

fn new_cache() -> NpcCache {
    NpcCache::new(&Budgets::new(&prometheus::Registry::new()).unwrap())
}

fn new_bus() -> (Bus, Shutdown) {
    let shutdown = Shutdown::new();
    let config = BusConfig::local(&LocalHub::default(), "chat");
    let bus = Bus::start(config, &prometheus::Registry::new(), &shutdown).unwrap();
    (bus, shutdown)
}

fn npc(prompt: &str) -> Npc {
    let mut settings = TemplateSettings::default();
    settings.persona.system_prompt = Some(prompt.to_owned());
    let lapsed = Vec::new();
    Npc {
        id: NpcId::from_uuid(Uuid::now_v7()),
        org: OrgId::from_uuid(Uuid::now_v7()),
        settings: NpcSettings::default(),
        effective: Effective { settings, lapsed },
        effective_version: None,
        version: 1,
        created_at: Utc::now(),
        updated_at: Utc::now(),
    }
}

fn device(org: OrgId, number: usize) -> DeviceKey {
    let device = format!("toy-{number}").parse().unwrap();
    DeviceKey { org, device }
}

#[test]
fn devices_share_the_npc_until_it_changes() {
    let cache = new_cache();
    let mut default = npc("Be kind.");
    let first = cache.insert(&device(default.org, 0), Some(default.clone()), 0);
    let second = cache.insert(&device(default.org, 1), Some(default.clone()), 0);
    assert!(Arc::ptr_eq(
        first.as_ref().unwrap(),
        second.as_ref().unwrap()
    ));
    default.version += 1;
    default.effective_version = Some(2);
    let changed = cache.insert(&device(default.org, 1), Some(default.clone()), 1);
    assert_eq!(*changed.unwrap(), default);
    // The first device has the NPC that its organisation has now.
    let found = |number| cache.get(&device(default.org, number)).map(|(_, npc)| npc);
    assert_eq!(*found(0).flatten().unwrap(), default);
    // A lookup that began before a change of the NPC or its template does not undo it, not even in
    // the same edition: a change can be read before it is published.
    for (version, effective_version) in [(1, Some(2)), (2, Some(1))] {
        for edition in [0, 1] {
            let before = Npc {
                version,
                effective_version,
                ..default.clone()
            };
            let late = cache.insert(&device(default.org, 2), Some(before.clone()), edition);
            assert_eq!(*late.unwrap(), before);
            assert_eq!(*found(1).flatten().unwrap(), default);
        }
    }
    cache.insert(&device(default.org, 0), None, 1);
    assert_eq!((found(0), found(3)), (Some(None), None));
}

#[test]
fn cache_is_bounded_by_bytes_and_holds_the_largest_npc() {
    let cache = new_cache();
    // Measured once: that takes long for the largest one.
    let cached = Cached::new(npc(&"x".repeat(1024 * 1024 - 8 * 1024)));
    assert!(cached.bytes > 1_000_000, "{}", cached.bytes);
    for _ in 0..40 {
        let id = NpcId::from_uuid(Uuid::now_v7());
        cache.npcs.insert(id, cached.clone());
        assert!(cache.npcs.get(&id).is_some());
        assert!(cache.npcs.weight() <= CACHE_BYTES as u64);
    }
    assert!(cache.npcs.len() >= 8, "{}", cache.npcs.len());
}

#[tokio::test]
async fn lookup_without_a_connection_is_retried_once() {
    let registry = prometheus::Registry::new();
    let budgets = Budgets::new(&registry).unwrap();
    let database = TestDatabase::create().await.unwrap();
    let store = database.store().with_budgets(&budgets);
    let connections = budgets.slots("database_connections", 1, Kind::Brief);
    let device = device(OrgId::from_uuid(Uuid::now_v7()), 0);
    let owner = Owner::Org(device.org.uuid());
    let share = connections.try_acquire(owner, connections.share()).unwrap();
    let refused = || {
        let families = registry.gather();
        let refused = families
            .iter()
            .filter(|family| family.name() == "switchboard_budget_refused_total")
            .flat_map(|family| family.get_metric());
        refused
            .map(|metric| metric.get_counter().get_value())
            .sum::<f64>()
    };
    let cache = new_cache();
    let free_after_a_refusal = async {
        while refused() < 1.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(share);
    };
    let (bus, _shutdown) = new_bus();
    let found = cache.find((&bus, &store), &device);
    let (found, ()) = tokio::join!(found, free_after_a_refusal);
    assert!(matches!(found, Ok(None)));
}

#[tokio::test]
async fn npc_is_looked_up_again_when_a_change_is_published() {
    let database = TestDatabase::create().await.unwrap();
    let (store, cache, (bus, _shutdown)) = (database.store(), new_cache(), new_bus());
    let org = OrgId::from_uuid(Uuid::now_v7());
    let key = NewApiKey {
        id: ApiKeyId::from_uuid(Uuid::now_v7()),
        name: "key".to_owned(),
        prefix: "sb_abcdefgh".to_owned(),
        secret_hash: [7; 32],
        scopes: [Scope::Admin].into_iter().collect(),
    };
    store.create_org(org, "an org", &key).await.unwrap();
    let device = device(org, 0);
    let find = async || match cache.find((&bus, &store), &device).await {
        Ok(npc) => npc.map(|npc| npc.id),
        Err(UnknownNpc) => panic!("the database is available"),
    };
    assert_eq!(find().await, None);
    let id = NpcId::from_uuid(Uuid::now_v7());
    let settings = NpcSettings {
        devices: vec![device.device.clone()],
        ..NpcSettings::default()
    };
    store.create_npc(org, id, &settings).await.unwrap();
    assert_eq!(find().await, None);
    for (changed, expected) in [(OrgId::from_uuid(Uuid::now_v7()), None), (org, Some(id))] {
        let event = CatalogEvent::Prompts { org: Some(changed) };
        bus.publish_catalog_event(event).await.unwrap();
        assert_eq!(find().await, expected);
    }
}
