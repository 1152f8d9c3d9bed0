//! NPCs, pinned versions of templates, and the search of memories, in a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use bytes::Bytes;
use serde_json::{Map, Value, json};
use switchboard_catalog::{NpcSettings, TemplateSettings};
use switchboard_protocol::{
    id::{ApiKeyId, MemoryId, NpcId, OrgId, PictureId, TemplateId},
    token::Scope,
};
use switchboard_store::{
    MemoryFilter, MemoryQuery, MemoryWrite, NewApiKey, NewMemory, NewPicture, Npc, NpcWrite,
    Objects, Owner, PictureRemoval, PictureWrite, Store, TemplateWrite, testing::TestDatabase,
};
use uuid::Uuid;

/// An organisation with one template.
struct Fixture {
    store: Store,
    org: OrgId,
    template: TemplateId,
    _objects: tempfile::TempDir,
    database: TestDatabase,
}

impl Fixture {
    async fn new(database: TestDatabase) -> Self {
        let objects = tempfile::TempDir::new().unwrap();
        let store = database
            .store()
            .with_objects(Some(Objects::in_folder(objects.path()).unwrap()));
        let org = OrgId::from_uuid(Uuid::now_v7());
        let key = NewApiKey {
            id: ApiKeyId::from_uuid(Uuid::now_v7()),
            name: "key".to_owned(),
            prefix: "sb_abcdefgh".to_owned(),
            secret_hash: [1; 32],
            scopes: [Scope::Admin].into_iter().collect(),
        };
        store.create_org(org, "an org", &key).await.unwrap();
        let template = TemplateId::from_uuid(Uuid::now_v7());
        let written = store
            .create_template(Owner::Org(org), template, &settings(json!({"name": "1"})))
            .await
            .unwrap();
        assert!(matches!(written, TemplateWrite::Written(_)), "{written:?}");
        Self {
            store,
            org,
            template,
            _objects: objects,
            database,
        }
    }

    async fn npc(&self, template_version: Option<i64>, overrides: Value) -> Npc {
        let settings = NpcSettings {
            template: Some(self.template),
            template_version,
            overrides: overrides.as_object().unwrap().clone(),
            devices: Vec::new(),
        };
        let id = NpcId::from_uuid(Uuid::now_v7());
        match self
            .store
            .create_npc(self.org, id, &settings)
            .await
            .unwrap()
        {
            NpcWrite::Written(npc) => *npc,
            other => unreachable!("{other:?}"),
        }
    }

    async fn replace_template(&self, version: i64, document: Value) {
        let owner = Owner::Org(self.org);
        let written = self
            .store
            .replace_template(owner, self.template, version, &settings(document))
            .await
            .unwrap();
        assert!(matches!(written, TemplateWrite::Written(_)), "{written:?}");
    }

    async fn picture(&self) -> PictureId {
        let id = PictureId::from_uuid(Uuid::now_v7());
        let picture = NewPicture {
            id,
            name: "a picture".to_owned(),
            uri: None,
            mime_type: "image/png",
            width: 3,
            height: 2,
            bytes: Bytes::from_static(b"bytes"),
        };
        let written = self
            .store
            .add_picture(Owner::Org(self.org), picture)
            .await
            .unwrap();
        assert!(matches!(written, PictureWrite::Written(_)), "{written:?}");
        id
    }

    async fn add_memories(&self, npc: NpcId, texts: &[&str]) {
        self.add_memories_about(npc, None, texts).await;
    }

    async fn add_memories_about(&self, npc: NpcId, subject: Option<&str>, texts: &[&str]) {
        let memories: Vec<_> = texts
            .iter()
            .map(|text| NewMemory {
                id: MemoryId::from_uuid(Uuid::now_v7()),
                uri: None,
                subject: subject.map(str::to_owned),
                text: (*text).to_owned(),
                kind: None,
                importance: 0.5,
                source: None,
                metadata: Map::new(),
                mime_type: "text/plain".to_owned(),
                expires_at: None,
            })
            .collect();
        let owner = Owner::Org(self.org);
        let written = self
            .store
            .add_memories(owner, npc, &memories)
            .await
            .unwrap();
        assert!(matches!(written, MemoryWrite::Written(_)), "{written:?}");
    }

