//! `/v1/recordings`, and the settings of the organisation that they depend on.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};
use switchboard_protocol::id::RecordingId;
use switchboard_store::NewRecording;
use uuid::Uuid;

use crate::installation::{Installation, Org, body};

const FILE: &[u8] = b"OggS, and what was said";

impl Installation {
    /// Stores a recording, if the organisation wants that. Returns its id.
    async fn record(&self, org: &Org, device: &str) -> Option<String> {
        let id = RecordingId::from_uuid(Uuid::now_v7());
        let recording = NewRecording {
            id,
            device: device.parse().unwrap(),
            duration_ms: 2_400,
            file: Bytes::from_static(FILE),
        };
        let stored = self.store.add_recording(org.id(), recording).await;
        stored.unwrap().then(|| id.to_string())
    }

    /// Stores a recording of an organisation whose version stays 1.
    pub(crate) async fn recording(&self, org: &Org, device: &str) -> String {
        let id = org.id().uuid();
        for set in ["record_speech = true", "version = 1"] {
            let sql = format!("UPDATE orgs SET {set} WHERE id = '{id}'");
            self.database.execute(&sql).await.unwrap();
        }
        self.record(org, device).await.unwrap()
    }

    async fn set_recording(&self, org: &Org, settings: Value) -> (StatusCode, Value) {
        let (_, before) = self
            .send(Method::GET, "/v1/org", Some(&org.key), None)
            .await;
        let tag = format!("\"{}\"", before["version"]);
        let response = self.patch(&org.key, "/v1/org", Some(&tag), settings).await;
        (response.status(), body(response).await)
    }

    async fn list_recordings(&self, org: &Org, query: &str) -> Vec<String> {
        let path = format!("/v1/recordings{query}");
        let (status, page) = self.send(Method::GET, &path, Some(&org.key), None).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        let recordings = page["recordings"].as_array().unwrap().iter();
        recordings
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect()
    }

    async fn delete_recordings(&self, org: &Org, path: &str) -> (StatusCode, Value) {
        self.send(Method::DELETE, path, Some(&org.key), None).await
    }
}

#[tokio::test]
async fn nothing_is_stored_unless_the_organisation_wants_it() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    assert_eq!(installation.record(&org, "toy-1").await, None);
    assert_eq!(installation.objects().len(), 0);
    for days in [0, 366] {
        let settings = json!({"recording_retention_days": days});
        let (status, problem) = installation.set_recording(&org, settings).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    }
    let (_, set) = installation
        .set_recording(&org, json!({"record_speech": true}))
        .await;
    assert_eq!(
        (&set["record_speech"], &set["recording_retention_days"]),
        (&json!(true), &json!(30))
    );
    let path = "/v1/audit-log?resource=org&action=changed";
    let (_, log) = installation
        .send(Method::GET, path, Some(&org.key), None)
        .await;
    assert_eq!(
        log["entries"][0]["changed"],
        json!(["record_speech"]),
        "{log}"
    );
    let id = installation.record(&org, "toy-1").await.unwrap();
    // Off again: what is stored stays until it is deleted.
    let settings = json!({"record_speech": null});
    let (_, set) = installation.set_recording(&org, settings).await;
    assert_eq!(set["record_speech"], false);
    assert_eq!(installation.record(&org, "toy-1").await, None);
    assert_eq!(installation.list_recordings(&org, "").await, [id]);
    assert_eq!(installation.objects().len(), 1);
}

#[tokio::test]
async fn recordings_need_an_object_store() {
    let installation = Installation::without_objects().await;
    installation.start_workers();
    let org = installation.new_org("Toys").await;
    let settings = json!({"record_speech": true});
    let (status, problem) = installation.set_recording(&org, settings).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{problem}");
    assert_eq!(problem["type"], "/problems/objects_not_configured");
}

