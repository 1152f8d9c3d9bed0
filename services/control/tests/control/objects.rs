//! What pictures, skills books and voices have in the object store: what is left over there, and one that never answers.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use http::{Method, StatusCode};
use serde_json::json;
use switchboard_store::{Objects, ObjectsConfig};
use tokio::{net::TcpListener, task::JoinSet};
use uuid::Uuid;

use crate::{
    cases::{png, wav},
    installation::{Installation, OPERATOR_KEY, eventually},
    voices::CONSENT,
};

/// More than there are connections to the database.
const UPLOADS: usize = 12;

/// A bucket that takes every connection and never says a word; and how many it has taken.
async fn silent(tasks: &mut JoinSet<()>) -> (Objects, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    tasks.spawn(async move {
        let mut connections = Vec::new();
        loop {
            connections.push(listener.accept().await.unwrap());
            counted.store(connections.len(), Ordering::Release);
        }
    });
    let variables = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = ObjectsConfig {
        objects: Some("s3://bucket".to_owned()),
    };
    let objects = Objects::from_settings(&config, variables.into_iter());
    (objects.unwrap().unwrap(), taken)
}

#[tokio::test]
async fn a_bucket_that_never_answers_keeps_no_other_request_waiting() {
    let mut tasks = JoinSet::new();
    let (objects, taken) = silent(&mut tasks).await;
    let installation = Arc::new(Installation::with_objects(objects).await);
    let key = installation.new_org("Toys").await.key;
    for number in 0..UPLOADS {
        let (installation, key) = (Arc::clone(&installation), key.clone());
        tasks.spawn(async move {
            let answer = match number % 2 {
                0 => installation.upload(&key, "", "image/png", png(1)).await,
                _ => {
                    let query = format!("name=Anna&{CONSENT}");
                    installation.send_sample(&key, &query, wav(2_000)).await
                }
            };
            panic!("the bucket has not answered: {}", answer.status());
        });
    }
    eventually("all uploads wait for the bucket", async || {
        (taken.load(Ordering::Acquire) >= UPLOADS).then_some(())
    })
    .await;
    let asked = [
        (Method::GET, "/v1/templates", None, StatusCode::OK),
        (
            Method::POST,
            "/v1/templates",
            Some(json!({"name": "Bello"})),
            StatusCode::CREATED,
        ),
        (Method::GET, "/v1/pictures", None, StatusCode::OK),
    ];
    for (method, path, body, expected) in asked {
        let (status, answer) = installation.send(method, path, Some(&key), body).await;
        assert_eq!(status, expected, "{path}: {answer}");
    }
}

/// As if it had been put so long ago.
fn put_before(object: &Path, age: Duration) {
    let file = std::fs::File::options().write(true).open(object).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

#[tokio::test]
async fn what_no_row_names_goes_when_it_is_old() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let org = installation.new_org("Toys").await;
    installation.picture(&org.key, "", png(1)).await;
    installation.voice(&org.key, "labels=old", wav(2_000)).await;
    let book = installation.begin(&org.key, b"text").await;
    installation.part(&org.key, &book, "1", b"text").await;
    // As an earlier version put them.
    let shared = installation.picture(&org.key, "", png(2)).await;
    let shared = |member: &str| shared[member].as_str().unwrap().replace("pic_", "");
    let before = installation.objects_folder().join("pictures").join(&org.id);
    std::fs::rename(before.join(shared("id")), before.join(shared("sha256"))).unwrap();
    let by_hash = "UPDATE pictures SET own_object = false WHERE width = 2";
    installation.database.execute(by_hash).await.unwrap();
    let mut kept = installation.objects();
    assert_eq!(kept.len(), 4);
    // As whoever gives a book up leaves it when dying before its parts are gone.
    let given_up = installation.begin(&org.key, b"other text").await;
    installation
        .part(&org.key, &given_up, "1", b"other text")
        .await;
    let cancelled = "UPDATE skills_books SET state = 'cancelled' WHERE size_bytes = 10";
    installation.database.execute(cancelled).await.unwrap();
    let mut all = installation.objects();
    all.retain(|object| !kept.contains(object));
    let [given_up]: [std::path::PathBuf; 1] = all.try_into().unwrap();

    let id = || Uuid::now_v7().simple().to_string();
    let plant = |place: String, age: Duration| {
        let object = installation.objects_folder().join(place);
        std::fs::create_dir_all(object.parent().unwrap()).unwrap();
        std::fs::write(&object, "left over").unwrap();
        put_before(&object, age);
        object
    };
    let (owner, book) = (&org.id, book.rsplit('/').next().unwrap());
    let left_over = [
        format!("pictures/{owner}/{}", id()),
        format!("pictures/{owner}/{}", "ab".repeat(32)),
        format!("pictures/public/{}", id()),
        format!("skills-books/{owner}/{book}/{}", id()),
        format!("skills-books/{owner}/skb_{}/{}", id(), id()),
        format!("voices/{owner}/voice_{}", id()),
    ];
    let left_over = left_over.map(|place| plant(place, 2 * DAY));
    for object in kept.iter().chain([&given_up]) {
        put_before(object, 2 * DAY);
    }
    kept.push(plant(format!("pictures/{owner}/{}", id()), DAY / 2));
    kept.push(plant(format!("voices/{owner}/notes.txt"), 2 * DAY));
    kept.push(plant("elsewhere/notes.txt".to_owned(), 2 * DAY));

    installation.start_background();
    eventually("what is left over goes", async || {
        let mut left_over = left_over.iter().chain([&given_up]);
        let gone = left_over.all(|object| !object.exists());
        gone.then_some(())
    })
    .await;
    for object in kept {
        assert!(object.exists(), "{}", object.display());
    }
    let content = format!("/v1/pictures/pic_{}/content", shared("id"));
    let answer = installation
        .request(Method::GET, &content, Some(&org.key), None)
        .await;
    assert_eq!(answer.status(), StatusCode::OK);
}