    async fn search(&self, npc: NpcId, text: &str) -> Vec<String> {
        self.search_about(npc, None, text).await
    }

    async fn search_about(&self, npc: NpcId, about: Option<&[&str]>, text: &str) -> Vec<String> {
        let filter = MemoryFilter {
            template: Some(self.template),
            npc: Some(npc),
            about: about.map(|names| names.iter().map(ToString::to_string).collect()),
            ..MemoryFilter::default()
        };
        let question = MemoryQuery {
            text,
            locale: Some("ru"),
            embedding: None,
        };
        let owner = Owner::Org(self.org);
        let found = self
            .store
            .search_memories(owner, &filter, question, 9)
            .await
            .unwrap();
        found.into_iter().map(|found| found.memory.text).collect()
    }
}

fn settings(document: Value) -> TemplateSettings {
    serde_json::from_value(document).unwrap()
}

/// The page ends at 4 MiB, and so no more is read than the element behind its end.
#[tokio::test]
async fn lists_of_memories_read_one_text_beyond_4_mib_at_most() {
    let fixture = Fixture::new(TestDatabase::create().await.unwrap()).await;
    let npc = fixture.npc(None, json!({})).await.id;
    let text = "honey ".repeat(10_000);
    fixture.add_memories(npc, &vec![text.trim(); 84]).await;
    let filter = MemoryFilter {
        npc: Some(npc),
        ..MemoryFilter::default()
    };
    let (store, owner) = (&fixture.store, Owner::Org(fixture.org));
    let first = store.memories(owner, &filter, None, 201).await.unwrap();
    assert_eq!(first.len(), 70);
    let last = first.last().map(|memory| memory.id);
    let rest = store.memories(owner, &filter, last, 201).await.unwrap();
    assert_eq!(rest.len(), 14);
    assert_eq!(
        store.memories(owner, &filter, None, 9).await.unwrap().len(),
        9
    );
    let question = MemoryQuery {
        text: "honey",
        locale: None,
        embedding: None,
    };
    let found = store.search_memories(owner, &filter, question, 200).await;
    assert_eq!(found.unwrap().len(), 70);
}

#[tokio::test]
async fn old_versions_are_deleted_unless_pinned() {
    let fixture = Fixture::new(TestDatabase::create().await.unwrap()).await;
    let pinned = fixture.npc(Some(1), json!({})).await;
    for version in 1..=102 {
        fixture
            .replace_template(version, json!({"name": (version + 1).to_string()}))
            .await;
    }
    let name = async |version| {
        let version = fixture
            .store
            .template_version(Owner::Org(fixture.org), fixture.template, version)
            .await
            .unwrap();
        version.map(|settings| settings.name)
    };
    assert_eq!(name(1).await.as_deref(), Some("1"));
    assert_eq!((name(2).await, name(3).await), (None, None));
    assert_eq!(name(4).await.as_deref(), Some("4"));
    assert_eq!(name(103).await.as_deref(), Some("103"));
    let stays = fixture
        .store
        .npc(fixture.org, pinned.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (
            stays.effective.settings.name.as_str(),
            stays.effective_version
        ),
        ("1", Some(1))
    );
    let follows = fixture.npc(None, json!({})).await;
    assert_eq!(
        (
            follows.effective.settings.name.as_str(),
            follows.effective_version
        ),
        ("103", Some(103))
    );
    let elsewhere = OrgId::from_uuid(Uuid::now_v7());
    assert_eq!(
        fixture
            .store
            .template_version(Owner::Org(elsewhere), fixture.template, 1)
            .await
            .unwrap(),
        None
    );
    assert_eq!(fixture.store.npc(elsewhere, pinned.id).await.unwrap(), None);
}

