//! What an operator sets of embeddings.
//! Never: a key in a log or in the help.

use http::Uri;
use secrecy::SecretString;
use switchboard_runtime::outbound::base;

/// What an operator sets.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct Config {
    /// Where embeddings are made, as `https://host/v1`: `POST` of texts to `/embeddings` below it; without it searches go
    /// by words alone
    #[arg(long, env = "SWITCHBOARD_EMBEDDINGS_ENDPOINT", value_name = "URL", value_parser = base, requires = "embeddings_model")]
    pub embeddings_endpoint: Option<Uri>,

    /// The model that makes them; another one, and everything is embedded anew
    #[arg(
        long,
        env = "SWITCHBOARD_EMBEDDINGS_MODEL",
        value_name = "NAME",
        requires = "embeddings_endpoint"
    )]
    pub embeddings_model: Option<String>,

    /// Key for that endpoint, if it wants one
    #[arg(long, env = "SWITCHBOARD_EMBEDDINGS_KEY", hide_env_values = true)]
    pub embeddings_key: Option<SecretString>,
}
