//! URLs with several servers, and the search for the primary among them.

use sqlx::postgres::PgSslMode;

use super::*;

#[test]
fn url_names_one_server_or_several() {
    fn check(url: &str, expected: &[&str]) {
        let servers = Servers::parse(url).unwrap();
        let all = std::iter::once(&servers.first).chain(&*servers.others);
        let found: Vec<_> = all
            .map(|one| format!("{}:{}", one.get_host(), one.get_port()))
            .collect();
        assert_eq!(found, expected, "{url}");
        for one in std::iter::once(&servers.first).chain(&*servers.others) {
            assert_eq!(one.get_username(), "u", "{url}");
        }
    }
    check("postgres://u@a/db", &["a:5432"]);
    check("postgres://u:p,q@a:1/db?sslmode=disable", &["a:1"]);
    check("postgres://u:p@a:1,b:2,c/db", &["a:1", "b:2", "c:5432"]);
    check("postgres://u@[::1]:1,[::2]:2/db", &["[::1]:1", "[::2]:2"]);
}

#[test]
fn every_server_has_the_settings_of_the_url() {
    let url = "postgres://u@a,127.0.0.1/db?target_session_attrs=primary&sslmode=verify-full";
    let servers = Servers::parse(url).unwrap();
    assert!(matches!(
        servers.first.get_ssl_mode(),
        PgSslMode::VerifyFull
    ));
    for (host, is_required) in [("a", true), ("127.0.0.1", false)] {
        let found = tls_of(host);
        assert_eq!(matches!(found, PgSslMode::Require), is_required, "{host}");
    }
    assert!(Servers::parse("postgres://u@a,b:port/db").is_err());
}

fn tls_of(host: &str) -> PgSslMode {
    let servers = Servers::parse(&format!("postgres://u@{host},{host}/db")).unwrap();
    servers.others[0].get_ssl_mode()
}

#[cfg(feature = "testing")]
mod database_tests {
    use secrecy::{ExposeSecret, SecretString};

    use crate::{Store, testing::TestDatabase};

    #[tokio::test]
    async fn primary_is_found_behind_a_server_that_is_away() {
        let database = TestDatabase::create().await.unwrap();
        let url = database.url().expose_secret();
        let (before, host) = url.split_once('@').unwrap();
        let store = |hosts: String| Store::open(&SecretString::from(hosts)).unwrap();
        let both = store(format!("{before}@127.0.0.1:1,{host}"));
        assert!(both.signing_keys().await.unwrap().is_empty());
        both.migrate().await.unwrap();
        let away = store(format!("{before}@127.0.0.1:1,127.0.0.1:2/none"));
        let error = away.signing_keys().await.unwrap_err();
        assert!(error.is_unavailable(), "{}", error.report());
    }
}
