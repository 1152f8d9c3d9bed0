//! `Idempotency-Key`: a repeated request gets the response of the first one, and creates nothing.
//!
//! A route takes [`Idempotent`] around its body, begins with [`IdempotencyGuard::begin`] and ends
//! with [`IdempotencyGuard::commit`].
//! Invariant: the created rows and the stored response are one transaction.

#[cfg(test)]
mod compatibility;

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{FromRequest, Request},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header, request::Parts};
use serde::Serialize;
use sha2::{Digest, Sha256};
use switchboard_identity::Seal;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::{
    idempotency,
    problem::{Problem, ProblemKind, internal, read_body},
    quota::Quota,
};
use switchboard_store::{
    Owner, RequestClaim, RequestKey, Store, StoredResponse, TenantTransaction,
};

use super::{auth, error::ControlError, response};
use crate::Control;

const JSON: &str = "application/json";
/// How long a response is stored.
const RESPONSE_TTL: Duration = Duration::from_secs(24 * 3600);

/// A request body, and the guard that lets the request create something at most once.
pub(crate) struct Idempotent<T>(pub(crate) IdempotencyGuard, pub(crate) T);

/// Makes a request idempotent. Without the header it does nothing.
pub(crate) struct IdempotencyGuard(Option<KeyedRequest>);

/// A request with an `Idempotency-Key`.
struct KeyedRequest {
    key: RequestKey,
    /// The hash of method, target and body.
    fingerprint: [u8; 32],
    seal: Seal,
    control: Arc<Control>,
}

/// The response to a request that created something: 201.
pub(crate) struct Created {
    location: Option<String>,
    etag: Option<String>,
    body: Vec<u8>,
    secret: bool,
    ttl: Duration,
}

impl Created {
    pub(crate) fn new(view: &impl Serialize) -> Self {
        Self {
            location: None,
            etag: None,
            body: response::to_bytes(view),
            secret: false,
            ttl: RESPONSE_TTL,
        }
    }

    /// With the path of what was created.
    pub(crate) fn location(mut self, location: String) -> Self {
        self.location = Some(location);
        self
    }

    /// With this entity tag.
    pub(crate) fn etag(mut self, etag: String) -> Self {
        self.etag = Some(etag);
        self
    }

    /// The body holds a secret: it is stored sealed, and sent with `Cache-Control: no-store`.
    pub(crate) const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// The response is of no use after this time, so it is stored no longer.
    pub(crate) fn max_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = self.ttl.min(ttl);
        self
    }
}

impl<T> FromRequest<Arc<Control>> for Idempotent<T>
where
    T: FromRequest<Arc<Control>, Rejection = Problem>,
{
    type Rejection = ControlError;

    async fn from_request(request: Request, control: &Arc<Control>) -> Result<Self, ControlError> {
        let (guard, request) = IdempotencyGuard::new(request, control).await?;
        let body = T::from_request(request, control).await?;
        Ok(Self(guard, body))
    }
}

impl IdempotencyGuard {
    /// Reads the key. Fails with the stored response when the request was processed before, and when
    /// the organisation is at its quota of stored results.
    async fn new(
        request: Request,
        control: &Arc<Control>,
    ) -> Result<(Self, Request), ControlError> {
        let Some(key) = idempotency::key(request.headers())?.map(str::to_owned) else {
            return Ok((Self(None), request));
        };
        let (mut head, body) = read_body(request).await?;
        let keyed = KeyedRequest::new(&mut head, &body, &key, control).await?;
        if let Some(stored) = control.store.stored_response(&keyed.key).await? {
            return Err(keyed.replay(stored));
        }
        let owner = keyed.key.owner;
        let one_byte = [(Quota::StoredResultBytes, 1)];
        control.admit(owner, &one_byte).await?;
        let request = Request::from_parts(head, Body::from(body));
        Ok((Self(Some(keyed)), request))
    }

    /// Begins the transaction in which the request creates something. Fails when the request was
    /// processed before, or is in progress.
    pub(crate) async fn begin(
        &self,
        store: &Store,
        owner: Owner,
    ) -> Result<TenantTransaction, ControlError> {
        self.claim(store.begin(owner).await?).await
    }

    /// Like [`IdempotencyGuard::begin`], for a request that locks the row of its organisation.
    pub(crate) async fn begin_in_turn(
        &self,
        store: &Store,
        org: OrgId,
    ) -> Result<TenantTransaction, ControlError> {
        self.claim(store.begin_in_turn(org).await?).await
    }

