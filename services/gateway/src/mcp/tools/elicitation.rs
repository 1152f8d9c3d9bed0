//! Input that a device, or a prompt, requires from the client: requested in a result, answered in
//! a second request. (MCP 2026-07-28, multi round-trip requests.)
//!
//! Invariant: the state between the two requests travels sealed through the client. It is not
//! stored, and it is not trusted unless the seal is valid for the same request.
#![expect(
    deprecated,
    reason = "sampling and roots left the core of the newest revision; devices may still request them"
)]

use std::time::Duration;

use bytes::Bytes;
use rand::RngExt as _;
use rmcp::{
    ErrorData,
    model::{
        ClientCapabilities, InputRequest, InputRequests, InputRequiredResult, InputResponses,
        RequestStateCodec, SamplingCapability, SealOptions,
    },
};
use secrecy::{ExposeSecret as _, SecretBox};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};
use switchboard_store::{Store, StoreError};
use switchboard_tools::text::clean_value;
use tokio::sync::OnceCell;

use crate::mcp::transport::binding::Binding;

/// How long a client may take to answer.
const STATE_TTL: Duration = Duration::from_mins(15);
/// The purpose of the key in the database.
const KEY_PURPOSE: &str = "mcp_request_state";
/// Requests in one elicitation. Protects the users who answer them.
const MAX_REQUESTS: usize = 16;

/// Seals request state with a key that all nodes share.
#[derive(Default)]
pub(in crate::mcp) struct StateSealer(OnceCell<RequestStateCodec>);

/// The input that a device or a prompt requires.
#[derive(Debug, Deserialize)]
pub(in crate::mcp) struct Elicitation {
    /// Each with the `method` and the `params` of a request to the client.
    requests: Map<String, Value>,
    /// Returned with the responses.
    #[serde(default)]
    state: Option<Value>,
}

/// Why input cannot be requested.
#[derive(Debug)]
pub(in crate::mcp) enum ElicitationError {
    /// The device's fault, with the reason.
    Invalid(String),
    /// The client lacks a capability, or the database is unavailable.
    Refused(ErrorData),
}

impl From<ErrorData> for ElicitationError {
    fn from(error: ErrorData) -> Self {
        Self::Refused(error)
    }
}

impl StateSealer {
    async fn codec(&self, store: &Store) -> Result<&RequestStateCodec, ErrorData> {
        self.0
            .get_or_try_init(|| async {
                let fresh = SecretBox::new(Box::new(rand::rng().random::<[u8; 32]>()));
                let key = store.sealing_key(KEY_PURPOSE, &fresh).await?;
                Ok(RequestStateCodec::new(key.expose_secret().clone()))
            })
            .await
            .map_err(|error: StoreError| {
                tracing::warn!(
                    error = error.report(),
                    "the key for request state could not be read"
                );
                let detail = "the database is unavailable; retry later";
                ErrorData::internal_error(detail, None)
            })
    }

    /// Opens the state that a client returned.
    async fn open(
        &self,
        store: &Store,
        binding: &Binding<'_>,
        sealed: &str,
    ) -> Result<Value, ErrorData> {
        let codec = self.codec(store).await?;
        let opened = codec.open_with(sealed, &binding.digest());
        let state = opened
            .map_err(|error| error.to_string())
            .and_then(|json| serde_json::from_slice(&json).map_err(|error| error.to_string()));
        state.map_err(|fault| {
            let detail = format!("`requestState` was not issued for this request: {fault}");
            ErrorData::invalid_params(detail, None)
        })
    }

    async fn seal(
        &self,
        store: &Store,
        binding: &Binding<'_>,
        state: &Value,
    ) -> Result<String, ErrorData> {
        let owner = binding.digest();
        let options = SealOptions::new().associated_data(&owner).ttl(STATE_TTL);
        let json = state.to_string();
        let codec = self.codec(store).await?;
        Ok(codec.seal_with(json.as_bytes(), &options))
    }
}

impl Elicitation {
    /// Requests without state.
    pub(in crate::mcp) const fn stateless(requests: Map<String, Value>) -> Self {
        Self {
            requests,
            state: None,
        }
    }

