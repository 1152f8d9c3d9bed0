//! One contract for all kinds of object stores, and properties of buckets.

use switchboard_protocol::id::SkillsBookId;
use switchboard_test_support::s3_server::{BUCKET, S3Server};
use tokio::{net::TcpListener, time::Instant};
use uuid::Uuid;

use super::*;
use crate::Owner;

fn settings(url: &str) -> ObjectsConfig {
    ObjectsConfig {
        objects: Some(url.to_owned()),
    }
}

fn variables(set: Vec<(&str, String)>) -> impl Iterator<Item = (String, String)> {
    set.into_iter()
        .map(|(name, value)| (name.to_owned(), value))
}

/// The bucket, or another one, with one variable changed.
fn in_bucket(server: &S3Server, url: &str, other: Option<(&'static str, &str)>) -> Objects {
    let mut set = server.variables();
    set.extend(other.map(|(name, value)| (name, value.to_owned())));
    let opened = Objects::from_settings(&settings(url), variables(set));
    opened.unwrap().unwrap()
}

fn key(byte: u8) -> ObjectKey {
    ObjectKey::picture(Owner::Installation, &hex(&[byte; 32]))
}

/// The contract of an object store.
async fn fulfils_the_contract(objects: &Objects) {
    objects.probe().await.unwrap();
    let key = key(0xab);
    assert_eq!(
        key.to_string(),
        format!("pictures/public/{}", "ab".repeat(32))
    );
    let missing = objects.get(&key).await;
    assert!(
        matches!(missing, Err(ObjectError::Missing(_))),
        "{missing:?}"
    );
    objects.delete(&key).await.unwrap();
    let large: Vec<u8> = (0_u32..10 * 1024 * 256)
        .flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    for bytes in [
        Bytes::from_static(b"x"),
        Bytes::from_static(b"x"),
        Bytes::new(),
        large.into(),
    ] {
        objects.put(&key, bytes.clone()).await.unwrap();
        assert!(objects.get(&key).await.unwrap() == bytes);
    }
    let part = ObjectKey::skills_book_part(
        Owner::Installation,
        SkillsBookId::from_uuid(Uuid::now_v7()),
        Uuid::now_v7(),
    );
    objects.put(&part, Bytes::from_static(b"y")).await.unwrap();
    objects.delete(&key).await.unwrap();
    let missing = objects.get(&key).await;
    assert!(
        matches!(missing, Err(ObjectError::Missing(_))),
        "{missing:?}"
    );
    assert_eq!(objects.get(&part).await.unwrap(), "y");
    let (mut listing, mut listed) = (objects.list("skills-books"), Vec::new());
    while let Some((key, put_at)) = listing.next().await.unwrap() {
        assert!((chrono::Utc::now() - put_at).num_minutes().abs() < 5);
        listed.push(key);
    }
    assert_eq!(listed, std::slice::from_ref(&part));
    objects.delete_folder("skills-books").await.unwrap();
    let missing = objects.get(&part).await;
    assert!(
        matches!(missing, Err(ObjectError::Missing(_))),
        "{missing:?}"
    );
    objects.delete_folder("skills-books").await.unwrap();
}

#[tokio::test]
async fn folder_fulfils_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    fulfils_the_contract(&Objects::in_folder(folder.path()).unwrap()).await;
}

#[tokio::test]
async fn bucket_with_prefix_fulfils_the_contract() {
    let server = S3Server::start();
    let unprefixed = in_bucket(&server, &format!("s3://{BUCKET}"), None);
    fulfils_the_contract(&unprefixed).await;
    let prefixed = in_bucket(&server, &format!("s3://{BUCKET}/a/b-1/"), None);
    fulfils_the_contract(&prefixed).await;
    prefixed
        .put(&key(1), Bytes::from_static(b"z"))
        .await
        .unwrap();
    let file = server.bucket().join("a/b-1").join(key(1).to_string());
    assert_eq!(std::fs::read(file).unwrap(), b"z");
    let missing = unprefixed.get(&key(1)).await;
    assert!(
        matches!(missing, Err(ObjectError::Missing(_))),
        "{missing:?}"
    );
}

#[tokio::test]
async fn missing_bucket_is_not_a_missing_object() {
    let server = S3Server::start();
    let nowhere = in_bucket(&server, "s3://no-such-bucket/x", None);
    let results = [
        nowhere.probe().await,
        nowhere.get(&key(1)).await.map(drop),
        nowhere.put(&key(1), Bytes::from_static(b"x")).await,
    ];
    for result in results {
        assert!(
            matches!(result, Err(ObjectError::NoBucket(_))),
            "{result:?}"
        );
    }
}

