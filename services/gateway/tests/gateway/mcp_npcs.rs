//! NPCs as prompts, and as MCP servers.

use std::time::Duration;

use reqwest::Method;
use secrecy::ExposeSecret as _;
use serde_json::{Map, Value, json};
use switchboard_catalog::{NpcSettings, TemplateSettings, UriTemplate};
use switchboard_protocol::{
    id::{MemoryId, NpcId, PictureId, TemplateId},
    token::Scope,
};
use switchboard_store::{MemoryHolder, NewMemory, NewPicture, Npc, NpcWrite, Owner, TemplateWrite};
use uuid::Uuid;

use crate::{
    mcp_books::book,
    mcp_client::{exchange, legacy, modern, with_credential},
    test_gateway::TestGateway,
};

pub(crate) const TOOLS: &str = r#"{"echo":{},"fail":{},"现在几点":{}}"#;

pub(crate) fn npc_path(npc: &Npc) -> String {
    format!("/mcp/npcs/{}", npc.id)
}

pub(crate) async fn template(gateway: &TestGateway, settings: Value) -> TemplateId {
    let id = TemplateId::from_uuid(Uuid::now_v7());
    let settings: TemplateSettings = serde_json::from_value(settings).unwrap();
    let owner = Owner::Org(gateway.org);
    let written = gateway.store.create_template(owner, id, &settings).await;
    let written = written.unwrap();
    assert!(matches!(written, TemplateWrite::Written(_)), "{written:?}");
    id
}

/// Creates an NPC with these devices.
pub(crate) async fn npc(
    gateway: &TestGateway,
    template: Option<TemplateId>,
    overrides: Value,
    devices: &[&str],
) -> Npc {
    let settings = NpcSettings {
        template,
        template_version: None,
        overrides: overrides.as_object().unwrap().clone(),
        devices: devices.iter().map(|id| id.parse().unwrap()).collect(),
    };
    let id = NpcId::from_uuid(Uuid::now_v7());
    let written = gateway.store.create_npc(gateway.org, id, &settings).await;
    match written.unwrap() {
        NpcWrite::Written(npc) => *npc,
        other => unreachable!("{other:?}"),
    }
}

pub(crate) async fn add_memory(
    gateway: &TestGateway,
    holder: impl Into<MemoryHolder>,
    uri: &str,
    text: &str,
) {
    let memory = NewMemory {
        id: MemoryId::from_uuid(Uuid::now_v7()),
        uri: Some(UriTemplate::parse(uri).unwrap()),
        subject: None,
        text: text.to_owned(),
        kind: None,
        importance: 0.5,
        source: None,
        metadata: Map::new(),
        mime_type: "text/plain".to_owned(),
        expires_at: None,
    };
    let (owner, memories) = (Owner::Org(gateway.org), [memory]);
    let written = gateway.store.add_memories(owner, holder, &memories).await;
    written.unwrap();
}

async fn picture(gateway: &TestGateway, uri: &str) -> PictureId {
    let id = PictureId::from_uuid(Uuid::now_v7());
    let picture = NewPicture {
        id,
        name: "dot".to_owned(),
        uri: Some(UriTemplate::parse(uri).unwrap()),
        mime_type: "image/png",
        width: 1,
        height: 1,
        bytes: bytes::Bytes::from_static(b"\x89PNG"),
    };
    let written = gateway.store.add_picture(Owner::Org(gateway.org), picture);
    written.await.unwrap();
    id
}

async fn ask(gateway: &TestGateway, path: &str, method: &str, params: Value) -> Value {
    let answer = exchange(modern(gateway, path, method, params)).await;
    answer.result().clone()
}

/// The member `name` of each element of a list.
fn each<'a>(listed: &'a Value, list: &str, name: &str) -> Vec<&'a str> {
    let all = listed[list].as_array().unwrap().iter();
    all.map(|one| one[name].as_str().unwrap()).collect()
}

async fn tools(gateway: &TestGateway, npc: &Npc) -> Vec<String> {
    let listed = ask(gateway, &npc_path(npc), "tools/list", json!({})).await;
    let names = each(&listed, "tools", "name");
    names.into_iter().map(str::to_owned).collect()
}

