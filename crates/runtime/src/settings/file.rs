//! The TOML file: each key is the name of a flag. Unknown keys are errors.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, Command};
use toml::{Table, Value};

use super::{SettingsError, find_long, is_secret, longs, map_args, message};

/// Minimum similarity of names for a suggestion, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.75;
const MAX_SUGGESTIONS: usize = 3;

/// The entries of a file, by flag.
#[derive(Debug, Default)]
pub(super) struct File {
    path: PathBuf,
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// The key as spelled in the file.
    key: String,
    values: Vec<String>,
    is_list: bool,
}

impl File {
    pub(super) fn read(path: PathBuf) -> Result<Self, SettingsError> {
        let text = std::fs::read_to_string(&path).map_err(|error| {
            wrong(
                &path,
                &format!("cannot be read: {error}; --config must name an existing TOML file"),
            )
        })?;
        let table: Table = toml::from_str(&text).map_err(|error| {
            // The parser's own message quotes the line, which may contain a secret.
            let start = error.span().map_or(0, |span| span.start);
            let line = text
                .bytes()
                .take(start)
                .filter(|byte| *byte == b'\n')
                .count()
                + 1;
            wrong(
                &path,
                &format!("is not TOML: line {line}: {}", error.message()),
            )
        })?;
        let mut file = Self {
            path,
            entries: BTreeMap::new(),
        };
        for (key, value) in table {
            file.insert(key, &value)?;
        }
        Ok(file)
    }

    fn insert(&mut self, key: String, value: &Value) -> Result<(), SettingsError> {
        let (values, is_list) = match value {
            Value::Array(items) => (items.iter().map(string_element).collect(), true),
            other => (scalar(other).map(|text| vec![text]), false),
        };
        let Some(values) = values else {
            return Err(self.wrong(&format!(
                "`{key}` must be a string, an integer, a boolean or an array of strings"
            )));
        };
        let entry = Entry {
            key,
            values,
            is_list,
        };
        if let Some(earlier) = self.entries.insert(entry.key.replace('_', "-"), entry) {
            return Err(self.wrong(&format!("`{}` is set twice, in two spellings", earlier.key)));
        }
        Ok(())
    }

    /// Makes the file's values the defaults of the command's flags.
    pub(super) fn apply_to(&self, command: Command) -> Result<Command, SettingsError> {
        let mut seen = BTreeSet::new();
        for (long, entry) in &self.entries {
            let arg = find_long(&command, long).filter(|_| long != "config");
            let arg = arg.ok_or_else(|| self.unknown(entry, &command))?;
            if !seen.insert(arg.get_long()) {
                return Err(self.wrong(&format!("`{}` is set twice, under two names", entry.key)));
            }
            self.check(long, entry, arg)?;
        }
        Ok(map_args(command, &|arg| {
            let entry = longs(&arg).find_map(|long| self.entries.get(long));
            match entry {
                Some(entry) => arg.default_values(&entry.values).required(false),
                None => arg,
            }
        }))
    }

    /// Parses the values with the parser of their flag, so that an error names the key even if the
    /// flag belongs to another subcommand or is overridden.
    fn check(&self, long: &str, entry: &Entry, arg: &Arg) -> Result<(), SettingsError> {
        let is_switch = matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse);
        let many = matches!(arg.get_action(), ArgAction::Append)
            || arg.get_value_delimiter().is_some()
            || arg
                .get_num_args()
                .is_some_and(|count| count.max_values() > 1);
        if entry.is_list && !many {
            return Err(self.wrong(&format!("`{}` takes one value, not a list", entry.key)));
        }
        let probe = Arg::new("probe")
            .long(long.to_owned())
            .action(ArgAction::Append);
        let probe = if is_switch {
            probe.value_parser(clap::value_parser!(bool))
        } else {
            probe.value_parser(arg.get_value_parser().clone())
        };
        let probe = match arg.get_value_delimiter() {
            Some(delimiter) => probe.value_delimiter(delimiter),
            None => probe,
        };
        let flags = entry.values.iter().map(|value| format!("--{long}={value}"));
        let command = Command::new("file").no_binary_name(true).arg(probe);
        match command.try_get_matches_from(flags) {
            Ok(_) => Ok(()),
            Err(_) if is_secret(arg) => Err(self.wrong(&format!(
                "`{}` has an invalid value; it is hidden because it is a secret",
                entry.key
            ))),
            Err(error) => Err(self.wrong(&format!("`{}`: {}", entry.key, message(&error)))),
        }
    }

    fn unknown(&self, entry: &Entry, command: &Command) -> SettingsError {
        let mut known = BTreeSet::new();
        collect_longs(command, &mut known);
        let mut similar: Vec<(f64, &str)> = known
            .iter()
            .map(|long| {
                (
                    strsim::jaro_winkler(&entry.key.replace('_', "-"), long),
                    *long,
                )
            })
            .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
            .collect();
        similar.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let names: Vec<String> = similar
            .iter()
            .take(MAX_SUGGESTIONS)
            .map(|(_, long)| format!("`{long}`"))
            .collect();
        let advice = match names.as_slice() {
            [] => "--help lists all settings".to_owned(),
            names => format!("did you mean {}?", names.join(" or ")),
        };
        self.wrong(&format!("there is no setting `{}`; {advice}", entry.key))
    }

    fn wrong(&self, what: &str) -> SettingsError {
        wrong(&self.path, what)
    }
}

fn wrong(path: &Path, what: &str) -> SettingsError {
    SettingsError::invalid(format!("error: {}: {what}\n", path.display()))
}

fn string_element(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(truth) => Some(truth.to_string()),
        Value::Float(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

fn collect_longs<'a>(command: &'a Command, longs: &mut BTreeSet<&'a str>) {
    longs.extend(
        command
            .get_arguments()
            .filter_map(Arg::get_long)
            .filter(|long| *long != "config"),
    );
    for subcommand in command.get_subcommands() {
        collect_longs(subcommand, longs);
    }
}
