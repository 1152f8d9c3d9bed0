//! The cache of NPCs by device.

use chrono::Utc;
use switchboard_catalog::{Effective, NpcSettings, TemplateSettings};
use switchboard_protocol::id::OrgId;
use switchboard_runtime::budget::{Budgets, Kind, Owner};
use switchboard_store::testing::TestDatabase;
use uuid::Uuid;

use super::*;

fn new_cache() -> NpcCache {
    NpcCache::new(&Budgets::new(&prometheus::Registry::new()).unwrap())
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
    let first = cache.insert(&device(default.org, 0), Some(default.clone()));
    let second = cache.insert(&device(default.org, 1), Some(default.clone()));
    assert!(Arc::ptr_eq(
        first.as_ref().unwrap(),
        second.as_ref().unwrap()
    ));
    default.version += 1;
    let changed = cache.insert(&device(default.org, 1), Some(default.clone()));
    assert_eq!(*changed.unwrap(), default);
    // The first device has the NPC that its organisation has now.
    let found = cache.get(&device(default.org, 0)).flatten();
    assert_eq!(*found.unwrap(), default);
    cache.insert(&device(default.org, 0), None);
    assert_eq!(cache.get(&device(default.org, 0)), Some(None));
    assert_eq!(cache.get(&device(default.org, 2)), None);
}

#[test]
fn cache_is_bounded_by_bytes_and_holds_the_largest_npc() {
    let cache = new_cache();
    // Measured once: that takes long for the largest one.
    let npc = Arc::new(npc(&"x".repeat(1024 * 1024 - 8 * 1024)));
    let bytes = bytes(&npc) as u64;
    assert!(bytes > 1_000_000, "{bytes}");
    for _ in 0..40 {
        let id = NpcId::from_uuid(Uuid::now_v7());
        let cached = Cached {
            npc: Arc::clone(&npc),
            bytes,
        };
        cache.npcs.insert(id, cached);
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
    let (found, ()) = tokio::join!(cache.find(&store, &device), free_after_a_refusal);
    assert!(matches!(found, Ok(None)));
}
