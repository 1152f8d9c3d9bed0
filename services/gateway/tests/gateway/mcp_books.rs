//! Skills books as resources: the ready ones, what is in them, their chunks, and searches.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use switchboard_protocol::id::SkillsBookId;
use switchboard_store::{NewChunk, NewSkillsBook, Owner, Store};
use uuid::Uuid;

use crate::{
    mcp_client::{exchange, legacy, modern, with_credential},
    stage::Stage,
};

const ALL: &str = "/mcp";
const CHUNKS: &str = "switchboard://skills-books/{id}/chunks/{n}";
const SEARCHES: &str = "switchboard://skills-books/{id}/search{?q}";

/// A book that is sent and waits for its reader.
async fn sent(store: &Store, owner: Owner, name: &str) -> SkillsBookId {
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

/// A book whose chunks are these, each with its heading.
pub(crate) async fn book(
    stage: &Stage,
    owner: Owner,
    name: &str,
    chunks: &[(&str, &str)],
) -> SkillsBookId {
    let store = &stage.store;
    let id = sent(store, owner, name).await;
    let worker = Uuid::now_v7();
    let lease = Duration::from_secs(60);
    let job = store.claim_skills_book(worker, lease).await.unwrap();
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

/// The one text that stands under a URI.
async fn read(stage: &Stage, path: &str, uri: &str) -> Value {
    let read = exchange(modern(stage, path, "resources/read", json!({"uri": uri}))).await;
    let contents = read.result()["contents"].as_array().unwrap().clone();
    assert_eq!(contents.len(), 1);
    assert_eq!(
        (&contents[0]["uri"], &contents[0]["mimeType"]),
        (&json!(uri), &json!("application/json"))
    );
    serde_json::from_str(contents[0]["text"].as_str().unwrap()).unwrap()
}

async fn refused(stage: &Stage, path: &str, uri: &str) -> i64 {
    let read = exchange(modern(stage, path, "resources/read", json!({"uri": uri}))).await;
    read.error_code()
}

#[tokio::test]
async fn ready_books_are_resources() {
    let stage = Stage::set().await;
    let own = book(&stage, Owner::Org(stage.org), "Manual", &MANUAL).await;
    let public = book(&stage, Owner::Installation, "Law", &[("A", "b")]).await;
    let waits = sent(&stage.store, Owner::Org(stage.org), "Waits").await;
    let listed = exchange(modern(&stage, ALL, "resources/list", json!({}))).await;
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
    let contents = read(&stage, ALL, &path).await;
    assert_eq!(
        contents,
        json!({
            "id": own, "name": "Manual", "mime_type": "text/markdown", "chunks": 3,
            "chunk_uri": format!("{path}/chunks/{{n}}"), "search_uri": format!("{path}/search{{?q}}"),
            "contents": [{"chunk": 0, "heading": "Manual › Setup"}, {"chunk": 1, "heading": "Manual › Care"}],
            "contents_complete": true,
        })
    );
    let chunk = read(&stage, ALL, &format!("{path}/chunks/1")).await;
    assert_eq!(
        chunk,
        json!({
            "chunk": 1, "heading": "Manual › Care", "uri": format!("{path}/chunks/1"), "text": MANUAL[1].1,
            "previous": format!("{path}/chunks/0"), "next": format!("{path}/chunks/2"),
        })
    );
    let last = read(&stage, ALL, &format!("{path}/chunks/2")).await;
    assert_eq!(last["next"], Value::Null);
    for (question, chunk) in [("replace+the%20batteries", 1), ("%E6%B0%B4", 2)] {
        let found = read(&stage, ALL, &format!("{path}/search?q={question}")).await;
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
        assert_eq!(refused(&stage, ALL, &uri).await, -32602, "{uri}");
    }
    let missing = legacy(&stage, ALL, "resources/read", json!({"uri": unread}));
    assert_eq!(exchange(missing).await.error_code(), -32002);
}

#[tokio::test]
async fn a_long_book_shows_where_its_first_500_headings_begin() {
    let stage = Stage::set().await;
    let headings: Vec<String> = (0..501).map(|at| format!("Chapter {at}")).collect();
    let chunks: Vec<_> = headings
        .iter()
        .map(|heading| (heading.as_str(), "x"))
        .collect();
    let id = book(&stage, Owner::Org(stage.org), "Long", &chunks).await;
    let contents = read(&stage, ALL, &format!("switchboard://skills-books/{id}")).await;
    assert_eq!(contents["contents"].as_array().unwrap().len(), 500);
    assert_eq!(contents["contents_complete"], false);
}

#[tokio::test]
async fn chunks_and_searches_are_templates_that_are_completed() {
    let stage = Stage::set().await;
    let templates = async || {
        let listed = exchange(modern(&stage, ALL, "resources/templates/list", json!({}))).await;
        let listed = listed.result()["resourceTemplates"]
            .as_array()
            .unwrap()
            .clone();
        let listed = listed.iter().map(|one| one["uriTemplate"].clone());
        listed.collect::<Vec<_>>()
    };
    assert!(templates().await.is_empty(), "there is no book");
    let id = book(&stage, Owner::Org(stage.org), "Manual", &MANUAL).await;
    let other = book(&stage, Owner::Org(stage.org), "Other", &[("a", "b")]).await;
    assert_eq!(templates().await, [CHUNKS, SEARCHES]);

    let complete = async |template: &str, argument: (&str, &str), known: Value| {
        let params = json!({
            "ref": {"type": "ref/resource", "uri": template},
            "argument": {"name": argument.0, "value": argument.1}, "context": {"arguments": known},
        });
        let completed = exchange(modern(&stage, ALL, "completion/complete", params)).await;
        completed.result()["completion"]["values"].clone()
    };
    for template in [CHUNKS, SEARCHES] {
        let all = complete(template, ("id", ""), json!({})).await;
        assert_eq!(all, json!([id, other]));
        let by_name = complete(template, ("id", "manu"), json!({})).await;
        assert_eq!(by_name, json!([id]));
        let by_id = complete(template, ("id", &other.to_string()), json!({})).await;
        assert_eq!(by_id, json!([other]));
    }
    let numbers = complete(CHUNKS, ("n", ""), json!({"id": id})).await;
    assert_eq!(numbers, json!(["0", "1", "2"]));
    let numbers = complete(CHUNKS, ("n", "2"), json!({"id": id})).await;
    assert_eq!(numbers, json!(["2"]));
    for (argument, known) in [
        (("n", ""), json!({})),
        (("n", ""), json!({"id": "x"})),
        (("q", "a"), json!({"id": id})),
    ] {
        assert_eq!(complete(CHUNKS, argument, known).await, json!([]));
    }
}

#[tokio::test]
async fn books_of_others_are_not_there() {
    use secrecy::ExposeSecret as _;
    use switchboard_protocol::access::Scope;

    let stage = Stage::set().await;
    let id = book(&stage, Owner::Org(stage.org), "Manual", &MANUAL).await;
    let foreign = stage.foreign_key().await;
    let calling = stage.add_key(&[Scope::Call]).await;
    for key in [&foreign, &calling] {
        let ask = async |method: &str, params: Value| {
            let request = modern(&stage, ALL, method, params);
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
            "ref": {"type": "ref/resource", "uri": CHUNKS}, "argument": {"name": "id", "value": ""},
        });
        let completed = ask("completion/complete", params).await;
        assert_eq!(completed.result()["completion"]["values"], json!([]));
    }
}