#[tokio::test]
async fn recording_is_played_and_deleted() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let other = installation.new_org("Games").await;
    let id = installation.recording(&org, "toy-1").await;
    // It is no orphan.
    let orphans = installation.store.delete_orphaned_objects(Duration::ZERO);
    assert_eq!(orphans.await.unwrap(), 0);
    let path = format!("/v1/recordings/{id}");
    let (_, recording) = installation
        .send(Method::GET, &path, Some(&org.key), None)
        .await;
    let read = ["device_id", "duration_ms", "size_bytes"].map(|name| &recording[name]);
    assert_eq!(read, [&json!("toy-1"), &json!(2_400), &json!(FILE.len())]);
    let content = format!("{path}/content");
    let request = Request::get(&content)
        .header(header::AUTHORIZATION, format!("Bearer {}", org.key))
        .header(header::RANGE, "bytes=0-3");
    let part = installation
        .answer(request.body(axum::body::Body::empty()).unwrap())
        .await;
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(part.headers()[header::CONTENT_TYPE], "audio/ogg");
    assert_eq!(part.headers()[header::CACHE_CONTROL], "private, no-store");
    for path in [&path, &content] {
        let (status, _) = installation
            .send(Method::GET, path, Some(&other.key), None)
            .await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
    }
    let (status, _) = installation.delete_recordings(&other, &path).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (_, deleted) = installation
        .delete_recordings(&other, "/v1/recordings")
        .await;
    assert_eq!(deleted, json!({"deleted": 0, "has_more": false}));
    assert_eq!(installation.objects().len(), 1);
    for expected in [StatusCode::NO_CONTENT, StatusCode::NOT_FOUND] {
        let (status, _) = installation.delete_recordings(&org, &path).await;
        assert_eq!(status, expected);
    }
    assert_eq!(installation.objects().len(), 0);
    let log = format!("/v1/audit-log?resource_id={id}");
    let (_, log) = installation
        .send(Method::GET, &log, Some(&org.key), None)
        .await;
    assert_eq!(log["entries"][0]["action"], "removed", "{log}");
}

#[tokio::test]
async fn recordings_of_a_device_are_deleted_together() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let mut ids = Vec::new();
    for device in ["toy-1", "toy-2", "toy-1"] {
        ids.push(installation.recording(&org, device).await);
    }
    let of_device = installation
        .list_recordings(&org, "?device_id=toy-1&limit=200")
        .await;
    assert_eq!(of_device, [ids[0].clone(), ids[2].clone()]);
    let (status, _) = installation
        .delete_recordings(&org, "/v1/recordings?device_id=a%20toy")
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (_, deleted) = installation
        .delete_recordings(&org, "/v1/recordings?device_id=toy-1")
        .await;
    assert_eq!(deleted, json!({"deleted": 2, "has_more": false}));
    assert_eq!(
        installation.list_recordings(&org, "").await,
        [ids[1].clone()]
    );
    let (_, deleted) = installation.delete_recordings(&org, "/v1/recordings").await;
    assert_eq!(deleted["deleted"], 1);
    assert_eq!(installation.objects().len(), 0);
}

#[tokio::test]
async fn recordings_are_deleted_after_the_retention_of_their_organisation() {
    let installation = Installation::start().await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Games").await,
    );
    let old = [
        installation.recording(&org, "toy-1").await,
        installation.recording(&other, "toy-1").await,
    ];
    let sql = "UPDATE recordings SET created_at = now() - interval '8 days'";
    installation.database.execute(sql).await.unwrap();
    let recent = installation.recording(&org, "toy-1").await;
    assert_eq!(installation.store.purge_recordings().await.unwrap(), 0);
    let settings = json!({"recording_retention_days": 7});
    let (status, _) = installation.set_recording(&org, settings).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(installation.store.purge_recordings().await.unwrap(), 1);
    assert_eq!(installation.list_recordings(&org, "").await, [recent]);
    assert_eq!(
        installation.list_recordings(&other, "").await,
        [old[1].clone()]
    );
    assert_eq!(installation.objects().len(), 2);
}