#[tokio::test]
async fn picture_in_use_is_not_deleted() {
    let fixture = Fixture::new(TestDatabase::create().await.unwrap()).await;
    let (old, own, newest) = (
        fixture.picture().await,
        fixture.picture().await,
        fixture.picture().await,
    );
    let image =
        |id: PictureId| json!([{"role": "user", "content": {"type": "image", "picture_id": id}}]);
    fixture
        .replace_template(1, json!({"name": "2", "avatar": old}))
        .await;
    let pinned = fixture.npc(Some(2), json!({})).await;
    let follower = fixture
        .npc(None, json!({"prompt": {"messages": image(own)}}))
        .await;
    fixture
        .replace_template(
            2,
            json!({"name": "3", "avatar": newest, "prompt": {"messages": image(newest)}}),
        )
        .await;
    let remove = async |id| {
        fixture
            .store
            .delete_picture(Owner::Org(fixture.org), id)
            .await
            .unwrap()
    };
    for picture in [old, own, newest] {
        assert_eq!(remove(picture).await, PictureRemoval::InUse);
    }
    assert!(
        fixture
            .store
            .delete_npc(fixture.org, pinned.id, 1)
            .await
            .unwrap()
    );
    assert_eq!(remove(old).await, PictureRemoval::Removed);
    let settings = NpcSettings {
        template: Some(fixture.template),
        template_version: Some(2),
        ..NpcSettings::default()
    };
    let back = fixture
        .store
        .replace_npc(fixture.org, follower.id, 1, &settings)
        .await
        .unwrap();
    assert_eq!(
        back,
        NpcWrite::UnknownPicture(old),
        "the version refers to a deleted picture"
    );
    let settings = NpcSettings {
        template: Some(fixture.template),
        ..NpcSettings::default()
    };
    let plain = fixture
        .store
        .replace_npc(fixture.org, follower.id, 1, &settings)
        .await
        .unwrap();
    assert!(matches!(plain, NpcWrite::Written(_)), "{plain:?}");
    assert_eq!(remove(own).await, PictureRemoval::Removed);
    assert_eq!(
        remove(newest).await,
        PictureRemoval::InUse,
        "the template refers to it"
    );
}

#[tokio::test]
async fn pinned_npc_uses_locale_of_its_version() {
    let fixture = Fixture::new(TestDatabase::create().await.unwrap()).await;
    fixture
        .replace_template(1, json!({"name": "2", "locale": "ru"}))
        .await;
    let pinned = fixture.npc(Some(2), json!({})).await;
    fixture
        .replace_template(2, json!({"name": "3", "locale": "en"}))
        .await;
    fixture.add_memories(pinned.id, &["Кошки спят"]).await;
    assert_eq!(fixture.search(pinned.id, "кошка").await, ["Кошки спят"]);
}

#[tokio::test]
async fn memory_search_works_in_locale_c() {
    let fixture = Fixture::new(TestDatabase::create_in_locale_c().await.unwrap()).await;
    let npc = fixture.npc(None, json!({"locale": "ru-RU"})).await;
    fixture
        .add_memories(
            npc.id,
            &["他喜欢吃鱼。", "Кошки спят", "Über alles", "タワー"],
        )
        .await;
    for (question, expected) in [
        ("喜欢", "他喜欢吃鱼。"),
        ("鱼", "他喜欢吃鱼。"),
        ("КОШКА", "Кошки спят"),
        ("über", "Über alles"),
        ("タワ", "タワー"),
    ] {
        assert_eq!(
            fixture.search(npc.id, question).await,
            [expected],
            "{question}"
        );
    }
    assert!(fixture.search(npc.id, "狗").await.is_empty());
}

#[tokio::test]
async fn rows_of_previous_release_are_found() {
    let fixture = Fixture::new(TestDatabase::create().await.unwrap()).await;
    let npc = fixture.npc(None, json!({})).await;
    let (memory, template, org) = (Uuid::now_v7(), fixture.template.uuid(), fixture.org.uuid());
    let written = format!(
        "INSERT INTO memories (id, org_id, template_id, text, importance, metadata, mime_type)
         VALUES ('{memory}', '{org}', '{template}', '他喜欢 Fish', 0.5, '{{}}', 'text/plain');
         INSERT INTO resources (org_id, uri, memory_id) VALUES ('{org}', 'notes://a', '{memory}');
         UPDATE templates SET name = 'unkept', version = 2 WHERE id = '{template}'"
    );
    fixture.database.execute(&written).await.unwrap();
    assert_eq!(fixture.search(npc.id, "喜欢").await, ["他喜欢 Fish"]);
    assert_eq!(fixture.search(npc.id, "fish").await, ["他喜欢 Fish"]);
    // A version that was not stored does not exist for readers until the next one.
    let npc = fixture
        .store
        .npc(fixture.org, npc.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (npc.effective.settings.name.as_str(), npc.effective_version),
        ("1", Some(1))
    );
    fixture.replace_template(2, json!({"name": "3"})).await;
    let npc = fixture
        .store
        .npc(fixture.org, npc.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (npc.effective.settings.name.as_str(), npc.effective_version),
        ("3", Some(3))
    );
}