/// The outcome of a call, or the code of its error. Must be the same in both revisions.
async fn call(gateway: &TestGateway, npc: &Npc, tool: &str) -> Value {
    let params = json!({"name": tool, "arguments": {}});
    let path = npc_path(npc);
    let new = exchange(modern(gateway, &path, "tools/call", params.clone())).await;
    let old = exchange(legacy(gateway, &path, "tools/call", params)).await;
    let end = |answer: &Value| match answer.get("error") {
        Some(error) => error["code"].clone(),
        None => answer["result"]["structuredContent"]["outcome"].clone(),
    };
    assert_eq!(end(new.last()), end(old.last()), "{tool}");
    end(new.last())
}

fn greeting(who: &str) -> Value {
    json!({
        "name": who, "persona": {"role": "a dog", "description": "Kind"},
        "prompt": {
            "name": "greet", "title": "A greeting",
            "arguments": [{"name": "who", "required": true, "values": ["Ada", "Ben"]}],
            "messages": [{"role": "user", "content": {"type": "text", "text": "Greet {{who}}"}}],
        },
    })
}

#[tokio::test]
async fn npc_is_listed_as_a_prompt() {
    let gateway = TestGateway::start().await;
    let bello = template(&gateway, greeting("Bello")).await;
    let z = template(
        &gateway,
        json!({"name": "Z", "prompt": {"name": "z", "messages": [
        {"role": "user", "content": {"type": "text", "text": "z"}}]}}),
    )
    .await;
    let messages = json!([{"role": "user", "content": {"type": "text", "text": "Lick {{who}}"}}]);
    let overrides = json!({"name": "Rex", "prompt": {"messages": messages}});
    let rex = npc(&gateway, Some(bello), overrides, &[]).await;
    let lone = npc(
        &gateway,
        None,
        json!({"name": "Max", "persona": {"role": "a cat"}}),
        &[],
    )
    .await;
    for path in ["/mcp", "/mcp/devices/toy-1"] {
        let listed = ask(&gateway, path, "prompts/list", json!({})).await;
        let (rex_name, lone_name) = (format!("npcs/{}", rex.id), format!("npcs/{}", lone.id));
        assert_eq!(
            each(&listed, "prompts", "name"),
            ["greet", &rex_name, &lone_name, "z"]
        );
        assert_eq!(
            each(&listed, "prompts", "title"),
            ["A greeting", "Rex: A greeting", "Max", "Z"]
        );
        assert_eq!(listed["prompts"][1]["description"], "Kind");
        assert_eq!(listed["prompts"][1]["arguments"][0]["name"], "who");

        let name = json!({"name": rex_name, "arguments": {"who": "Ada"}});
        let read = ask(&gateway, path, "prompts/get", name).await;
        assert_eq!(read["messages"][0]["content"]["text"], "Lick Ada");
        let read = ask(&gateway, path, "prompts/get", json!({"name": lone_name})).await;
        let text = &read["messages"][0]["content"]["text"];
        assert_eq!(text, "You are Max, a cat.");
        let params = json!({
            "ref": {"type": "ref/prompt", "name": rex_name}, "argument": {"name": "who", "value": "A"},
        });
        let completed = ask(&gateway, path, "completion/complete", params).await;
        assert_eq!(completed["completion"]["values"], json!(["Ada"]));
        let missing = exchange(modern(
            &gateway,
            path,
            "prompts/get",
            json!({"name": rex_name}),
        ))
        .await;
        assert_eq!(missing.error_code(), -32602);
    }
    let foreign = gateway.foreign_key().await;
    let asked = modern(
        &gateway,
        "/mcp",
        "prompts/get",
        json!({"name": rex.prompt_name()}),
    );
    let refused = exchange(with_credential(asked, foreign.expose_secret())).await;
    assert_eq!(refused.error_code(), -32602);
    assert_ne!(z, bello);
}