#[tokio::test]
async fn denied_credentials_are_not_in_the_error() {
    let server = S3Server::start();
    let wrong = ("AWS_SECRET_ACCESS_KEY", "hunter2");
    let objects = in_bucket(&server, &format!("s3://{BUCKET}"), Some(wrong));
    let results = [
        objects.probe().await,
        objects.get(&key(1)).await.map(drop),
        objects.put(&key(1), Bytes::from_static(b"x")).await,
        objects.delete(&key(1)).await,
    ];
    for result in results {
        let Err(error @ ObjectError::Denied(_)) = result else {
            panic!("{result:?}");
        };
        assert!(!error.report().contains("hunter2"), "{}", error.report());
    }
    assert!(!format!("{objects:?}").contains("hunter2"), "{objects:?}");
}

#[tokio::test]
async fn restarted_server_is_used_again() {
    let mut server = S3Server::start();
    let objects = in_bucket(&server, &format!("s3://{BUCKET}"), None);
    objects
        .put(&key(1), Bytes::from_static(b"kept"))
        .await
        .unwrap();
    server.kill();
    let unavailable = objects.get(&key(1)).await;
    assert!(
        matches!(unavailable, Err(ObjectError::Failed(_))),
        "{unavailable:?}"
    );
    server.restart();
    assert_eq!(objects.get(&key(1)).await.unwrap(), "kept");
}

#[tokio::test(start_paused = true)]
async fn silent_server_fails_within_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let set = vec![
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", "a".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "b".to_owned()),
    ];
    let objects = Objects::from_settings(&settings("s3://bucket"), variables(set));
    let objects = objects.unwrap().unwrap();
    let started_at = Instant::now();
    let result = objects.put(&key(1), Bytes::from_static(b"x")).await;
    assert!(
        matches!(result, Err(ObjectError::TimedOut | ObjectError::Failed(_))),
        "{result:?}"
    );
    assert!(
        started_at.elapsed() <= OBJECT_TIMEOUT,
        "{:?}",
        started_at.elapsed()
    );
}

#[tokio::test]
async fn invalid_object_urls_are_rejected() {
    fn check(url: Option<&str>, set: &[(&str, &str)], usable: bool) {
        let config = ObjectsConfig {
            objects: url.map(str::to_owned),
        };
        let set = set
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        let opened = Objects::from_settings(&config, variables(set));
        assert_eq!(opened.is_ok(), usable, "{url:?}: {opened:?}");
        if let Err(error) = opened {
            let message = error.to_string();
            let variables_named = ["SWITCHBOARD_OBJECTS", "AWS_ALLOW_HTTP"];
            assert!(
                variables_named.iter().any(|name| message.contains(name)),
                "{message}"
            );
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("a b/c");
    check(None, &[], true);
    check(Some(&format!("file://{}", inside.display())), &[], true);
    assert!(inside.is_dir());
    check(Some(&inside.display().to_string()), &[], false);
    for url in [
        "file://relative",
        "file:///a%20b",
        "file:///proc/version/x",
        "",
        "s3://",
        "s3:///x",
        "s3://Bucket",
        "s3://ab",
        "s3://bucket.",
        "s3://bucket//x",
        "s3://bucket/../x",
        "s3://bucket/a%20b",
        "s3://key:secret@bucket",
        "https://bucket.s3.amazonaws.com",
    ] {
        check(Some(url), &[], false);
    }
    let http = ("AWS_ENDPOINT_URL", "http://127.0.0.1:9000");
    let s3_http = ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000");
    for (set, usable) in [
        (vec![], true),
        (vec![http], false),
        (vec![s3_http], false),
        (vec![http, ("AWS_ALLOW_HTTP", "false")], false),
        (vec![http, ("AWS_ALLOW_HTTP", "true")], true),
        (vec![("AWS_ENDPOINT_URL", "https://s3.example")], true),
        // A variable that is set but empty counts as unset.
        (vec![("AWS_ENDPOINT_URL", "")], true),
        (vec![("AWS_ACCESS_KEY_ID", "without its secret")], false),
        (vec![("AWS_S3_EXPRESS", "perhaps")], false),
    ] {
        check(Some("s3://bucket-1.a/pre/fix/"), &set, usable);
    }
}
