//! The object store of pictures, skills books and voices: orphaned objects, and a store that does
//! not respond.

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
use switchboard_test_support::eventually::eventually_true;
use tokio::{net::TcpListener, task::JoinSet};
use uuid::Uuid;

use crate::{
    cases::{png, wav},
    installation::{Installation, OPERATOR_KEY},
    voices::CONSENT,
};

/// More than the connections to the database.
const UPLOADS: usize = 12;

/// A bucket that accepts connections and never responds, and the number of its connections.
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
async fn silent_bucket_does_not_block_other_requests() {
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
            panic!("the bucket did not respond: {}", answer.status());
        });
    }
    eventually_true("all uploads are in flight", || {
        taken.load(Ordering::Acquire) >= UPLOADS
    })
    .await;
    let requests = [
        (Method::GET, "/v1/templates", None, StatusCode::OK),
        (
            Method::POST,
            "/v1/templates",
            Some(json!({"name": "Bello"})),
            StatusCode::CREATED,
        ),
        (Method::GET, "/v1/pictures", None, StatusCode::OK),
    ];
    for (method, path, body, expected) in requests {
        let (status, answer) = installation.send(method, path, Some(&key), body).await;
        assert_eq!(status, expected, "{path}: {answer}");
    }
}

/// Sets the age of an object.
fn set_age(object: &Path, age: Duration) {
    let file = std::fs::File::options().write(true).open(object).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

#[tokio::test]
async fn old_orphans_are_deleted() {
    const DAY_PERIOD: Duration = Duration::from_secs(24 * 3600);
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let org = installation.new_org("Toys").await;
    installation.picture(&org.key, "", png(1)).await;
    installation.voice(&org.key, "labels=old", wav(2_000)).await;
    let book = installation.create_book(&org.key, b"text").await;
    installation
        .upload_part(&org.key, &book, "1", b"text")
        .await;
    // The keys of an earlier version.
    let shared = installation.picture(&org.key, "", png(2)).await;
    let shared = |member: &str| shared[member].as_str().unwrap().replace("pic_", "");
    let before = installation.objects_folder().join("pictures").join(&org.id);
    std::fs::rename(before.join(shared("id")), before.join(shared("sha256"))).unwrap();
    let by_hash = "UPDATE pictures SET own_object = false WHERE width = 2";
    installation.database.execute(by_hash).await.unwrap();
    let mut retained = installation.objects();
    assert_eq!(retained.len(), 4);
    // A process that died after cancelling a book, before its parts were deleted.
    let cancelled = installation.create_book(&org.key, b"other text").await;
    installation
        .upload_part(&org.key, &cancelled, "1", b"other text")
        .await;
    let cancelled = "UPDATE skills_books SET state = 'cancelled' WHERE size_bytes = 10";
    installation.database.execute(cancelled).await.unwrap();
    let mut all = installation.objects();
    all.retain(|object| !retained.contains(object));
    let [cancelled]: [std::path::PathBuf; 1] = all.try_into().unwrap();

    let id = || Uuid::now_v7().simple().to_string();
    let plant = |place: String, age: Duration| {
        let object = installation.objects_folder().join(place);
        std::fs::create_dir_all(object.parent().unwrap()).unwrap();
        std::fs::write(&object, "left over").unwrap();
        set_age(&object, age);
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
    let left_over = left_over.map(|place| plant(place, 2 * DAY_PERIOD));
    for object in retained.iter().chain([&cancelled]) {
        set_age(object, 2 * DAY_PERIOD);
    }
    retained.push(plant(format!("pictures/{owner}/{}", id()), DAY_PERIOD / 2));
    retained.push(plant(format!("voices/{owner}/notes.txt"), 2 * DAY_PERIOD));
    retained.push(plant("elsewhere/notes.txt".to_owned(), 2 * DAY_PERIOD));

    installation.start_workers();
    eventually_true("orphans are deleted", || {
        let mut left_over = left_over.iter().chain([&cancelled]);
        left_over.all(|object| !object.exists())
    })
    .await;
    for object in retained {
        assert!(object.exists(), "{}", object.display());
    }
    let content = format!("/v1/pictures/pic_{}/content", shared("id"));
    let answer = installation
        .request(Method::GET, &content, Some(&org.key), None)
        .await;
    assert_eq!(answer.status(), StatusCode::OK);
}