#[tokio::test]
async fn npc_tools_follow_its_policy() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    gateway.connect_with("toy-2", TOOLS).await;
    let one = npc(&gateway, None, json!({"name": "One"}), &["toy-1"]).await;
    assert_eq!(tools(&gateway, &one).await, ["_ea99d70f", "echo", "fail"]);
    assert_eq!(call(&gateway, &one, "echo").await, "succeeded");
    assert_eq!(gateway.edge.called.lock().clone(), ["toy-1", "toy-1"]);
    for tool in ["toy-1__echo", "toy-2__echo", "none"] {
        assert_eq!(call(&gateway, &one, tool).await, -32602, "{tool}");
    }
    // A policy names a service or its tool.
    for (policy, left) in [
        (json!({"allow": ["echo"]}), &["echo"][..]),
        (json!({"allow": []}), &[]),
        (json!({"deny": ["echo"]}), &["_ea99d70f", "fail"]),
        (
            json!({"allow": ["echo", "fail"], "deny": ["fail"]}),
            &["echo"],
        ),
        (json!({"deny": ["现在几点", "none"]}), &["echo", "fail"]),
        (json!({"deny": ["_ea99d70f"]}), &["echo", "fail"]),
        (json!({"allow": ["_ea99d70f"]}), &["_ea99d70f"]),
    ] {
        let settings = NpcSettings {
            overrides: Map::from_iter([
                ("name".to_owned(), json!("One")),
                ("tools".to_owned(), policy.clone()),
            ]),
            ..one.settings.clone()
        };
        let now = gateway
            .store
            .npc(gateway.org, one.id)
            .await
            .unwrap()
            .unwrap();
        let version = now.version;
        let written = gateway
            .store
            .replace_npc(gateway.org, one.id, version, &settings);
        assert!(matches!(written.await.unwrap(), NpcWrite::Written(_)));
        assert_eq!(tools(&gateway, &one).await, left, "{policy}");
        for tool in ["_ea99d70f", "echo", "fail"] {
            let end = call(&gateway, &one, tool).await;
            assert_eq!(end != -32602, left.contains(&tool), "{policy} {tool} {end}");
        }
    }
}

#[tokio::test]
async fn tools_of_several_devices_are_prefixed() {
    let gateway = TestGateway::start().await;
    for device in ["toy-1", "toy.2", "toy-3"] {
        gateway.connect_with(device, TOOLS).await;
    }
    gateway.store_device("asleep").await;
    let overrides = json!({"name": "Two", "tools": {"deny": ["fail"]}});
    let devices = ["toy-1", "toy.2", "asleep", "never-there"];
    let two = npc(&gateway, None, overrides, &devices).await;
    let listed = tools(&gateway, &two).await;
    let generated = &listed[3];
    assert!(
        generated.starts_with("toy_2-") && generated.ends_with("___ea99d70f"),
        "{generated}"
    );
    let part = generated.trim_end_matches("___ea99d70f");
    assert_eq!(
        listed,
        [
            "asleep__echo",
            "toy-1___ea99d70f",
            "toy-1__echo",
            generated,
            &format!("{part}__echo")
        ]
    );
    assert_eq!(call(&gateway, &two, "toy-1__echo").await, "succeeded");
    assert_eq!(
        call(&gateway, &two, &format!("{part}__echo")).await,
        "succeeded"
    );
    assert_eq!(call(&gateway, &two, "asleep__echo").await, "offline");
    assert_eq!(
        gateway.edge.called.lock().clone(),
        ["toy-1", "toy-1", "toy.2", "toy.2"]
    );
    let denied = format!("{part}__fail");
    for tool in [
        "echo",
        "toy-1__fail",
        &denied,
        "toy-3__echo",
        "never-there__echo",
        "nobody__echo",
    ] {
        assert_eq!(call(&gateway, &two, tool).await, -32602, "{tool}");
    }
}

