//! NPCs: prompts beside templates, and servers of their own.

use std::time::Duration;

use reqwest::Method;
use secrecy::ExposeSecret as _;
use serde_json::{Map, Value, json};
use switchboard_protocol::{
    access::Scope,
    id::{MemoryId, NpcId, PictureId, TemplateId},
};
use switchboard_store::{
    MemoryHolder, NewMemory, NewPicture, Npc, NpcSettings, NpcWrite, Owner, TemplateSettings,
    TemplateWrite, UriTemplate,
};
use uuid::Uuid;

use crate::{
    mcp_books::book,
    mcp_client::{exchange, legacy, modern, with_credential},
    stage::Stage,
};

pub(crate) const TOOLS: &str = r#"{"echo":{},"fail":{},"现在几点":{}}"#;

pub(crate) fn at(npc: &Npc) -> String {
    format!("/mcp/npcs/{}", npc.id)
}

pub(crate) async fn template(stage: &Stage, settings: Value) -> TemplateId {
    let id = TemplateId::from_uuid(Uuid::now_v7());
    let settings: TemplateSettings = serde_json::from_value(settings).unwrap();
    let owner = Owner::Org(stage.org);
    let written = stage.store.create_template(owner, id, &settings).await;
    let written = written.unwrap();
    assert!(matches!(written, TemplateWrite::Written(_)), "{written:?}");
    id
}

/// An NPC with these devices.
pub(crate) async fn npc(
    stage: &Stage,
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
    let written = stage.store.create_npc(stage.org, id, &settings).await;
    match written.unwrap() {
        NpcWrite::Written(npc) => *npc,
        other => unreachable!("{other:?}"),
    }
}

pub(crate) async fn remember(
    stage: &Stage,
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
    let (owner, memories) = (Owner::Org(stage.org), [memory]);
    let written = stage.store.add_memories(owner, holder, &memories).await;
    written.unwrap();
}

async fn picture(stage: &Stage, uri: &str) -> PictureId {
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
    let written = stage.store.add_picture(Owner::Org(stage.org), picture);
    written.await.unwrap();
    id
}

async fn ask(stage: &Stage, path: &str, method: &str, params: Value) -> Value {
    let answer = exchange(modern(stage, path, method, params)).await;
    answer.result().clone()
}

/// The members `name` of a list's elements.
fn each<'a>(listed: &'a Value, list: &str, name: &str) -> Vec<&'a str> {
    let all = listed[list].as_array().unwrap().iter();
    all.map(|one| one[name].as_str().unwrap()).collect()
}

async fn tools(stage: &Stage, npc: &Npc) -> Vec<String> {
    let listed = ask(stage, &at(npc), "tools/list", json!({})).await;
    let names = each(&listed, "tools", "name");
    names.into_iter().map(str::to_owned).collect()
}

