//! Creation of elements with an idempotency key.

use serde::de::DeserializeOwned;

use crate::{
    api::{Api, ApiArguments, ApiError},
    exit::{self, Failure},
    output::FormatArguments,
};

/// Arguments of `create` subcommands.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArguments {
    /// Makes retries safe: within 24 hours, a repetition with the same key creates nothing.
    /// Default: a random key
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    pub(crate) format: FormatArguments,
    #[command(flatten)]
    api: ApiArguments,
}

/// A client with the idempotency key of a creation.
pub(crate) struct KeyedApi {
    /// The client.
    pub(crate) api: Api,
    /// The idempotency key.
    pub(crate) key: String,
}

impl CreateArguments {
    /// Connects with the given key, or a random one.
    pub(crate) fn begin(&self) -> Result<KeyedApi, Failure> {
        Ok(self.with(self.api.connect()?))
    }

    /// The client with the given key, or a random one.
    pub(crate) fn with(&self, api: Api) -> KeyedApi {
        let random = || format!("{:032x}", rand::random::<u128>());
        KeyedApi {
            api,
            key: self.idempotency_key.clone().unwrap_or_else(random),
        }
    }
}

impl KeyedApi {
    /// Shows the progress of a body of this size.
    pub(crate) fn with_progress(mut self, bytes: usize) -> Self {
        self.api = self.api.with_progress(bytes);
        self
    }

    /// Creates an element. If there is no response, prints how to repeat the request safely.
    pub(crate) async fn create<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, Failure> {
        let created = self.api.create(path, body, &self.key).await;
        if let Err(ApiError::Unanswered { .. }) = &created {
            exit::print_stderr(&format!(
                "switchboard: it may have been created; to repeat the request safely, use --idempotency-key {}",
                self.key
            ));
        }
        created.map_err(Failure::general)
    }
}