#[tokio::test]
async fn tools_of_npc_with_many_devices_are_paginated() {
    let gateway = TestGateway::start().await;
    let devices: Vec<String> = (0..30).map(|at| format!("toy-{at:02}")).collect();
    for device in &devices {
        gateway.connect(device).await;
    }
    let bound: Vec<&str> = devices.iter().map(String::as_str).collect();
    let many = npc(&gateway, None, json!({"name": "Many"}), &bound).await;
    let first = ask(&gateway, &npc_path(&many), "tools/list", json!({})).await;
    let next = json!({"cursor": first["nextCursor"]});
    let second = ask(&gateway, &npc_path(&many), "tools/list", next).await;
    assert!(second.get("nextCursor").is_none());
    let mut all = each(&first, "tools", "name");
    all.extend(each(&second, "tools", "name"));
    let expected: Vec<String> = devices.iter().map(|id| format!("{id}__echo")).collect();
    assert_eq!(all, expected);
    let wrong = json!({"cursor": "no/id"});
    let refused = exchange(modern(&gateway, &npc_path(&many), "tools/list", wrong)).await;
    assert_eq!(refused.error_code(), -32602);
}

/// Two NPCs of one template, each with memories and a picture, and the URI of the book of both.
async fn rex_and_max(gateway: &TestGateway) -> (Npc, Npc, String) {
    let own = Owner::Org(gateway.org);
    let shown = picture(gateway, "test://shown").await;
    let hidden = picture(gateway, "test://hidden").await;
    let named = book(gateway, own, "Named", &[("A", "battery")]).await;
    let messages =
        json!([{"role": "user", "content": {"type": "resource", "uri": "test://{{which}}"}}]);
    let prompt = json!({"name": "show", "arguments": [{"name": "which"}], "messages": messages});
    let settings =
        json!({"name": "Bello", "avatar": shown, "skills_book_ids": [named], "prompt": prompt});
    let bello = template(gateway, settings).await;
    let rex = npc(gateway, Some(bello), json!({"name": "Rex"}), &["toy-1"]).await;
    let overrides = json!({"name": "Max", "avatar": hidden});
    let max = npc(gateway, Some(bello), overrides, &["toy-2"]).await;
    add_memory(gateway, bello, "test://template", "of all").await;
    add_memory(gateway, bello, "test://friends/{name}", "{{name}} of all").await;
    add_memory(gateway, rex.id, "test://rex", "of Rex").await;
    add_memory(gateway, rex.id, "test://rex/{name}", "{{name}} of Rex").await;
    add_memory(gateway, max.id, "test://max", "of Max").await;
    add_memory(gateway, max.id, "test://max/{name}", "{{name}} of Max").await;
    (rex, max, format!("switchboard://skills-books/{named}"))
}

#[tokio::test]
async fn npc_reads_only_its_own_resources() {
    let gateway = TestGateway::start().await;
    let (rex, _, own_book) = rex_and_max(&gateway).await;
    let owner = Owner::Org(gateway.org);
    let other = book(&gateway, owner, "Other", &[("A", "battery")]).await;
    let path = npc_path(&rex);
    let listed = ask(&gateway, &path, "resources/list", json!({})).await;
    assert_eq!(
        each(&listed, "resources", "uri"),
        [&own_book, "test://rex", "test://shown", "test://template"]
    );
    let listed = ask(&gateway, &path, "resources/templates/list", json!({})).await;
    assert_eq!(
        each(&listed, "resourceTemplates", "uriTemplate")[2..],
        ["test://friends/{name}", "test://rex/{name}"]
    );
    let read = async |uri: &str| {
        let request = modern(&gateway, &path, "resources/read", json!({"uri": uri}));
        let read = exchange(request).await;
        let contents = &read.last()["result"]["contents"][0];
        let text = contents.get("text").or(contents.get("blob"));
        text.and_then(Value::as_str).map(str::to_owned)
    };
    for (uri, text) in [
        ("test://rex", "of Rex"),
        ("test://template", "of all"),
        ("test://friends/Ada", "Ada of all"),
        ("test://rex/Ada", "Ada of Rex"),
        ("test://shown", "iVBORw=="),
    ] {
        assert_eq!(read(uri).await.as_deref(), Some(text), "{uri}");
    }
    let search = format!("{own_book}/search?q=battery");
    assert!(read(&search).await.is_some());
    let foreign = format!("switchboard://skills-books/{other}");
    for uri in [
        "test://max",
        "test://max/Ada",
        "test://hidden",
        &foreign,
        &format!("{foreign}/chunks/0"),
        &format!("{foreign}/search?q=battery"),
    ] {
        assert_eq!(read(uri).await, None, "{uri}");
        let followed = legacy(&gateway, &path, "resources/subscribe", json!({"uri": uri}));
        assert_eq!(exchange(followed).await.error_code(), -32002, "{uri}");
    }
    let params = json!({
        "ref": {"type": "ref/resource", "uri": "switchboard://skills-books/{id}/chunks/{n}"},
        "argument": {"name": "id", "value": ""},
    });
    let completed = ask(&gateway, &path, "completion/complete", params).await;
    let ids = completed["completion"]["values"].as_array().unwrap();
    assert!(ids.len() == 1 && own_book.ends_with(ids[0].as_str().unwrap()));
}

