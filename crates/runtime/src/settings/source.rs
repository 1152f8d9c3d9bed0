//! Error messages that name the source of an invalid value, or the places where a missing one can
//! be set.
//!
//! Invariant: they never contain the value of a secret.

use std::ffi::OsString;

use clap::{
    Command,
    error::{ContextKind, ContextValue},
};

use super::{display, find_long, is_secret, message};

/// Explains a value that its flag rejects. Values from the file have been checked before.
pub(super) fn explain_invalid_value(
    error: &clap::Error,
    command: &Command,
    args: &[OsString],
) -> String {
    let arg = named_flags(error)
        .first()
        .and_then(|long| find_long(command, long));
    let Some((arg, long)) = arg.and_then(|arg| Some((arg, arg.get_long()?))) else {
        return error.render().to_string();
    };
    let reason = if is_secret(arg) {
        format!("invalid value for '--{long}'; it is not displayed because it is a secret")
    } else {
        message(error)
    };
    let variable = arg
        .get_env()
        .filter(|name| !is_on_command_line(long, args) && std::env::var_os(name).is_some());
    match variable {
        Some(name) => {
            format!(
                "error: {reason}\n\nThe value comes from the environment variable {}.\n",
                display(name)
            )
        }
        None => format!("error: {reason}\n\nFor more information, try '--help'.\n"),
    }
}

/// Explains a missing flag and names the other places where it can be set.
pub(super) fn explain_missing_value(error: &clap::Error, command: &Command) -> String {
    let mut text = error.render().to_string();
    for long in named_flags(error) {
        let variable = find_long(command, &long).and_then(|arg| arg.get_env());
        if let Some(name) = variable {
            text.push_str(&format!(
                "\n--{long} can also be set with the environment variable {} or as `{long}` in the file of --config.\n",
                display(name)
            ));
        }
    }
    text
}

fn is_on_command_line(long: &str, args: &[OsString]) -> bool {
    args.iter()
        .filter_map(|arg| arg.to_str()?.strip_prefix("--"))
        .any(|flag| {
            flag.strip_prefix(long)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        })
}

/// Extracts flag names from usage strings of clap such as `--port <PORT>`.
fn named_flags(error: &clap::Error) -> Vec<String> {
    let usages = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(usage)) => std::slice::from_ref(usage),
        Some(ContextValue::Strings(usages)) => usages.as_slice(),
        _ => &[],
    };
    let long = |usage: &String| {
        let name = usage.strip_prefix("--")?.split([' ', '=', '[']).next()?;
        Some(name.to_owned())
    };
    usages.iter().filter_map(long).collect()
}
