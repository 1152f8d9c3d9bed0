//! What a device wants to know before it goes on: asked of the client, answered in a second request.
//! (MCP 2026-07-28, multi round-trip requests.)
//! Never: state kept here between the two, or believed because a client sent it.
#![expect(
    deprecated,
    reason = "sampling and roots left the newest revision's core, and devices may still ask for them"
)]

use std::time::Duration;

use bytes::Bytes;
use rand::RngExt as _;
use rmcp::{
    ErrorData,
    model::{
        ClientCapabilities, InputRequest, InputRequests, InputRequiredResult, InputResponses,
        RequestStateCodec, SealOptions,
    },
};
use secrecy::{ExposeSecret as _, SecretBox};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};
use switchboard_store::{Store, StoreError};
use switchboard_tools::text::clean_value;
use tokio::sync::OnceCell;

use super::binding::Binding;

/// How long a client may take for its answer.
const STATE_LIFE: Duration = Duration::from_mins(15);
/// What the key is kept under.
const PURPOSE: &str = "mcp_request_state";
/// Questions at a time. Protects the people who are asked.
const MOST_QUESTIONS: usize = 16;

/// Seals the state that travels through clients; its key is every node's.
#[derive(Default)]
pub(super) struct Seal(OnceCell<RequestStateCodec>);

/// What was asked for.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    /// Each with the `method` and the `params` of a request to the client.
    requests: Map<String, Value>,
    /// Comes back with the answers.
    #[serde(default)]
    state: Option<Value>,
}

/// Why it cannot be asked.
#[derive(Debug)]
pub(super) enum Unasked {
    /// The device's own fault, in words.
    Malformed(String),
    /// The client's revision or capabilities, or ours.
    Refused(ErrorData),
}

impl From<ErrorData> for Unasked {
    fn from(error: ErrorData) -> Self {
        Self::Refused(error)
    }
}

impl Seal {
    async fn codec(&self, store: &Store) -> Result<&RequestStateCodec, ErrorData> {
        self.0
            .get_or_try_init(|| async {
                let fresh = SecretBox::new(Box::new(rand::rng().random::<[u8; 32]>()));
                let key = store.sealing_key(PURPOSE, &fresh).await?;
                Ok(RequestStateCodec::new(key.expose_secret().clone()))
            })
            .await
            .map_err(|error: StoreError| {
                tracing::warn!(
                    error = error.report(),
                    "the key that seals request state cannot be read"
                );
                let detail = "the record cannot be read at the moment; try again in a moment";
                ErrorData::internal_error(detail, None)
            })
    }

    /// The state behind what a client sent back.
    pub(super) async fn open(
        &self,
        store: &Store,
        binding: &Binding<'_>,
        sealed: &str,
    ) -> Result<Value, ErrorData> {
        let opened = self
            .codec(store)
            .await?
            .open_with(sealed, &binding.digest());
        let state = opened
            .map_err(|error| error.to_string())
            .and_then(|json| serde_json::from_slice(&json).map_err(|error| error.to_string()));
        state.map_err(|fault| {
            let detail = format!("`requestState` is not what was sent for this request: {fault}");
            ErrorData::invalid_params(detail, None)
        })
    }

    async fn close(
        &self,
        store: &Store,
        binding: &Binding<'_>,
        state: &Value,
    ) -> Result<String, ErrorData> {
        let owner = binding.digest();
        let options = SealOptions::new().associated_data(&owner).ttl(STATE_LIFE);
        let json = state.to_string();
        Ok(self
            .codec(store)
            .await?
            .seal_with(json.as_bytes(), &options))
    }

    /// The questions of a device, or of a prompt, as the result that asks them.
    pub(super) async fn ask(
        &self,
        store: &Store,
        binding: &Binding<'_>,
        wanted: Wanted,
        able: &ClientCapabilities,
    ) -> Result<InputRequiredResult, Unasked> {
        if wanted.requests.len() > MOST_QUESTIONS {
            let detail = format!("at most {MOST_QUESTIONS} questions can be asked at a time");
            return Err(Unasked::Malformed(detail));
        }
        let mut requests = InputRequests::new();
        for (key, request) in wanted.requests {
            let request = serde_json::from_value(clean_value(request)).map_err(|error| {
                Unasked::Malformed(format!(
                    "the question {key:?} is not one that a client can be asked: {error}"
                ))
            })?;
            requests.insert(key, request);
        }
        let needed = beyond(able, requests.values());
        let asked_any = !requests.is_empty();
        requests.retain(|_, request| can_answer(able, request));
        if asked_any && requests.is_empty() {
            return Err(ErrorData::missing_required_client_capability(needed).into());
        }
        let state = match &wanted.state {
            Some(state) => Some(self.close(store, binding, state).await?),
            None => None,
        };
        Ok(InputRequiredResult::new(Some(requests), state))
    }
}

impl Wanted {
    /// Questions that need no state: their answers say all.
    pub(super) const fn questions(requests: Map<String, Value>) -> Self {
        Self {
            requests,
            state: None,
        }
    }

    pub(super) fn read(json: &RawValue) -> Result<Self, Unasked> {
        serde_json::from_str(json.get()).map_err(|error| Unasked::Malformed(error.to_string()))
    }
}

/// What a client answered, as the device is told it: `{"responses", "state"}`.
pub(super) async fn answered(
    seal: &Seal,
    store: &Store,
    binding: &Binding<'_>,
    (responses, state): (Option<InputResponses>, Option<&str>),
) -> Result<Bytes, ErrorData> {
    if responses.is_none() && state.is_none() {
        return Ok(Bytes::new());
    }
    let responses = responses.unwrap_or_default();
    check(&responses)?;
    let state = match state {
        Some(sealed) => seal.open(store, binding, sealed).await?,
        None => Value::Null,
    };
    let input = json!({"responses": responses, "state": state});
    Ok(input.to_string().into())
}

/// Each answer is a result, so an object.
pub(super) fn check(responses: &InputResponses) -> Result<(), ErrorData> {
    match responses.iter().find(|(_, answer)| !answer.is_object()) {
        Some((key, _)) => {
            let detail = format!(
                "`inputResponses` has to hold an object for {key:?}, the result of what was asked"
            );
            Err(ErrorData::invalid_params(detail, None))
        }
        None => Ok(()),
    }
}

const fn can_answer(able: &ClientCapabilities, request: &InputRequest) -> bool {
    match request {
        InputRequest::Elicitation(_) => able.elicitation.is_some(),
        InputRequest::CreateMessage(_) => able.sampling.is_some(),
        InputRequest::ListRoots(_) => able.roots.is_some(),
        _ => false,
    }
}

/// What the client would have to be able to do, and is not.
fn beyond<'a>(
    able: &ClientCapabilities,
    requests: impl Iterator<Item = &'a InputRequest>,
) -> ClientCapabilities {
    let mut needed = ClientCapabilities::default();
    for request in requests.filter(|request| !can_answer(able, request)) {
        match request {
            InputRequest::Elicitation(_) => needed.elicitation = Some(Default::default()),
            InputRequest::CreateMessage(_) => needed.sampling = Some(Default::default()),
            InputRequest::ListRoots(_) => needed.roots = Some(Default::default()),
            _ => {}
        }
    }
    needed
}
