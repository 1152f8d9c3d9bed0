//! NPCs, the versions of templates that they stay with, and memories that are searched, against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use bytes::Bytes;
use serde_json::{Map, Value, json};
use switchboard_protocol::{
    access::Scope,
    id::{ApiKeyId, MemoryId, NpcId, OrgId, PictureId, TemplateId},
};
use switchboard_store::{
    MemoryFilter, MemoryQuestion, MemoryWrite, NewApiKey, NewMemory, NewPicture, Npc, NpcSettings,
    NpcWrite, Objects, Owner, PictureRemoval, PictureWrite, Store, TemplateSettings, TemplateWrite,
    testing::TestDatabase,
};
use uuid::Uuid;

/// An organisation with one template.
struct Plant {
    store: Store,
    org: OrgId,
    template: TemplateId,
    _objects: tempfile::TempDir,
    database: TestDatabase,
}

impl Plant {
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

    async fn remember(&self, npc: NpcId, texts: &[&str]) {
        self.remember_of(npc, None, texts).await;
    }

    async fn remember_of(&self, npc: NpcId, subject: Option<&str>, texts: &[&str]) {
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

    async fn found(&self, npc: NpcId, text: &str) -> Vec<String> {
        self.found_about(npc, None, text).await
    }

    async fn found_about(&self, npc: NpcId, about: Option<&[&str]>, text: &str) -> Vec<String> {
        let filter = MemoryFilter {
            template: Some(self.template),
            npc: Some(npc),
            about: about.map(|names| names.iter().map(ToString::to_string).collect()),
            ..MemoryFilter::default()
        };
        let question = MemoryQuestion {
            text,
            locale: Some("ru"),
            meaning: None,
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

#[tokio::test]
async fn old_versions_go_unless_an_npc_stays_with_them() {
    let plant = Plant::new(TestDatabase::create().await.unwrap()).await;
    let pinned = plant.npc(Some(1), json!({})).await;
    for version in 1..=102 {
        plant
            .replace_template(version, json!({"name": (version + 1).to_string()}))
            .await;
    }
    let name = async |version| {
        let kept = plant
            .store
            .template_version(Owner::Org(plant.org), plant.template, version)
            .await
            .unwrap();
        kept.map(|settings| settings.name)
    };
    assert_eq!(name(1).await.as_deref(), Some("1"));
    assert_eq!((name(2).await, name(3).await), (None, None));
    assert_eq!(name(4).await.as_deref(), Some("4"));
    assert_eq!(name(103).await.as_deref(), Some("103"));
    let stays = plant
        .store
        .npc(plant.org, pinned.id)
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
    let follows = plant.npc(None, json!({})).await;
    assert_eq!(
        (
            follows.effective.settings.name.as_str(),
            follows.effective_version
        ),
        ("103", Some(103))
    );
    let elsewhere = OrgId::from_uuid(Uuid::now_v7());
    assert_eq!(
        plant
            .store
            .template_version(Owner::Org(elsewhere), plant.template, 1)
            .await
            .unwrap(),
        None
    );
    assert_eq!(plant.store.npc(elsewhere, pinned.id).await.unwrap(), None);
}

#[tokio::test]
async fn a_picture_stays_while_an_npc_shows_it() {
    let plant = Plant::new(TestDatabase::create().await.unwrap()).await;
    let (old, own, newest) = (
        plant.picture().await,
        plant.picture().await,
        plant.picture().await,
    );
    let image =
        |id: PictureId| json!([{"role": "user", "content": {"type": "image", "picture_id": id}}]);
    plant
        .replace_template(1, json!({"name": "2", "avatar": old}))
        .await;
    let pinned = plant.npc(Some(2), json!({})).await;
    let follower = plant
        .npc(None, json!({"prompt": {"messages": image(own)}}))
        .await;
    plant
        .replace_template(
            2,
            json!({"name": "3", "avatar": newest, "prompt": {"messages": image(newest)}}),
        )
        .await;
    let remove = async |id| {
        plant
            .store
            .delete_picture(Owner::Org(plant.org), id)
            .await
            .unwrap()
    };
    for picture in [old, own, newest] {
        assert_eq!(remove(picture).await, PictureRemoval::InUse);
    }
    assert!(
        plant
            .store
            .delete_npc(plant.org, pinned.id, 1)
            .await
            .unwrap()
    );
    assert_eq!(remove(old).await, PictureRemoval::Removed);
    let settings = NpcSettings {
        template: Some(plant.template),
        template_version: Some(2),
        ..NpcSettings::default()
    };
    let back = plant
        .store
        .replace_npc(plant.org, follower.id, 1, &settings)
        .await
        .unwrap();
    assert_eq!(
        back,
        NpcWrite::UnknownPicture(old),
        "that version shows what is gone"
    );
    let settings = NpcSettings {
        template: Some(plant.template),
        ..NpcSettings::default()
    };
    let plain = plant
        .store
        .replace_npc(plant.org, follower.id, 1, &settings)
        .await
        .unwrap();
    assert!(matches!(plain, NpcWrite::Written(_)), "{plain:?}");
    assert_eq!(remove(own).await, PictureRemoval::Removed);
    assert_eq!(
        remove(newest).await,
        PictureRemoval::InUse,
        "the template shows it"
    );
}

#[tokio::test]
async fn an_npc_that_stays_with_a_version_speaks_its_language() {
    let plant = Plant::new(TestDatabase::create().await.unwrap()).await;
    plant
        .replace_template(1, json!({"name": "2", "locale": "ru"}))
        .await;
    let pinned = plant.npc(Some(2), json!({})).await;
    plant
        .replace_template(2, json!({"name": "3", "locale": "en"}))
        .await;
    plant.remember(pinned.id, &["Кошки спят"]).await;
    assert_eq!(plant.found(pinned.id, "кошка").await, ["Кошки спят"]);
}

#[tokio::test]
async fn words_are_found_whatever_letters_the_database_knows() {
    let plant = Plant::new(TestDatabase::create_in_locale_c().await.unwrap()).await;
    let npc = plant.npc(None, json!({"locale": "ru-RU"})).await;
    plant
        .remember(
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
            plant.found(npc.id, question).await,
            [expected],
            "{question}"
        );
    }
    assert!(plant.found(npc.id, "狗").await.is_empty());
}

#[tokio::test]
async fn what_a_process_of_the_version_before_writes_is_found_too() {
    let plant = Plant::new(TestDatabase::create().await.unwrap()).await;
    let npc = plant.npc(None, json!({})).await;
    let (memory, template, org) = (Uuid::now_v7(), plant.template.uuid(), plant.org.uuid());
    let written = format!(
        "INSERT INTO memories (id, org_id, template_id, text, importance, metadata, mime_type)
         VALUES ('{memory}', '{org}', '{template}', '他喜欢 Fish', 0.5, '{{}}', 'text/plain');
         INSERT INTO resources (org_id, uri, memory_id) VALUES ('{org}', 'notes://a', '{memory}');
         UPDATE templates SET name = 'unkept', version = 2 WHERE id = '{template}'"
    );
    plant.database.execute(&written).await.unwrap();
    assert_eq!(plant.found(npc.id, "喜欢").await, ["他喜欢 Fish"]);
    assert_eq!(plant.found(npc.id, "fish").await, ["他喜欢 Fish"]);
    // A version that was not kept is as if it had not been, until the next.
    let npc = plant.store.npc(plant.org, npc.id).await.unwrap().unwrap();
    assert_eq!(
        (npc.effective.settings.name.as_str(), npc.effective_version),
        ("1", Some(1))
    );
    plant.replace_template(2, json!({"name": "3"})).await;
    let npc = plant.store.npc(plant.org, npc.id).await.unwrap().unwrap();
    assert_eq!(
        (npc.effective.settings.name.as_str(), npc.effective_version),
        ("3", Some(3))
    );
}

#[tokio::test]
async fn npcs_are_prompts_between_templates() {
    let plant = Plant::new(TestDatabase::create().await.unwrap()).await;
    let says = json!([{"role": "user", "content": {"type": "text", "text": "x"}}]);
    for name in ["a", "npcs.z", "npct"] {
        let document = json!({"name": name, "prompt": {"name": name, "messages": says}});
        let id = TemplateId::from_uuid(Uuid::now_v7());
        let owner = Owner::Org(plant.org);
        let settings = settings(document);
        let written = plant.store.create_template(owner, id, &settings);
        assert!(matches!(written.await.unwrap(), TemplateWrite::Written(_)));
    }
    let mut npcs = Vec::new();
    for name in ["1", "2", "3"] {
        npcs.push(plant.npc(None, json!({ "name": name })).await);
    }
    let mut expected = vec!["a".to_owned(), "npcs.z".to_owned()];
    expected.extend(npcs.iter().map(Npc::prompt_name));
    expected.extend(["npct".to_owned(), plant.template.to_string()]);
    for limit in [1, 2, 9] {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = plant.store.list_prompts(plant.org, after.as_deref(), limit);
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
        let found = plant.store.prompt_by_name(plant.org, &name);
        assert_eq!(found.await.unwrap(), Some(npc.prompt()));
        let shouted = name.replace(&npc.id.to_string(), "npc_X");
        let found = plant.store.prompt_by_name(plant.org, &shouted);
        assert_eq!(found.await.unwrap(), None);
    }
}

#[tokio::test]
async fn what_an_npc_reads_has_a_digest() {
    let plant = Plant::new(TestDatabase::create().await.unwrap()).await;
    let (one, other) = (
        plant.npc(None, json!({"name": "1"})).await,
        plant.npc(None, json!({"name": "2"})).await,
    );
    let digest = async |npc| plant.store.npc_resources_digest(npc).await.unwrap();
    let (first, second) = (digest(&one).await, digest(&other).await);
    plant.remember(one.id, &["a"]).await;
    assert_ne!(digest(&one).await, first);
    assert_eq!(digest(&other).await, second);
    let with_a = digest(&one).await;
    plant.remember(one.id, &["b"]).await;
    assert_ne!(digest(&one).await, with_a);
    let avatar = plant.picture().await;
    let shows = plant
        .npc(None, json!({"name": "3", "avatar": avatar}))
        .await;
    assert_ne!(digest(&shows).await, second);
}

#[tokio::test]
async fn memories_are_found_about_whom_is_asked_and_about_nobody() {
    let plant = Plant::new(TestDatabase::create().await.unwrap()).await;
    let npc = plant.npc(None, json!({})).await.id;
    plant.remember(npc, &["tea is hot"]).await;
    for (subject, text) in [
        ("user:anna", "Anna likes tea"),
        ("user:ben", "Ben likes tea"),
    ] {
        plant.remember_of(npc, Some(subject), &[text]).await;
    }
    let check = async |about: Option<&[&str]>, expected: &[&str]| {
        let mut found = plant.found_about(npc, about, "tea").await;
        found.sort();
        assert_eq!(found, expected, "{about:?}");
    };
    check(None, &["Anna likes tea", "Ben likes tea", "tea is hot"]).await;
    check(Some(&["user:anna"]), &["Anna likes tea"]).await;
    check(Some(&["", "user:ben"]), &["Ben likes tea", "tea is hot"]).await;
    check(Some(&[""]), &["tea is hot"]).await;
    check(Some(&[]), &[]).await;
}
