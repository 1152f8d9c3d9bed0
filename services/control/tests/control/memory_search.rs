//! `/v1/npcs/{id}/memories`, and searches in memories.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    installation::{Installation, Org},
    npcs::ResourceResponse,
};

/// Percent-encodes a query parameter.
fn encoded(text: &str) -> String {
    let bytes = text.bytes();
    bytes.map(|byte| format!("%{byte:02X}")).collect()
}

/// An organisation with a template and an NPC, which share the memories of the template.
struct MemoryFixture {
    installation: Installation,
    org: Org,
    template: ResourceResponse,
    npc: ResourceResponse,
}

impl MemoryFixture {
    async fn new(locale: &str) -> Self {
        let installation = Installation::start().await;
        let org = installation.new_org("Toys").await;
        let document = json!({"name": "Bello", "locale": locale});
        let template = installation
            .create(&org.key, "/v1/templates", document)
            .await;
        let document = json!({"template_id": template.id()});
        let npc = installation.create(&org.key, "/v1/npcs", document).await;
        Self {
            installation,
            org,
            template,
            npc,
        }
    }

    async fn create_memories(&self, resource: &ResourceResponse, memories: Value) -> Value {
        let path = format!("{}/memories", resource.path);
        let body = Some(json!({"memories": memories}));
        let (status, stored) = self
            .installation
            .send(Method::POST, &path, Some(&self.org.key), body)
            .await;
        assert_eq!(status, StatusCode::CREATED, "{stored}");
        stored
    }

    async fn read(&self, resource: &ResourceResponse, query: &str) -> Value {
        let path = format!("{}/memories{query}", resource.path);
        let (status, page) = self
            .installation
            .send(Method::GET, &path, Some(&self.org.key), None)
            .await;
        assert_eq!(status, StatusCode::OK, "{page}");
        page
    }

