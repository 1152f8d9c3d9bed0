//! Skills books as resources: lists, contents, chunks and searches.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use switchboard_protocol::id::SkillsBookId;
use switchboard_store::{JobTurn, NewChunk, NewSkillsBook, Owner, Store};
use uuid::Uuid;

use crate::{
    mcp_client::{exchange, legacy, modern, with_credential},
    test_gateway::TestGateway,
};

const ALL: &str = "/mcp";
const CHUNK_TEMPLATE: &str = "switchboard://skills-books/{id}/chunks/{n}";
const SEARCH_TEMPLATE: &str = "switchboard://skills-books/{id}/search{?q}";

/// Creates a book that has not been indexed.
async fn unindexed_book(store: &Store, owner: Owner, name: &str) -> SkillsBookId {
    let id = SkillsBookId::from_uuid(Uuid::now_v7());
    let book = NewSkillsBook {
        id,
        name: name.to_owned(),
        mime_type: "text/markdown",
        locale: "en".to_owned(),
        size_bytes: 4,
        sha256: Sha256::digest(b"text").into(),
    };
    let mut creation = store.begin(owner).await.unwrap();
    creation.begin_skills_book(owner, &book).await.unwrap();
    creation.commit().await.unwrap();
    let part = Bytes::from_static(b"text");
    let written = store.write_skills_book_part(owner, id, 1, part).await;
    written.unwrap();
    store.finish_skills_book(owner, id).await.unwrap();
    id
}

/// Creates a ready book with these headings and texts.
pub(crate) async fn book(
    gateway: &TestGateway,
    owner: Owner,
    name: &str,
    chunks: &[(&str, &str)],
) -> SkillsBookId {
    let store = &gateway.store;
    let id = unindexed_book(store, owner, name).await;
    let worker = Uuid::now_v7();
    let lease = Duration::from_secs(60);
    let turn = &mut JobTurn::default();
    let job = store.claim_skills_book(worker, lease, turn).await.unwrap();
    assert_eq!(job.unwrap().id, id);
    let chunks: Vec<_> = chunks
        .iter()
        .map(|(heading, text)| NewChunk {
            heading: Some((*heading).to_owned()),
            page: None,
            text: (*text).to_owned(),
        })
        .collect();
    let count = i32::try_from(chunks.len()).unwrap();
    let begun = store.begin_indexing_skills_book(worker, id, count, &[1]);
    assert_eq!(begun.await.unwrap(), Some(0));
    let stored = store.add_skills_book_chunks(worker, id, 0, &chunks);
    assert!(stored.await.unwrap());
    assert!(store.complete_skills_book(worker, id).await.unwrap());
    id
}

const MANUAL: [(&str, &str); 3] = [
    ("Manual › Setup", "Put the toy on a table."),
    ("Manual › Care", "Replace the battery once a year."),
    ("Manual › Care", "不要把玩具放进水里。"),
];

/// Reads a JSON resource.
async fn read(gateway: &TestGateway, path: &str, uri: &str) -> Value {
    let read = exchange(modern(gateway, path, "resources/read", json!({"uri": uri}))).await;
    let contents = read.result()["contents"].as_array().unwrap().clone();
    assert_eq!(contents.len(), 1);
    assert_eq!(
        (&contents[0]["uri"], &contents[0]["mimeType"]),
        (&json!(uri), &json!("application/json"))
    );
    serde_json::from_str(contents[0]["text"].as_str().unwrap()).unwrap()
}

async fn refused(gateway: &TestGateway, path: &str, uri: &str) -> i64 {
    let read = exchange(modern(gateway, path, "resources/read", json!({"uri": uri}))).await;
    read.error_code()
}

#[tokio::test]
async fn ready_books_are_resources() {
    let gateway = TestGateway::start().await;
    let own = book(&gateway, Owner::Org(gateway.org), "Manual", &MANUAL).await;
    let public = book(&gateway, Owner::Installation, "Law", &[("A", "b")]).await;
    let waits = unindexed_book(&gateway.store, Owner::Org(gateway.org), "Waits").await;
    let listed = exchange(modern(&gateway, ALL, "resources/list", json!({}))).await;
    let listed = listed.result()["resources"].as_array().unwrap().clone();
    let named: Vec<_> = listed
        .iter()
        .map(|one| (&one["uri"], &one["title"]))
        .collect();
    let uri = |id: SkillsBookId| json!(format!("switchboard://skills-books/{id}"));
    assert_eq!(
        named,
        [(&uri(own), &json!("Manual")), (&uri(public), &json!("Law"))]
    );

    let path = format!("switchboard://skills-books/{own}");
    let contents = read(&gateway, ALL, &path).await;
    assert_eq!(
        contents,
        json!({
            "id": own, "name": "Manual", "mime_type": "text/markdown", "chunks": 3,
            "chunk_uri": format!("{path}/chunks/{{n}}"), "search_uri": format!("{path}/search{{?q}}"),
            "contents": [{"chunk": 0, "heading": "Manual › Setup"}, {"chunk": 1, "heading": "Manual › Care"}],
            "contents_complete": true,
        })
    );
    let chunk = read(&gateway, ALL, &format!("{path}/chunks/1")).await;
    assert_eq!(
        chunk,
        json!({
            "chunk": 1, "heading": "Manual › Care", "uri": format!("{path}/chunks/1"), "text": MANUAL[1].1,
            "previous": format!("{path}/chunks/0"), "next": format!("{path}/chunks/2"),
        })
    );
    let last = read(&gateway, ALL, &format!("{path}/chunks/2")).await;
    assert_eq!(last["next"], Value::Null);
    for (question, chunk) in [("replace+the%20batteries", 1), ("%E6%B0%B4", 2)] {
        let found = read(&gateway, ALL, &format!("{path}/search?q={question}")).await;
        assert_eq!(found["chunks"][0]["chunk"], chunk, "{found}");
        let uri = format!("{path}/chunks/{chunk}");
        assert_eq!(found["chunks"][0]["uri"], uri);
        assert!(found["chunks"][0]["score"].as_f64().unwrap() > 0.0);
    }
    let unread = format!("switchboard://skills-books/{waits}");
    for uri in [
        format!("{path}/chunks/3"),
        format!("{path}/search"),
        format!("{path}/search?q=%20"),
        unread.clone(),
        format!("{unread}/search?q=text"),
    ] {
        assert_eq!(refused(&gateway, ALL, &uri).await, -32602, "{uri}");
    }
    let missing = legacy(&gateway, ALL, "resources/read", json!({"uri": unread}));
    assert_eq!(exchange(missing).await.error_code(), -32002);
}

