//! Templates as prompts, memories and pictures as resources.

use futures_util::{StreamExt as _, stream};
use reqwest::Method;
use serde_json::{Map, Value, json};
use switchboard_bus::CatalogEvent;
use switchboard_catalog::{TemplateSettings, UriTemplate};
use switchboard_protocol::{
    id::{MemoryId, PictureId, TemplateId},
    token::Scope,
};
use switchboard_store::{NewMemory, NewPicture, Owner, TemplateWrite};
use uuid::Uuid;

use crate::{
    mcp_client::{Stream, exchange, legacy, modern, modern_with, post},
    test_gateway::TestGateway,
};

const DEVICE: &str = "/mcp/devices/toy-1";

/// Creates a template with this prompt.
async fn template(gateway: &TestGateway, prompt: Value) -> TemplateId {
    let written = write(gateway, prompt).await;
    let TemplateWrite::Written(template) = written else {
        unreachable!("{written:?}");
    };
    template.id
}

async fn write(gateway: &TestGateway, prompt: Value) -> TemplateWrite {
    let settings =
        json!({"name": "A template", "persona": {"description": "Kind"}, "prompt": prompt});
    let settings: TemplateSettings = serde_json::from_value(settings).unwrap();
    let id = TemplateId::from_uuid(Uuid::now_v7());
    let owner = Owner::Org(gateway.org);
    let written = gateway.store.create_template(owner, id, &settings).await;
    written.unwrap()
}

async fn memory(gateway: &TestGateway, template: TemplateId, uri: &str, text: &str) {
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
    let owner = Owner::Org(gateway.org);
    gateway
        .store
        .add_memories(owner, template, &[memory])
        .await
        .unwrap();
}

pub(crate) async fn picture(gateway: &TestGateway, uri: &str) -> PictureId {
    picture_of(gateway, uri, bytes::Bytes::from_static(b"\x89PNG")).await
}

async fn picture_of(gateway: &TestGateway, uri: &str, bytes: bytes::Bytes) -> PictureId {
    let id = PictureId::from_uuid(Uuid::now_v7());
    let picture = NewPicture {
        id,
        name: "dot".to_owned(),
        uri: Some(UriTemplate::parse(uri).unwrap()),
        mime_type: "image/png",
        width: 1,
        height: 1,
        bytes,
    };
    gateway
        .store
        .add_picture(Owner::Org(gateway.org), picture)
        .await
        .unwrap();
    id
}

async fn ask(gateway: &TestGateway, method: &str, params: Value) -> Value {
    let answer = exchange(modern(gateway, DEVICE, method, params)).await;
    answer.result().clone()
}

