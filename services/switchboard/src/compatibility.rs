//! Compatibility tests of the command line and of the files of `switchboard up`.
//!
//! Scripts, unit files and manifests of operators name flags and variables. See
//! `tests/compatibility` for the frozen values.

use clap::{ArgAction, Command};
use switchboard_runtime::settings;
use switchboard_test_support::snapshot;

use crate::{cli, data_folder::Instance};

/// A line for each argument: where it is, how it is written, and what it is without a value.
fn collect(command: &Command, path: &str, lines: &mut Vec<String>) {
    let path = format!("{path}{}", command.get_name());
    let aliases: Vec<&str> = command.get_all_aliases().collect();
    lines.push(
        format!("{path} {}", aliases.join(","))
            .trim_end()
            .to_owned(),
    );
    let mut position = 0;
    for argument in command.get_arguments() {
        let mut line = path.clone();
        match argument.get_long() {
            Some(long) => line += &format!(" --{long}"),
            None => {
                position += 1;
                line += &format!(" <{position}>");
            }
        }
        for alias in argument.get_all_aliases().into_iter().flatten() {
            line += &format!(" --{alias}");
        }
        if let Some(short) = argument.get_short() {
            line += &format!(" -{short}");
        }
        if let Some(name) = argument.get_env() {
            line += &format!(" env={}", name.display());
        }
        if !matches!(argument.get_action(), ArgAction::Set) {
            line += &format!(" {:?}", argument.get_action());
        }
        let defaults = argument.get_default_values().iter();
        let defaults: Vec<_> = defaults.map(|value| value.to_string_lossy()).collect();
        if !defaults.is_empty() {
            line += &format!(" default={}", defaults.join(","));
        }
        let values = argument.get_possible_values();
        let values: Vec<_> = values.iter().map(|value| value.get_name()).collect();
        if argument.get_action().takes_values() && !values.is_empty() {
            line += &format!(" values={}", values.join("|"));
        }
        if argument.is_required_set() {
            line += " required";
        }
        lines.push(line);
    }
    for subcommand in command.get_subcommands() {
        collect(subcommand, &format!("{path} "), lines);
    }
}

#[test]
fn flags_and_environment_are_unchanged() {
    let mut lines = Vec::new();
    let command = settings::derive_variables(cli::command());
    collect(&command, "", &mut lines);
    assert!(lines.len() > 100, "{lines:?}");
    snapshot::check("flags.txt", lines);
}

#[test]
fn file_of_a_running_instance_keeps_its_json() {
    let stored = concat!(
        r#"{"org_id":"o","api_key":"k","operator_key":"p","device_addr":"d","#,
        r#""http_url":"h","admin_url":"a""#
    );
    // A file of the previous release has no settings.
    let read: Instance = serde_json::from_str(&format!("{stored}}}")).unwrap();
    let written = serde_json::to_string(&read).unwrap();
    let settings = r#","settings":{"values":{},"secrets":[]}}"#;
    assert_eq!(
        written,
        format!("{stored}{settings}"),
        "compatibility break: up.json"
    );
}
