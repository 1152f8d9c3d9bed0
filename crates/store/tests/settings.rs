//! Templates, memories and pictures as MCP prompts and resources, in a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::collections::BTreeMap;

use bytes::Bytes;
use chrono::{TimeDelta, Utc};
use serde_json::{Map, Value, json};
use switchboard_catalog::{PromptContent, PromptSource, TemplateSettings, UriTemplate};
use switchboard_protocol::{
    id::{ApiKeyId, AuditEntryId, MemoryId, OrgId, PictureId, TemplateId},
    token::Scope,
};
use switchboard_runtime::paging::Order;
use switchboard_store::{
    AuditFilter, MemoryWrite, NewApiKey, NewMemory, NewPicture, Objects, Owner, PictureWrite,
    ResourceBody, Store, TemplateRemoval, TemplateWrite, testing::TestDatabase,
};
use tempfile::TempDir;
use uuid::Uuid;

/// A store with two organisations.
struct Fixture {
    store: Store,
    org: OrgId,
    other: OrgId,
    _objects: TempDir,
    database: TestDatabase,
}

impl Fixture {
    async fn new() -> Self {
        let database = TestDatabase::create().await.unwrap();
        let folder = TempDir::new().unwrap();
        let objects = Objects::in_folder(folder.path()).unwrap();
        let store = database.store().with_objects(Some(objects));
        let (org, other) = (new_org(&store, 1).await, new_org(&store, 2).await);
        Self {
            store,
            org,
            other,
            _objects: folder,
            database,
        }
    }

    async fn template(&self, owner: Owner, settings: Value) -> TemplateId {
        let id = TemplateId::from_uuid(Uuid::now_v7());
        let settings: TemplateSettings = serde_json::from_value(settings).unwrap();
        let written = self
            .store
            .create_template(owner, id, &settings)
            .await
            .unwrap();
        assert!(matches!(written, TemplateWrite::Written(_)), "{written:?}");
        id
    }

    /// A memory of a new template.
    async fn memory(&self, owner: Owner, uri: Option<&str>, text: &str) -> MemoryId {
        let template = self.template(owner, json!({"name": "T"})).await;
        let memory = new_memory(uri, text);
        let id = memory.id;
        let written = self
            .store
            .add_memories(owner, template, &[memory])
            .await
            .unwrap();
        assert!(matches!(written, MemoryWrite::Written(_)), "{written:?}");
        id
    }

    async fn picture(&self, owner: Owner, uri: Option<&str>) -> PictureId {
        let id = PictureId::from_uuid(Uuid::now_v7());
        let picture = NewPicture {
            id,
            name: "a picture".to_owned(),
            uri: uri.map(|uri| UriTemplate::parse_plain(uri).unwrap()),
            mime_type: "image/png",
            width: 3,
            height: 2,
            bytes: Bytes::from_static(b"bytes"),
        };
        let written = self.store.add_picture(owner, picture).await.unwrap();
        assert!(matches!(written, PictureWrite::Written(_)), "{written:?}");
        id
    }

    async fn uris(&self, org: OrgId, templates: bool) -> Vec<String> {
        let listed = if templates {
            self.store.list_resource_templates(org, None, 99).await
        } else {
            self.store.list_resources(org, None, 99).await
        };
        listed
            .unwrap()
            .into_iter()
            .map(|resource| resource.uri)
            .collect()
    }

    async fn text(&self, org: OrgId, uri: &str) -> Option<String> {
        let found = self.store.resource_by_uri(org, uri).await.unwrap()?;
        assert_eq!(found.uri, uri);
        match found.body {
            ResourceBody::Text(text) => Some(text),
            ResourceBody::Picture { key, .. } => Some(key.to_string()),
        }
    }
}

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

fn new_memory(uri: Option<&str>, text: &str) -> NewMemory {
    NewMemory {
        id: MemoryId::from_uuid(Uuid::now_v7()),
        uri: uri.map(|uri| UriTemplate::parse(uri).unwrap()),
        subject: Some("client:anna".to_owned()),
        text: text.to_owned(),
        kind: Some("fact".to_owned()),
        importance: 0.5,
        source: None,
        metadata: Map::new(),
        mime_type: "text/plain".to_owned(),
        expires_at: None,
    }
}