    pub(super) fn parse(json: &RawValue) -> Result<Self, ElicitationError> {
        serde_json::from_str(json.get())
            .map_err(|error| ElicitationError::Invalid(error.to_string()))
    }

    /// The result that requests the input. Requests beyond the client's capabilities are left
    /// out, unless none would remain.
    pub(in crate::mcp) async fn request(
        self,
        sealer: &StateSealer,
        store: &Store,
        binding: &Binding<'_>,
        capabilities: &ClientCapabilities,
    ) -> Result<InputRequiredResult, ElicitationError> {
        if self.requests.len() > MAX_REQUESTS {
            let reason = format!("it has more than {MAX_REQUESTS} requests");
            return Err(ElicitationError::Invalid(reason));
        }
        let mut requests = InputRequests::new();
        for (key, request) in self.requests {
            let request = serde_json::from_value(clean_value(request)).map_err(|error| {
                let reason = format!("{key:?} is not a request to a client: {error}");
                ElicitationError::Invalid(reason)
            })?;
            requests.insert(key, request);
        }
        let missing = missing_capabilities(capabilities, requests.values());
        let had_requests = !requests.is_empty();
        requests.retain(|_, request| can_answer(capabilities, request));
        if had_requests && requests.is_empty() {
            return Err(ErrorData::missing_required_client_capability(missing).into());
        }
        let state = match &self.state {
            Some(state) => Some(sealer.seal(store, binding, state).await?),
            None => None,
        };
        Ok(InputRequiredResult::new(Some(requests), state))
    }
}

/// A client's responses as the input of the device: `{"responses", "state"}`.
pub(super) async fn input(
    sealer: &StateSealer,
    store: &Store,
    binding: &Binding<'_>,
    (responses, state): (Option<InputResponses>, Option<&str>),
) -> Result<Bytes, ErrorData> {
    let responses = responses.unwrap_or_default();
    check_responses(&responses)?;
    let state = match state {
        Some(sealed) => sealer.open(store, binding, sealed).await?,
        None => Value::Null,
    };
    let input = json!({"responses": responses, "state": state});
    Ok(input.to_string().into())
}

/// Checks that each response is a result, that is, an object.
pub(in crate::mcp) fn check_responses(responses: &InputResponses) -> Result<(), ErrorData> {
    match responses.iter().find(|(_, response)| !response.is_object()) {
        Some((key, _)) => {
            let detail = format!(
                "`inputResponses` must have an object for {key:?}, the result of its request"
            );
            Err(ErrorData::invalid_params(detail, None))
        }
        None => Ok(()),
    }
}

/// What a client can answer, without the settings of its capabilities: parsed, they can be large.
pub(in crate::mcp) fn without_settings(declared: ClientCapabilities) -> ClientCapabilities {
    let mut capabilities = ClientCapabilities::default();
    capabilities.elicitation = declared.elicitation;
    capabilities.sampling = declared.sampling.map(|_| SamplingCapability::default());
    capabilities.roots = declared.roots;
    capabilities
}

const fn can_answer(capabilities: &ClientCapabilities, request: &InputRequest) -> bool {
    match request {
        InputRequest::Elicitation(_) => capabilities.elicitation.is_some(),
        InputRequest::CreateMessage(_) => capabilities.sampling.is_some(),
        InputRequest::ListRoots(_) => capabilities.roots.is_some(),
        _ => false,
    }
}

fn missing_capabilities<'a>(
    capabilities: &ClientCapabilities,
    requests: impl Iterator<Item = &'a InputRequest>,
) -> ClientCapabilities {
    let mut missing = ClientCapabilities::default();
    for request in requests.filter(|request| !can_answer(capabilities, request)) {
        match request {
            InputRequest::Elicitation(_) => missing.elicitation = Some(Default::default()),
            InputRequest::CreateMessage(_) => missing.sampling = Some(Default::default()),
            InputRequest::ListRoots(_) => missing.roots = Some(Default::default()),
            _ => {}
        }
    }
    missing
}