#[tokio::test]
async fn template_is_a_prompt() {
    let gateway = TestGateway::start().await;
    let dot = picture(&gateway, "test://dot").await;
    let notes = template(&gateway, Value::Null).await;
    memory(&gateway, notes, "test://note", "Remember this.").await;
    template(
        &gateway,
        json!({
            "name": "greet", "title": "Greeting", "description": "Says hello",
            "arguments": [{"name": "who", "required": true, "values": ["world", "wolf", "Ada"]}],
            "messages": [
                {"role": "user", "content": {"type": "text", "text": "Hello {{who}}"}},
                {"role": "assistant", "content": {"type": "image", "picture_id": dot}},
                {"role": "user", "content": {"type": "resource", "uri": "test://{{who}}"}},
            ],
        }),
    )
    .await;
    let listed = ask(&gateway, "prompts/list", json!({})).await;
    let prompts = listed["prompts"].as_array().unwrap();
    assert_eq!(prompts.len(), 2);
    assert_eq!(
        prompts[0],
        json!({"name": "greet", "title": "Greeting", "description": "Says hello", "arguments": [{"name": "who", "required": true}]})
    );
    assert_eq!(prompts[1]["name"], notes.to_string());
    assert_eq!(listed["cacheScope"], "private");

    let read = ask(
        &gateway,
        "prompts/get",
        json!({"name": "greet", "arguments": {"who": "note"}}),
    )
    .await;
    let contents: Vec<&Value> = read["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| &message["content"])
        .collect();
    assert_eq!(*contents[0], json!({"type": "text", "text": "Hello note"}));
    assert_eq!(
        *contents[1],
        json!({"type": "image", "data": "iVBORw==", "mimeType": "image/png"})
    );
    let note = json!({"uri": "test://note", "mimeType": "text/plain", "text": "Remember this."});
    assert_eq!(*contents[2], json!({"type": "resource", "resource": note}));

    let argument = json!({"name": "who", "value": "wo"});
    let params = json!({"ref": {"type": "ref/prompt", "name": "greet"}, "argument": argument});
    let completed = ask(&gateway, "completion/complete", params).await;
    assert_eq!(completed["completion"]["values"], json!(["world", "wolf"]));

    for (name, arguments) in [
        ("greet", json!({})),
        ("greet", json!({"who": 7})),
        ("greet", json!({"who": "note", "other": ""})),
        ("greet", json!({"who": "nothing-there"})),
        ("none", json!({})),
    ] {
        let params = json!({"name": name, "arguments": arguments});
        let refused = exchange(modern(&gateway, DEVICE, "prompts/get", params)).await;
        assert_eq!(refused.error_code(), -32602, "{name} {arguments}");
    }
}

#[tokio::test]
async fn embedded_content_of_a_prompt_is_limited() {
    const MIB: usize = 1024 * 1024;
    let gateway = TestGateway::start().await;
    let bytes = |fill: u8| bytes::Bytes::from(vec![fill; 6 * MIB]);
    let (one, _) = tokio::join!(
        picture_of(&gateway, "test://one", bytes(1)),
        picture_of(&gateway, "test://two", bytes(2))
    );
    let message = |content: Value| json!({"role": "user", "content": content});
    let picture = || message(json!({"type": "image", "picture_id": one}));
    let prompt = |name: &str, more: Value| {
        let messages = [
            picture(),
            message(json!({"type": "resource", "uri": "test://{{which}}"})),
            message(more),
        ];
        json!({"name": name, "arguments": [{"name": "which"}], "messages": messages})
    };
    let text = json!({"type": "text", "text": "a"});
    template(&gateway, prompt("fits", text)).await;
    let twice = json!({"type": "resource", "uri": "test://{{which}}"});
    template(&gateway, prompt("too-large", twice)).await;
    let get = async |name: &str| {
        let params = json!({"name": name, "arguments": {"which": "two"}});
        exchange(modern(&gateway, DEVICE, "prompts/get", params)).await
    };
    let whole = get("fits").await;
    let shown = &whole.result()["messages"][1]["content"]["resource"]["blob"];
    assert_eq!(shown.as_str().unwrap().len(), 8 * MIB);
    let refused = get("too-large").await;
    assert_eq!(refused.error_code(), -32602);
    let message = refused.last()["error"]["message"].as_str().unwrap();
    assert!(message.contains("12582912 bytes"), "{message}");
    // Together they exceed the share of an organisation. They wait for each other, and none is
    // refused.
    let many = stream::iter(0..4)
        .map(|_| get("fits"))
        .buffer_unordered(4)
        .collect::<Vec<_>>()
        .await;
    assert!(
        many.iter()
            .all(|read| read.result()["messages"][0].is_object())
    );

    let refused = write(&gateway, json!({"messages": vec![picture(); 3]})).await;
    assert_eq!(refused, TemplateWrite::TooManyBytes(18 * MIB as u64));
}

#[tokio::test]
async fn prompt_requests_missing_values() {
    let gateway = TestGateway::start().await;
    template(
        &gateway,
        json!({
            "name": "story",
            "arguments": [{"name": "hero", "required": true, "question": "Who is it about?"}],
            "messages": [{"role": "user", "content": {"type": "text", "text": "A story of {{hero}}"}}],
        }),
    )
    .await;
    let get = |capabilities: Value, more: Value| {
        let mut params = json!({"name": "story"});
        params
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let meta = json!({"io.modelcontextprotocol/clientCapabilities": capabilities});
        exchange(modern_with(&gateway, DEVICE, "prompts/get", params, meta))
    };
    let elicits = || json!({"elicitation": {}});
    let asked = get(elicits(), json!({})).await;
    assert_eq!(asked.result()["resultType"], "input_required");
    let question = &asked.result()["inputRequests"]["hero"];
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "Who is it about?");
    assert_eq!(
        question["params"]["requestedSchema"]["required"],
        json!(["hero"])
    );

    let accepted =
        json!({"inputResponses": {"hero": {"action": "accept", "content": {"hero": "Ada"}}}});
    let rendered = get(elicits(), accepted).await;
    assert_eq!(
        rendered.result()["messages"][0]["content"]["text"],
        "A story of Ada"
    );
    let declined = json!({"inputResponses": {"hero": {"action": "decline"}}});
    assert_eq!(get(elicits(), declined).await.error_code(), -32602);
    assert_eq!(get(json!({}), json!({})).await.error_code(), -32602);
}