fn prompt(name: &str, text: &str) -> Value {
    json!({
        "name": "Bello",
        "prompt": {
            "name": name, "title": "Greet", "description": "Greets a guest",
            "arguments": [{"name": "who", "required": true, "values": ["Anna"]}],
            "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
        },
    })
}

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "one sequence of cases on one fixture"
)]
async fn templates_are_prompts() {
    let fixture = Fixture::new().await;
    let own = Owner::Org(fixture.org);
    let written = fixture
        .template(own, prompt("greet", "Greet {{who}}!"))
        .await;
    let persona = json!({"name": "Rex", "persona": {"role": "a guard", "description": "Bites", "backstory": "{{who}}"}});
    let plain = fixture.template(own, persona).await;
    fixture
        .template(Owner::Org(fixture.other), prompt("foreign", "x"))
        .await;

    let listed = fixture
        .store
        .list_prompts(fixture.org, None, 9)
        .await
        .unwrap();
    let names: Vec<_> = listed.iter().map(|prompt| prompt.name.as_str()).collect();
    assert_eq!(names, ["greet", &plain.to_string()]);
    assert_eq!(
        (listed[0].source, listed[0].title.as_str()),
        (PromptSource::Template(written), "Greet")
    );
    assert_eq!(listed[0].arguments[0].values, ["Anna"]);
    assert_eq!(
        (listed[1].title.as_str(), listed[1].description.as_deref()),
        ("Rex", Some("Bites"))
    );
    let after = fixture
        .store
        .list_prompts(fixture.org, Some("greet"), 9)
        .await
        .unwrap();
    assert_eq!(after, listed[1..]);
    assert_eq!(
        fixture
            .store
            .list_prompts(fixture.org, None, 1)
            .await
            .unwrap(),
        listed[..1]
    );

    let values = BTreeMap::from([("who".to_owned(), "Anna".to_owned())]);
    let found = fixture
        .store
        .prompt_by_name(fixture.org, "greet")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.listed, listed[0]);
    let text = PromptContent::Text {
        text: "Greet Anna!".to_owned(),
    };
    assert_eq!(found.render(&values).unwrap()[0].content, text);

    let found = fixture
        .store
        .prompt_by_name(fixture.org, &plain.to_string())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.listed, listed[1]);
    let text = PromptContent::Text {
        text: "You are Rex, a guard.\n\nDescription:\nBites\n\nBackstory:\n{{who}}".to_owned(),
    };
    assert_eq!(found.render(&BTreeMap::new()).unwrap()[0].content, text);
    for name in ["foreign", "", "a\0"] {
        assert!(
            fixture
                .store
                .prompt_by_name(fixture.org, name)
                .await
                .unwrap()
                .is_none()
        );
    }
}

#[tokio::test]
async fn own_prompt_precedes_public_one() {
    let fixture = Fixture::new().await;
    fixture
        .template(Owner::Installation, prompt("b", "public"))
        .await;
    fixture
        .template(Owner::Installation, prompt("a", "public"))
        .await;
    let own = fixture
        .template(Owner::Org(fixture.org), prompt("b", "own"))
        .await;
    let own = PromptSource::Template(own);
    let names = async |org, after: Option<&str>, limit| {
        let listed = fixture.store.list_prompts(org, after, limit).await.unwrap();
        listed
            .into_iter()
            .map(|prompt| (prompt.name, prompt.source == own))
            .collect::<Vec<_>>()
    };
    let pair = |name: &str, is_own| (name.to_owned(), is_own);
    assert_eq!(
        names(fixture.org, None, 9).await,
        [pair("a", false), pair("b", true)]
    );
    assert_eq!(names(fixture.org, Some("a"), 1).await, [pair("b", true)]);
    assert_eq!(
        names(fixture.other, None, 9).await,
        [pair("a", false), pair("b", false)]
    );
    let found = fixture
        .store
        .prompt_by_name(fixture.org, "b")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.listed.source, own);
}

#[tokio::test]
async fn replace_requires_the_current_version() {
    let fixture = Fixture::new().await;
    let own = Owner::Org(fixture.org);
    let id = fixture.template(own, json!({"name": "A"})).await;
    let settings: TemplateSettings = serde_json::from_value(json!({"name": "B"})).unwrap();
    let replace = |owner, version| {
        fixture
            .store
            .replace_template(owner, id, version, &settings)
    };
    let TemplateWrite::Written(second) = replace(own, 1).await.unwrap() else {
        unreachable!("version 1 exists")
    };
    assert_eq!((second.version, second.settings.name.as_str()), (2, "B"));
    assert_eq!(
        fixture.store.template(own, id).await.unwrap(),
        Some(*second)
    );
    assert_eq!(replace(own, 1).await.unwrap(), TemplateWrite::Stale);
    assert_eq!(
        replace(Owner::Org(fixture.other), 2).await.unwrap(),
        TemplateWrite::Stale
    );
    assert_eq!(
        replace(Owner::Installation, 2).await.unwrap(),
        TemplateWrite::Stale
    );
    let remove = |owner, version| fixture.store.delete_template(owner, id, version);
    assert_eq!(remove(own, 1).await.unwrap(), TemplateRemoval::Stale);
    assert_eq!(
        remove(Owner::Org(fixture.other), 2).await.unwrap(),
        TemplateRemoval::Stale
    );
    assert_eq!(remove(own, 2).await.unwrap(), TemplateRemoval::Removed);
}

