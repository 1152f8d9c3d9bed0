//! Memories and skills books that are found by what they mean, with an endpoint that comes, goes and changes.

use std::{sync::atomic::Ordering, time::Duration};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    endpoint::{Endpoint, HEAVY, Mood, UNFIT, VOID},
    installation::{Installation, Org, eventually},
    npcs::Made,
};

/// An installation that embeds, and an NPC in it.
struct Mind {
    endpoint: Endpoint,
    installation: Installation,
    org: Org,
    npc: Made,
}

impl Mind {
    /// With everything at work; none where these tests cannot be made.
    async fn new() -> Option<Self> {
        let mind = Self::idle().await?;
        mind.installation.start_background();
        Some(mind)
    }

    /// Without a worker.
    async fn idle() -> Option<Self> {
        let endpoint = Endpoint::start();
        let installation = Installation::with_embeddings(endpoint.config()).await;
        if let Err(missing) = installation.store.vector_extension().await {
            // `check` says it aloud; whoever runs the tests by hand is to know as well.
            let accepted = std::env::var_os("SWITCHBOARD_TESTS_WITHOUT_PGVECTOR").is_some();
            assert!(
                accepted,
                "{missing}; or leave it out with SWITCHBOARD_TESTS_WITHOUT_PGVECTOR=1"
            );
            return None;
        }
        let org = installation.new_org("Toys").await;
        let document = json!({"overrides": {"name": "Bello", "locale": "en"}});
        let npc = installation.make(&org.key, "/v1/npcs", document).await;
        Some(Self {
            endpoint,
            installation,
            org,
            npc,
        })
    }

    async fn remember(&self, texts: &[&str]) {
        let memories: Vec<_> = texts.iter().map(|text| json!({"text": text})).collect();
        let path = format!("{}/memories", self.npc.path);
        let body = Some(json!({"memories": memories}));
        let (status, stored) = self
            .installation
            .send(Method::POST, &path, Some(&self.org.key), body)
            .await;
        assert_eq!(status, StatusCode::CREATED, "{stored}");
    }

    async fn ask(&self, key: &str, of: &Made, query: &str) -> Vec<Value> {
        let path = format!("{}/memories?{query}", of.path);
        let (status, page) = self
            .installation
            .send(Method::GET, &path, Some(key), None)
            .await;
        assert_eq!(status, StatusCode::OK, "{page}");
        page["memories"].as_array().unwrap().clone()
    }

    /// What comes first.
    async fn first(&self, question: &str) -> Option<String> {
        let found = self
            .ask(&self.org.key, &self.npc, &format!("q={question}"))
            .await;
        let first = found.first()?;
        Some(first["text"].as_str().unwrap().to_owned())
    }

    /// Waits until this is what comes first.
    async fn comes_first(&self, question: &str, text: &str) {
        eventually(&format!("{question}: {text}"), async || {
            (self.first(question).await.as_deref() == Some(text)).then_some(())
        })
        .await;
    }

    /// Waits until nothing waits.
    async fn all_embedded(&self) {
        eventually("all is embedded", async || {
            let sql = "DO $$ BEGIN ASSERT EXISTS (SELECT FROM embedding_models WHERE filled)
                       AND NOT EXISTS (SELECT FROM embedding_queue); END $$";
            self.installation.database.execute(sql).await.ok()
        })
        .await;
    }
}

