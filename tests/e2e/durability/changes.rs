//! Updates and deletions: acknowledged ones persist, all others are complete or absent.

use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{WAIT_TIMEOUT, WriteCounts, Writer};

/// A kind of object that is updated and deleted, and how.
pub(super) struct Changed {
    name: &'static str,
    path: &'static str,
    document: fn(&str) -> Value,
    /// Where the mark of the last update is: twice, in members that one statement writes.
    marks: [&'static str; 2],
}

pub(super) const CHANGED: [Changed; 3] = [
    Changed {
        name: "template",
        path: "/v1/templates",
        document: |mark| json!({"name": mark, "persona": {"backstory": mark}}),
        marks: ["/name", "/persona/backstory"],
    },
    Changed {
        name: "npc",
        path: "/v1/npcs",
        document: |mark| json!({"overrides": {"name": mark, "persona": {"backstory": mark}}}),
        marks: ["/overrides/name", "/overrides/persona/backstory"],
    },
    Changed {
        name: "webhook",
        path: "/v1/webhooks",
        document: |mark| json!({"url": format!("https://example.com/{mark}"), "description": mark, "events": ["device.online"]}),
        marks: ["/url", "/description"],
    },
];

/// The object whose updates are checked, and the ids of deleted ones.
pub(super) struct Changes {
    kind: &'static Changed,
    path: String,
    /// The mark of the last update that is known to be in force.
    mark: String,
    version: i64,
    deleted: Vec<String>,
}

/// The status and the body of a response, or `None` if the connection broke.
async fn change(
    writer: &Writer,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Option<(StatusCode, Value)> {
    let request = writer.http.request(method, format!("{}{path}", writer.url));
    let request = request.bearer_auth(&writer.key).timeout(WAIT_TIMEOUT);
    let request = request.header("If-Match", "*");
    let request = match body {
        Some(body) => request.json(body),
        None => request,
    };
    let answer = request.send().await.ok()?;
    let status = answer.status();
    let text = answer.text().await.ok()?;
    Some((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
}

impl Changes {
    /// Updates one object again and again, and creates and deletes others, until it is over.
    pub(super) async fn make(
        kind: &'static Changed,
        writer: Arc<Writer>,
        tally: Arc<WriteCounts>,
        counter: usize,
    ) -> Self {
        let first = (kind.document)("first");
        let created = change(&writer, Method::POST, kind.path, Some(&first)).await;
        let (status, created) = created.unwrap();
        assert_eq!(status, StatusCode::CREATED, "{created}");
        let id = created["id"].as_str().unwrap();
        let mut changes = Self {
            kind,
            path: format!("{}/{id}", kind.path),
            mark: "first".to_owned(),
            version: created["version"].as_i64().unwrap(),
            deleted: Vec::new(),
        };
        for number in 0.. {
            if tally.is_over() {
                break;
            }
            // Other writers have objects and keys of the plain name.
            let mark = format!("changed-{}-{number}", kind.name);
            let updated = changes.update(&writer, &mark).await;
            tally.count(counter, updated);
            let deleted = changes.delete(&writer, &mark).await;
            tally.count(counter + 1, deleted);
        }
        changes
    }

    /// Updates the object. Returns whether that was acknowledged.
    async fn update(&mut self, writer: &Writer, mark: &str) -> bool {
        let document = (self.kind.document)(mark);
        let answer = change(writer, Method::PATCH, &self.path, Some(&document)).await;
        let done = answer
            .as_ref()
            .is_some_and(|(status, _)| status.is_success());
        if done {
            mark.clone_into(&mut self.mark);
        } else {
            assert_is_cut(answer.as_ref());
            writer.settings_are_back().await;
        }
        self.check_updates(writer, mark).await;
        done
    }

    /// The object has the last acknowledged update, or the one that was cut off.
    async fn check_updates(&mut self, writer: &Writer, cut: &str) {
        let Some(found) = self.find(writer, &self.path).await else {
            return;
        };
        let found = found.unwrap_or_else(|| panic!("{} is gone", self.path));
        let marks = self.kind.marks.map(|at| {
            let text = found.pointer(at).and_then(Value::as_str).unwrap();
            text.trim_start_matches("https://example.com/").to_owned()
        });
        assert_eq!(marks[0], marks[1], "an update is half there: {found}");
        let [mark, _] = marks;
        assert!(
            mark == self.mark || mark == cut,
            "{} is gone: {found}",
            self.mark
        );
        let version = found["version"].as_i64().unwrap();
        assert!(version >= self.version, "an older version is back: {found}");
        (self.mark, self.version) = (mark, version);
    }

    /// The object at a path, `Some(None)` if there is none. `None` if the server was killed again before the
    /// answer.
    async fn find(&self, writer: &Writer, path: &str) -> Option<Option<Value>> {
        match change(writer, Method::GET, path, None).await {
            Some((StatusCode::OK, found)) => Some(Some(found)),
            Some((StatusCode::NOT_FOUND, _)) => Some(None),
            other => {
                assert_is_cut(other.as_ref());
                None
            }
        }
    }

    /// Creates another object and deletes it. Returns whether the first request to delete it was
    /// acknowledged.
    async fn delete(&mut self, writer: &Writer, mark: &str) -> bool {
        let path = self.create(writer, mark).await;
        let (mut was_cut, mut may_be_deleted) = (false, false);
        loop {
            let answer = change(writer, Method::DELETE, &path, None).await;
            match answer {
                Some((StatusCode::NO_CONTENT, _)) => break,
                // It was cut off after it was committed, unless it was there afterwards.
                Some((StatusCode::NOT_FOUND, _)) if may_be_deleted => break,
                other => assert_is_cut(other.as_ref()),
            }
            (was_cut, may_be_deleted) = (true, true);
            writer.settings_are_back().await;
            match self.find(writer, &path).await {
                Some(Some(found)) => {
                    let at = self.kind.marks[0];
                    let found = found.pointer(at).and_then(Value::as_str).unwrap();
                    assert!(found.ends_with(mark), "{mark} is half deleted: {found}");
                    may_be_deleted = false;
                }
                Some(None) => break,
                None => {}
            }
        }
        self.deleted.push(path);
        !was_cut
    }

    /// Creates an object, and returns its path.
    async fn create(&self, writer: &Writer, mark: &str) -> String {
        let document = (self.kind.document)(mark).to_string().into_bytes();
        loop {
            let request = (Method::POST, self.kind.path);
            // The key is the mark, so that repetitions create one object.
            match writer.ask(request, Some(mark), document.clone()).await {
                Some(answer) if answer.status == StatusCode::CREATED => {
                    let id = answer.body["id"].as_str().unwrap();
                    return format!("{}/{id}", self.kind.path);
                }
                other => assert_is_cut(other.map(|other| (other.status, other.body)).as_ref()),
            }
            writer.settings_are_back().await;
        }
    }

    /// Checks that the last update is in force, and that what was deleted was deleted once, by a request,
    /// and is not back.
    pub(super) async fn check(mut self, writer: &Writer) {
        let (version, mark) = (self.version, self.mark.clone());
        let found = self.find(writer, &self.path).await;
        assert!(matches!(found, Some(Some(_))), "{} is gone", self.path);
        self.check_updates(writer, &mark).await;
        assert!(self.version == version, "{} changed by itself", self.path);
        for path in &self.deleted {
            // A creation that was lost looks deleted. A trigger records the deletion in its transaction.
            let id = path.rsplit('/').next().unwrap();
            let log = writer.get(&format!("/v1/audit-log?resource_id={id}")).await;
            let actions = log["entries"].as_array().unwrap().iter();
            let actions: Vec<_> = actions.map(|entry| &entry["action"]).collect();
            assert_eq!(actions, ["created", "removed"], "{path}: {log}");
        }
        for path in &self.deleted {
            let found = change(writer, Method::GET, path, None).await.unwrap();
            assert_eq!(
                found.0,
                StatusCode::NOT_FOUND,
                "{path} is back: {}",
                found.1
            );
        }
    }
}

/// A request that is not acknowledged was refused because the database is away.
fn assert_is_cut(answer: Option<&(StatusCode, Value)>) {
    if let Some((status, body)) = answer {
        assert_eq!(*status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    }
}
