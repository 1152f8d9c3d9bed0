//! Objects that one request with an idempotency key creates: sent, looked up, sent again.

use std::collections::HashMap;

use reqwest::Method;
use serde_json::{Value, json};

use super::{Answer, Writer};

/// A kind of object. Each request has a unique mark, which its objects contain.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// The path of the request.
    path: &'static str,
    body: fn(&str) -> Vec<u8>,
    /// The path and member of the list, and the field with the mark; `None` for objects without a
    /// list.
    listed: Option<(&'static str, &'static str, &'static str)>,
    /// Number of objects that one request creates.
    count: usize,
}

pub(super) const KINDS: [Kind; 7] = [
    Kind {
        name: "template",
        path: "/v1/templates",
        body: |mark| {
            let backstory = mark.repeat(200);
            bytes(&json!({"name": mark, "persona": {"backstory": backstory}, "tags": [mark]}))
        },
        listed: Some(("/v1/templates", "templates", "/name")),
        count: 1,
    },
    Kind {
        name: "npc",
        path: "/v1/npcs",
        body: |mark| bytes(&json!({"overrides": {"name": mark}, "device_ids": [mark]})),
        listed: Some(("/v1/npcs", "npcs", "/overrides/name")),
        count: 1,
    },
    Kind {
        name: "memory",
        path: "/v1/templates/{template}/memories",
        body: |mark| {
            let memory = |text: &str| json!({"text": text, "subject": mark});
            bytes(&json!({"memories": [memory("one"), memory("two"), memory("three")]}))
        },
        listed: Some(("/v1/templates/{template}/memories", "memories", "/subject")),
        count: 3,
    },
    Kind {
        name: "picture",
        path: "/v1/pictures?name={mark}",
        body: picture,
        listed: Some(("/v1/pictures", "pictures", "/name")),
        count: 1,
    },
    Kind {
        name: "key",
        path: "/v1/api-keys",
        body: |mark| bytes(&json!({"name": mark})),
        listed: Some(("/v1/api-keys", "api_keys", "/name")),
        count: 1,
    },
    Kind {
        name: "token",
        path: "/v1/tokens",
        body: |mark| bytes(&json!({"subject": format!("client:{mark}"), "scopes": ["read"]})),
        listed: None,
        count: 1,
    },
    Kind {
        name: "call",
        path: "/v1/devices/{mark}/calls",
        body: |mark| bytes(&json!({"service": "echo", "params": {"text": mark}, "mode": "queued"})),
        listed: Some(("/v1/calls", "calls", "/device_id")),
        count: 1,
    },
];

fn bytes(document: &Value) -> Vec<u8> {
    document.to_string().into_bytes()
}

/// Marks map to different bytes.
fn picture(mark: &str) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0".to_vec();
    png.extend(mark.repeat(2_000).bytes());
    png
}

impl Kind {
    /// Sends the request with its mark as the idempotency key.
    pub(super) async fn make(&self, writer: &Writer, mark: &str) -> Option<Answer> {
        let path = self.path.replace("{template}", &writer.template);
        let path = path.replace("{mark}", mark);
        let body = (self.body)(mark);
        writer.ask((Method::POST, &path), Some(mark), body).await
    }

    /// The existing objects by mark. A stored call that was cancelled counts as absent.
    async fn there_is(&self, writer: &Writer) -> HashMap<String, Vec<Value>> {
        let mut found: HashMap<String, Vec<Value>> = HashMap::new();
        if let Some((path, member, mark)) = self.listed {
            let path = path.replace("{template}", &writer.template);
            let all = writer.all(&path, member).await.into_iter();
            for thing in all.filter(|thing| !is_taken_back(thing)) {
                if let Some(mark) = thing.pointer(mark).and_then(Value::as_str) {
                    found.entry(mark.to_owned()).or_default().push(thing);
                }
            }
        }
        found
    }

    /// Checks that acknowledged objects exist and all others are complete or absent. After a
    /// repetition each exists once.
    pub(super) async fn check(&self, writer: &Writer, written: &[(String, Option<Value>)]) {
        let before = self.there_is(writer).await;
        for (mark, answered) in written {
            let found = before.get(mark).map_or(&[][..], Vec::as_slice);
            let whole = found.len() == self.count;
            match answered {
                Some(_) => assert!(whole || self.listed.is_none(), "{mark} is gone: {found:?}"),
                None => assert!(whole || found.is_empty(), "{mark} is half there: {found:?}"),
            }
            let again = self.make(writer, mark).await.unwrap();
            let (status, replayed) = (again.status, again.replayed);
            let again = again.done();
            let again = again
                .unwrap_or_else(|| panic!("{mark} again: {status}"))
                .body;
            if self.listed.is_some() || answered.is_some() {
                let known = answered.is_some() || whole;
                assert_eq!(replayed, known, "{mark} was made twice or never: {again}");
            }
            if let Some(answered) = answered {
                assert_eq!(&again, answered, "{mark} has another answer");
            }
            for (found, created) in found.iter().zip(objects(&again)) {
                self.is_as_answered(writer, found, created, mark).await;
            }
        }
        let after = self.there_is(writer).await;
        for (mark, _) in written.iter().filter(|_| self.listed.is_some()) {
            let count = after.get(mark).map_or(0, Vec::len);
            assert_eq!(count, self.count, "{mark} is not there once");
        }
    }

    async fn is_as_answered(&self, writer: &Writer, found: &Value, created: &Value, mark: &str) {
        let mut common = 0;
        for (name, value) in found.as_object().unwrap() {
            if let Some(answered) = created.get(name) {
                assert_eq!(answered, value, "`{name}` of {mark}");
                common += 1;
            }
        }
        assert!(common > 3, "{mark}: {found} is nothing like {created}");
        if self.name == "picture" {
            let id = found["id"].as_str().unwrap();
            let url = format!("{}/v1/pictures/{id}/content", writer.url);
            let content = writer.http.get(url).bearer_auth(&writer.key).send();
            let content = content.await.unwrap().bytes().await.unwrap();
            assert_eq!(content, picture(mark), "{mark} has other bytes");
        }
    }
}

/// Whether this is a call whose insertion was in doubt and which its gateway then cancelled.
/// No device receives that call, its caller got an error, and its key creates another call.
fn is_taken_back(thing: &Value) -> bool {
    thing["outcome"] == "cancelled" && thing["delivered"] == "no"
}

/// The objects of a response: one, or several of a batch.
fn objects(answer: &Value) -> Vec<&Value> {
    match answer["memories"].as_array() {
        Some(all) => all.iter().collect(),
        None => vec![answer],
    }
}