#[tokio::test]
async fn npc_prompts_are_listed_among_templates() {
    let fixture = Fixture::new(TestDatabase::create().await.unwrap()).await;
    let says = json!([{"role": "user", "content": {"type": "text", "text": "x"}}]);
    for name in ["a", "npcs.z", "npct"] {
        let document = json!({"name": name, "prompt": {"name": name, "messages": says}});
        let id = TemplateId::from_uuid(Uuid::now_v7());
        let owner = Owner::Org(fixture.org);
        let settings = settings(document);
        let written = fixture.store.create_template(owner, id, &settings);
        assert!(matches!(written.await.unwrap(), TemplateWrite::Written(_)));
    }
    let mut npcs = Vec::new();
    for name in ["1", "2", "3"] {
        npcs.push(fixture.npc(None, json!({ "name": name })).await);
    }
    let mut expected = vec!["a".to_owned(), "npcs.z".to_owned()];
    expected.extend(npcs.iter().map(Npc::prompt_name));
    expected.extend(["npct".to_owned(), fixture.template.to_string()]);
    for limit in [1, 2, 9] {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = fixture
                .store
                .list_prompts(fixture.org, after.as_deref(), limit);
            let page = page.await.unwrap();
            assert!(page.len() <= limit as usize);
            found.extend(page.iter().map(|prompt| prompt.name.clone()));
            match page.last() {
                Some(last) => after = Some(last.name.clone()),
                None => break,
            }
        }
        assert_eq!(found, expected, "{limit} a page");
    }
    for npc in &npcs {
        let name = npc.prompt_name();
        let found = fixture.store.prompt_by_name(fixture.org, &name);
        assert_eq!(found.await.unwrap(), Some(npc.prompt()));
        let shouted = name.replace(&npc.id.to_string(), "npc_X");
        let found = fixture.store.prompt_by_name(fixture.org, &shouted);
        assert_eq!(found.await.unwrap(), None);
    }
}

#[tokio::test]
async fn npc_digest_changes_with_its_resources() {
    let fixture = Fixture::new(TestDatabase::create().await.unwrap()).await;
    let (one, other) = (
        fixture.npc(None, json!({"name": "1"})).await,
        fixture.npc(None, json!({"name": "2"})).await,
    );
    let digest = async |npc| fixture.store.npc_resources_digest(npc).await.unwrap();
    let (first, second) = (digest(&one).await, digest(&other).await);
    fixture.add_memories(one.id, &["a"]).await;
    assert_ne!(digest(&one).await, first);
    assert_eq!(digest(&other).await, second);
    let with_a = digest(&one).await;
    fixture.add_memories(one.id, &["b"]).await;
    assert_ne!(digest(&one).await, with_a);
    let avatar = fixture.picture().await;
    let shows = fixture
        .npc(None, json!({"name": "3", "avatar": avatar}))
        .await;
    assert_ne!(digest(&shows).await, second);
}

#[tokio::test]
async fn memory_search_filters_by_subject() {
    let fixture = Fixture::new(TestDatabase::create().await.unwrap()).await;
    let npc = fixture.npc(None, json!({})).await.id;
    fixture.add_memories(npc, &["tea is hot"]).await;
    for (subject, text) in [
        ("user:anna", "Anna likes tea"),
        ("user:ben", "Ben likes tea"),
    ] {
        fixture
            .add_memories_about(npc, Some(subject), &[text])
            .await;
    }
    let check = async |about: Option<&[&str]>, expected: &[&str]| {
        let mut found = fixture.search_about(npc, about, "tea").await;
        found.sort();
        assert_eq!(found, expected, "{about:?}");
    };
    check(None, &["Anna likes tea", "Ben likes tea", "tea is hot"]).await;
    check(Some(&["user:anna"]), &["Anna likes tea"]).await;
    check(Some(&["", "user:ben"]), &["Ben likes tea", "tea is hot"]).await;
    check(Some(&[""]), &["tea is hot"]).await;
    check(Some(&[]), &[]).await;
}
