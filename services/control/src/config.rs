//! Configuration of the control plane.
//!
//! Invariant: no key is written to a log or to the help text.

use std::num::NonZeroU32;

use ipnet::IpNet;
use secrecy::SecretString;
use switchboard_protocol::token::MAX_TTL_S;

use crate::{quotas::QuotaConfig, workers::webhooks::Authorities};

/// The minimum length of the operator key. Shorter keys could be guessed.
const MIN_OPERATOR_KEY_CHARS: usize = 16;

/// Configuration of the control plane.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Config {
    /// Key that may create, list and suspend organisations and set their quotas, at least 16
    /// characters. Without it, none can be created
    #[arg(long, env, hide_env_values = true, value_parser = operator_key)]
    pub operator_key: Option<SecretString>,

    /// Maximum lifetime of an access token in seconds. Limits how long a leaked token is valid
    #[arg(
        long,
        env,
        default_value_t = 30 * 24 * 3600,
        value_parser = clap::value_parser!(u64).range(1..=MAX_TTL_S)
    )]
    pub longest_token_ttl_s: u64,

    /// The quotas of organisations.
    #[command(flatten)]
    pub quotas: QuotaConfig,

    /// Sustained rate of requests for settings and tokens of one organisation, by all its keys;
    /// protects PostgreSQL and other organisations
    #[arg(long, env, default_value = "1000", value_name = "COUNT")]
    pub control_org_rate_per_s: NonZeroU32,

    /// Burst of requests for settings and tokens of one organisation after a pause
    #[arg(long, env, default_value = "3000", value_name = "COUNT")]
    pub control_org_burst: NonZeroU32,

    /// Maximum number of device events per transaction. Protects PostgreSQL from a reconnect storm
    #[arg(
        long,
        env,
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u16).range(1..=10_000)
    )]
    pub facts_batch: u16,

    /// Number of skills books that this process parses concurrently, each in a child process, at
    /// most a quarter of them of one organisation; 0 leaves them to other processes. Protects calls
    /// from documents that need much CPU
    #[arg(
        long,
        env,
        default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(0..=8)
    )]
    pub skills_readers: u8,

    /// Number of concurrent deliveries to webhooks, at most a quarter of them for one organisation;
    /// 0 leaves them to other processes. Protects sockets and memory
    #[arg(
        long,
        env,
        default_value_t = 256,
        value_parser = clap::value_parser!(u16).range(0..=1_024)
    )]
    pub webhooks_senders: u16,

    /// Which webhooks are reached.
    #[command(flatten)]
    pub webhooks: WebhookConfig,

    /// The endpoint that embeds texts.
    #[command(flatten)]
    pub embeddings: switchboard_embeddings::Config,

    /// URL of the voice provider `http`, as described in docs/settings.md. Without it, there is no
    /// such provider
    #[arg(long, env, value_name = "URL", value_parser = endpoint)]
    pub voices_endpoint: Option<String>,

    /// Key for that provider, sent as `Authorization: Bearer`
    #[arg(
        long,
        env,
        hide_env_values = true,
        value_name = "KEY",
        requires = "voices_endpoint"
    )]
    pub voices_key: Option<SecretString>,

    /// URL of the voice provider `openai`, which has an API like OpenAI's, such as
    /// `https://api.openai.com/v1`. Without it, there is no such provider
    #[arg(long, env, value_name = "URL", value_parser = endpoint)]
    pub voices_openai_endpoint: Option<String>,

    /// Key for that provider, sent as `Authorization: Bearer`
    #[arg(
        long,
        env,
        hide_env_values = true,
        value_name = "KEY",
        requires = "voices_openai_endpoint"
    )]
    pub voices_openai_key: Option<SecretString>,

    /// Id of the recorded consent that OpenAI demands for a voice. By default the id of the voice,
    /// with which its consent is stored here
    #[arg(long, env, value_name = "ID", requires = "voices_openai_endpoint")]
    pub voices_openai_consent: Option<String>,
}

/// Which webhooks are reached.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct WebhookConfig {
    /// Non-public networks where webhooks are allowed, with or without TLS, such as `10.0.0.0/8`.
    /// By default, webhooks need a public address and TLS. Protects internal services from requests
    /// that tenants trigger
    #[arg(long, env, value_delimiter = ',', value_name = "NETWORK,…")]
    pub webhooks_allow: Vec<IpNet>,

    /// PEM file with the certificate authorities for webhooks, instead of those of the system
    #[arg(long, env, value_name = "FILE", value_parser = Authorities::read)]
    pub webhooks_ca: Option<Authorities>,
}

fn endpoint(text: &str) -> Result<String, String> {
    let uri: http::Uri = text.parse().map_err(|_| "it is not a URL".to_owned())?;
    let is_plain = matches!(uri.scheme_str(), Some("http" | "https")) && uri.query().is_none();
    let has_host = uri.host().is_some_and(|host| !host.is_empty());
    if is_plain && has_host && !text.contains('@') {
        return Ok(text.to_owned());
    }
    Err(
        "it must be http:// or https:// with a host and optionally a path, without query and user"
            .to_owned(),
    )
}

fn operator_key(text: &str) -> Result<SecretString, String> {
    if text.len() < MIN_OPERATOR_KEY_CHARS {
        return Err(format!(
            "it must have at least {MIN_OPERATOR_KEY_CHARS} characters"
        ));
    }
    Ok(SecretString::from(text))
}
