//! `GET /.well-known/jwks.json`: the public keys that verify access tokens (RFC 7517, section 5).
//!
//! Invariant: a request, which needs no credential, does not reach the database.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::header;
use serde::Serialize;
use switchboard_protocol::token::VerifyingKey;
use switchboard_runtime::problem::{Problem, ProblemKind};
use utoipa::ToSchema;

use crate::Control;

/// A key is published well before it signs, so verifiers may cache the set this long.
const CACHE_CONTROL: &str = "public, max-age=60";

/// The public keys that verify access tokens (RFC 7517, section 5).
#[derive(Serialize, ToSchema)]
#[schema(as = JsonWebKeySet)]
pub(crate) struct KeySet<'a> {
    /// All keys that may have signed a token that is still valid.
    #[schema(value_type = Vec<JsonWebKey>, max_items = 100)]
    keys: &'a [VerifyingKey],
}

/// A public key (RFC 8037, section 2).
#[derive(ToSchema)]
#[expect(
    dead_code,
    reason = "the schema of `VerifyingKey` in the OpenAPI document"
)]
struct JsonWebKey {
    /// The key type.
    #[schema(pattern = "^OKP$", example = "OKP")]
    kty: String,
    /// The curve.
    #[schema(pattern = "^Ed25519$", example = "Ed25519")]
    crv: String,
    /// The key id: the first 16 hexadecimal digits of the SHA-256 of the key.
    #[schema(pattern = "^[0-9a-f]{16}$", example = "0123456789abcdef")]
    kid: String,
    /// The key in base64url.
    #[schema(
        pattern = "^[A-Za-z0-9_-]{43}$",
        example = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    )]
    x: String,
}

/// Gets the public keys that verify access tokens.
#[utoipa::path(
    get, path = "/.well-known/jwks.json", tag = "Tokens", operation_id = "getKeySet",
    security(()),
    responses((status = 200, body = KeySet, description = "The keys", headers(("Cache-Control" = String, description = "How long the keys may be cached")))),
    extensions(("x-problems" = json!(["store_unavailable"]))),
)]
pub(crate) async fn get(State(control): State<Arc<Control>>) -> Result<Response, Problem> {
    let keys = control.public_keys.get().ok_or_else(not_loaded)?;
    let headers = [(header::CACHE_CONTROL, CACHE_CONTROL)];
    Ok((headers, axum::Json(KeySet { keys: &keys })).into_response())
}

fn not_loaded() -> Problem {
    Problem::new(
        ProblemKind::SettingsUnavailable,
        "This process has not loaded the keys yet. Try again in a moment.",
    )
    .header(header::RETRY_AFTER, 1)
}
