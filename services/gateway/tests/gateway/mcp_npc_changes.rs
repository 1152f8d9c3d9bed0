//! Notifications to the listeners of an NPC.

use std::time::Duration;

use serde_json::{Value, json};
use switchboard_bus::CatalogEvent;
use switchboard_catalog::NpcSettings;
use switchboard_protocol::token::Scope;
use switchboard_store::{Npc, NpcWrite, Owner, TemplateWrite};

use crate::{
    mcp_client::{Stream, listen, with_credential},
    mcp_npcs::{TOOLS, add_memory, npc, npc_path, template},
    test_gateway::{TEST_TIMEOUT, TestGateway},
};

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
/// More than the interval between two reads of an NPC.
const QUIET_PERIOD: Duration = Duration::from_millis(1_500);

/// Publishes the event that the control plane sends after it has written an NPC or a template.
async fn announce(gateway: &TestGateway) {
    let change = CatalogEvent::Prompts {
        org: Some(gateway.org),
    };
    gateway
        .edge
        .bus
        .publish_catalog_event(change)
        .await
        .unwrap();
}

async fn announce_resource(gateway: &TestGateway, uri: &str) {
    let change = CatalogEvent::Resources {
        org: Some(gateway.org),
        uri: Some(uri.into()),
    };
    gateway
        .edge
        .bus
        .publish_catalog_event(change)
        .await
        .unwrap();
}

async fn update_npc(gateway: &TestGateway, npc: &Npc, overrides: Value, devices: &[&str]) {
    let now = gateway
        .store
        .npc(gateway.org, npc.id)
        .await
        .unwrap()
        .unwrap();
    let settings = NpcSettings {
        overrides: overrides.as_object().unwrap().clone(),
        devices: devices.iter().map(|id| id.parse().unwrap()).collect(),
        ..npc.settings.clone()
    };
    let written = gateway
        .store
        .replace_npc(gateway.org, npc.id, now.version, &settings);
    let written = written.await.unwrap();
    assert!(matches!(written, NpcWrite::Written(_)), "{written:?}");
    announce(gateway).await;
}

async fn assert_each_receives(streams: &mut [Stream], methods: &[&str]) {
    for stream in &mut *streams {
        for expected in methods {
            let received = stream.next().await;
            assert_eq!(received["method"], *expected, "{methods:?} {received}");
            assert_eq!(received["params"].get("uri"), None, "{received}");
        }
    }
}

async fn assert_none_receives(streams: &mut [Stream]) {
    for stream in streams {
        assert_eq!(stream.next_within(QUIET_PERIOD).await, None);
    }
}

#[tokio::test]
async fn listeners_are_notified_of_npc_changes() {
    let gateway = TestGateway::start().await;
    let epoch = gateway.connect_with("toy-1", TOOLS).await;
    gateway.connect_with("toy-2", TOOLS).await;
    let bello = template(&gateway, json!({"name": "Bello"})).await;
    let rex = npc(&gateway, Some(bello), json!({"name": "Rex"}), &["toy-1"]).await;
    let max = npc(&gateway, Some(bello), json!({"name": "Max"}), &[]).await;
    let everything =
        json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    let mut both = [
        Stream::listen(&gateway, &npc_path(&rex), everything).await,
        Stream::get(&gateway, &npc_path(&rex)).await,
    ];
    // Changes of another NPC, of another device, and unchanged registrations are not notified.
    update_npc(&gateway, &max, json!({"name": "Moritz"}), &["toy-3"]).await;
    add_memory(&gateway, max.id, "test://max", "of Max").await;
    announce_resource(&gateway, "test://max").await;
    gateway.connect("toy-3").await;
    gateway.register("toy-1", epoch, TOOLS).await;
    assert_none_receives(&mut both).await;

    gateway.register("toy-1", epoch, r#"{"new":{}}"#).await;
    assert_each_receives(&mut both, &[TOOLS_CHANGED]).await;
    add_memory(&gateway, rex.id, "test://rex", "of Rex").await;
    announce_resource(&gateway, "test://rex").await;
    assert_each_receives(&mut both, &[RESOURCES_CHANGED]).await;
    let policy = json!({"name": "Rex", "tools": {"deny": ["new"]}});
    update_npc(&gateway, &rex, policy.clone(), &["toy-1"]).await;
    assert_each_receives(&mut both, &[TOOLS_CHANGED]).await;
    // A new version of the template changes the NPC.
    let settings = serde_json::from_value(json!({"name": "Bello", "persona": {"role": "a dog"}}));
    let (owner, settings) = (Owner::Org(gateway.org), settings.unwrap());
    let written = gateway
        .store
        .replace_template(owner, bello, 1, &settings)
        .await;
    assert!(matches!(written.unwrap(), TemplateWrite::Written(_)));
    announce(&gateway).await;
    assert_each_receives(&mut both, &[PROMPTS_CHANGED]).await;
    // The NPC is assigned another device.
    update_npc(&gateway, &rex, policy, &["toy-2"]).await;
    assert_each_receives(&mut both, &[TOOLS_CHANGED]).await;
    gateway.register("toy-1", epoch, TOOLS).await;
    assert_none_receives(&mut both).await;
    gateway.connect_with("toy-2", r#"{"new":{}}"#).await;
    assert_each_receives(&mut both, &[TOOLS_CHANGED]).await;

    let now = gateway
        .store
        .npc(gateway.org, rex.id)
        .await
        .unwrap()
        .unwrap();
    let gone = gateway.store.delete_npc(gateway.org, rex.id, now.version);
    assert!(gone.await.unwrap());
    announce(&gateway).await;
    for stream in &mut both {
        stream.end(TEST_TIMEOUT).await;
    }
}

#[tokio::test]
async fn without_read_only_tools_are_notified() {
    use secrecy::ExposeSecret as _;

    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    let rex = npc(&gateway, None, json!({"name": "Rex"}), &[]).await;
    let key = gateway.add_key(&[Scope::Call]).await;
    let everything =
        json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    let request = listen(&gateway, &npc_path(&rex), everything);
    let request = with_credential(request, key.expose_secret());
    let mut stream = Stream::open(request).await;
    let acknowledged = stream.next().await;
    let accepted = &acknowledged["params"]["notifications"];
    assert_eq!(*accepted, json!({"toolsListChanged": true}));
    let mut both = [
        stream,
        Stream::open(with_credential(
            crate::mcp_client::get(&gateway, &npc_path(&rex)),
            key.expose_secret(),
        ))
        .await,
    ];
    add_memory(&gateway, rex.id, "test://rex", "of Rex").await;
    announce_resource(&gateway, "test://rex").await;
    update_npc(&gateway, &rex, json!({"name": "Max"}), &[]).await;
    assert_none_receives(&mut both).await;
    update_npc(&gateway, &rex, json!({"name": "Max"}), &["toy-1"]).await;
    assert_each_receives(&mut both, &[TOOLS_CHANGED]).await;
}