#[tokio::test]
async fn npc_has_one_prompt_with_its_own_resources() {
    let gateway = TestGateway::start().await;
    let (rex, max, _) = rex_and_max(&gateway).await;
    let path = npc_path(&rex);
    let listed = ask(&gateway, &path, "prompts/list", json!({})).await;
    assert_eq!(each(&listed, "prompts", "name"), [rex.prompt_name()]);
    let after = json!({"cursor": rex.prompt_name()});
    let listed = ask(&gateway, &path, "prompts/list", after).await;
    assert_eq!(listed["prompts"], json!([]));
    let get = async |name: &str, which: &str| {
        let params = json!({"name": name, "arguments": {"which": which}});
        exchange(modern(&gateway, &path, "prompts/get", params)).await
    };
    let own = get(&rex.prompt_name(), "rex").await;
    let text = &own.result()["messages"][0]["content"]["resource"]["text"];
    assert_eq!(text, "of Rex");
    for (name, which) in [
        (rex.prompt_name().as_str(), "max"),
        (max.prompt_name().as_str(), "max"),
        ("show", "rex"),
    ] {
        let refused = get(name, which).await;
        assert_eq!(refused.error_code(), -32602, "{name} {which}");
    }
}

#[tokio::test]
async fn npc_persona_is_in_the_instructions() {
    let gateway = TestGateway::start().await;
    let persona = json!({"role": "a dog", "backstory": "电".repeat(6_000)});
    let rex = npc(
        &gateway,
        None,
        json!({"name": "Rex", "persona": persona}),
        &[],
    )
    .await;
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let old = exchange(legacy(
        &gateway,
        &npc_path(&rex),
        "initialize",
        hello.clone(),
    ))
    .await;
    let new = exchange(modern(
        &gateway,
        &npc_path(&rex),
        "server/discover",
        json!({}),
    ))
    .await;
    let instructions = old.result()["instructions"].as_str().unwrap();
    assert!(
        instructions.starts_with("You are Rex, a dog.\n\nBackstory:\n电"),
        "{instructions:.80}"
    );
    assert!(instructions.ends_with("does not fit here.") && instructions.len() < 17 * 1024);
    assert_eq!(new.result()["instructions"], instructions);
    assert_eq!(old.result()["serverInfo"]["title"], "Rex");
    assert!(old.headers.contains_key("mcp-session-id"));

    // Without the scope `read`, and on `/mcp`, there are no instructions.
    let calling = gateway.add_key(&[Scope::Call]).await;
    let unread = legacy(&gateway, &npc_path(&rex), "initialize", hello.clone());
    let unread = exchange(with_credential(unread, calling.expose_secret())).await;
    let all = exchange(legacy(&gateway, "/mcp", "initialize", hello)).await;
    for answer in [unread, all] {
        assert!(answer.result().get("instructions").is_none(), "{answer:?}");
        assert!(answer.result()["serverInfo"].get("title").is_none());
    }
}

