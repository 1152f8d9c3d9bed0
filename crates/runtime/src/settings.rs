//! Settings from flags, the environment and one TOML file, under the same names.
//!
//! Invariant: an error names the source of the value, and never contains a secret.

mod environment;
mod file;
mod given;
mod source;

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use clap::{Arg, Command, FromArgMatches, Parser, error::ErrorKind};
use secrecy::SecretString;

pub use environment::variable;
use file::File;
pub use given::{Given, Values};

/// Exit code for invalid settings (`EX_USAGE` of sysexits).
pub const EXIT_USAGE: u8 = 64;

const FILE_FLAG: &str = "config";

/// The settings are invalid, or only help or the version was requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct SettingsError {
    /// Text for the terminal: for stdout if the exit code is 0, otherwise for stderr.
    pub text: String,
    /// 0 for `--help` and `--version`, 64 for invalid settings.
    pub exit_code: u8,
}

/// Reads the settings. Precedence: flag, environment, file, default.
///
/// The file is TOML, named by `--config FILE` or `SWITCHBOARD_CONFIG`. Its keys are the long flags
/// of all subcommands (`device-listen` or `device_listen`); its values are strings, integers,
/// booleans and arrays of strings. Values of type [`SecretString`] appear neither in `--help` nor
/// in errors.
///
/// # Errors
/// When a setting is invalid, and for `--help` and `--version`. The text names the flag, variable
/// or key.
pub fn parse<C: Parser>(args: impl IntoIterator<Item = OsString>) -> Result<C, SettingsError> {
    parse_command(C::command(), args)
}

/// As [`parse`], with the command of `C` and what the program has added to it, such as examples.
///
/// # Errors
/// As [`parse`].
pub fn parse_command<C: FromArgMatches>(
    command: Command,
    args: impl IntoIterator<Item = OsString>,
) -> Result<C, SettingsError> {
    parse_command_over(command, &Values::default(), args)
}

/// As [`parse_command`], with values for what neither a flag, the environment nor the file gives.
///
/// # Errors
/// As [`parse`].
pub fn parse_command_over<C: FromArgMatches>(
    command: Command,
    values: &Values,
    args: impl IntoIterator<Item = OsString>,
) -> Result<C, SettingsError> {
    let args: Vec<OsString> = args.into_iter().collect();
    let command = derive_variables(with_file_flag(command));
    let command = values.apply_to(map_args(command, &hide_secret));
    let file = file_path(&args)
        .map(File::read)
        .transpose()?
        .unwrap_or_default();
    let mut layered = file.apply_to(command)?;
    layered
        .try_get_matches_from_mut(&args)
        .and_then(|mut matches| C::from_arg_matches_mut(&mut matches))
        .map_err(|error| explain(&error, &layered, &args))
}

/// Gives the flags of a command and its subcommands their environment variables, as [`parse`] does.
#[must_use]
pub fn derive_variables(command: Command) -> Command {
    map_args(command, &environment::derive_variable)
}

impl SettingsError {
    fn invalid(text: String) -> Self {
        Self {
            text,
            exit_code: EXIT_USAGE,
        }
    }
}

fn with_file_flag(command: Command) -> Command {
    if command
        .get_arguments()
        .any(|arg| arg.get_long() == Some(FILE_FLAG))
    {
        return command;
    }
    command.arg(
        Arg::new(FILE_FLAG)
            .long(FILE_FLAG)
            .env(variable(FILE_FLAG))
            .value_name("FILE")
            .global(true)
            .help("TOML file with any of these settings; the keys are the names of the long flags"),
    )
}

/// Finds the path of the file before the command line is parsed, because the file provides its
/// defaults.
fn file_path(args: &[OsString]) -> Option<PathBuf> {
    let mut args = args.iter().take_while(|arg| *arg != "--");
    while let Some(arg) = args.next() {
        let flag = arg.to_str().and_then(|arg| arg.strip_prefix("--"));
        match flag.and_then(|flag| flag.strip_prefix(FILE_FLAG)) {
            Some("") => return args.next().map(PathBuf::from),
            Some(value) if value.starts_with('=') => return value.get(1..).map(PathBuf::from),
            _ => {}
        }
    }
    std::env::var_os(variable(FILE_FLAG))
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
}

fn map_args(command: Command, map: &dyn Fn(Arg) -> Arg) -> Command {
    command
        .mut_args(map)
        .mut_subcommands(|subcommand| map_args(subcommand, map))
}

fn is_secret(arg: &Arg) -> bool {
    arg.get_value_parser().type_id() == std::any::TypeId::of::<SecretString>()
        || arg.is_hide_env_values_set()
}

fn hide_secret(arg: Arg) -> Arg {
    if is_secret(&arg) {
        arg.hide_env_values(true).hide_default_value(true)
    } else {
        arg
    }
}

fn explain(error: &clap::Error, command: &Command, args: &[OsString]) -> SettingsError {
    let text = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return SettingsError {
                text: error.render().to_string(),
                exit_code: 0,
            };
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::InvalidUtf8 => {
            source::explain_invalid_value(error, command, args)
        }
        ErrorKind::MissingRequiredArgument => source::explain_missing_value(error, command),
        _ => error.render().to_string(),
    };
    SettingsError::invalid(text)
}

/// Finds a flag by name in the command or its subcommands.
fn find_long<'a>(command: &'a Command, long: &str) -> Option<&'a Arg> {
    let own = command
        .get_arguments()
        .find(|arg| longs(arg).any(|name| name == long));
    own.or_else(|| {
        command
            .get_subcommands()
            .find_map(|sub| find_long(sub, long))
    })
}

/// Returns the name and the aliases of a flag.
fn longs(arg: &Arg) -> impl Iterator<Item = &str> {
    let aliases = arg.get_all_aliases().unwrap_or_default();
    arg.get_long().into_iter().chain(aliases)
}

/// Returns the message of a clap error without the hint to read the help.
fn message(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text
        .split("\n\nFor more information")
        .next()
        .unwrap_or_default();
    let text = text.strip_prefix("error: ").unwrap_or(text);
    without_users(text.trim_end())
}

/// The text with URLs whose user and password are left out. Settings that allow none reject them, and
/// quote the URL.
fn without_users(text: &str) -> String {
    let mut parts = text.split("://");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| c.is_whitespace() || c == '\'');
        let (url, rest) = part.split_at(end.unwrap_or(part.len()));
        let host = url.rsplit_once('@').map_or(url, |(_, host)| host);
        clean.extend(["://", host, rest]);
    }
    clean
}

fn display(name: &OsStr) -> std::borrow::Cow<'_, str> {
    name.to_string_lossy()
}

#[cfg(test)]
mod tests;
