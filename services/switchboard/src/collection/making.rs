//! How an element is made: once for each key, however often it is asked for.
//! Never: a request that makes something and has no key.

use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    api::{Api, ApiArguments, ApiError},
    exit::{self, Failure},
};

/// How something is made.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArguments {
    /// Makes repeating safe: the same key within 24 hours makes nothing twice; another one each time when not set
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    api: ApiArguments,
}

/// Something on its way to being made.
pub(crate) struct Making {
    /// Who is asked.
    pub(crate) api: Api,
    /// Under which key.
    pub(crate) key: String,
}

/// What was made.
#[derive(Deserialize)]
struct Made {
    id: String,
}

impl CreateArguments {
    /// Makes something from this body and prints its id.
    pub(crate) async fn make(&self, path: &str, body: Vec<u8>) -> Result<(), Failure> {
        let made: Made = self.begin()?.made(path, body).await?;
        exit::print(&made.id)
    }

    /// Begins under the key that was given, or one that nobody else has.
    pub(crate) fn begin(&self) -> Result<Making, Failure> {
        let random = || format!("{:032x}", rand::random::<u128>());
        Ok(Making {
            api: self.api.connect()?,
            key: self.idempotency_key.clone().unwrap_or_else(random),
        })
    }
}

impl Making {
    /// What is made from this body; how to repeat it safely is said when there is no answer.
    pub(crate) async fn made<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, Failure> {
        let made = self.api.make(path, body, &self.key).await;
        if let Err(ApiError::Unreachable { .. }) = &made {
            exit::say(&format!(
                "switchboard: it may have been made; repeat it safely with --idempotency-key {}",
                self.key
            ));
        }
        made.map_err(Failure::general)
    }
}
