//! Memories as documents: how they are shown, and how they are read from what people send.
//! Never: a memory that ends before it begins.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};
use switchboard_protocol::id::{MemoryId, NpcId, TemplateId};
use switchboard_runtime::problem::Problem;
use switchboard_store::{FoundMemory, Memory, MemoryPolicy, NewMemory, UriTemplate};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    document::{self, invalid},
    limits::{
        Limit::{Line, Number, Text},
        Rule, rule,
    },
};

/// The most memories of one request.
pub(crate) const LARGEST_BATCH: usize = 100;
/// The most bytes of a memory's metadata.
const LARGEST_METADATA_BYTES: usize = 16_384;
/// How URIs begin that nobody chooses.
const OWN_SCHEME: &str = "switchboard:";

/// The limits; docs/settings.md repeats them.
pub(crate) const RULES: &[Rule] = &[
    rule("/subject", Line(128)),
    rule("/text", Text(65_536)),
    rule("/kind", Line(64)),
    rule("/importance", Number(0.0, 1.0)),
    rule("/source", Line(200)),
    rule("/mime_type", Line(100)),
];

/// A memory as it is sent.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = NewMemory)]
pub(crate) struct Document {
    /// What is remembered; not only white space.
    #[schema(min_length = 1, example = "Bello is three years old.")]
    text: String,
    /// Whom it is about: an end user or a device.
    #[schema(example = "user:anna")]
    #[serde(default)]
    subject: Option<String>,
    /// What kind of memory it is.
    #[schema(example = "fact")]
    #[serde(default)]
    kind: Option<String>,
    /// How much it matters.
    #[schema(example = 0.5)]
    #[serde(default = "default_importance")]
    importance: f64,
    /// Where it comes from.
    #[schema(example = "conversation")]
    #[serde(default)]
    source: Option<String>,
    /// Kept and given back; 16384 bytes at most, written as JSON.
    #[schema(value_type = Object)]
    #[serde(default)]
    metadata: Map<String, Value>,
    /// From then on nobody reads it; in the future.
    #[schema(example = "2999-01-01T00:00:00Z")]
    #[serde(default)]
    expires_at: Option<DateTime<Utc>>,
    /// Where agents read it, perhaps with expressions (RFC 6570); `switchboard://memories/{id}` when not given.
    #[schema(example = "bello://age")]
    #[serde(default)]
    uri: Option<String>,
    /// What the text is: `text/…` or `application/json`.
    #[schema(
        pattern = "^(text/[a-z0-9.+_-]+|application/json)$",
        example = "text/plain"
    )]
    #[serde(default = "default_mime_type")]
    mime_type: String,
}

/// What one request holds, as it is sent.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(
    dead_code,
    reason = "how the bodies of `addMemories` and `addNpcMemories` look, for the document"
)]
pub(crate) enum MemoriesDocument {
    One(Box<Document>),
    Batch(BatchDocument),
}

/// Some memories, all or none of which are stored.
#[derive(Serialize, ToSchema)]
#[schema(as = NewMemories)]
pub(crate) struct BatchDocument {
    /// The memories.
    memories: Vec<Document>,
}

const fn default_importance() -> f64 {
    0.5
}

fn default_mime_type() -> String {
    "text/plain".to_owned()
}

/// A memory as it is shown.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Memory)]
pub(crate) struct ShownMemory {
    /// Its id.
    id: MemoryId,
    /// Which template remembers it; null when an NPC does.
    template_id: Option<TemplateId>,
    /// Which NPC remembers it; null when a template does.
    npc_id: Option<NpcId>,
    /// Where agents read it.
    #[schema(max_length = 512, example = "bello://age")]
    uri: String,
    /// What is remembered.
    #[schema(example = "Bello is three years old.")]
    text: String,
    /// Whom it is about.
    #[schema(example = "user:anna")]
    subject: Option<String>,
    /// What kind of memory it is.
    #[schema(example = "fact")]
    kind: Option<String>,
    /// How much it matters.
    #[schema(example = 0.5)]
    importance: f64,
    /// Where it comes from.
    #[schema(example = "conversation")]
    source: Option<String>,
    /// What its sender keeps with it.
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
    /// What the text is.
    #[schema(example = "text/plain")]
    mime_type: String,
    /// From then on nobody reads it; null when it stays.
    #[schema(example = "2999-01-01T00:00:00Z")]
    expires_at: Option<DateTime<Utc>>,
    /// When it was sent.
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// How well it answers what was asked for, when something was.
    #[schema(minimum = 0, maximum = 1, nullable = false, example = 0.55)]
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
}

