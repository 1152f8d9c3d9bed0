//! Semantic search in memories and skills books, with an endpoint that fails, recovers and changes
//! its model.

use std::{sync::atomic::Ordering, time::Duration};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use switchboard_test_support::eventually::{eventually, eventually_some, eventually_true};

use crate::{
    endpoint::{Behaviour, ENDLESS, Endpoint, HEAVY, UNFIT, VOID},
    installation::{Installation, Org},
    npcs::ResourceResponse,
};

/// An installation with embeddings, and an NPC.
struct EmbeddingFixture {
    endpoint: Endpoint,
    installation: Installation,
    org: Org,
    npc: ResourceResponse,
}

impl EmbeddingFixture {
    /// With the workers; `None` if the database has no pgvector.
    async fn new() -> Option<Self> {
        let fixture = Self::idle().await?;
        fixture.installation.start_workers();
        Some(fixture)
    }

    /// Without the workers.
    async fn idle() -> Option<Self> {
        let endpoint = Endpoint::start();
        let installation = Installation::with_embeddings(endpoint.config()).await;
        if let Err(missing) = installation.store.vector_extension().await {
            // `check` reports skipped tests; this line reports them in other runs.
            let accepted = std::env::var_os("SWITCHBOARD_TESTS_WITHOUT_PGVECTOR").is_some();
            assert!(
                accepted,
                "{missing}; or leave it out with SWITCHBOARD_TESTS_WITHOUT_PGVECTOR=1"
            );
            return None;
        }
        let org = installation.new_org("Toys").await;
        let document = json!({"overrides": {"name": "Bello", "locale": "en"}});
        let npc = installation.create(&org.key, "/v1/npcs", document).await;
        Some(Self {
            endpoint,
            installation,
            org,
            npc,
        })
    }

    async fn create_memories(&self, texts: &[&str]) {
        let memories: Vec<_> = texts.iter().map(|text| json!({"text": text})).collect();
        let path = format!("{}/memories", self.npc.path);
        let body = Some(json!({"memories": memories}));
        let (status, stored) = self
            .installation
            .send(Method::POST, &path, Some(&self.org.key), body)
            .await;
        assert_eq!(status, StatusCode::CREATED, "{stored}");
    }

    async fn search(&self, key: &str, resource: &ResourceResponse, query: &str) -> Vec<Value> {
        let path = format!("{}/memories?{query}", resource.path);
        let (status, page) = self
            .installation
            .send(Method::GET, &path, Some(key), None)
            .await;
        assert_eq!(status, StatusCode::OK, "{page}");
        page["memories"].as_array().unwrap().clone()
    }

    /// The best match.
    async fn first(&self, query: &str) -> Option<String> {
        let found = self
            .search(&self.org.key, &self.npc, &format!("q={query}"))
            .await;
        let first = found.first()?;
        Some(first["text"].as_str().unwrap().to_owned())
    }

    /// Waits until this is the best match.
    async fn wait_for_first(&self, query: &str, text: &str) {
        eventually_some(&format!("{query}: {text}"), async || {
            (self.first(query).await.as_deref() == Some(text)).then_some(())
        })
        .await;
    }

    /// Waits until no text is pending.
    async fn wait_until_embedded(&self) {
        eventually_some("all texts are embedded", async || {
            let sql = "DO $$ BEGIN ASSERT EXISTS (SELECT FROM embedding_models WHERE filled)
                       AND NOT EXISTS (SELECT FROM embedding_queue); END $$";
            self.installation.database.execute(sql).await.ok()
        })
        .await;
    }
}