#[tokio::test]
async fn memories_and_pictures_are_resources() {
    let gateway = TestGateway::start().await;
    let owner = template(&gateway, Value::Null).await;
    memory(&gateway, owner, "test://note", "记住这个").await;
    memory(&gateway, owner, "test://user/{id}/note", "About {{id}}").await;
    picture(&gateway, "test://dot").await;
    let listed = ask(&gateway, "resources/list", json!({})).await;
    let uris: Vec<&Value> = listed["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| &found["uri"])
        .collect();
    assert_eq!(uris, ["test://dot", "test://note"]);
    assert_eq!(listed["resources"][0]["mimeType"], "image/png");
    let templates = ask(&gateway, "resources/templates/list", json!({})).await;
    assert_eq!(
        templates["resourceTemplates"][0]["uriTemplate"],
        "test://user/{id}/note"
    );

    let read = async |uri: &str| {
        ask(&gateway, "resources/read", json!({"uri": uri})).await["contents"][0].clone()
    };
    assert_eq!(
        read("test://note").await,
        json!({"uri": "test://note", "mimeType": "text/plain", "text": "记住这个"})
    );
    assert_eq!(
        read("test://dot").await,
        json!({"uri": "test://dot", "mimeType": "image/png", "blob": "iVBORw=="})
    );
    assert_eq!(read("test://user/7/note").await["text"], "About 7");

    let missing = json!({"uri": "test://nothing"});
    let refused = exchange(modern(&gateway, DEVICE, "resources/read", missing.clone())).await;
    assert_eq!(
        (refused.error_code(), &refused.last()["error"]["data"]),
        (-32602, &missing)
    );
    let refused = exchange(legacy(&gateway, DEVICE, "resources/read", missing.clone())).await;
    assert_eq!(refused.error_code(), -32002);
    let refused = exchange(legacy(&gateway, DEVICE, "resources/subscribe", missing)).await;
    assert_eq!(refused.error_code(), -32002);
    let followed = exchange(legacy(
        &gateway,
        DEVICE,
        "resources/subscribe",
        json!({"uri": "test://note"}),
    ))
    .await;
    assert_eq!(*followed.result(), json!({}));
}

#[tokio::test]
async fn without_read_prompts_and_resources_are_hidden() {
    let gateway = TestGateway::start().await;
    let owner = template(&gateway, json!({"name": "greet"})).await;
    memory(&gateway, owner, "test://note", "a").await;
    let key = gateway.add_key(&[Scope::Call]).await;
    let ask = async |method: &str, params: Value| {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = post(&gateway, DEVICE, "2025-11-25", &message);
        let own = gateway
            .request_as(&key, Method::POST, DEVICE)
            .build()
            .unwrap();
        exchange(request.headers(own.headers().clone())).await
    };
    assert_eq!(
        ask("prompts/list", json!({})).await.result()["prompts"],
        json!([])
    );
    assert_eq!(
        ask("resources/list", json!({})).await.result()["resources"],
        json!([])
    );
    assert_eq!(
        ask("prompts/get", json!({"name": "greet"}))
            .await
            .error_code(),
        -32602
    );
    assert_eq!(
        ask("resources/read", json!({"uri": "test://note"}))
            .await
            .error_code(),
        -32002
    );
}

#[tokio::test]
async fn listeners_are_notified_of_their_orgs_resources() {
    let gateway = TestGateway::start().await;
    let wanted = json!({"notifications": {"promptsListChanged": true, "resourceSubscriptions": ["test://note"]}});
    let mut modern = Stream::open(modern(&gateway, DEVICE, "subscriptions/listen", wanted)).await;
    assert_eq!(
        modern.next().await["method"],
        "notifications/subscriptions/acknowledged"
    );
    let get = gateway
        .request(Method::GET, DEVICE)
        .header("accept", "text/event-stream");
    let mut legacy = Stream::open(get).await;
    let org = Some(gateway.org);
    let other = Some(switchboard_protocol::id::OrgId::from_uuid(Uuid::now_v7()));
    let resource = |org, uri: &str| CatalogEvent::Resources {
        org,
        uri: Some(uri.into()),
    };
    for change in [
        CatalogEvent::Prompts { org: other },
        resource(org, "test://another"),
        resource(org, "test://note"),
        CatalogEvent::Prompts { org },
    ] {
        gateway
            .edge
            .bus
            .publish_catalog_event(change)
            .await
            .unwrap();
    }
    let message = modern.next().await;
    assert_eq!(
        (&message["method"], &message["params"]["uri"]),
        (
            &json!("notifications/resources/updated"),
            &json!("test://note")
        )
    );
    assert_eq!(
        modern.next().await["method"],
        "notifications/prompts/list_changed"
    );

    let mut received = Vec::new();
    for _ in 0..5 {
        let message = legacy.next().await;
        let uri = message["params"]["uri"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        received.push((
            message["method"]
                .as_str()
                .unwrap()
                .replace("notifications/", ""),
            uri,
        ));
    }
    let list = || ("resources/list_changed".to_owned(), String::new());
    let updated = |uri: &str| ("resources/updated".to_owned(), uri.to_owned());
    assert_eq!(
        received,
        [
            list(),
            updated("test://another"),
            list(),
            updated("test://note"),
            ("prompts/list_changed".to_owned(), String::new())
        ]
    );
}
