//! Sessions of browsers: a sealed cookie that stands for the credential of its sign-in.
//!
//! ```text
//!   sign-in ──► cookie ──► request: opened, checked, then as a request with the key itself
//!                 ▲               │ used 5 min ago or more
//!                 └── new cookie ─┘
//! ```
//!
//! No node stores a session. It ends 12 h after its sign-in, an hour after its last use, and with its
//! key: revoked, expired, or of a suspended organisation.
//!
//! Invariant: a session is accepted only on routes that [`Authenticator::accept_sessions`] wraps, and
//! only from pages of this installation.

mod cookie;
mod keys;
mod origin;
mod transport;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::Response,
};
use http::{Extensions, HeaderMap, HeaderValue, Method, header};
use switchboard_runtime::{clock::unix_time, problem::Problem};
use switchboard_store::Store;

use crate::{Authenticator, problems};
use cookie::Content;
use keys::SessionKeys;

pub use cookie::{Holder, KeyHash};
pub use origin::check_site;
pub use transport::Transport;

/// Requests for these carry no header of the console: elements of a page load them.
const MEDIA: [&str; 3] = ["/content", "/preview", "/export"];

/// Opens and renews sessions; cheap to clone.
#[derive(Clone)]
pub struct Sessions(Arc<SessionKeys>);

/// A session that was sent with a request, and may be used.
#[derive(Debug, Clone, Copy)]
pub struct Session {
    content: Content,
    transport: Transport,
}

/// The cookie of a request, checked. In the extensions of the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentSession(pub(crate) Result<Session, Refusal>);

/// Why a session is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too old, or not sealed by this installation.
    Expired,
    /// The request does not come from a page of this installation.
    CrossSite,
    /// The key of the cookies cannot be read.
    Unavailable,
}

impl Refusal {
    pub(crate) fn problem(self) -> Problem {
        match self {
            Self::Expired => problems::session_expired(),
            Self::CrossSite => problems::cross_site(),
            Self::Unavailable => {
                problems::unavailable("The key that seals sessions cannot be read.")
            }
        }
    }
}

impl Session {
    /// Returns the session of the request with these extensions, if it may be used.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<Self> {
        let SentSession(sent) = extensions.get()?;
        sent.ok()
    }

    /// Whether the request with these extensions was sent with a session, usable or not.
    #[must_use]
    pub fn is_sent(extensions: &Extensions) -> bool {
        extensions.get::<SentSession>().is_some()
    }

    /// Whose session it is.
    #[must_use]
    pub const fn holder(&self) -> Holder {
        self.content.holder
    }

    /// A secret of the session, the same until it ends, which is in no database.
    #[must_use]
    pub const fn secret(&self) -> &[u8; 16] {
        &self.content.id
    }

    /// When it ends at the latest, in Unix seconds.
    #[must_use]
    pub const fn ends_at(&self) -> u64 {
        self.content.ends_at()
    }
}

/// A session that begins: its cookie, and when it ends.
#[derive(Debug)]
pub struct StartedSession {
    /// `Set-Cookie`.
    pub cookie: HeaderValue,
    /// When it ends at the latest, in Unix seconds.
    pub ends_at: u64,
}

impl Sessions {
    pub(crate) fn new(store: Store) -> Self {
        Self(Arc::new(SessionKeys::new(store)))
    }

    /// Begins a session of a holder that has just been authenticated.
    ///
    /// # Errors
    /// 503 if the key that seals sessions cannot be read.
    pub async fn start(
        &self,
        holder: Holder,
        transport: Transport,
    ) -> Result<StartedSession, Problem> {
        let content = Content::new(holder, unix_time().as_secs());
        let cookie = self.cookie(&content, transport).await;
        Ok(StartedSession {
            cookie: cookie.map_err(Refusal::problem)?,
            ends_at: content.ends_at(),
        })
    }

    async fn cookie(
        &self,
        content: &Content,
        transport: Transport,
    ) -> Result<HeaderValue, Refusal> {
        let sealed = self.0.seal(&content.encode()).await?;
        let value = transport.cookie(&sealed);
        HeaderValue::try_from(value).map_err(|_| Refusal::Unavailable)
    }

    async fn read(&self, sealed: &str, transport: Transport, now: u64) -> Result<Session, Refusal> {
        let bytes = self.0.open(sealed).await?.ok_or(Refusal::Expired)?;
        let content = Content::decode(&bytes).ok_or(Refusal::Expired)?;
        if !content.is_valid_at(now) {
            return Err(Refusal::Expired);
        }
        Ok(Session { content, transport })
    }

    /// The cookie of a session that was used for a while.
    async fn renewed(&self, session: &Session, now: u64) -> Option<HeaderValue> {
        let content = session.content.renewed_at(now)?;
        self.cookie(&content, session.transport).await.ok()
    }
}

/// The headers that end a session in the browser.
pub fn cleared_cookies() -> [HeaderValue; 2] {
    [Transport::Https, Transport::Loopback].map(|transport| {
        HeaderValue::try_from(transport.cleared_cookie()).unwrap_or(HeaderValue::from_static(""))
    })
}

impl Authenticator {
    /// Begins and opens sessions.
    #[must_use]
    pub const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Lets the routes of `router` accept sessions. Other routes ignore them.
    pub fn accept_sessions<S: Clone + Send + Sync + 'static>(
        &self,
        router: Router<S>,
    ) -> Router<S> {
        router.layer(middleware::from_fn_with_state(
            self.sessions.clone(),
            accept,
        ))
    }
}

async fn accept(State(sessions): State<Sessions>, request: Request, next: Next) -> Response {
    match transport::sent_cookie(request.headers(), request.extensions()) {
        // A credential in a header is what the client means.
        Some((sealed, transport)) if !request.headers().contains_key(header::AUTHORIZATION) => {
            let sealed = sealed.to_owned();
            Box::pin(sessions.run(request, (&sealed, transport), next)).await
        }
        _ => next.run(request).await,
    }
}

impl Sessions {
    async fn run(
        &self,
        mut request: Request,
        (sealed, transport): (&str, Transport),
        next: Next,
    ) -> Response {
        let is_media = is_media(request.method(), request.uri().path());
        let now = unix_time().as_secs();
        let sent = match origin::check(request.headers(), is_media) {
            Ok(()) => self.read(sealed, transport, now).await,
            Err(refusal) => Err(refusal),
        };
        request.extensions_mut().insert(SentSession(sent));
        let mut response = next.run(request).await;
        let headers = response.headers_mut();
        let is_replaced = headers.contains_key(header::SET_COOKIE);
        if let Ok(session) = &sent
            && response.status().is_success()
            && !is_media
            && !is_replaced
            && let Some(cookie) = self.renewed(session, now).await
        {
            set_cookie(response.headers_mut(), cookie);
        }
        response
    }

    /// The session of a request whose routes another service serves, for its charge.
    pub(crate) async fn of_forwarded(&self, request_headers: &HeaderMap) -> Option<Session> {
        let (sealed, transport) = transport::any_cookie(request_headers)?;
        self.read(sealed, transport, unix_time().as_secs())
            .await
            .ok()
    }
}

/// Adds a cookie to a response, which no cache may store then.
pub fn set_cookie(headers: &mut HeaderMap, cookie: HeaderValue) {
    headers.append(header::SET_COOKIE, cookie);
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
}

fn is_media(method: &Method, path: &str) -> bool {
    let is_read = method == Method::GET || method == Method::HEAD;
    is_read && MEDIA.iter().any(|end| path.ends_with(end))
}

#[cfg(test)]
mod tests;