    async fn claim(
        &self,
        mut creation: TenantTransaction,
    ) -> Result<TenantTransaction, ControlError> {
        let Some(keyed) = &self.0 else {
            return Ok(creation);
        };
        match creation.claim_request(&keyed.key).await? {
            RequestClaim::Free => Ok(creation),
            RequestClaim::Busy => Err(in_progress().into()),
            RequestClaim::Completed(stored) => Err(keyed.replay(*stored)),
        }
    }

    /// Commits the transaction together with the response.
    pub(crate) async fn commit(
        self,
        mut creation: TenantTransaction,
        created: Created,
    ) -> Result<Response, ControlError> {
        if let Some(keyed) = &self.0 {
            let stored = keyed.stored(&created)?;
            creation
                .store_response(&keyed.key, &stored, created.ttl)
                .await?;
            creation.commit().await?;
            keyed.count(stored.body.len()).await;
        } else {
            creation.commit().await?;
        }
        Ok(response(
            (created.location, created.etag),
            JSON,
            created.body,
            created.secret,
        ))
    }
}

impl KeyedRequest {
    /// The key belongs to the caller: to an API key, or to the subject of a token, which outlives
    /// the token. It is hashed together with them, so other callers can neither guess nor meet it.
    async fn new(
        head: &mut Parts,
        body: &[u8],
        key: &str,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        let (owner, actor) = auth::identify(head, control).await?;
        let target = head
            .uri
            .path_and_query()
            .map_or("", |target| target.as_str());
        Ok(Self {
            key: RequestKey {
                owner,
                hash: hash(&[
                    owner.to_string().as_bytes(),
                    actor.as_bytes(),
                    key.as_bytes(),
                ]),
            },
            fingerprint: hash(&[head.method.as_str().as_bytes(), target.as_bytes(), body]),
            seal: Seal::for_credential(&auth::secret_of(head), key),
            control: Arc::clone(control),
        })
    }

    /// Counts a response of this length that was stored.
    async fn count(&self, bytes: usize) {
        if let Owner::Org(org) = self.key.owner {
            let quotas = self.control.authenticator.quotas();
            quotas.add(org, Quota::StoredResultBytes, bytes).await;
        }
    }

    fn stored(&self, created: &Created) -> Result<StoredResponse, Problem> {
        let body = if created.secret {
            self.seal.seal(&created.body).ok_or_else(internal)?
        } else {
            created.body.clone()
        };
        Ok(StoredResponse {
            fingerprint: self.fingerprint.to_vec(),
            status: StatusCode::CREATED.as_u16(),
            location: created.location.clone(),
            etag: created.etag.clone(),
            media_type: JSON.to_owned(),
            body,
            sealed: created.secret,
        })
    }

    /// The stored response, or the problem when it belongs to another request or is sealed.
    fn replay(&self, stored: StoredResponse) -> ControlError {
        if stored.fingerprint != self.fingerprint {
            return key_reused().into();
        }
        let body = if stored.sealed {
            match self.seal.unseal(&stored.body) {
                Some(body) => body,
                None => return sealed().into(),
            }
        } else {
            stored.body
        };
        let headers = (stored.location, stored.etag);
        let mut response = response(headers, &stored.media_type, body, stored.sealed);
        *response.status_mut() =
            StatusCode::from_u16(stored.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        ControlError::Replayed(Box::new(idempotency::mark_replayed(response)))
    }
}

fn response(
    (location, etag): (Option<String>, Option<String>),
    media_type: &str,
    body: Vec<u8>,
    secret: bool,
) -> Response {
    let mut response = (StatusCode::CREATED, body).into_response();
    let cache_control = secret.then(|| "no-store".to_owned());
    let headers = [
        (header::CONTENT_TYPE, Some(media_type.to_owned())),
        (header::LOCATION, location),
        (header::ETAG, etag),
        (header::CACHE_CONTROL, cache_control),
    ];
    for (name, value) in headers {
        if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// The length of each part is hashed too: different lists of parts never hash the same bytes.
fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

fn key_reused() -> Problem {
    Problem::new(
        ProblemKind::IdempotencyKeyReused,
        "This Idempotency-Key was used for another request; a new request needs a new key.",
    )
}

fn in_progress() -> Problem {
    Problem::new(
        ProblemKind::RequestInProgress,
        "The request with this Idempotency-Key is in progress; repeat it to get its response.",
    )
    .header(header::RETRY_AFTER, 1)
}

fn sealed() -> Problem {
    Problem::new(
        ProblemKind::IdempotencyAnswerSealed,
        "The request was processed before, and its response holds a secret. Only the credential that sent the request can read it again.",
    )
}