#[tokio::test]
async fn memory_is_found_by_its_meaning() {
    let Some(fixture) = EmbeddingFixture::new().await else {
        return;
    };
    fixture
        .create_memories(&[
            "A red automobile",
            "She wants to devour it",
            "The hound sleeps",
            "Something else",
        ])
        .await;
    fixture.wait_for_first("car", "A red automobile").await;
    fixture.wait_for_first("puppy", "The hound sleeps").await;
    fixture.wait_until_embedded().await;
    // A match by words and meaning ranks before one by meaning only.
    fixture.create_memories(&["My car is blue"]).await;
    fixture.wait_until_embedded().await;
    let found = fixture
        .search(&fixture.org.key, &fixture.npc, "q=car&limit=3")
        .await;
    let scores: Vec<_> = found
        .iter()
        .map(|one| {
            (
                one["text"].as_str().unwrap(),
                one["score"].as_f64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        (scores[0].0, scores[1].0),
        ("My car is blue", "A red automobile")
    );
    assert!(
        scores.is_sorted_by(|a, b| a.1 >= b.1)
            && scores.iter().all(|one| (0.0..=1.0).contains(&one.1)),
        "{scores:?}"
    );
    assert_eq!(
        fixture
            .search(&fixture.org.key, &fixture.npc, "q=car&limit=1")
            .await
            .len(),
        1
    );
    assert!(
        fixture
            .search(&fixture.org.key, &fixture.npc, "q=car&kind=none")
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn memories_of_others_are_not_found_by_meaning() {
    let Some(fixture) = EmbeddingFixture::new().await else {
        return;
    };
    fixture.create_memories(&["A red automobile"]).await;
    fixture.wait_for_first("car", "A red automobile").await;
    let other = fixture.installation.new_org("Games").await;
    let document = json!({"overrides": {"name": "Spy"}});
    let spy = fixture
        .installation
        .create(&other.key, "/v1/npcs", document)
        .await;
    assert!(fixture.search(&other.key, &spy, "q=car").await.is_empty());
    let document = json!({"overrides": {"name": "Sister"}});
    let sister = fixture
        .installation
        .create(&fixture.org.key, "/v1/npcs", document)
        .await;
    assert!(
        fixture
            .search(&fixture.org.key, &sister, "q=car")
            .await
            .is_empty()
    );
    let path = format!("{}/memories?q=car", fixture.npc.path);
    let (status, _) = fixture
        .installation
        .send(Method::GET, &path, Some(&other.key), None)
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    // Expired memories are not found.
    let end = "UPDATE memories SET expires_at = now()";
    fixture.installation.database.execute(end).await.unwrap();
    assert!(
        fixture
            .search(&fixture.org.key, &fixture.npc, "q=car")
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn chunk_is_found_by_its_meaning() {
    let Some(fixture) = EmbeddingFixture::new().await else {
        return;
    };
    let (installation, key) = (&fixture.installation, &fixture.org.key);
    let path = installation
        .ready_book(key, &["How to repair a vessel", "How to feed a hound"])
        .await;
    eventually_some("the chunk is found", async || {
        let path = format!("{path}/search?q=ship");
        let (_, found) = installation.send(Method::GET, &path, Some(key), None).await;
        (found["chunks"][0]["text"] == "How to repair a vessel").then_some(())
    })
    .await;
    let other = installation.new_org("Games").await;
    let search = format!("{path}/search?q=ship");
    let (status, _) = installation
        .send(Method::GET, &search, Some(&other.key), None)
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn unavailable_endpoint_only_delays_embeddings() {
    let Some(mut fixture) = EmbeddingFixture::new().await else {
        return;
    };
    fixture.create_memories(&["A red automobile"]).await;
    fixture.wait_for_first("car", "A red automobile").await;
    fixture.endpoint.kill();
    fixture.create_memories(&["The hound sleeps"]).await;
    assert_eq!(
        fixture.first("hound").await.as_deref(),
        Some("The hound sleeps")
    );
    assert_eq!(fixture.first("puppy").await, None);
    fixture.endpoint.revive();
    fixture.wait_until_embedded().await;
    fixture.wait_for_first("puppy", "The hound sleeps").await;
}

#[tokio::test]
async fn silent_endpoint_does_not_delay_searches() {
    let Some(fixture) = EmbeddingFixture::new().await else {
        return;
    };
    fixture.create_memories(&["A red automobile"]).await;
    fixture.wait_for_first("car", "A red automobile").await;
    *fixture.endpoint.state.behaviour.lock() = Behaviour::Silent;
    assert_eq!(
        fixture.first("red").await.as_deref(),
        Some("A red automobile")
    );
    let requests = fixture.endpoint.state.requests.lock().len();
    assert_eq!(fixture.first("car").await, None);
    assert_eq!(
        fixture.endpoint.state.requests.lock().len(),
        requests,
        "no second request"
    );
}

#[tokio::test]
async fn retry_after_of_the_endpoint_is_respected() {
    let Some(fixture) = EmbeddingFixture::new().await else {
        return;
    };
    fixture.create_memories(&["A red automobile"]).await;
    fixture.wait_until_embedded().await;
    let before = fixture.endpoint.state.requests.lock().len();
    *fixture.endpoint.state.behaviour.lock() = Behaviour::Busy(2);
    fixture.create_memories(&["The hound sleeps"]).await;
    fixture.wait_until_embedded().await;
    let requests = fixture.endpoint.state.requests.lock().clone();
    let [refused, taken] = requests[before..] else {
        panic!("{} requests", requests.len() - before);
    };
    assert!(
        taken - refused >= Duration::from_secs(2),
        "{:?}",
        taken - refused
    );
}

#[tokio::test]
async fn rejected_text_does_not_block_others() {
    let Some(fixture) = EmbeddingFixture::new().await else {
        return;
    };
    fixture
        .create_memories(&["A red automobile", UNFIT, "The hound sleeps"])
        .await;
    fixture.wait_for_first("car", "A red automobile").await;
    fixture.wait_for_first("puppy", "The hound sleeps").await;
    fixture.wait_until_embedded().await;
    assert_eq!(fixture.first(UNFIT).await.as_deref(), Some(UNFIT));
    let refused = "switchboard_control_texts_refused_total";
    assert!((fixture.installation.metric(refused) - 1.0).abs() < 0.5);
}

#[tokio::test]
async fn text_that_hangs_does_not_block_others() {
    let Some(fixture) = EmbeddingFixture::new().await else {
        return;
    };
    let texts = ["A red automobile", ENDLESS, "The hound sleeps"];
    fixture.create_memories(&texts).await;
    // After the timeout of the batch, the endpoint is probed again, and each text is sent alone.
    let embedded = async || fixture.endpoint.state.embedded.load(Ordering::Relaxed);
    eventually(Duration::from_secs(90), embedded, |embedded| *embedded >= 4).await;
    fixture.wait_for_first("car", "A red automobile").await;
}

#[tokio::test]
async fn failing_text_is_retried_and_then_skipped() {
    let Some(fixture) = EmbeddingFixture::new().await else {
        return;
    };
    fixture
        .create_memories(&["A red automobile", HEAVY, VOID, "The hound sleeps"])
        .await;
    fixture.wait_for_first("car", "A red automobile").await;
    fixture.wait_for_first("puppy", "The hound sleeps").await;
    let holds = async |what: &str| {
        let sql = format!("DO $$ BEGIN ASSERT {what}; END $$");
        fixture.installation.database.execute(&sql).await.ok()
    };
    for failures in [1, 2] {
        let tried = format!(
            "(SELECT array_agg(failures) FROM embedding_queue) = '{{{failures},{failures}}}'"
        );
        eventually_some(&tried, async || holds(&tried).await).await;
        // They are not retried immediately.
        holds("(SELECT min(due_at) FROM embedding_queue) > now()")
            .await
            .unwrap();
        let due = "UPDATE embedding_queue SET due_at = now()";
        fixture.installation.database.execute(due).await.unwrap();
    }
    fixture.wait_until_embedded().await;
    let refused = "switchboard_control_texts_refused_total";
    assert!((fixture.installation.metric(refused) - 2.0).abs() < 0.5);
    assert_eq!(fixture.first(HEAVY).await.as_deref(), Some(HEAVY));
}

#[tokio::test]
async fn failing_endpoint_skips_no_text() {
    let Some(fixture) = EmbeddingFixture::new().await else {
        return;
    };
    fixture.create_memories(&["A red automobile"]).await;
    fixture.wait_for_first("car", "A red automobile").await;
    let before = fixture.endpoint.state.requests.lock().len();
    *fixture.endpoint.state.behaviour.lock() = Behaviour::Broken;
    fixture
        .create_memories(&["The hound sleeps", "She wants to devour it"])
        .await;
    // The texts, and the probe.
    eventually_true("requests to the endpoint", || {
        fixture.endpoint.state.requests.lock().len() >= before + 2
    })
    .await;
    let waits =
        "DO $$ BEGIN ASSERT (SELECT array_agg(failures) FROM embedding_queue) = '{0,0}'; END $$";
    fixture.installation.database.execute(waits).await.unwrap();
    *fixture.endpoint.state.behaviour.lock() = Behaviour::Well;
    fixture.wait_for_first("puppy", "The hound sleeps").await;
    fixture.wait_until_embedded().await;
    let refused = "switchboard_control_texts_refused_total";
    assert!(fixture.installation.metric(refused) < 0.5);
}

#[tokio::test]
async fn changed_model_embeds_all_texts_again() {
    let Some(fixture) = EmbeddingFixture::new().await else {
        return;
    };
    fixture.create_memories(&["A red automobile"]).await;
    fixture.wait_for_first("car", "A red automobile").await;
    let before = fixture.endpoint.state.embedded.load(Ordering::SeqCst);
    fixture
        .endpoint
        .state
        .dimensions
        .store(48, Ordering::SeqCst);
    fixture.create_memories(&["The hound sleeps"]).await;
    fixture.wait_for_first("puppy", "The hound sleeps").await;
    fixture.wait_until_embedded().await;
    fixture.wait_for_first("car", "A red automobile").await;
    assert!(fixture.endpoint.state.embedded.load(Ordering::SeqCst) >= before + 3);
    let model = fixture
        .installation
        .store
        .embedding_model()
        .await
        .unwrap()
        .unwrap();
    assert_eq!(model.dimensions, 48);
}

#[tokio::test]
async fn texts_from_before_the_model_are_embedded() {
    let Some(fixture) = EmbeddingFixture::idle().await else {
        return;
    };
    fixture.create_memories(&["A red automobile"]).await;
    assert_eq!(
        fixture.first("red").await.as_deref(),
        Some("A red automobile")
    );
    assert_eq!(fixture.first("car").await, None);
    fixture.installation.start_workers();
    fixture.wait_for_first("car", "A red automobile").await;
}