/// How a call of this tool ends: its outcome, or the error's code.
async fn call(stage: &Stage, npc: &Npc, tool: &str) -> Value {
    let params = json!({"name": tool, "arguments": {}});
    let path = at(npc);
    let new = exchange(modern(stage, &path, "tools/call", params.clone())).await;
    let old = exchange(legacy(stage, &path, "tools/call", params)).await;
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
async fn an_npc_is_a_prompt_beside_templates() {
    let stage = Stage::set().await;
    let bello = template(&stage, greeting("Bello")).await;
    let z = template(
        &stage,
        json!({"name": "Z", "prompt": {"name": "z", "messages": [
        {"role": "user", "content": {"type": "text", "text": "z"}}]}}),
    )
    .await;
    let says = json!([{"role": "user", "content": {"type": "text", "text": "Lick {{who}}"}}]);
    let overrides = json!({"name": "Rex", "prompt": {"messages": says}});
    let rex = npc(&stage, Some(bello), overrides, &[]).await;
    let lone = npc(
        &stage,
        None,
        json!({"name": "Max", "persona": {"role": "a cat"}}),
        &[],
    )
    .await;
    for path in ["/mcp", "/mcp/devices/toy-1"] {
        let listed = ask(&stage, path, "prompts/list", json!({})).await;
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
        let read = ask(&stage, path, "prompts/get", name).await;
        assert_eq!(read["messages"][0]["content"]["text"], "Lick Ada");
        let read = ask(&stage, path, "prompts/get", json!({"name": lone_name})).await;
        let text = &read["messages"][0]["content"]["text"];
        assert_eq!(text, "You are Max, a cat.");
        let params = json!({
            "ref": {"type": "ref/prompt", "name": rex_name}, "argument": {"name": "who", "value": "A"},
        });
        let completed = ask(&stage, path, "completion/complete", params).await;
        assert_eq!(completed["completion"]["values"], json!(["Ada"]));
        let missing = exchange(modern(
            &stage,
            path,
            "prompts/get",
            json!({"name": rex_name}),
        ))
        .await;
        assert_eq!(missing.error_code(), -32602);
    }
    let foreign = stage.foreign_key().await;
    let asked = modern(
        &stage,
        "/mcp",
        "prompts/get",
        json!({"name": rex.prompt_name()}),
    );
    let refused = exchange(with_credential(asked, foreign.expose_secret())).await;
    assert_eq!(refused.error_code(), -32602);
    assert_ne!(z, bello);
}

#[tokio::test]
async fn an_npc_has_the_tools_of_its_devices_that_its_policy_allows() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", TOOLS).await;
    stage.connect_with("toy-2", TOOLS).await;
    let one = npc(&stage, None, json!({"name": "One"}), &["toy-1"]).await;
    assert_eq!(tools(&stage, &one).await, ["_ea99d70f", "echo", "fail"]);
    assert_eq!(call(&stage, &one, "echo").await, "succeeded");
    assert_eq!(stage.edge.called.lock().clone(), ["toy-1", "toy-1"]);
    for tool in ["toy-1__echo", "toy-2__echo", "none"] {
        assert_eq!(call(&stage, &one, tool).await, -32602, "{tool}");
    }
    // Policies name a service as the device does, or as its tool is called.
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
        let now = stage.store.npc(stage.org, one.id).await.unwrap().unwrap();
        let version = now.version;
        let written = stage
            .store
            .replace_npc(stage.org, one.id, version, &settings);
        assert!(matches!(written.await.unwrap(), NpcWrite::Written(_)));
        assert_eq!(tools(&stage, &one).await, left, "{policy}");
        for tool in ["_ea99d70f", "echo", "fail"] {
            let end = call(&stage, &one, tool).await;
            assert_eq!(end != -32602, left.contains(&tool), "{policy} {tool} {end}");
        }
    }
}

#[tokio::test]
async fn tools_of_several_devices_are_told_apart() {
    let stage = Stage::set().await;
    for device in ["toy-1", "toy.2", "toy-3"] {
        stage.connect_with(device, TOOLS).await;
    }
    stage.remember("asleep").await;
    let overrides = json!({"name": "Two", "tools": {"deny": ["fail"]}});
    let devices = ["toy-1", "toy.2", "asleep", "never-there"];
    let two = npc(&stage, None, overrides, &devices).await;
    let listed = tools(&stage, &two).await;
    let made = &listed[3];
    assert!(
        made.starts_with("toy_2-") && made.ends_with("___ea99d70f"),
        "{made}"
    );
    let part = made.trim_end_matches("___ea99d70f");
    assert_eq!(
        listed,
        [
            "asleep__echo",
            "toy-1___ea99d70f",
            "toy-1__echo",
            made,
            &format!("{part}__echo")
        ]
    );
    assert_eq!(call(&stage, &two, "toy-1__echo").await, "succeeded");
    assert_eq!(
        call(&stage, &two, &format!("{part}__echo")).await,
        "succeeded"
    );
    assert_eq!(call(&stage, &two, "asleep__echo").await, "offline");
    assert_eq!(
        stage.edge.called.lock().clone(),
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
        assert_eq!(call(&stage, &two, tool).await, -32602, "{tool}");
    }
}

#[tokio::test]
async fn an_npc_with_many_devices_is_listed_by_pages() {
    let stage = Stage::set().await;
    let devices: Vec<String> = (0..30).map(|at| format!("toy-{at:02}")).collect();
    for device in &devices {
        stage.connect(device).await;
    }
    let bound: Vec<&str> = devices.iter().map(String::as_str).collect();
    let many = npc(&stage, None, json!({"name": "Many"}), &bound).await;
    let first = ask(&stage, &at(&many), "tools/list", json!({})).await;
    let next = json!({"cursor": first["nextCursor"]});
    let second = ask(&stage, &at(&many), "tools/list", next).await;
    assert!(second.get("nextCursor").is_none());
    let mut all = each(&first, "tools", "name");
    all.extend(each(&second, "tools", "name"));
    let expected: Vec<String> = devices.iter().map(|id| format!("{id}__echo")).collect();
    assert_eq!(all, expected);
    let wrong = json!({"cursor": "no/id"});
    let refused = exchange(modern(&stage, &at(&many), "tools/list", wrong)).await;
    assert_eq!(refused.error_code(), -32602);
}

