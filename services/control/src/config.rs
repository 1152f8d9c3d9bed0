//! What an operator sets for the control plane.
//! Never: a key in a log or in the help.

use secrecy::SecretString;

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
}

fn operator_key(text: &str) -> Result<SecretString, String> {
    if text.len() < SHORTEST_OPERATOR_KEY {
        return Err(format!(
            "it must have {SHORTEST_OPERATOR_KEY} characters at least"
        ));
    }
    Ok(SecretString::from(text))
}
