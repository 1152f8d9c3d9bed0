//! What an operator sets for the control plane.
//! Never: a key in a log or in the help.

use ipnet::IpNet;
use secrecy::SecretString;

use crate::webhooks::Authorities;

/// Shorter operator keys could be guessed.
const SHORTEST_OPERATOR_KEY: usize = 16;

/// What an operator sets.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Config {
    /// Key that may create organisations, 16 characters at least; without it nobody can
    #[arg(long, env = "SWITCHBOARD_OPERATOR_KEY", hide_env_values = true, value_parser = operator_key)]
    pub operator_key: Option<SecretString>,

    /// Longest lifetime of an access token in seconds; protects against tokens that outlive whoever got them
    #[arg(
        long,
        env = "SWITCHBOARD_LONGEST_TOKEN_TTL_S",
        default_value_t = 30 * 24 * 3600,
        value_parser = clap::value_parser!(u64).range(1..=366 * 24 * 3600)
    )]
    pub longest_token_ttl_s: u64,

    /// Facts about devices written in one transaction at most; protects PostgreSQL from a reconnect storm
    #[arg(
        long,
        env = "SWITCHBOARD_FACTS_BATCH",
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u16).range(1..=10_000)
    )]
    pub facts_batch: u16,

    /// Skills books that this process reads at a time, each in a child process; 0 leaves them to others. Protects calls
    /// from documents that take much computing
    #[arg(
        long,
        env = "SWITCHBOARD_SKILLS_READERS",
        default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(0..=8)
    )]
    pub skills_readers: u8,

    /// Deliveries to webhooks that this process makes at a time; 0 leaves them to others. Protects sockets and memory
    #[arg(
        long,
        env = "SWITCHBOARD_WEBHOOKS_SENDERS",
        default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(0..=1_024)
    )]
    pub webhooks_senders: u16,

    /// Networks that webhooks may be in though they are not public, and where they may do without TLS, like `10.0.0.0/8`;
    /// without any, only public addresses over TLS. Protects what is near this server from requests made by tenants
    #[arg(
        long,
        env = "SWITCHBOARD_WEBHOOKS_ALLOW",
        value_delimiter = ',',
        value_name = "NETWORK,…"
    )]
    pub webhooks_allow: Vec<IpNet>,

    /// Certificate authorities that webhooks are trusted by, a PEM file, instead of those that the system trusts
    #[arg(long, env = "SWITCHBOARD_WEBHOOKS_CA", value_name = "FILE", value_parser = Authorities::read)]
    pub webhooks_ca: Option<Authorities>,

    /// Where texts are embedded.
    #[command(flatten)]
    pub embeddings: switchboard_embeddings::Config,

    /// Where voices of the provider `http` are made: an address, as docs/settings.md
    /// describes; without it there is no such provider
    #[arg(long, env = "SWITCHBOARD_VOICES_ENDPOINT", value_name = "URL", value_parser = endpoint)]
    pub voices_endpoint: Option<String>,

    /// What that provider wants as `Authorization: Bearer`
    #[arg(
        long,
        env = "SWITCHBOARD_VOICES_KEY",
        hide_env_values = true,
        value_name = "KEY",
        requires = "voices_endpoint"
    )]
    pub voices_key: Option<SecretString>,
}

fn endpoint(text: &str) -> Result<String, String> {
    let uri: http::Uri = text.parse().map_err(|_| "it is no URL".to_owned())?;
    let plain = matches!(uri.scheme_str(), Some("http" | "https")) && uri.query().is_none();
    let named = uri.host().is_some_and(|host| !host.is_empty());
    if plain && named && !text.contains('@') {
        return Ok(text.to_owned());
    }
    Err(
        "it must be http:// or https:// with a host and perhaps a path, and nothing behind that"
            .to_owned(),
    )
}

fn operator_key(text: &str) -> Result<SecretString, String> {
    if text.len() < SHORTEST_OPERATOR_KEY {
        return Err(format!(
            "it must have {SHORTEST_OPERATOR_KEY} characters at least"
        ));
    }
    Ok(SecretString::from(text))
}
