//! `GET /.well-known/jwks.json`: the public keys that verify our access tokens. (RFC 7517, section 5.)
//! Never: a private key.

use std::sync::Arc;

use axum::extract::State;
use http::header;
use serde::Serialize;
use switchboard_protocol::access::VerifyingKey;

use crate::{Control, error::ControlError, signing};

/// A key is published well before it signs, so verifiers may keep the set this long.
const CACHE: &str = "public, max-age=60";

#[derive(Serialize)]
pub(crate) struct KeySet {
    keys: Vec<VerifyingKey>,
}

pub(crate) async fn show(
    State(control): State<Arc<Control>>,
) -> Result<([(header::HeaderName, &'static str); 1], axum::Json<KeySet>), ControlError> {
    let keys = signing::load(&control.store).await?.verifying;
    Ok((
        [(header::CACHE_CONTROL, CACHE)],
        axum::Json(KeySet { keys }),
    ))
}
