//! The help of the command line: groups of commands and settings, and examples.

mod examples;

use clap::{Arg, Command};

/// The commands in groups, as `switchboard --help` shows them.
const GROUPS: [(&str, &[&str]); 3] = [
    (
        "Run and use",
        &[
            "up", "device", "call", "talk", "events", "status", "whoami", "doctor", "login",
            "contexts",
        ],
    ),
    (
        "The API",
        &[
            "devices",
            "calls",
            "npcs",
            "templates",
            "memories",
            "pictures",
            "skills",
            "voices",
            "recordings",
            "keys",
            "token",
            "tokens",
            "org",
            "orgs",
            "nodes",
            "webhooks",
            "deliveries",
            "usage",
            "audit",
        ],
    ),
    ("Tools", &["stdio", "convert", "completions", "man"]),
];
/// Commands that run one service.
const SERVICES: [&str; 5] = ["edge", "gateway", "chat", "control", "migrate"];

/// The settings that are needed most: they come first, and `-h` shows only them.
const FREQUENT: [&str; 10] = [
    "data-dir",
    "device-listen",
    "http-listen",
    "admin-listen",
    "tls-cert",
    "tls-key",
    "public-url",
    "database-url",
    "redis-url",
    "completions-endpoint",
];
/// Headings of settings by the beginning of their names; the first that fits.
const HEADINGS: [(&str, &[&str]); 16] = [
    (
        "Control and chat",
        &["control-url", "chat-url", "forwarded-"],
    ),
    ("Logs and traces", &["log-", "otlp-", "trace-"]),
    ("TLS", &["tls-"]),
    (
        "PostgreSQL, keys and objects",
        &["postgres-", "database-", "master-key", "objects"],
    ),
    (
        "Redis and nodes",
        &[
            "redis-",
            "node-name",
            "registration-bytes",
            "directory-cache",
            "key-set-",
        ],
    ),
    (
        "Start and stop",
        &[
            "drain-",
            "leave-",
            "admin-",
            "device-drain-",
            "device-retry-",
            "edge-readiness",
        ],
    ),
    ("Device connections", &["device-", "proxy-protocol"]),
    ("Services of devices", &["schema-"]),
    ("Speech", &["voice-", "stt-", "tts-", "speech-", "voices-"]),
    ("HTTP", &["http-", "public-url"]),
    ("MCP", &["mcp-"]),
    ("Language models", &["completions-", "embeddings-"]),
    ("Conversations", &["chat-", "turn-"]),
    ("Webhooks", &["webhooks-"]),
    (
        "Quotas and rates",
        &["quota-", "caller-", "org-", "called-", "control-"],
    ),
    (
        "Calls and records",
        &[
            "call-",
            "event-",
            "group-",
            "params-",
            "kept-calls",
            "queue",
            "facts-",
            "skills-",
            "longest-",
            "operator-key",
        ],
    ),
];
/// Flags that select an installation and a credential.
pub(crate) const CONNECTION: [&str; 5] = ["url", "api-key", "tls-ca", "context", "data-dir"];

/// Adds groups, headings and examples to the command line and its subcommands.
pub(crate) fn decorate(command: Command) -> Command {
    let overview = overview(&command);
    let command = command
        // Flags of all subcommands.
        .mut_args(|argument| argument.hide_short_help(true))
        .mut_subcommands(|subcommand| {
            let name = subcommand.get_name().to_owned();
            group_settings(with_examples(subcommand, &name))
        });
    command.help_template(overview)
}

/// The help of the program on one screen.
fn overview(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string);
    let mut text = about.unwrap_or_default() + "\n\n{usage-heading} {usage}\n";
    for (heading, names) in GROUPS {
        text += &format!("\n{heading}:\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text += &format!("  {name:<12} {about}\n");
        }
    }
    text + &format!(
        "\nOne service each: {}\nEvery command has --help. A setting is a flag, an environment \
         variable or a key of --config.\n",
        SERVICES.join(", ")
    )
}

fn with_examples(command: Command, path: &str) -> Command {
    let command = match examples::of(path) {
        Some(examples) => command.after_help(examples),
        None => command,
    };
    command.mut_subcommands(|subcommand| {
        let path = format!("{path} {}", subcommand.get_name());
        with_examples(subcommand, &path)
    })
}

