//! Configuration of the database connections.
//! Invariant: the password does not appear in logs, errors or help texts.

use secrecy::SecretString;

/// Configuration of the database connections.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Config {
    /// PostgreSQL 15 or newer, as `postgres://user[:password]@host[:port]/database`; several hosts,
    /// separated by commas, are a primary and its standbys
    #[arg(long, env, hide_env_values = true)]
    pub database_url: Option<SecretString>,

    /// Maximum number of connections of this process to PostgreSQL, at most four fifths of them
    /// for one organisation; all processes share the server's `max_connections`
    #[arg(
        long,
        env,
        default_value_t = Config::DEFAULT_CONNECTIONS,
        value_parser = clap::value_parser!(u32).range(1..=1_000)
    )]
    pub database_connections: u32,
}

impl Config {
    /// The default number of connections.
    pub const DEFAULT_CONNECTIONS: u32 = 10;
}
