//! The servers that the database URL names, and which of them is the primary.
//! Invariant: no connection to a server in recovery is used: it rejects writes, and its rows are old.

#[cfg(test)]
mod tests;

use std::{str::FromStr, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};

use super::{STATEMENT_TIMEOUT, tls};

/// How long a server may take to answer whether it is the primary.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Settings of libpq that ask for what is always required here.
const IMPLIED: [&str; 2] = [
    "target_session_attrs=primary",
    "target_session_attrs=read-write",
];

/// A new connection leads to a standby.
#[derive(Debug, thiserror::Error)]
#[error("the server is in recovery: it is a standby, not the primary")]
struct IsStandby;

/// A primary and its standbys, in the order of the URL.
#[derive(Debug, Clone)]
pub(crate) struct Servers {
    first: PgConnectOptions,
    others: Arc<[PgConnectOptions]>,
}

impl Servers {
    /// Parses a URL with one host, or with several that are separated by commas.
    pub(super) fn parse(url: &str) -> Result<Self, sqlx::Error> {
        let mut all = Vec::new();
        for url in urls(url) {
            let options = tls::require_tls(PgConnectOptions::from_str(&url)?, &url);
            let timeout = STATEMENT_TIMEOUT.as_millis().to_string();
            all.push(
                options
                    .application_name("switchboard")
                    .options([("statement_timeout", timeout)]),
            );
        }
        let first = all.remove(0);
        let others = all.into();
        Ok(Self { first, others })
    }

    pub(super) const fn first(&self) -> &PgConnectOptions {
        &self.first
    }

    pub(super) fn are_several(&self) -> bool {
        !self.others.is_empty()
    }

    /// The server that is the primary; of several, the one that answers first. `None` without a
    /// question if there is only one server.
    pub(super) async fn find_primary(&self) -> Option<&PgConnectOptions> {
        if !self.are_several() {
            return None;
        }
        let all = std::iter::once(&self.first).chain(&*self.others);
        let mut answers: FuturesUnordered<_> = all
            .map(|options| async move { is_primary(options).await.then_some(options) })
            .collect();
        while let Some(answer) = answers.next().await {
            if answer.is_some() {
                return answer;
            }
        }
        None
    }
}

async fn is_primary(options: &PgConnectOptions) -> bool {
    let probe = async {
        let mut connection = PgConnection::connect_with(options).await?;
        refuse_standby(&mut connection).await?;
        connection.close().await
    };
    matches!(tokio::time::timeout(PROBE_TIMEOUT, probe).await, Ok(Ok(())))
}

/// Fails if the connection leads to a standby.
pub(super) async fn refuse_standby(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let in_recovery = sqlx::query_scalar("SELECT pg_is_in_recovery()");
    match in_recovery.fetch_one(connection).await? {
        false => Ok(()),
        true => Err(sqlx::Error::Configuration(Box::new(IsStandby))),
    }
}

/// The URL of each server.
fn urls(url: &str) -> Vec<String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (credentials, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let settings = query
        .split('&')
        .filter(|setting| !IMPLIED.contains(setting));
    let settings = settings.collect::<Vec<_>>().join("&");
    let hosts = hosts.split(',');
    hosts
        .map(|host| format!("{scheme}://{credentials}{host}{path}?{settings}"))
        .collect()
}
