//! Those who listen to an NPC: they hear what it has become, and nothing of others.

use std::time::Duration;

use serde_json::{Value, json};
use switchboard_bus::OfferChange;
use switchboard_protocol::access::Scope;
use switchboard_store::{Npc, NpcSettings, NpcWrite, Owner, TemplateWrite};

use crate::{
    mcp_client::{Stream, listen, with_credential},
    mcp_npcs::{TOOLS, at, npc, remember, template},
    stage::{LONG, Stage},
};

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
/// More than passes between two looks.
const QUIET: Duration = Duration::from_millis(1_500);

/// What the control plane does after it has written an NPC or a template.
async fn announce(stage: &Stage) {
    let change = OfferChange::Prompts {
        org: Some(stage.org),
    };
    stage.edge.bus.offer(change).await.unwrap();
}

async fn announce_resource(stage: &Stage, uri: &str) {
    let change = OfferChange::Resources {
        org: Some(stage.org),
        uri: Some(uri.into()),
    };
    stage.edge.bus.offer(change).await.unwrap();
}

async fn change(stage: &Stage, npc: &Npc, overrides: Value, devices: &[&str]) {
    let now = stage.store.npc(stage.org, npc.id).await.unwrap().unwrap();
    let settings = NpcSettings {
        overrides: overrides.as_object().unwrap().clone(),
        devices: devices.iter().map(|id| id.parse().unwrap()).collect(),
        ..npc.settings.clone()
    };
    let written = stage
        .store
        .replace_npc(stage.org, npc.id, now.version, &settings);
    let written = written.await.unwrap();
    assert!(matches!(written, NpcWrite::Written(_)), "{written:?}");
    announce(stage).await;
}

async fn each_hears(streams: &mut [Stream], told: &[&str]) {
    for stream in &mut *streams {
        for expected in told {
            let heard = stream.next().await;
            assert_eq!(heard["method"], *expected, "{told:?} {heard}");
            assert_eq!(heard["params"].get("uri"), None, "{heard}");
        }
    }
}

async fn nobody_hears(streams: &mut [Stream]) {
    for stream in streams {
        assert_eq!(stream.next_within(QUIET).await, None);
    }
}

#[tokio::test]
async fn listeners_hear_what_an_npc_has_become() {
    let stage = Stage::set().await;
    let epoch = stage.connect_with("toy-1", TOOLS).await;
    stage.connect_with("toy-2", TOOLS).await;
    let bello = template(&stage, json!({"name": "Bello"})).await;
    let rex = npc(&stage, Some(bello), json!({"name": "Rex"}), &["toy-1"]).await;
    let max = npc(&stage, Some(bello), json!({"name": "Max"}), &[]).await;
    let everything =
        json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    let mut both = [
        Stream::listen(&stage, &at(&rex), everything).await,
        Stream::get(&stage, &at(&rex)).await,
    ];
    // What is another NPC's, another device's, or no change at all is not told.
    change(&stage, &max, json!({"name": "Moritz"}), &["toy-3"]).await;
    remember(&stage, max.id, "test://max", "of Max").await;
    announce_resource(&stage, "test://max").await;
    stage.connect("toy-3").await;
    stage.register("toy-1", epoch, TOOLS).await;
    nobody_hears(&mut both).await;

    stage.register("toy-1", epoch, r#"{"new":{}}"#).await;
    each_hears(&mut both, &[TOOLS_CHANGED]).await;
    remember(&stage, rex.id, "test://rex", "of Rex").await;
    announce_resource(&stage, "test://rex").await;
    each_hears(&mut both, &[RESOURCES_CHANGED]).await;
    let policy = json!({"name": "Rex", "tools": {"deny": ["new"]}});
    change(&stage, &rex, policy.clone(), &["toy-1"]).await;
    each_hears(&mut both, &[TOOLS_CHANGED]).await;
    // The template's new version is the NPC's.
    let settings = serde_json::from_value(json!({"name": "Bello", "persona": {"role": "a dog"}}));
    let (owner, settings) = (Owner::Org(stage.org), settings.unwrap());
    let written = stage
        .store
        .replace_template(owner, bello, 1, &settings)
        .await;
    assert!(matches!(written.unwrap(), TemplateWrite::Written(_)));
    announce(&stage).await;
    each_hears(&mut both, &[PROMPTS_CHANGED]).await;
    // From now on another device counts, and the first one does not any more.
    change(&stage, &rex, policy, &["toy-2"]).await;
    each_hears(&mut both, &[TOOLS_CHANGED]).await;
    stage.register("toy-1", epoch, TOOLS).await;
    nobody_hears(&mut both).await;
    stage.connect_with("toy-2", r#"{"new":{}}"#).await;
    each_hears(&mut both, &[TOOLS_CHANGED]).await;

    let now = stage.store.npc(stage.org, rex.id).await.unwrap().unwrap();
    let gone = stage.store.delete_npc(stage.org, rex.id, now.version);
    assert!(gone.await.unwrap());
    announce(&stage).await;
    for stream in &mut both {
        stream.end(LONG).await;
    }
}

#[tokio::test]
async fn without_the_scope_read_listeners_hear_of_tools_only() {
    use secrecy::ExposeSecret as _;

    let stage = Stage::set().await;
    stage.connect_with("toy-1", TOOLS).await;
    let rex = npc(&stage, None, json!({"name": "Rex"}), &[]).await;
    let key = stage.add_key(&[Scope::Call]).await;
    let everything =
        json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    let request = listen(&stage, &at(&rex), everything);
    let request = with_credential(request, key.expose_secret());
    let mut stream = Stream::open(request).await;
    let acknowledged = stream.next().await;
    let promised = &acknowledged["params"]["notifications"];
    assert_eq!(*promised, json!({"toolsListChanged": true}));
    let mut both = [
        stream,
        Stream::open(with_credential(
            crate::mcp_client::get(&stage, &at(&rex)),
            key.expose_secret(),
        ))
        .await,
    ];
    remember(&stage, rex.id, "test://rex", "of Rex").await;
    announce_resource(&stage, "test://rex").await;
    change(&stage, &rex, json!({"name": "Max"}), &[]).await;
    nobody_hears(&mut both).await;
    change(&stage, &rex, json!({"name": "Max"}), &["toy-1"]).await;
    each_hears(&mut both, &[TOOLS_CHANGED]).await;
}