#[tokio::test]
async fn memories_and_pictures_share_one_list() {
    let fixture = Fixture::new().await;
    let own = Owner::Org(fixture.org);
    let plain = fixture.memory(own, None, "by id").await;
    fixture
        .memory(own, Some("notes://b"), "b\nsecond line")
        .await;
    let picture = fixture.picture(own, Some("notes://a")).await;
    let unnamed = fixture.picture(own, None).await;
    fixture.memory(own, Some("notes://{id}"), "template").await;
    fixture
        .memory(Owner::Installation, Some("notes://c"), "public")
        .await;
    fixture
        .memory(Owner::Org(fixture.other), Some("notes://d"), "foreign")
        .await;

    let by_id = [
        format!("switchboard://memories/{plain}"),
        format!("switchboard://pictures/{unnamed}"),
    ];
    let expected = ["notes://a", "notes://b", "notes://c", &by_id[0], &by_id[1]];
    assert_eq!(fixture.uris(fixture.org, false).await, expected);
    assert_eq!(fixture.uris(fixture.org, true).await, ["notes://{id}"]);
    assert_eq!(
        fixture.uris(fixture.other, false).await,
        ["notes://c", "notes://d"]
    );

    let page = fixture
        .store
        .list_resources(fixture.org, Some("notes://a"), 2)
        .await
        .unwrap();
    assert_eq!(
        page.iter().map(|one| one.uri.as_str()).collect::<Vec<_>>(),
        expected[1..3]
    );
    assert_eq!(
        (page[0].title.as_str(), page[0].size_bytes),
        ("b", Some(13))
    );
    assert_eq!(page[0].description.as_deref(), Some("fact, client:anna"));
    let first = fixture
        .store
        .list_resources(fixture.org, None, 1)
        .await
        .unwrap()
        .remove(0);
    assert_eq!(
        (first.name, first.title.as_str()),
        (picture.to_string(), "a picture")
    );
    assert_eq!(
        (first.mime_type.as_str(), first.size_bytes),
        ("image/png", Some(5))
    );
}

#[tokio::test]
async fn exact_uri_precedes_template_match() {
    let fixture = Fixture::new().await;
    let own = Owner::Org(fixture.org);
    fixture
        .memory(own, Some("notes://{id}"), "short {{id}}")
        .await;
    fixture
        .memory(own, Some("notes://big-{id}"), "long {{id}}")
        .await;
    fixture
        .memory(own, Some("notes://exact"), "exact {{id}}")
        .await;
    fixture
        .memory(
            Owner::Installation,
            Some("notes://big-x{id}"),
            "public {{id}}",
        )
        .await;
    fixture
        .memory(Owner::Installation, Some("public://{id}"), "public {{id}}")
        .await;
    fixture
        .memory(Owner::Org(fixture.other), Some("foreign://{id}"), "foreign")
        .await;
    fixture.picture(own, Some("notes://picture")).await;
    let check = async |org, uri: &str, expected: Option<&str>| {
        assert_eq!(fixture.text(org, uri).await.as_deref(), expected, "{uri}");
    };
    check(fixture.org, "notes://exact", Some("exact {{id}}")).await;
    check(fixture.org, "notes://1", Some("short 1")).await;
    check(fixture.org, "notes://%7B%7Bid%7D%7D", Some("short {{id}}")).await;
    check(fixture.org, "notes://big-1", Some("long 1")).await;
    check(fixture.org, "notes://big-x1", Some("long x1")).await;
    check(fixture.other, "notes://big-x1", Some("public 1")).await;
    check(fixture.org, "public://1", Some("public 1")).await;
    for uri in [
        "notes://1/2",
        "notes://",
        "notes://{id}",
        "foreign://1",
        "",
        "a\0",
        &"x".repeat(9_999),
    ] {
        check(fixture.org, uri, None).await;
    }
    let found = fixture
        .store
        .resource_by_uri(fixture.org, "notes://picture")
        .await
        .unwrap()
        .unwrap();
    let ResourceBody::Picture { key, .. } = found.body else {
        unreachable!("the body is a picture")
    };
    assert_eq!(
        fixture.store.objects().unwrap().get(&key).await.unwrap(),
        "bytes"
    );
}