#[tokio::test]
async fn long_table_of_contents_is_truncated() {
    let gateway = TestGateway::start().await;
    let headings: Vec<String> = (0..501).map(|at| format!("Chapter {at}")).collect();
    let chunks: Vec<_> = headings
        .iter()
        .map(|heading| (heading.as_str(), "x"))
        .collect();
    let id = book(&gateway, Owner::Org(gateway.org), "Long", &chunks).await;
    let contents = read(&gateway, ALL, &format!("switchboard://skills-books/{id}")).await;
    assert_eq!(contents["contents"].as_array().unwrap().len(), 500);
    assert_eq!(contents["contents_complete"], false);
}

#[tokio::test]
async fn book_templates_are_listed_and_completed() {
    let gateway = TestGateway::start().await;
    let templates = async || {
        let listed = exchange(modern(&gateway, ALL, "resources/templates/list", json!({}))).await;
        let listed = listed.result()["resourceTemplates"]
            .as_array()
            .unwrap()
            .clone();
        let listed = listed.iter().map(|one| one["uriTemplate"].clone());
        listed.collect::<Vec<_>>()
    };
    assert!(templates().await.is_empty(), "there is no book");
    let id = book(&gateway, Owner::Org(gateway.org), "Manual", &MANUAL).await;
    let other = book(&gateway, Owner::Org(gateway.org), "Other", &[("a", "b")]).await;
    assert_eq!(templates().await, [CHUNK_TEMPLATE, SEARCH_TEMPLATE]);

    let complete = async |template: &str, argument: (&str, &str), known: Value| {
        let params = json!({
            "ref": {"type": "ref/resource", "uri": template},
            "argument": {"name": argument.0, "value": argument.1}, "context": {"arguments": known},
        });
        let completed = exchange(modern(&gateway, ALL, "completion/complete", params)).await;
        completed.result()["completion"]["values"].clone()
    };
    for template in [CHUNK_TEMPLATE, SEARCH_TEMPLATE] {
        let all = complete(template, ("id", ""), json!({})).await;
        assert_eq!(all, json!([id, other]));
        let by_name = complete(template, ("id", "manu"), json!({})).await;
        assert_eq!(by_name, json!([id]));
        let by_id = complete(template, ("id", &other.to_string()), json!({})).await;
        assert_eq!(by_id, json!([other]));
    }
    let numbers = complete(CHUNK_TEMPLATE, ("n", ""), json!({"id": id})).await;
    assert_eq!(numbers, json!(["0", "1", "2"]));
    let numbers = complete(CHUNK_TEMPLATE, ("n", "2"), json!({"id": id})).await;
    assert_eq!(numbers, json!(["2"]));
    for (argument, known) in [
        (("n", ""), json!({})),
        (("n", ""), json!({"id": "x"})),
        (("q", "a"), json!({"id": id})),
    ] {
        assert_eq!(complete(CHUNK_TEMPLATE, argument, known).await, json!([]));
    }
}

#[tokio::test]
async fn book_of_another_org_is_hidden() {
    use secrecy::ExposeSecret as _;
    use switchboard_protocol::token::Scope;

    let gateway = TestGateway::start().await;
    let id = book(&gateway, Owner::Org(gateway.org), "Manual", &MANUAL).await;
    let foreign = gateway.foreign_key().await;
    let calling = gateway.add_key(&[Scope::Call]).await;
    for key in [&foreign, &calling] {
        let ask = async |method: &str, params: Value| {
            let request = modern(&gateway, ALL, method, params);
            exchange(with_credential(request, key.expose_secret())).await
        };
        let listed = ask("resources/list", json!({})).await;
        assert_eq!(listed.result()["resources"], json!([]));
        let listed = ask("resources/templates/list", json!({})).await;
        assert_eq!(listed.result()["resourceTemplates"], json!([]));
        let uri = format!("switchboard://skills-books/{id}");
        for place in ["", "/chunks/0", "/search?q=battery"] {
            let uri = format!("{uri}{place}");
            let read = ask("resources/read", json!({"uri": uri})).await;
            assert_eq!(read.error_code(), -32602, "{uri}");
        }
        let params = json!({
            "ref": {"type": "ref/resource", "uri": CHUNK_TEMPLATE}, "argument": {"name": "id", "value": ""},
        });
        let completed = ask("completion/complete", params).await;
        assert_eq!(completed.result()["completion"]["values"], json!([]));
    }
}
