//! Settings from every source, and the errors of invalid ones.

use std::io::Write;

use clap::{Args, Subcommand};
use secrecy::ExposeSecret;
use tempfile::NamedTempFile;

use super::*;

// A test cannot set environment variables safely, so it uses some that cargo sets.
const ENV_NAME: &str = "CARGO_PKG_NAME";
const ENV_VERSION: &str = "CARGO_PKG_VERSION";

#[derive(Debug, Parser)]
#[command(name = "switchboard", version = "9.9")]
struct Cli {
    #[command(subcommand)]
    command: Run,
}

#[derive(Debug, Subcommand)]
enum Run {
    Edge(Edge),
    Gateway(Gateway),
}

#[derive(Debug, Args)]
struct Edge {
    #[arg(long, default_value = "0.0.0.0:7700")]
    device_listen: String,
    #[arg(long, default_value_t = 64)]
    calls_per_device: u16,
    #[arg(long, alias = "severe")]
    strict: bool,
    #[arg(long)]
    label: Vec<String>,
    #[arg(long)]
    secret: Option<SecretString>,
    #[arg(long, env = ENV_NAME, default_value = "by default")]
    named: String,
}

#[derive(Debug, Args)]
struct Gateway {
    #[arg(long, env = "SWITCHBOARD_TEST_NEVER_SET")]
    database_url: String,
    #[arg(long, env = ENV_VERSION, default_value_t = 1)]
    number: u16,
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn run(file: &NamedTempFile, args: &[&str]) -> Result<Run, SettingsError> {
    let config = format!("--config={}", file.path().display());
    let args = ["switchboard"].iter().chain(args).map(OsString::from);
    parse::<Cli>(args.chain([config.into()])).map(|cli| cli.command)
}

fn edge(text: &str, args: &[&str]) -> Edge {
    let args: Vec<&str> = ["edge"].iter().chain(args).copied().collect();
    match run(&file(text), &args) {
        Ok(Run::Edge(edge)) => edge,
        other => panic!("{other:?}"),
    }
}

#[test]
fn flags_override_the_file() {
    let text = "device_listen = \"127.0.0.1:1\"\ncalls-per-device = 7\nstrict = true\n\
                label = [\"a\", \"b\"]\nsecret = \"hush\"\ndatabase-url = \"postgres://x\"\n";
    let settings = edge(text, &[]);
    assert_eq!(settings.device_listen, "127.0.0.1:1");
    assert_eq!(settings.calls_per_device, 7);
    assert!(settings.strict);
    assert_eq!(settings.label, ["a", "b"]);
    assert_eq!(settings.secret.unwrap().expose_secret(), "hush");

    let settings = edge(text, &["--calls-per-device", "9", "--label", "c"]);
    assert_eq!(
        (settings.calls_per_device, settings.label),
        (9, vec!["c".to_owned()])
    );
    assert_eq!(edge("", &[]).device_listen, "0.0.0.0:7700");
    assert!(!edge("strict = false", &[]).strict);
    assert!(edge("severe = true", &[]).strict);
    assert!(matches!(
        run(&file(text), &["gateway", "--number", "3"]),
        Ok(Run::Gateway(Gateway { database_url, number: 3 })) if database_url == "postgres://x"
    ));
}

#[test]
fn environment_overrides_file_and_yields_to_flags() {
    let of_env = std::env::var(ENV_NAME).unwrap();
    assert_eq!(edge("named = \"by file\"", &[]).named, of_env);
    assert_eq!(
        edge("named = \"by file\"", &["--named", "by flag"]).named,
        "by flag"
    );
}

#[test]
fn errors_name_the_source_of_the_value() {
    fn check(text: &str, args: &[&str], parts: &[&str]) {
        let file = file(text);
        let error = run(&file, args).unwrap_err();
        assert_eq!(error.exit_code, 64, "{error}");
        for part in parts {
            assert!(
                error.text.contains(part),
                "{part:?} is not in {:?}",
                error.text
            );
        }
        if !text.is_empty() {
            assert!(
                error.text.contains(&file.path().display().to_string()),
                "{error}"
            );
        }
    }
    let edge = ["edge"];
    check(
        "devcie-listen = 1",
        &edge,
        &["`devcie-listen`", "did you mean `device-listen`"],
    );
    check("zzz = 1", &edge, &["`zzz`", "--help lists all settings"]);
    check("config = \"x\"", &edge, &["`config`"]);
    check(
        "calls_per_device = \"many\"",
        &edge,
        &["`calls_per_device`", "'many'", "invalid digit"],
    );
    check("number = 70000", &edge, &["`number`", "70000"]);
    check("strict = \"maybe\"", &edge, &["`strict`", "true, false"]);
    check(
        "calls-per-device = 1.5",
        &edge,
        &["`calls-per-device` must be a string"],
    );
    check(
        "calls-per-device = [\"1\"]",
        &edge,
        &["`calls-per-device` takes one value"],
    );
    check("label = [1]", &edge, &["`label` must be"]);
    check("[edge]\nstrict = true", &edge, &["`edge` must be"]);
    check("a-b = 1\na_b = 2", &edge, &["twice"]);
    check(
        "strict = true\nsevere = true",
        &edge,
        &["twice, under two names"],
    );
    check("strict = true\nsecret = \"hush", &edge, &["line 2"]);
    check(
        "",
        &["edge", "--calls-per-device", "x"],
        &["'--calls-per-device", "'x'", "--help"],
    );
    check(
        "",
        &["gateway", "--database-url", "x"],
        &["--number", "environment variable CARGO_PKG_VERSION"],
    );
    check(
        "",
        &["gateway", "--number", "1"],
        &["--database-url", "SWITCHBOARD_TEST_NEVER_SET"],
    );
    check("", &["edge", "--strikt"], &["--strikt"]);
}

#[test]
fn missing_file_is_an_error() {
    let args = [
        "switchboard",
        "edge",
        "--config",
        "/nonexistent/settings.toml",
    ];
    let error = parse::<Cli>(args.map(OsString::from)).unwrap_err();
    assert!(error.text.contains("/nonexistent/settings.toml"), "{error}");
    assert_eq!(error.exit_code, 64);
}

#[test]
fn help_omits_secrets() {
    let error = run(&file("secret = \"hush\""), &["edge", "--help"]).unwrap_err();
    assert_eq!(error.exit_code, 0);
    for part in [
        "--device-listen",
        "--secret",
        "--config",
        "SWITCHBOARD_CONFIG",
        ENV_NAME,
    ] {
        assert!(error.text.contains(part), "{part}: {error}");
    }
    assert!(!error.text.contains("hush"), "{error}");
    let broken = run(&file("strict = true\nsecret = \"hush"), &["edge"]).unwrap_err();
    assert!(!broken.text.contains("hush"), "{broken}");
    assert_eq!(run(&file(""), &["--version"]).unwrap_err().exit_code, 0);
}

#[test]
fn quoted_url_has_no_user() {
    fn check(text: &str, expected: &str) {
        assert_eq!(without_users(text), expected);
    }
    check(
        "invalid value 'http://u:hush@h/v1' for '--url': expected http:// or https:// without @",
        "invalid value 'http://h/v1' for '--url': expected http:// or https:// without @",
    );
    check("a://b://u:p/w?@h", "a://b://h");
    check("'http://hush@", "'http://");
    check("no URL", "no URL");
    check("", "");
}