/// Puts the settings of a service, or the flags of a connection, below headings.
fn group_settings(command: Command) -> Command {
    let is_service = command.get_name() == "up" || SERVICES.contains(&command.get_name());
    let command = command.mut_args(|argument| match is_service {
        true => under_heading(argument),
        false => connection(argument),
    });
    match is_service {
        true => command,
        false => command.mut_subcommands(group_settings),
    }
}

fn under_heading(argument: Arg) -> Arg {
    let Some(long) = argument.get_long().map(str::to_owned) else {
        return argument;
    };
    if FREQUENT.contains(&long.as_str()) {
        return argument.help_heading(None::<&'static str>);
    }
    let begins = |names: &[&str]| names.iter().any(|name| long.starts_with(name));
    let heading = HEADINGS.iter().find(|(_, names)| begins(names));
    argument
        .help_heading(heading.map(|(heading, _)| *heading))
        .hide_short_help(true)
}

fn connection(argument: Arg) -> Arg {
    let is_connection = argument
        .get_long()
        .is_some_and(|long| CONNECTION.contains(&long));
    if is_connection {
        argument.help_heading("Connection")
    } else {
        argument
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    fn rendered(path: &[&str], flag: &str) -> String {
        let line = ["switchboard"].iter().chain(path).chain([&flag]);
        let error = cli::command().try_get_matches_from(line).unwrap_err();
        assert_eq!(error.exit_code(), 0, "{error}");
        error.to_string()
    }

    #[test]
    fn overview_fits_on_a_screen_and_names_every_command() {
        let text = rendered(&[], "--help");
        assert!(
            text.lines().count() <= 45,
            "{} lines:\n{text}",
            text.lines().count()
        );
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        let grouped = GROUPS
            .iter()
            .flat_map(|(_, names)| names.iter())
            .chain(&SERVICES);
        let grouped: Vec<_> = grouped.copied().collect();
        for command in cli::command()
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
        {
            assert!(
                grouped.contains(&command.get_name()),
                "{}",
                command.get_name()
            );
        }
        for name in grouped {
            assert!(cli::command().find_subcommand(name).is_some(), "{name}");
        }
    }

    #[test]
    fn short_help_of_services_shows_the_settings_used_most() {
        let short = rendered(&["up"], "-h");
        let flags = |text: &str| {
            text.lines()
                .filter(|line| line.trim_start().starts_with("--"))
                .count()
        };
        assert!(flags(&short) <= 10, "{short}");
        for name in [
            "--data-dir",
            "--device-listen",
            "--http-listen",
            "--database-url",
        ] {
            assert!(short.contains(name), "{name}: {short}");
        }
        let long = rendered(&["up"], "--help");
        for (heading, _) in HEADINGS {
            assert!(
                long.contains(&format!("\n{heading}:\n"))
                    || ["Redis and nodes", "Control and chat"].contains(&heading),
                "{heading}"
            );
        }
        assert!(long.contains("--quota-api-keys"), "{long}");
        for service in ["up", "edge", "gateway", "chat", "control"] {
            let command = cli::command();
            let settings = command.find_subcommand(service).unwrap().get_arguments();
            let hidden =
                |setting: &&Arg| setting.is_hide_short_help_set() && !setting.is_hide_set();
            for setting in settings.filter(hidden) {
                let name = setting.get_long().unwrap();
                assert!(
                    name == "json" || setting.get_help_heading().is_some(),
                    "--{name}"
                );
            }
        }
    }

    fn check_examples(command: &Command, path: &str, all: &Command) {
        let subcommands: Vec<_> = command.get_subcommands().collect();
        for subcommand in &subcommands {
            check_examples(
                subcommand,
                &format!("{path} {}", subcommand.get_name()),
                all,
            );
        }
        if !subcommands.is_empty() || command.is_hide_set() {
            return;
        }
        let help = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let examples: Vec<_> = help
            .lines()
            .skip_while(|line| *line != "Examples:")
            .skip(1)
            .collect();
        assert!(
            (2..=4).contains(&examples.len()),
            "{path} has {} examples",
            examples.len()
        );
        for example in examples {
            // A shell reads the rest.
            let line = example.rsplit(" | ").next().unwrap();
            let words = shlex::split(line.trim()).unwrap();
            let words = words.iter().filter(|word| !word.starts_with(['<', '>']));
            let parsed = all.clone().try_get_matches_from(words);
            assert!(example.contains(&path[1..]), "{path}: {example}");
            assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let all = cli::command();
        for command in all.get_subcommands() {
            check_examples(command, &format!(" {}", command.get_name()), &all);
        }
    }
}
