//! Request and response schemas of memories.
//!
//! Invariant: a new memory expires in the future.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};
use switchboard_catalog::{MemoryPolicy, UriTemplate};
use switchboard_protocol::id::{MemoryId, NpcId, TemplateId};
use switchboard_runtime::problem::Problem;
use switchboard_store::{Memory, MemoryMatch, NewMemory};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::http::{
    documents::{self, invalid},
    limits::{
        Limit::{Line, Number, Text},
        Rule, rule,
    },
    merge,
};

/// The maximum number of memories in a request.
pub(crate) const MAX_BATCH: usize = 100;
/// The maximum size of the metadata of a memory.
const MAX_METADATA_BYTES: usize = 16_384;
/// The scheme of generated URIs, which clients cannot choose.
const OWN_SCHEME: &str = "switchboard:";

/// The limits, documented in docs/settings.md.
pub(crate) const RULES: &[Rule] = &[
    rule("/subject", Line(128)),
    rule("/text", Text(65_536)),
    rule("/kind", Line(64)),
    rule("/importance", Number(0.0, 1.0)),
    rule("/source", Line(200)),
    rule("/mime_type", Line(100)),
];

/// A memory to create.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = NewMemory)]
pub(crate) struct MemoryDocument {
    /// The text of the memory; not only white space.
    #[schema(min_length = 1, example = "Bello is three years old.")]
    text: String,
    /// The end user or device that the memory is about.
    #[schema(example = "user:anna")]
    #[serde(default)]
    subject: Option<String>,
    /// The kind of memory, chosen by the client.
    #[schema(example = "fact")]
    #[serde(default)]
    kind: Option<String>,
    /// Importance, from 0 to 1.
    #[schema(example = 0.5)]
    #[serde(default = "default_importance")]
    importance: f64,
    /// The source of the memory.
    #[schema(example = "conversation")]
    #[serde(default)]
    source: Option<String>,
    /// Metadata of the client, stored and returned as sent; up to 16384 bytes as JSON.
    #[schema(value_type = Object)]
    #[serde(default)]
    metadata: Map<String, Value>,
    /// Time of expiry (RFC 3339), in the future. Default: set by the memory policy of the template.
    #[schema(example = "2999-01-01T00:00:00Z")]
    #[serde(default)]
    expires_at: Option<DateTime<Utc>>,
    /// The URI of the MCP resource, which may be a URI template (RFC 6570). Default:
    /// `switchboard://memories/{id}`.
    #[schema(example = "bello://age")]
    #[serde(default)]
    uri: Option<String>,
    /// Media type of the text: `text/…` or `application/json`.
    #[schema(
        pattern = "^(text/[a-z0-9.+_-]+|application/json)$",
        example = "text/plain"
    )]
    #[serde(default = "default_mime_type")]
    mime_type: String,
}

/// The body of a request that creates memories.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the schema of requests in the OpenAPI document")]
pub(crate) enum MemoriesRequest {
    One(Box<MemoryDocument>),
    Batch(MemoryBatch),
}

/// Memories that are created together: all or none.
#[derive(Serialize, ToSchema)]
#[schema(as = NewMemories)]
pub(crate) struct MemoryBatch {
    /// The memories.
    memories: Vec<MemoryDocument>,
}

const fn default_importance() -> f64 {
    0.5
}

fn default_mime_type() -> String {
    "text/plain".to_owned()
}

/// A memory.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Memory)]
pub(crate) struct MemoryView {
    /// Unique identifier.
    id: MemoryId,
    /// The template that the memory belongs to; null for a memory of an NPC.
    template_id: Option<TemplateId>,
    /// The NPC that the memory belongs to; null for a memory of a template.
    npc_id: Option<NpcId>,
    /// The URI of the MCP resource.
    #[schema(max_length = 512, example = "bello://age")]
    uri: String,
    /// The text of the memory.
    #[schema(example = "Bello is three years old.")]
    text: String,
    /// The end user or device that the memory is about.
    #[schema(example = "user:anna")]
    subject: Option<String>,
    /// The kind of memory, chosen by the client.
    #[schema(example = "fact")]
    kind: Option<String>,
    /// Importance, from 0 to 1.
    #[schema(example = 0.5)]
    importance: f64,
    /// The source of the memory.
    #[schema(example = "conversation")]
    source: Option<String>,
    /// Metadata of the client.
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
    /// Media type of the text.
    #[schema(example = "text/plain")]
    mime_type: String,
    /// Time of expiry (RFC 3339); null if the memory does not expire.
    #[schema(example = "2999-01-01T00:00:00Z")]
    expires_at: Option<DateTime<Utc>>,
    /// Time of creation (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// Version of the memory; each change increments it.
    #[schema(minimum = 1, example = 1)]
    version: i64,
    /// How well the memory matches the search query; only in search results.
    #[schema(minimum = 0, maximum = 1, nullable = false, example = 0.55)]
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
}

impl From<MemoryMatch> for MemoryView {
    fn from(found: MemoryMatch) -> Self {
        Self {
            score: Some(found.score),
            ..found.memory.into()
        }
    }
}

impl From<Memory> for MemoryView {
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
            version: memory.version,
            score: None,
        }
    }
}

/// The memories of a request.
#[derive(Debug)]
pub(super) enum ParsedMemories {
    One(Box<NewMemory>),
    Batch(Vec<NewMemory>),
}

impl ParsedMemories {
    pub(super) fn memories(&self) -> &[NewMemory] {
        match self {
            Self::One(memory) => std::slice::from_ref(memory),
            Self::Batch(memories) => memories,
        }
    }

    /// The pointer to a memory in the body.
    pub(super) fn pointer(&self, index: usize) -> String {
        match self {
            Self::One(_) => String::new(),
            Self::Batch(_) => batch_pointer(index),
        }
    }
}