impl From<FoundMemory> for ShownMemory {
    fn from(found: FoundMemory) -> Self {
        Self {
            score: Some(found.score),
            ..found.memory.into()
        }
    }
}

impl From<Memory> for ShownMemory {
    fn from(memory: Memory) -> Self {
        Self {
            id: memory.id,
            template_id: memory.holder.template(),
            npc_id: memory.holder.npc(),
            uri: memory.uri,
            text: memory.text,
            subject: memory.subject,
            kind: memory.kind,
            importance: memory.importance,
            source: memory.source,
            metadata: memory.metadata,
            mime_type: memory.mime_type,
            expires_at: memory.expires_at,
            created_at: memory.created_at,
            score: None,
        }
    }
}

/// What one request holds.
#[derive(Debug)]
pub(super) enum Sent {
    One(Box<NewMemory>),
    Batch(Vec<NewMemory>),
}

impl Sent {
    pub(super) fn memories(&self) -> &[NewMemory] {
        match self {
            Self::One(memory) => std::slice::from_ref(memory),
            Self::Batch(memories) => memories,
        }
    }

    /// Where a memory stands in the body.
    pub(super) fn place(&self, index: usize) -> String {
        match self {
            Self::One(_) => String::new(),
            Self::Batch(_) => batch_place(index),
        }
    }
}

fn batch_place(index: usize) -> String {
    format!("/memories/{index}")
}

/// The memory, or the memories, that a body holds.
pub(super) fn read(body: &Value, policy: &MemoryPolicy) -> Result<Sent, Problem> {
    let Some(batch) = body.get("memories") else {
        return Ok(Sent::One(Box::new(read_one(body, "", policy)?)));
    };
    let others = body.as_object().into_iter().flat_map(Map::keys);
    if let Some(other) = others.into_iter().find(|name| *name != "memories") {
        let pointer = document::member("", other);
        let detail = format!("`{pointer}` is not known beside `memories`.");
        return Err(invalid(&pointer, detail));
    }
    let fits = batch
        .as_array()
        .filter(|batch| (1..=LARGEST_BATCH).contains(&batch.len()));
    let batch = fits.ok_or_else(|| {
        let detail = format!("`/memories` must be an array of 1 to {LARGEST_BATCH} memories.");
        invalid("/memories", detail)
    })?;
    let memories = batch.iter().enumerate();
    let read = memories.map(|(index, memory)| read_one(memory, &batch_place(index), policy));
    Ok(Sent::Batch(read.collect::<Result<_, _>>()?))
}

fn read_one(document: &Value, at: &str, policy: &MemoryPolicy) -> Result<NewMemory, Problem> {
    let document: Document = document::read(document, at, RULES)?;
    let refuse = |field: &str, reason: &str| {
        let pointer = format!("{at}/{field}");
        Err(invalid(&pointer, format!("`{pointer}` {reason}.")))
    };
    if document.text.trim().is_empty() {
        return refuse("text", "must not be empty");
    }
    if !is_readable(&document.mime_type) {
        return refuse(
            "mime_type",
            "must be text/… or application/json, without parameters",
        );
    }
    let is_json = document.mime_type == "application/json";
    if is_json && serde_json::from_str::<Box<RawValue>>(&document.text).is_err() {
        return refuse("text", "must be JSON, since `mime_type` says so");
    }
    let metadata_bytes =
        serde_json::to_vec(&document.metadata).map_or(usize::MAX, |bytes| bytes.len());
    if metadata_bytes > LARGEST_METADATA_BYTES {
        let reason = format!("must have {LARGEST_METADATA_BYTES} bytes at most, written as JSON");
        return refuse("metadata", &reason);
    }
    let now = Utc::now();
    if document.expires_at.is_some_and(|end| end <= now) {
        return refuse("expires_at", "must be in the future");
    }
    let uri = match document.uri.as_deref().map(checked_uri).transpose() {
        Ok(uri) => uri,
        Err(reason) => return refuse("uri", &format!("does not do: {reason}")),
    };
    let retained = policy
        .retention_days
        .and_then(|days| TimeDelta::try_days(days.into()));
    Ok(NewMemory {
        id: MemoryId::from_uuid(Uuid::now_v7()),
        uri,
        subject: document.subject,
        text: document.text,
        kind: document.kind,
        importance: document.importance,
        source: document.source,
        metadata: document.metadata,
        mime_type: document.mime_type,
        expires_at: document
            .expires_at
            .or_else(|| retained.and_then(|retained| now.checked_add_signed(retained))),
    })
}