#[tokio::test]
async fn templates_beyond_first_batch_are_matched() {
    let fixture = Fixture::new().await;
    let own = Owner::Org(fixture.org);
    let template = fixture.template(own, json!({"name": "T"})).await;
    for batch in 0..3 {
        let memories: Vec<_> = (0..100)
            .map(|index| {
                new_memory(
                    Some(&format!("notes://{{id}}/{batch}/{index:03}")),
                    "{{id}}",
                )
            })
            .collect();
        fixture
            .store
            .add_memories(own, template, &memories)
            .await
            .unwrap();
    }
    assert_eq!(
        fixture
            .text(fixture.org, "notes://last/2/099")
            .await
            .as_deref(),
        Some("last")
    );
    assert_eq!(fixture.text(fixture.org, "notes://last/3/099").await, None);
}

#[tokio::test]
async fn expired_memory_is_not_returned() {
    let fixture = Fixture::new().await;
    let own = Owner::Org(fixture.org);
    let public = "notes://a";
    fixture
        .memory(Owner::Installation, Some(public), "public")
        .await;
    fixture.memory(own, Some(public), "own").await;
    fixture
        .memory(own, Some("notes://x/{id}"), "template")
        .await;
    assert_eq!(
        fixture.text(fixture.org, public).await.as_deref(),
        Some("own")
    );
    fixture
        .database
        .execute("UPDATE memories SET expires_at = now() WHERE org_id IS NOT NULL")
        .await
        .unwrap();
    assert_eq!(
        fixture.text(fixture.org, public).await.as_deref(),
        Some("public")
    );
    assert_eq!(fixture.text(fixture.org, "notes://x/1").await, None);
    assert_eq!(fixture.uris(fixture.org, false).await, [public]);
    assert!(fixture.uris(fixture.org, true).await.is_empty());
    // A memory that expires later is still returned.
    let mut later = new_memory(Some("notes://later"), "later");
    later.expires_at = Some(Utc::now() + TimeDelta::hours(1));
    let template = fixture.template(own, json!({"name": "T"})).await;
    fixture
        .store
        .add_memories(own, template, &[later])
        .await
        .unwrap();
    assert_eq!(
        fixture.text(fixture.org, "notes://later").await.as_deref(),
        Some("later")
    );
}

#[tokio::test]
async fn uri_is_unique_across_memories_and_pictures() {
    let fixture = Fixture::new().await;
    let own = Owner::Org(fixture.org);
    fixture.picture(own, Some("notes://a")).await;
    let template = fixture.template(own, json!({"name": "T"})).await;
    let batch = [new_memory(None, "x"), new_memory(Some("notes://a"), "y")];
    let written = fixture
        .store
        .add_memories(own, template, &batch)
        .await
        .unwrap();
    assert_eq!(written, MemoryWrite::UriTaken(1));
    assert_eq!(fixture.uris(fixture.org, false).await, ["notes://a"]);
    let unknown = fixture
        .store
        .add_memories(Owner::Org(fixture.other), template, &batch)
        .await
        .unwrap();
    assert_eq!(unknown, MemoryWrite::UnknownHolder);
}

#[tokio::test]
async fn reader_of_the_audit_log_misses_no_entry_of_a_longer_transaction() {
    let fixture = Fixture::new().await;
    let owner = Owner::Org(fixture.org);
    let read = async |after: Option<AuditEntryId>| {
        let filter = AuditFilter::default();
        let entries = fixture
            .store
            .audit_log(owner, &filter, (Order::Asc, after), 100)
            .await;
        entries.unwrap()
    };
    let start = read(None).await.last().unwrap().id;
    let org = fixture.org.uuid();
    let rename = format!(
        "SET LOCAL switchboard.speaker = '{org}'; UPDATE orgs SET name = 'B' WHERE id = '{org}'"
    );
    let longer = fixture.database.begin(&rename).await.unwrap();
    // Its entry is later, and is committed first.
    fixture.template(owner, json!({"name": "T"})).await;
    let seen = read(Some(start)).await;
    let reached = seen.last().map_or(start, |entry| entry.id);
    longer.commit().await.unwrap();
    let rest = read(Some(reached)).await;
    let resources = seen.iter().chain(&rest).map(|entry| &*entry.resource);
    assert_eq!(resources.collect::<Vec<_>>(), ["org", "template"]);
}
