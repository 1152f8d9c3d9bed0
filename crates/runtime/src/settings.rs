//! Flags, environment and one TOML file, with the same names and the same meaning.
//! Never: a value taken from a place that its error does not name, or a secret shown.

mod file;
mod source;

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use clap::{Arg, Command, Parser, error::ErrorKind};
use secrecy::SecretString;

use file::File;

/// What the process ends with when its settings are wrong (`EX_USAGE` of sysexits).
pub const EXIT_USAGE: u8 = 64;

const FILE_FLAG: &str = "--config";
const FILE_ENV: &str = "SWITCHBOARD_CONFIG";

/// Why there are no settings: something is wrong with them, or only help was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct SettingsError {
    /// For the person at the terminal; stdout when the exit code is 0, stderr otherwise.
    pub text: String,
    /// 0 for `--help` and `--version`, 64 for everything wrong.
    pub exit_code: u8,
}

/// Reads the settings: flag > environment > file > default.
///
/// The file is TOML, named by `--config FILE` or `SWITCHBOARD_CONFIG`. Its keys are the long flags of
/// all subcommands (`device-listen` or `device_listen`), its values strings, integers, booleans and
/// arrays of strings. Values of type [`SecretString`] are shown neither by `--help` nor by errors.
///
/// # Errors
/// Everything wrong, and `--help` and `--version`; the text names the flag, variable or key.
pub fn parse<C: Parser>(args: impl IntoIterator<Item = OsString>) -> Result<C, SettingsError> {
    let args: Vec<OsString> = args.into_iter().collect();
    let command = map_args(with_file_flag(C::command()), &hide_secret);
    let file = file_path(&args)
        .map(File::read)
        .transpose()?
        .unwrap_or_default();
    let mut layered = file.lay_under(command)?;
    layered
        .try_get_matches_from_mut(&args)
        .and_then(|mut matches| C::from_arg_matches_mut(&mut matches))
        .map_err(|error| explain(&error, &layered, &args))
}

impl SettingsError {
    fn wrong(text: String) -> Self {
        Self {
            text,
            exit_code: EXIT_USAGE,
        }
    }
}

fn with_file_flag(command: Command) -> Command {
    if command
        .get_arguments()
        .any(|arg| arg.get_long() == Some("config"))
    {
        return command;
    }
    command.arg(
        Arg::new("config")
            .long("config")
            .env(FILE_ENV)
            .value_name("FILE")
            .global(true)
            .help("A TOML file with any of these settings; keys are the long flags' names"),
    )
}

/// Finds the file before the command line as a whole can be read, since the file is part of it.
fn file_path(args: &[OsString]) -> Option<PathBuf> {
    let mut args = args.iter().take_while(|arg| *arg != "--");
    while let Some(arg) = args.next() {
        if arg == FILE_FLAG {
            return args.next().map(PathBuf::from);
        }
        let joined = arg
            .to_str()
            .and_then(|arg| arg.strip_prefix(FILE_FLAG)?.strip_prefix('='));
        if let Some(path) = joined {
            return Some(PathBuf::from(path));
        }
    }
    std::env::var_os(FILE_ENV)
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
            source::of_bad_value(error, command, args)
        }
        ErrorKind::MissingRequiredArgument => source::of_missing_value(error, command),
        _ => error.render().to_string(),
    };
    SettingsError::wrong(text)
}

/// The flag of this name, in whichever subcommand it is.
fn find_long<'a>(command: &'a Command, long: &str) -> Option<&'a Arg> {
    let own = command
        .get_arguments()
        .find(|arg| arg.get_long() == Some(long));
    own.or_else(|| {
        command
            .get_subcommands()
            .find_map(|sub| find_long(sub, long))
    })
}

/// What clap says, without the advice to read the help.
fn reason(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text
        .split("\n\nFor more information")
        .next()
        .unwrap_or_default();
    text.strip_prefix("error: ")
        .unwrap_or(text)
        .trim_end()
        .to_owned()
}

fn shown(name: &OsStr) -> std::borrow::Cow<'_, str> {
    name.to_string_lossy()
}

#[cfg(test)]
mod tests;