fn is_readable(mime_type: &str) -> bool {
    let subtype = mime_type.strip_prefix("text/").unwrap_or_default();
    let is_token = !subtype.is_empty()
        && subtype.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".+-_".contains(&byte)
        });
    is_token || mime_type == "application/json"
}

/// A URI that people may choose.
fn checked_uri(text: &str) -> Result<UriTemplate, String> {
    let uri = UriTemplate::parse(text).map_err(|error| error.to_string())?;
    refuse_own_scheme(text)?;
    Ok(uri)
}

/// The URIs of what has no URI of its own begin like that, and nobody may take them.
pub(crate) fn refuse_own_scheme(uri: &str) -> Result<(), String> {
    let start = uri.get(..OWN_SCHEME.len()).unwrap_or_default();
    if start.eq_ignore_ascii_case(OWN_SCHEME) {
        return Err(format!(
            "a URI that begins with {OWN_SCHEME} cannot be chosen"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(document: Value, pointer: Option<&str>) {
        let read = read(&document, &MemoryPolicy::default());
        let problem = read.err();
        let place = problem
            .as_ref()
            .and_then(|problem| problem.extra.get("pointer"));
        assert_eq!(place, pointer.map(Value::from).as_ref(), "{document}");
    }

    #[test]
    fn memories_are_checked() {
        check(json!({"text": "a"}), None);
        check(
            json!({"memories": [{"text": "a"}, {"text": "b", "uri": "a:{x}/b"}]}),
            None,
        );
        check(
            json!({"text": "{\"a\": \"{{x}}\"}", "mime_type": "application/json", "importance": 1, "kind": "k",
                   "subject": "s", "source": "s", "metadata": {"a": [null]}, "expires_at": "2999-01-01T00:00:00Z"}),
            None,
        );
        check(json!({}), Some(""));
        check(json!([]), Some(""));
        check(json!("text"), Some(""));
        check(json!({"text": " \n"}), Some("/text"));
        check(json!({"text": "x".repeat(65_537)}), Some("/text"));
        check(json!({"text": "a\0"}), Some("/text"));
        check(json!({"text": "a", "importance": 1.5}), Some("/importance"));
        check(
            json!({"text": "a", "importance": "high"}),
            Some("/importance"),
        );
        check(
            json!({"text": "a", "mime_type": "image/png"}),
            Some("/mime_type"),
        );
        check(
            json!({"text": "a", "mime_type": "text/"}),
            Some("/mime_type"),
        );
        check(
            json!({"text": "{", "mime_type": "application/json"}),
            Some("/text"),
        );
        check(
            json!({"text": "a", "expires_at": "2020-01-01T00:00:00Z"}),
            Some("/expires_at"),
        );
        check(
            json!({"text": "a", "expires_at": "soon"}),
            Some("/expires_at"),
        );
        check(json!({"text": "a", "uri": "nothing"}), Some("/uri"));
        check(
            json!({"text": "a", "uri": "Switchboard://memories/x"}),
            Some("/uri"),
        );
        check(
            json!({"text": "a", "metadata": {"a": "x".repeat(16_384)}}),
            Some("/metadata"),
        );
        check(
            json!({"text": "a", "metadata": {"a": "\0"}}),
            Some("/metadata/a"),
        );
        check(json!({"text": "a", "metadata": []}), Some("/metadata"));
        check(json!({"text": "a", "tekst": "b"}), Some("/tekst"));
    }

    #[test]
    fn batches_are_checked() {
        check(json!({"memories": []}), Some("/memories"));
        check(json!({"memories": {}}), Some("/memories"));
        check(
            json!({"memories": vec![json!({"text": "a"}); 101]}),
            Some("/memories"),
        );
        check(
            json!({"memories": [{"text": "a"}], "text": "b"}),
            Some("/text"),
        );
        check(
            json!({"memories": [{"text": "a"}, {"text": ""}]}),
            Some("/memories/1/text"),
        );
        check(json!({"memories": [{"text": "a"}, 7]}), Some("/memories/1"));
    }

    #[test]
    fn the_policy_ends_what_names_no_end() {
        let policy = MemoryPolicy {
            retention_days: Some(2),
            ..MemoryPolicy::default()
        };
        let end = |document: Value| {
            read(&document, &policy).unwrap().memories()[0]
                .expires_at
                .unwrap()
        };
        let days = (end(json!({"text": "a"})) - Utc::now()).num_hours();
        assert!((47..=48).contains(&days), "{days}");
        let own = end(json!({"text": "a", "expires_at": "2999-01-01T00:00:00Z"}));
        assert_eq!(own.to_rfc3339(), "2999-01-01T00:00:00+00:00");
    }
}
