//! Configuration of embeddings.

use http::Uri;
use secrecy::SecretString;
use switchboard_runtime::outbound::parse_base_url;

/// Flags of embeddings.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct Config {
    /// Base URL of an API for embeddings, as `https://host/v1`; requests go to `/embeddings` below
    /// it. Without it, searches compare words only
    #[arg(long, env, value_name = "URL", value_parser = parse_base_url, requires = "embeddings_model")]
    pub embeddings_endpoint: Option<Uri>,

    /// Model for embeddings; after a change, everything is embedded again
    #[arg(long, env, value_name = "NAME", requires = "embeddings_endpoint")]
    pub embeddings_model: Option<String>,

    /// API key for this endpoint
    #[arg(long, env, hide_env_values = true)]
    pub embeddings_key: Option<SecretString>,
}
