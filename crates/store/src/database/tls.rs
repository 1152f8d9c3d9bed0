//! TLS to PostgreSQL: required for a server on another host, unless the URL sets `sslmode`.

use std::net::IpAddr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// Requires TLS unless the server is local or the configuration chose a mode.
///
/// PostgreSQL's default, `prefer`, continues without TLS when the server, or an attacker on the
/// path, declines it.
pub(super) fn require_tls(options: PgConnectOptions, url: &str) -> PgConnectOptions {
    let is_default = matches!(options.get_ssl_mode(), PgSslMode::Prefer) && !names_mode(url);
    if !is_default || is_local(&options) {
        return options;
    }
    options.ssl_mode(PgSslMode::Require)
}

/// Whether the URL sets `sslmode`, even to its default.
fn names_mode(url: &str) -> bool {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    query.split('&').any(|parameter| {
        let name = parameter
            .split_once('=')
            .map_or(parameter, |(name, _)| name);
        name == "sslmode" || name == "ssl-mode"
    })
}

fn is_local(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    options.get_socket().is_some()
        || host.starts_with('/')
        || host == "localhost"
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_required_for_another_host() {
        fn check(url: &str, mode: PgSslMode) {
            let options = require_tls(url.parse().unwrap(), url);
            let found = options.get_ssl_mode();
            assert_eq!(format!("{found:?}"), format!("{mode:?}"), "{url}");
        }
        check("postgres://u:p@db.example.com/db", PgSslMode::Require);
        check(
            "postgres://u:p@10.0.0.1/db?application_name=a",
            PgSslMode::Require,
        );
        check(
            "postgres://u:p@postgres/db?sslmode=disable",
            PgSslMode::Disable,
        );
        check(
            "postgres://u:p@postgres/db?sslmode=prefer",
            PgSslMode::Prefer,
        );
        check(
            "postgres://u:p@db/db?sslmode=verify-full",
            PgSslMode::VerifyFull,
        );
        check("postgres://u:p@localhost/db", PgSslMode::Prefer);
        check("postgres://u:p@127.0.0.1:5433/db", PgSslMode::Prefer);
        check("postgres://u:p@[::1]/db", PgSslMode::Prefer);
        check(
            "postgres://u@localhost/db?host=/run/postgresql",
            PgSslMode::Prefer,
        );
    }
}
