//! `Idempotency-Key`: whoever repeats a request that made something gets the first one's answer, and nothing is made.
//! Never: an answer kept for what was not made, or a secret kept in the clear.
//!
//! A route gets it by taking [`Once`] around its body, beginning with [`Ticket::begin`] and ending with
//! [`Ticket::commit`]: what is made and the answer are one transaction.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{FromRequest, Request},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header, request::Parts};
use serde::Serialize;
use sha2::{Digest, Sha256};
use switchboard_runtime::{
    idempotency,
    problem::{Problem, internal, read_whole},
};
use switchboard_store::{Creation, KeptAnswer, Owner, RequestClaim, RequestKey, Store};

use crate::{Control, access, error::ControlError, seal::Seal};

const JSON: &str = "application/json";
/// How long an answer is kept.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// A body, and the ticket under which something may be made from it once.
pub(crate) struct Once<T>(pub(crate) Ticket, pub(crate) T);

/// What makes a request the same as another one; nothing without the header.
pub(crate) struct Ticket(Option<Named>);

struct Named {
    key: RequestKey,
    fingerprint: [u8; 32],
    seal: Seal,
}

/// What is answered when something was made: 201.
pub(crate) struct Made {
    location: Option<String>,
    etag: Option<String>,
    body: Vec<u8>,
    secret: bool,
    kept: Duration,
}

impl Made {
    pub(crate) fn new(document: &impl Serialize) -> Self {
        Self {
            location: None,
            etag: None,
            body: serde_json::to_vec(document).unwrap_or_default(),
            secret: false,
            kept: REMEMBERED,
        }
    }

    /// Where it is.
    pub(crate) fn at(mut self, location: String) -> Self {
        self.location = Some(location);
        self
    }

    /// In which version.
    pub(crate) fn tagged(mut self, etag: String) -> Self {
        self.etag = Some(etag);
        self
    }

    /// It holds a secret, which is kept sealed and in no cache.
    pub(crate) const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// It says nothing of use any more after this time.
    pub(crate) fn for_at_most(mut self, kept: Duration) -> Self {
        self.kept = self.kept.min(kept);
        self
    }
}

impl<T> FromRequest<Arc<Control>> for Once<T>
where
    T: FromRequest<Arc<Control>, Rejection = Problem>,
{
    type Rejection = ControlError;

    async fn from_request(request: Request, control: &Arc<Control>) -> Result<Self, ControlError> {
        let Some(key) = idempotency::key(request.headers())?.map(str::to_owned) else {
            let body = T::from_request(request, control).await?;
            return Ok(Self(Ticket(None), body));
        };
        let (mut head, body) = read_whole(request).await?;
        let named = Named::new(&mut head, &body, &key, control).await?;
        if let Some(kept) = control.store.kept_answer(&named.key).await? {
            return Err(named.answered(kept));
        }
        let request = Request::from_parts(head, Body::from(body));
        let body = T::from_request(request, control).await?;
        Ok(Self(Ticket(Some(named)), body))
    }
}

impl Ticket {
    /// Begins to make what the request asks for, unless it was made before or is being made.
    pub(crate) async fn begin(
        &self,
        store: &Store,
        owner: impl Into<Owner>,
    ) -> Result<Creation, ControlError> {
        let mut creation = store.begin(owner).await?;
        let Some(named) = &self.0 else {
            return Ok(creation);
        };
        match creation.claim(&named.key).await? {
            RequestClaim::Free => Ok(creation),
            RequestClaim::Busy => Err(in_progress().into()),
            RequestClaim::Answered(kept) => Err(named.answered(*kept)),
        }
    }

    /// Makes it last, together with the answer.
    pub(crate) async fn commit(
        self,
        mut creation: Creation,
        made: Made,
    ) -> Result<Response, ControlError> {
        if let Some(named) = &self.0 {
            let kept = named.kept(&made)?;
            creation.keep(&named.key, &kept, made.kept).await?;
        }
        creation.commit().await?;
        Ok(response(
            (made.location, made.etag),
            JSON,
            made.body,
            made.secret,
        ))
    }
}

impl Named {
    /// The key is the caller's own: an API key's, or a token's subject's, which outlives the token. Hashed, so that
    /// others can neither guess nor meet it.
    async fn new(
        head: &mut Parts,
        body: &[u8],
        key: &str,
        control: &Control,
    ) -> Result<Self, Problem> {
        let (owner, caller) = access::who(head, control).await?;
        let target = head
            .uri
            .path_and_query()
            .map_or("", |target| target.as_str());
        Ok(Self {
            key: RequestKey {
                owner,
                hash: hash(&[
                    owner.to_string().as_bytes(),
                    caller.as_bytes(),
                    key.as_bytes(),
                ]),
            },
            fingerprint: hash(&[head.method.as_str().as_bytes(), target.as_bytes(), body]),
            seal: Seal::new(&head.headers, key),
        })
    }

    fn kept(&self, made: &Made) -> Result<KeptAnswer, Problem> {
        let body = if made.secret {
            self.seal.close(&made.body).ok_or_else(internal)?
        } else {
            made.body.clone()
        };
        Ok(KeptAnswer {
            fingerprint: self.fingerprint.to_vec(),
            status: StatusCode::CREATED.as_u16(),
            location: made.location.clone(),
            etag: made.etag.clone(),
            media_type: JSON.to_owned(),
            body,
            sealed: made.secret,
        })
    }

    /// The answer to a request whose key was used before.
    fn answered(&self, kept: KeptAnswer) -> ControlError {
        if kept.fingerprint != self.fingerprint {
            return reused().into();
        }
        let body = if kept.sealed {
            match self.seal.open(&kept.body) {
                Some(body) => body,
                None => return sealed().into(),
            }
        } else {
            kept.body
        };
        let headers = (kept.location, kept.etag);
        let mut response = response(headers, &kept.media_type, body, kept.sealed);
        *response.status_mut() =
            StatusCode::from_u16(kept.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        ControlError::Answered(Box::new(idempotency::replayed(response)))
    }
}

fn response(
    (location, etag): (Option<String>, Option<String>),
    media_type: &str,
    body: Vec<u8>,
    secret: bool,
) -> Response {
    let mut response = (StatusCode::CREATED, body).into_response();
    let cache = secret.then(|| "no-store".to_owned());
    let headers = [
        (header::CONTENT_TYPE, Some(media_type.to_owned())),
        (header::LOCATION, location),
        (header::ETAG, etag),
        (header::CACHE_CONTROL, cache),
    ];
    for (name, value) in headers {
        if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// A length before each part, so that no two lists of parts run into the same bytes.
fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

fn reused() -> Problem {
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "idempotency_key_reused",
        "Idempotency key reused",
        "This Idempotency-Key was used for another request; a new request needs a new key.",
    )
}

fn in_progress() -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "request_in_progress",
        "Request in progress",
        "The request with this Idempotency-Key is under way; repeat it for its answer.",
    )
    .header(header::RETRY_AFTER, 1)
}

fn sealed() -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "idempotency_answer_sealed",
        "Answer sealed",
        "This was done, and its answer holds a secret: only the very credential that it was given to reads it again.",
    )
}
