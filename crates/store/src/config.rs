//! How a process reaches its database.
//! Never: the database's password in a log, an error or the help.

use secrecy::SecretString;

/// What an operator sets.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Config {
    /// PostgreSQL 15 or newer, as `postgres://user[:password]@host[:port]/database`
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<SecretString>,

    /// Connections to PostgreSQL that this process may open; protects the server's `max_connections`, which all processes share
    #[arg(
        long,
        env = "SWITCHBOARD_DATABASE_CONNECTIONS",
        default_value_t = Config::DEFAULT_CONNECTIONS,
        value_parser = clap::value_parser!(u32).range(1..=1_000)
    )]
    pub database_connections: u32,
}

impl Config {
    /// How many connections a process opens unless it is told otherwise.
    pub const DEFAULT_CONNECTIONS: u32 = 10;
}
