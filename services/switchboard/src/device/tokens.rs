//! Access tokens of a device: a fixed one, or issued by the API and renewed. With the latest resume
//! ticket, which is in memory only.

use std::time::{Duration, Instant};

use secrecy::SecretString;
use switchboard_protocol::{
    id::DeviceId,
    message::{AuthAccepted, ResumeTicket},
};

use crate::api::{Api, ApiError};

/// A source of access tokens.
pub(crate) struct Tokens {
    source: Source,
    current: Option<Token>,
    ticket: Option<ResumeTicket>,
}

enum Source {
    Fixed(SecretString),
    Api { api: Api, subject: String },
}

struct Token {
    secret: SecretString,
    renew_at: Instant,
}

impl Tokens {
    /// Always returns this token.
    pub(crate) fn fixed(token: SecretString) -> Self {
        Self {
            source: Source::Fixed(token),
            current: None,
            ticket: None,
        }
    }

    /// Issues tokens with the API and renews them after expiry or rejection.
    pub(crate) fn renewed(api: Api, device: &DeviceId) -> Self {
        Self {
            source: Source::Api {
                api,
                subject: format!("device:{device}"),
            },
            current: None,
            ticket: None,
        }
    }

    /// Returns the current token.
    ///
    /// # Errors
    /// When the API does not issue one.
    pub(super) async fn current(&mut self) -> Result<SecretString, ApiError> {
        let (api, subject) = match &self.source {
            Source::Fixed(token) => return Ok(token.clone()),
            Source::Api { api, subject } => (api, subject),
        };
        if let Some(token) = self
            .current
            .as_ref()
            .filter(|token| Instant::now() < token.renew_at)
        {
            return Ok(token.secret.clone());
        }
        let issued = api.token(subject, &["device".to_owned()], None).await?;
        // Renewed early, so that the token is valid when it arrives.
        let lasts = Duration::from_secs(issued.expires_in).mul_f32(0.9);
        let token = Token {
            secret: issued.access_token,
            renew_at: Instant::now() + lasts,
        };
        Ok(self.current.insert(token).secret.clone())
    }

    /// Returns the ticket that spares the server the check of the token, if it has issued one. The
    /// server ignores one that has expired, or is for a former token.
    pub(super) fn ticket(&self) -> Option<ResumeTicket> {
        self.ticket.clone()
    }

    /// Keeps the ticket of a connection.
    pub(super) fn keep_ticket(&mut self, welcome: &AuthAccepted) {
        self.ticket.clone_from(&welcome.ticket);
    }

    /// Discards a token that the server rejected.
    pub(super) fn invalidate(&mut self) {
        self.current = None;
        self.ticket = None;
    }
}