/// An NPC that shows and remembers something, another of the same template that does so too, and the book of the first.
async fn rex_and_max(stage: &Stage) -> (Npc, Npc, String) {
    let own = Owner::Org(stage.org);
    let shown = picture(stage, "test://shown").await;
    let hidden = picture(stage, "test://hidden").await;
    let named = book(stage, own, "Named", &[("A", "battery")]).await;
    let messages =
        json!([{"role": "user", "content": {"type": "resource", "uri": "test://{{which}}"}}]);
    let prompt = json!({"name": "show", "arguments": [{"name": "which"}], "messages": messages});
    let settings =
        json!({"name": "Bello", "avatar": shown, "skills_book_ids": [named], "prompt": prompt});
    let bello = template(stage, settings).await;
    let rex = npc(stage, Some(bello), json!({"name": "Rex"}), &["toy-1"]).await;
    let overrides = json!({"name": "Max", "avatar": hidden});
    let max = npc(stage, Some(bello), overrides, &["toy-2"]).await;
    remember(stage, bello, "test://template", "of all").await;
    remember(stage, bello, "test://friends/{name}", "{{name}} of all").await;
    remember(stage, rex.id, "test://rex", "of Rex").await;
    remember(stage, rex.id, "test://rex/{name}", "{{name}} of Rex").await;
    remember(stage, max.id, "test://max", "of Max").await;
    remember(stage, max.id, "test://max/{name}", "{{name}} of Max").await;
    (rex, max, format!("switchboard://skills-books/{named}"))
}

#[tokio::test]
async fn an_npc_reads_what_is_its_own_and_nothing_else() {
    let stage = Stage::set().await;
    let (rex, _, own_book) = rex_and_max(&stage).await;
    let owner = Owner::Org(stage.org);
    let other = book(&stage, owner, "Other", &[("A", "battery")]).await;
    let path = at(&rex);
    let listed = ask(&stage, &path, "resources/list", json!({})).await;
    assert_eq!(
        each(&listed, "resources", "uri"),
        [&own_book, "test://rex", "test://shown", "test://template"]
    );
    let listed = ask(&stage, &path, "resources/templates/list", json!({})).await;
    assert_eq!(
        each(&listed, "resourceTemplates", "uriTemplate")[2..],
        ["test://friends/{name}", "test://rex/{name}"]
    );
    let read = async |uri: &str| {
        let request = modern(&stage, &path, "resources/read", json!({"uri": uri}));
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
        let followed = legacy(&stage, &path, "resources/subscribe", json!({"uri": uri}));
        assert_eq!(exchange(followed).await.error_code(), -32002, "{uri}");
    }
    let params = json!({
        "ref": {"type": "ref/resource", "uri": "switchboard://skills-books/{id}/chunks/{n}"},
        "argument": {"name": "id", "value": ""},
    });
    let completed = ask(&stage, &path, "completion/complete", params).await;
    let ids = completed["completion"]["values"].as_array().unwrap();
    assert!(ids.len() == 1 && own_book.ends_with(ids[0].as_str().unwrap()));
}

