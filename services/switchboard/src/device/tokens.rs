//! The token a device shows: given once, or got from the API and renewed.
//! Never: a token on the screen.

use std::time::{Duration, Instant};

use secrecy::SecretString;
use switchboard_protocol::id::DeviceId;

use crate::api::{Api, ApiError};

/// Where tokens come from.
pub(crate) struct Tokens {
    source: Source,
    current: Option<Token>,
}

enum Source {
    Given(SecretString),
    Api { api: Api, subject: String },
}

struct Token {
    secret: SecretString,
    renew_at: Instant,
}

impl Tokens {
    /// Always this one.
    pub(crate) fn given(token: SecretString) -> Self {
        Self {
            source: Source::Given(token),
            current: None,
        }
    }

    /// A new one from the API whenever the last has expired or was refused.
    pub(crate) fn renewed(api: Api, device: &DeviceId) -> Self {
        Self {
            source: Source::Api {
                api,
                subject: format!("device:{device}"),
            },
            current: None,
        }
    }

    /// The token to show now.
    ///
    /// # Errors
    /// When the API does not give one.
    pub(super) async fn current(&mut self) -> Result<SecretString, ApiError> {
        let (api, subject) = match &self.source {
            Source::Given(token) => return Ok(token.clone()),
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
        // Renewed before the end, so that a token does not expire on its way.
        let lasts = Duration::from_secs(issued.expires_in).mul_f32(0.9);
        let token = Token {
            secret: issued.access_token,
            renew_at: Instant::now() + lasts,
        };
        Ok(self.current.insert(token).secret.clone())
    }

    /// The server did not take the last one.
    pub(super) fn refused(&mut self) {
        self.current = None;
    }
}