#[tokio::test]
async fn what_means_the_same_is_found() {
    let Some(mind) = Mind::new().await else {
        return;
    };
    mind.remember(&[
        "A red automobile",
        "She wants to devour it",
        "The hound sleeps",
        "Something else",
    ])
    .await;
    mind.comes_first("car", "A red automobile").await;
    mind.comes_first("puppy", "The hound sleeps").await;
    mind.all_embedded().await;
    // By words and by meaning comes before by meaning alone.
    mind.remember(&["My car is blue"]).await;
    mind.all_embedded().await;
    let found = mind.ask(&mind.org.key, &mind.npc, "q=car&limit=3").await;
    let shown: Vec<_> = found
        .iter()
        .map(|one| {
            (
                one["text"].as_str().unwrap(),
                one["score"].as_f64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        (shown[0].0, shown[1].0),
        ("My car is blue", "A red automobile")
    );
    assert!(
        shown.is_sorted_by(|a, b| a.1 >= b.1)
            && shown.iter().all(|one| (0.0..=1.0).contains(&one.1)),
        "{shown:?}"
    );
    assert_eq!(
        mind.ask(&mind.org.key, &mind.npc, "q=car&limit=1")
            .await
            .len(),
        1
    );
    assert!(
        mind.ask(&mind.org.key, &mind.npc, "q=car&kind=none")
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn nobody_comes_near_what_others_mean() {
    let Some(mind) = Mind::new().await else {
        return;
    };
    mind.remember(&["A red automobile"]).await;
    mind.comes_first("car", "A red automobile").await;
    let other = mind.installation.new_org("Games").await;
    let document = json!({"overrides": {"name": "Spy"}});
    let spy = mind
        .installation
        .make(&other.key, "/v1/npcs", document)
        .await;
    assert!(mind.ask(&other.key, &spy, "q=car").await.is_empty());
    let document = json!({"overrides": {"name": "Sister"}});
    let sister = mind
        .installation
        .make(&mind.org.key, "/v1/npcs", document)
        .await;
    assert!(mind.ask(&mind.org.key, &sister, "q=car").await.is_empty());
    let path = format!("{}/memories?q=car", mind.npc.path);
    let (status, _) = mind
        .installation
        .send(Method::GET, &path, Some(&other.key), None)
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    // What has ended is near to nobody.
    let end = "UPDATE memories SET expires_at = now()";
    mind.installation.database.execute(end).await.unwrap();
    assert!(mind.ask(&mind.org.key, &mind.npc, "q=car").await.is_empty());
}

#[tokio::test]
async fn chunks_of_skills_books_are_found_by_their_meaning() {
    let Some(mind) = Mind::new().await else {
        return;
    };
    let (installation, key) = (&mind.installation, &mind.org.key);
    let path = installation
        .read_book(key, &["How to repair a vessel", "How to feed a hound"])
        .await;
    eventually("the chunk is found", async || {
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
async fn an_endpoint_that_is_away_costs_freshness_alone() {
    let Some(mut mind) = Mind::new().await else {
        return;
    };
    mind.remember(&["A red automobile"]).await;
    mind.comes_first("car", "A red automobile").await;
    mind.endpoint.kill();
    mind.remember(&["The hound sleeps"]).await;
    assert_eq!(
        mind.first("hound").await.as_deref(),
        Some("The hound sleeps")
    );
    assert_eq!(mind.first("puppy").await, None);
    mind.endpoint.revive();
    mind.all_embedded().await;
    mind.comes_first("puppy", "The hound sleeps").await;
}

#[tokio::test]
async fn an_endpoint_that_says_nothing_holds_no_search_up() {
    let Some(mind) = Mind::new().await else {
        return;
    };
    mind.remember(&["A red automobile"]).await;
    mind.comes_first("car", "A red automobile").await;
    *mind.endpoint.words.mood.lock() = Mood::Silent;
    assert_eq!(mind.first("red").await.as_deref(), Some("A red automobile"));
    let asked = mind.endpoint.words.asked.lock().len();
    assert_eq!(mind.first("car").await, None);
    assert_eq!(
        mind.endpoint.words.asked.lock().len(),
        asked,
        "it is not asked again at once"
    );
}

#[tokio::test]
async fn an_endpoint_is_left_alone_for_as_long_as_it_wants() {
    let Some(mind) = Mind::new().await else {
        return;
    };
    mind.remember(&["A red automobile"]).await;
    mind.all_embedded().await;
    let before = mind.endpoint.words.asked.lock().len();
    *mind.endpoint.words.mood.lock() = Mood::Busy(2);
    mind.remember(&["The hound sleeps"]).await;
    mind.all_embedded().await;
    let asked = mind.endpoint.words.asked.lock().clone();
    let [refused, taken] = asked[before..] else {
        panic!("{} requests", asked.len() - before);
    };
    assert!(
        taken - refused >= Duration::from_secs(2),
        "{:?}",
        taken - refused
    );
}

#[tokio::test]
async fn a_text_that_is_refused_is_in_nobodys_way() {
    let Some(mind) = Mind::new().await else {
        return;
    };
    mind.remember(&["A red automobile", UNFIT, "The hound sleeps"])
        .await;
    mind.comes_first("car", "A red automobile").await;
    mind.comes_first("puppy", "The hound sleeps").await;
    mind.all_embedded().await;
    assert_eq!(mind.first(UNFIT).await.as_deref(), Some(UNFIT));
    let refused = "switchboard_control_texts_refused_total";
    assert!((mind.installation.metric(refused) - 1.0).abs() < 0.5);
}

#[tokio::test]
async fn a_text_at_which_the_endpoint_fails_is_tried_again_and_then_given_up() {
    let Some(mind) = Mind::new().await else {
        return;
    };
    mind.remember(&["A red automobile", HEAVY, VOID, "The hound sleeps"])
        .await;
    mind.comes_first("car", "A red automobile").await;
    mind.comes_first("puppy", "The hound sleeps").await;
    let holds = async |what: &str| {
        let sql = format!("DO $$ BEGIN ASSERT {what}; END $$");
        mind.installation.database.execute(&sql).await.ok()
    };
    for failures in [1, 2] {
        let tried = format!(
            "(SELECT array_agg(failures) FROM embedding_queue) = '{{{failures},{failures}}}'"
        );
        eventually(&tried, async || holds(&tried).await).await;
        // They are not tried again at once.
        holds("(SELECT min(due_at) FROM embedding_queue) > now()")
            .await
            .unwrap();
        let due = "UPDATE embedding_queue SET due_at = now()";
        mind.installation.database.execute(due).await.unwrap();
    }
    mind.all_embedded().await;
    let refused = "switchboard_control_texts_refused_total";
    assert!((mind.installation.metric(refused) - 2.0).abs() < 0.5);
    assert_eq!(mind.first(HEAVY).await.as_deref(), Some(HEAVY));
}

#[tokio::test]
async fn an_endpoint_that_fails_at_everything_is_no_texts_fault() {
    let Some(mind) = Mind::new().await else {
        return;
    };
    mind.remember(&["A red automobile"]).await;
    mind.comes_first("car", "A red automobile").await;
    let before = mind.endpoint.words.asked.lock().len();
    *mind.endpoint.words.mood.lock() = Mood::Broken;
    mind.remember(&["The hound sleeps", "She wants to devour it"])
        .await;
    // The texts, and the sample.
    eventually("it was asked", async || {
        (mind.endpoint.words.asked.lock().len() >= before + 2).then_some(())
    })
    .await;
    let waits =
        "DO $$ BEGIN ASSERT (SELECT array_agg(failures) FROM embedding_queue) = '{0,0}'; END $$";
    mind.installation.database.execute(waits).await.unwrap();
    *mind.endpoint.words.mood.lock() = Mood::Well;
    mind.comes_first("puppy", "The hound sleeps").await;
    mind.all_embedded().await;
    let refused = "switchboard_control_texts_refused_total";
    assert!(mind.installation.metric(refused) < 0.5);
}

#[tokio::test]
async fn a_model_that_changes_reads_everything_anew() {
    let Some(mind) = Mind::new().await else {
        return;
    };
    mind.remember(&["A red automobile"]).await;
    mind.comes_first("car", "A red automobile").await;
    let before = mind.endpoint.words.embedded.load(Ordering::SeqCst);
    mind.endpoint.words.dimensions.store(48, Ordering::SeqCst);
    mind.remember(&["The hound sleeps"]).await;
    mind.comes_first("puppy", "The hound sleeps").await;
    mind.all_embedded().await;
    mind.comes_first("car", "A red automobile").await;
    assert!(mind.endpoint.words.embedded.load(Ordering::SeqCst) >= before + 3);
    let model = mind
        .installation
        .store
        .embedding_model()
        .await
        .unwrap()
        .unwrap();
    assert_eq!(model.dimensions, 48);
}

#[tokio::test]
async fn what_was_written_before_there_was_a_model_is_embedded() {
    let Some(mind) = Mind::idle().await else {
        return;
    };
    mind.remember(&["A red automobile"]).await;
    assert_eq!(mind.first("red").await.as_deref(), Some("A red automobile"));
    assert_eq!(mind.first("car").await, None);
    mind.installation.start_background();
    mind.comes_first("car", "A red automobile").await;
}