#[tokio::test]
async fn an_npc_has_one_prompt_which_shows_what_is_its_own() {
    let stage = Stage::set().await;
    let (rex, max, _) = rex_and_max(&stage).await;
    let path = at(&rex);
    let listed = ask(&stage, &path, "prompts/list", json!({})).await;
    assert_eq!(each(&listed, "prompts", "name"), [rex.prompt_name()]);
    let behind = json!({"cursor": rex.prompt_name()});
    let listed = ask(&stage, &path, "prompts/list", behind).await;
    assert_eq!(listed["prompts"], json!([]));
    let get = async |name: &str, which: &str| {
        let params = json!({"name": name, "arguments": {"which": which}});
        exchange(modern(&stage, &path, "prompts/get", params)).await
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
async fn a_server_says_who_it_is() {
    let stage = Stage::set().await;
    let persona = json!({"role": "a dog", "backstory": "电".repeat(6_000)});
    let rex = npc(
        &stage,
        None,
        json!({"name": "Rex", "persona": persona}),
        &[],
    )
    .await;
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let old = exchange(legacy(&stage, &at(&rex), "initialize", hello.clone())).await;
    let new = exchange(modern(&stage, &at(&rex), "server/discover", json!({}))).await;
    let told = old.result()["instructions"].as_str().unwrap();
    assert!(
        told.starts_with("You are Rex, a dog.\n\nBackstory:\n电"),
        "{told:.80}"
    );
    assert!(told.ends_with("does not fit here.") && told.len() < 17 * 1024);
    assert_eq!(new.result()["instructions"], told);
    assert_eq!(old.result()["serverInfo"]["title"], "Rex");
    assert!(old.headers.contains_key("mcp-session-id"));

    // Without the scope to read, and of all devices, nothing is said.
    let calling = stage.add_key(&[Scope::Call]).await;
    let unread = legacy(&stage, &at(&rex), "initialize", hello.clone());
    let unread = exchange(with_credential(unread, calling.expose_secret())).await;
    let all = exchange(legacy(&stage, "/mcp", "initialize", hello)).await;
    for answer in [unread, all] {
        assert!(answer.result().get("instructions").is_none(), "{answer:?}");
        assert!(answer.result()["serverInfo"].get("title").is_none());
    }
}

#[tokio::test]
async fn an_npc_is_for_its_organisation_only() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", TOOLS).await;
    let rex = npc(&stage, None, json!({"name": "Rex"}), &["toy-1"]).await;
    remember(&stage, rex.id, "test://rex", "of Rex").await;
    let (foreign, reading, calling) = (
        stage.foreign_key().await,
        stage.add_key(&[Scope::Read]).await,
        stage.add_key(&[Scope::Call]).await,
    );
    let (token, ..) = stage.issue_token(Duration::from_secs(600)).await;
    let missing = format!("/mcp/npcs/{}", NpcId::from_uuid(Uuid::now_v7()));
    let status = async |credential: &str, path: &str| {
        let listed = modern(&stage, path, "tools/list", json!({}));
        let posted = exchange(with_credential(listed, credential)).await;
        let stream = stage
            .request(Method::GET, path)
            .header("accept", "text/event-stream");
        let stream = with_credential(stream, credential).send().await.unwrap();
        assert_eq!(posted.status, stream.status().as_u16(), "{path}");
        posted.status
    };
    let own = at(&rex);
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
    let challenged = stage.anonymous(Method::POST, &own).send().await.unwrap();
    let challenge = challenged.headers()["www-authenticate"].to_str().unwrap();
    assert!(
        challenge.contains(&format!("oauth-protected-resource{own}")),
        "{challenge}"
    );
    for credential in [calling.expose_secret(), &token] {
        for (method, list) in [("prompts/list", "prompts"), ("resources/list", "resources")] {
            let listed = modern(&stage, &own, method, json!({}));
            let listed = exchange(with_credential(listed, credential)).await;
            assert_eq!(listed.result()[list], json!([]));
        }
    }
    assert!(stage.store.delete_npc(stage.org, rex.id, 1).await.unwrap());
    assert_eq!(status(calling.expose_secret(), &own).await, 404);
}

#[tokio::test]
async fn what_a_device_asks_is_bound_to_the_npc() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", r#"{"ask":{}}"#).await;
    let rex = npc(&stage, None, json!({"name": "Rex"}), &["toy-1"]).await;
    let ask = async |path: &str, more: Value| {
        let mut params = json!({"name": "ask", "arguments": {}});
        let more = more.as_object().unwrap().clone();
        params.as_object_mut().unwrap().extend(more);
        let meta =
            json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "roots": {}}});
        let asked = crate::mcp_client::modern_with(&stage, path, "tools/call", params, meta);
        exchange(asked).await
    };
    let asked = ask(&at(&rex), json!({})).await;
    let state = asked.result()["requestState"].clone();
    assert!(state.is_string(), "{asked:?}");
    // Its settings may change meanwhile; another endpoint is another one.
    let settings = NpcSettings {
        overrides: Map::from_iter([("name".to_owned(), json!("Max"))]),
        ..rex.settings.clone()
    };
    let written = stage
        .store
        .replace_npc(stage.org, rex.id, 1, &settings)
        .await;
    assert!(matches!(written.unwrap(), NpcWrite::Written(_)));
    let responses =
        json!({"name": {"action": "accept", "content": {"name": "a"}}, "roots": {"roots": []}});
    let answer = json!({"requestState": state, "inputResponses": responses});
    let there = ask("/mcp/devices/toy-1", answer.clone()).await;
    assert_eq!(there.error_code(), -32602);
    let done = ask(&at(&rex), answer).await;
    let data = &done.result()["structuredContent"]["data"];
    assert_eq!(data["state"], json!({"step": 1}), "{done:?}");
}