    async fn texts(&self, resource: &ResourceResponse, query: &str) -> Vec<String> {
        let page = self.read(resource, query).await;
        let memories = page["memories"].as_array().unwrap().iter();
        memories
            .map(|memory| memory["text"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The NPC's memories that match a query, best first.
    async fn search(&self, query: &str) -> Vec<String> {
        self.texts(&self.npc, &format!("?q={}", encoded(query)))
            .await
    }
}

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "one sequence of cases on one fixture"
)]
async fn npc_has_its_own_memories_and_those_of_its_template() {
    let fixture = MemoryFixture::new("en").await;
    fixture
        .create_memories(&fixture.template, json!([{"text": "of the template"}]))
        .await;
    let document = json!([{"text": "of the NPC", "uri": "notes://npc", "subject": "client:anna", "kind": "fact"}]);
    let stored = fixture.create_memories(&fixture.npc, document).await;
    let memory = &stored["memories"][0];
    assert_eq!(
        (&memory["npc_id"], &memory["template_id"]),
        (&fixture.npc.body["id"], &Value::Null)
    );
    let document = json!({"template_id": fixture.template.id()});
    let sister = fixture
        .installation
        .create(&fixture.org.key, "/v1/npcs", document)
        .await;

    assert_eq!(
        fixture.texts(&fixture.npc, "").await,
        ["of the template", "of the NPC"]
    );
    assert_eq!(
        fixture.texts(&fixture.npc, "?limit=1").await,
        ["of the template"]
    );
    let page = fixture.read(&fixture.npc, "?limit=1").await;
    let next = format!("?cursor={}", page["next_cursor"].as_str().unwrap());
    assert_eq!(fixture.texts(&fixture.npc, &next).await, ["of the NPC"]);
    assert_eq!(
        fixture
            .texts(&fixture.npc, "?subject=client:anna&kind=fact")
            .await,
        ["of the NPC"]
    );
    assert!(fixture.texts(&fixture.npc, "?kind=lie").await.is_empty());
    for other in [&sister, &fixture.template] {
        assert_eq!(fixture.texts(other, "").await, ["of the template"]);
        assert!(fixture.texts(other, "?q=NPC").await.is_empty());
    }
    // A batch of one returns a batch; a single memory returns itself, with its location.
    let path = format!("{}/memories", fixture.npc.path);
    let one = Some(json!({"text": "alone"}));
    let response = fixture
        .installation
        .request(Method::POST, &path, Some(&fixture.org.key), one)
        .await;
    let place = response.headers()["location"].to_str().unwrap().to_owned();
    let (status, _) = fixture
        .installation
        .send(Method::DELETE, &place, Some(&fixture.org.key), None)
        .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let taken = Some(json!({"memories": [{"text": "a"}, {"text": "b", "uri": "notes://npc"}]}));
    let (status, answer) = fixture
        .installation
        .send(Method::POST, &path, Some(&fixture.org.key), taken)
        .await;
    assert_eq!(
        (status.as_u16(), &answer["errors"][0]["pointer"]),
        (409, &json!("/memories/1/uri"))
    );

    let gone = fixture
        .installation
        .conditional(
            Method::DELETE,
            &fixture.npc.path,
            &fixture.org.key,
            Some("*"),
            None,
        )
        .await;
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
    let left = fixture
        .installation
        .store
        .list_resources(fixture.org.id(), None, 9)
        .await
        .unwrap();
    assert_eq!(
        left.len(),
        1,
        "its memories went with it, the template's stay"
    );
}

#[tokio::test]
async fn memories_are_found_in_many_languages() {
    let fixture = MemoryFixture::new("en-GB").await;
    fixture.create_memories(
        &fixture.template,
        json!([
            {"text": "他最喜欢吃鱼，住在北京。"}, {"text": "Anna likes her cats."}, {"text": "東京タワーに行きたい"},
            {"text": "고양이는 생선을 좋아해요"}, {"text": "แมวชอบกินปลา"}, {"text": "Кошка спит"},
        ]),
    )
    .await;
    fixture.create_memories(
        &fixture.npc,
        json!([{"text": "Über den Fluss (und in den Wald)"}, {"text": "{\"likes\": \"a_b\\\\c'd\"}"}, {"text": "買了iPhone手機"}]),
    )
    .await;
    let check = async |question: &str, expected: &[&str]| {
        let found = fixture.search(question).await;
        let begin = |text: &String| text.chars().take(5).collect::<String>();
        assert_eq!(
            found.iter().map(begin).collect::<Vec<_>>(),
            expected,
            "{question}"
        );
    };
    check("鱼", &["他最喜欢吃"]).await;
    check("北京", &["他最喜欢吃"]).await;
    check("喜欢吃鱼", &["他最喜欢吃"]).await;
    check("京都", &[]).await;
    check("欢住", &[]).await;
    check("北", &["他最喜欢吃"]).await;
    check("タワー", &["東京タワー"]).await;
    check("고양이", &["고양이는 "]).await;
    check("ปลา", &["แมวชอ"]).await;
    check("手機", &["買了iPh"]).await;
    check("ＩＰＨＯＮＥ", &["買了iPh"]).await;
    check("u\u{308}ber", &["Über "]).await;
    check("\u{1100}\u{1169}양이", &["고양이는 "]).await;
    check("IPHONE", &["買了iPh"]).await;
    check("кошка", &["Кошка"]).await;
    check("ÜBER", &["Über "]).await;
    check("wald", &["Über "]).await;
    check("cat", &["Anna "]).await;
    check("What does Anna like?", &["Anna ", "{\"lik"]).await;
    check("the", &[]).await;
    check("a_b\\c'd", &["{\"lik"]).await;
    check("'\\ | & ! () <-> :*", &[]).await;
    check("？！。", &[]).await;
    check("dog", &[]).await;
}

#[tokio::test]
async fn best_match_is_first() {
    let fixture = MemoryFixture::new("zh-Hans-CN").await;
    let memories = json!([
        {"text": "北京烤鸭很好吃", "importance": 0}, {"text": "北京很大", "importance": 0.9}, {"text": "烤鸭北京", "importance": 0.1},
        {"text": "北京烤鸭不好吃", "importance": 1, "subject": "client:ben", "kind": "taste"}, {"text": "上海"},
    ]);
    fixture.create_memories(&fixture.npc, memories).await;
    let all = ["北京烤鸭不好吃", "北京烤鸭很好吃", "烤鸭北京", "北京很大"];
    assert_eq!(fixture.search("北京烤鸭").await, all);
    let question = encoded("北京烤鸭");
    let page = fixture.read(&fixture.npc, &format!("?q={question}")).await;
    let memories = page["memories"].as_array().unwrap();
    let scores: Vec<_> = memories
        .iter()
        .map(|one| one["score"].as_f64().unwrap())
        .collect();
    assert!(
        scores.is_sorted_by(|a, b| a > b) && scores.iter().all(|score| (0.0..=1.0).contains(score)),
        "{scores:?}"
    );
    assert_eq!(page["next_cursor"], Value::Null);
    assert_eq!(
        fixture
            .texts(&fixture.npc, &format!("?q={question}&limit=2"))
            .await,
        all[..2]
    );
    let filtered = format!("?q={question}&subject=client:ben&kind=taste");
    assert_eq!(fixture.texts(&fixture.npc, &filtered).await, all[..1]);
    assert!(
        fixture.read(&fixture.npc, "").await["memories"][0]
            .get("score")
            .is_none()
    );
    let end = "UPDATE memories SET expires_at = now() WHERE importance = 1";
    fixture.installation.database.execute(end).await.unwrap();
    assert_eq!(fixture.search("北京烤鸭").await, all[1..]);
}

#[tokio::test]
async fn memories_of_others_are_not_found() {
    let fixture = MemoryFixture::new("en").await;
    fixture
        .create_memories(&fixture.npc, json!([{"text": "a secret 秘密"}]))
        .await;
    fixture
        .create_memories(&fixture.template, json!([{"text": "a secret 秘密"}]))
        .await;
    let other = fixture.installation.new_org("Games").await;
    let document = json!({"overrides": {"name": "Spy"}});
    let spy = fixture
        .installation
        .create(&other.key, "/v1/npcs", document)
        .await;
    for (of, status) in [(&fixture.npc, 404), (&fixture.template, 404), (&spy, 200)] {
        for query in ["?q=secret", "?q=%E7%A7%98%E5%AF%86", "?q=%E7%A7%98", ""] {
            let path = format!("{}/memories{query}", of.path);
            let (got, answer) = fixture
                .installation
                .send(Method::GET, &path, Some(&other.key), None)
                .await;
            assert_eq!(got.as_u16(), status, "{answer}");
            assert_eq!(
                answer.get("memories"),
                (status == 200).then_some(&json!([]))
            );
        }
    }
    let path = format!("{}/memories", fixture.npc.path);
    let (status, _) = fixture
        .installation
        .send(
            Method::POST,
            &path,
            Some(&other.key),
            Some(json!({"text": "x"})),
        )
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(fixture.search("secret").await.len(), 2);
}

#[tokio::test]
async fn hostile_query_or_text_is_fast() {
    let fixture = MemoryFixture::new("en").await;
    // The parser of PostgreSQL needs a minute for endless punctuation.
    let memories = json!([{"text": "a_".repeat(32_768)}, {"text": "鱼".repeat(65_536)}, {"text": "x".repeat(65_536)}]);
    let started = std::time::Instant::now();
    fixture.create_memories(&fixture.npc, memories).await;
    assert!(started.elapsed().as_secs() < 8, "{:?}", started.elapsed());
    let max_query = encoded(&"鱼_".repeat(250));
    assert_eq!(
        fixture
            .texts(&fixture.npc, &format!("?q={max_query}&limit=9"))
            .await
            .len(),
        1
    );
    for query in [
        "?q=",
        &format!("?q={max_query}a"),
        "?q=%00",
        "?subject=%00",
        "?kind=a%00",
        "?q=a&cursor=mem_00000000000000000000000000000001",
        "?q=a&limit=201",
        "?question=a",
    ] {
        let path = format!("{}/memories{query}", fixture.npc.path);
        let (status, answer) = fixture
            .installation
            .send(Method::GET, &path, Some(&fixture.org.key), None)
            .await;
        assert_eq!(
            (status.as_u16(), &answer["type"]),
            (400, &json!("/problems/invalid_query")),
            "{answer}"
        );
    }
}