#[tokio::test]
async fn npc_is_limited_to_its_org_and_scope() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    let rex = npc(&gateway, None, json!({"name": "Rex"}), &["toy-1"]).await;
    add_memory(&gateway, rex.id, "test://rex", "of Rex").await;
    let (foreign, reading, calling) = (
        gateway.foreign_key().await,
        gateway.add_key(&[Scope::Read]).await,
        gateway.add_key(&[Scope::Call]).await,
    );
    let (token, ..) = gateway.issue_token(Duration::from_secs(600)).await;
    let missing = format!("/mcp/npcs/{}", NpcId::from_uuid(Uuid::now_v7()));
    let status = async |credential: &str, path: &str| {
        let listed = modern(&gateway, path, "tools/list", json!({}));
        let posted = exchange(with_credential(listed, credential)).await;
        let stream = gateway
            .request(Method::GET, path)
            .header("accept", "text/event-stream");
        let stream = with_credential(stream, credential).send().await.unwrap();
        assert_eq!(posted.status, stream.status().as_u16(), "{path}");
        posted.status
    };
    let own = npc_path(&rex);
    for (credential, path, expected) in [
        (calling.expose_secret(), own.as_str(), 200),
        (&token, &own, 200),
        (foreign.expose_secret(), &own, 404),
        (reading.expose_secret(), &own, 403),
        ("sb_nobody", &own, 401),
        (calling.expose_secret(), &missing, 404),
        (calling.expose_secret(), "/mcp/npcs/rex", 404),
    ] {
        assert_eq!(status(credential, path).await, expected, "{path}");
    }
    let challenged = gateway.anonymous(Method::POST, &own).send().await.unwrap();
    let challenge = challenged.headers()["www-authenticate"].to_str().unwrap();
    assert!(
        challenge.contains(&format!("oauth-protected-resource{own}")),
        "{challenge}"
    );
    for credential in [calling.expose_secret(), &token] {
        for (method, list) in [("prompts/list", "prompts"), ("resources/list", "resources")] {
            let listed = modern(&gateway, &own, method, json!({}));
            let listed = exchange(with_credential(listed, credential)).await;
            assert_eq!(listed.result()[list], json!([]));
        }
    }
    assert!(
        gateway
            .store
            .delete_npc(gateway.org, rex.id, 1)
            .await
            .unwrap()
    );
    assert_eq!(status(calling.expose_secret(), &own).await, 404);
}

#[tokio::test]
async fn request_state_is_bound_to_the_npc() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", r#"{"ask":{}}"#).await;
    let rex = npc(&gateway, None, json!({"name": "Rex"}), &["toy-1"]).await;
    let ask = async |path: &str, more: Value| {
        let mut params = json!({"name": "ask", "arguments": {}});
        let more = more.as_object().unwrap().clone();
        params.as_object_mut().unwrap().extend(more);
        let meta =
            json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "roots": {}}});
        let asked = crate::mcp_client::modern_with(&gateway, path, "tools/call", params, meta);
        exchange(asked).await
    };
    let asked = ask(&npc_path(&rex), json!({})).await;
    let state = asked.result()["requestState"].clone();
    assert!(state.is_string(), "{asked:?}");
    // The settings of the NPC may change between the requests. The endpoint may not.
    let settings = NpcSettings {
        overrides: Map::from_iter([("name".to_owned(), json!("Max"))]),
        ..rex.settings.clone()
    };
    let written = gateway
        .store
        .replace_npc(gateway.org, rex.id, 1, &settings)
        .await;
    assert!(matches!(written.unwrap(), NpcWrite::Written(_)));
    let responses =
        json!({"name": {"action": "accept", "content": {"name": "a"}}, "roots": {"roots": []}});
    let answer = json!({"requestState": state, "inputResponses": responses});
    let there = ask("/mcp/devices/toy-1", answer.clone()).await;
    assert_eq!(there.error_code(), -32602);
    let done = ask(&npc_path(&rex), answer).await;
    let data = &done.result()["structuredContent"]["data"];
    assert_eq!(data["state"], json!({"step": 1}), "{done:?}");
}