fn batch_pointer(index: usize) -> String {
    format!("/memories/{index}")
}

/// Parses the memory or the batch in a body.
pub(super) fn parse(body: &Value, policy: &MemoryPolicy) -> Result<ParsedMemories, Problem> {
    let Some(batch) = body.get("memories") else {
        return Ok(ParsedMemories::One(Box::new(parse_one(body, "", policy)?)));
    };
    let others = body.as_object().into_iter().flat_map(Map::keys);
    if let Some(other) = others.into_iter().find(|name| *name != "memories") {
        let pointer = documents::child_pointer("", other);
        let detail = format!("`{pointer}` is not a known member beside `memories`.");
        return Err(invalid(&pointer, detail));
    }
    let fits = batch
        .as_array()
        .filter(|batch| (1..=MAX_BATCH).contains(&batch.len()));
    let batch = fits.ok_or_else(|| {
        let detail = format!("`/memories` must be an array of 1 to {MAX_BATCH} memories.");
        invalid("/memories", detail)
    })?;
    let memories = batch.iter().enumerate();
    let read = memories.map(|(index, memory)| parse_one(memory, &batch_pointer(index), policy));
    Ok(ParsedMemories::Batch(read.collect::<Result<_, _>>()?))
}

fn parse_one(document: &Value, base: &str, policy: &MemoryPolicy) -> Result<NewMemory, Problem> {
    let document: MemoryDocument = documents::parse(document, base, RULES)?;
    let reject = |field: &str, reason: &str| {
        let pointer = format!("{base}/{field}");
        Err(invalid(&pointer, format!("`{pointer}` {reason}.")))
    };
    if document.text.trim().is_empty() {
        return reject("text", "must not be empty");
    }
    if !is_text_type(&document.mime_type) {
        return reject(
            "mime_type",
            "must be text/… or application/json, without parameters",
        );
    }
    let is_json = document.mime_type == "application/json";
    if is_json && serde_json::from_str::<Box<RawValue>>(&document.text).is_err() {
        return reject(
            "text",
            "must be JSON, since `mime_type` is application/json",
        );
    }
    let metadata_bytes =
        serde_json::to_vec(&document.metadata).map_or(usize::MAX, |bytes| bytes.len());
    if metadata_bytes > MAX_METADATA_BYTES {
        let reason = format!("must have at most {MAX_METADATA_BYTES} bytes as JSON");
        return reject("metadata", &reason);
    }
    let now = Utc::now();
    if document.expires_at.is_some_and(|end| end <= now) {
        return reject("expires_at", "must be in the future");
    }
    let uri = match document.uri.as_deref().map(checked_uri).transpose() {
        Ok(uri) => uri,
        Err(reason) => return reject("uri", &format!("is invalid: {reason}")),
    };
    let retention = policy
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
            .or_else(|| retention.and_then(|retention| now.checked_add_signed(retention))),
    })
}

/// The settings of a memory after a merge patch; `None` if it changes nothing.
pub(super) fn apply_patch(before: &MemoryView, patch: Value) -> Result<Option<NewMemory>, Problem> {
    const READ_ONLY: [&str; 6] = [
        "id",
        "template_id",
        "npc_id",
        "uri",
        "created_at",
        "version",
    ];
    let unchanged = merge::apply(before, Value::Object(Map::new()), &READ_ONLY)?;
    let after = merge::apply(before, patch, &READ_ONLY)?;
    if after == unchanged {
        return Ok(None);
    }
    // Without a policy, so that null means that the memory does not expire.
    parse_one(&after, "", &MemoryPolicy::default()).map(Some)
}

fn is_text_type(mime_type: &str) -> bool {
    let subtype = mime_type.strip_prefix("text/").unwrap_or_default();
    let is_token = !subtype.is_empty()
        && subtype.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".+-_".contains(&byte)
        });
    is_token || mime_type == "application/json"
}

/// A URI that clients may choose.
fn checked_uri(text: &str) -> Result<UriTemplate, String> {
    let uri = UriTemplate::parse(text).map_err(|error| error.to_string())?;
    reject_own_scheme(text)?;
    Ok(uri)
}

/// Generated URIs have this scheme, so clients cannot choose a URI with it.
pub(crate) fn reject_own_scheme(uri: &str) -> Result<(), String> {
    let start = uri.get(..OWN_SCHEME.len()).unwrap_or_default();
    if start.eq_ignore_ascii_case(OWN_SCHEME) {
        return Err(format!("a URI that begins with {OWN_SCHEME} is reserved"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(document: Value, pointer: Option<&str>) {
        let parsed = parse(&document, &MemoryPolicy::default());
        let problem = parsed.err();
        let place = problem.as_ref().and_then(Problem::pointer);
        assert_eq!(place, pointer, "{document}");
    }

    #[test]
    fn invalid_memory_is_rejected_with_its_pointer() {
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
        check(json!({}), Some("/text"));
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
    fn invalid_batch_is_rejected_with_its_pointer() {
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
    fn policy_sets_the_default_expiry() {
        let policy = MemoryPolicy {
            retention_days: Some(2),
            ..MemoryPolicy::default()
        };
        let end = |document: Value| {
            parse(&document, &policy).unwrap().memories()[0]
                .expires_at
                .unwrap()
        };
        let days = (end(json!({"text": "a"})) - Utc::now()).num_hours();
        assert!((47..=48).contains(&days), "{days}");
        let own = end(json!({"text": "a", "expires_at": "2999-01-01T00:00:00Z"}));
        assert_eq!(own.to_rfc3339(), "2999-01-01T00:00:00+00:00");
    }
}
