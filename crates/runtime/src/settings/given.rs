//! The settings that a process was given, for another process that examines it.
//!
//! Invariant: of secrets, only the names are kept.

use std::{any::TypeId, collections::BTreeMap, ffi::OsStr, path::PathBuf};

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use serde::{Deserialize, Serialize};

use super::{is_secret, longs, map_args};

/// Arguments, and which of them were given by a flag, the environment or the file.
#[derive(Debug)]
pub struct Given<A> {
    /// The arguments.
    pub arguments: A,
    /// Those that differ from the defaults.
    pub values: Values,
}

/// Settings by the name of their flag.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Values {
    /// The values; files and folders as absolute paths.
    #[serde(default)]
    values: BTreeMap<String, Vec<String>>,
    /// Secrets that are given.
    #[serde(default)]
    secrets: Vec<String>,
}

impl Values {
    fn of<A: Args>(matches: &ArgMatches) -> Self {
        let mut command = A::augment_args(Command::new("settings"));
        // With the defaults that follow from the type of a flag.
        command.build();
        let mut given = Self::default();
        for arg in command.get_arguments() {
            let raw = matches.try_get_raw(arg.get_id().as_str());
            let (Some(long), Ok(Some(raw))) = (arg.get_long(), raw) else {
                continue;
            };
            let raw: Vec<&OsStr> = raw.collect();
            let defaults = arg.get_default_values();
            if raw
                .iter()
                .copied()
                .eq(defaults.iter().map(|value| &**value))
            {
                continue;
            }
            if is_secret(arg) {
                given.secrets.push(long.to_owned());
            } else {
                let values = raw.into_iter().map(|value| value_of(arg, value));
                given.values.insert(long.to_owned(), values.collect());
            }
        }
        given
    }

    /// Whether a secret with this flag is given.
    #[must_use]
    pub fn has_secret(&self, long: &str) -> bool {
        self.secrets.iter().any(|secret| secret == long)
    }

    /// Makes the values the defaults of the flags with their names.
    pub(super) fn apply_to(&self, command: Command) -> Command {
        map_args(command, &|arg| {
            let values = longs(&arg).find_map(|long| self.values.get(long));
            match values {
                Some(values) => arg.default_values(values),
                None => arg,
            }
        })
    }

    /// The values without those of these flags.
    #[must_use]
    pub fn without(mut self, flags: &[&str]) -> Self {
        self.values
            .retain(|flag, _| !flags.contains(&flag.as_str()));
        self
    }
}

fn value_of(arg: &Arg, value: &OsStr) -> String {
    let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
    let absolute = is_path.then(|| std::path::absolute(value).ok()).flatten();
    let value = absolute.as_ref().map_or(value, |path| path.as_os_str());
    value.to_string_lossy().into_owned()
}

impl<A: Args> FromArgMatches for Given<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::from_arg_matches_mut(&mut matches.clone())
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self {
            values: Values::of::<A>(matches),
            arguments: A::from_arg_matches_mut(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<A: Args> Args for Given<A> {
    fn group_id() -> Option<clap::Id> {
        A::group_id()
    }

    fn augment_args(command: Command) -> Command {
        A::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        A::augment_args_for_update(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use secrecy::SecretString;

    use super::*;
    use crate::settings::parse_command_over;

    #[derive(Debug, clap::Args)]
    struct Service {
        #[arg(long, default_value = "127.0.0.1:1")]
        listen: String,
        #[arg(long)]
        model: Option<String>,
        #[arg(long, value_delimiter = ',')]
        allow: Vec<String>,
        #[arg(long)]
        fast: bool,
        #[arg(long)]
        file: Option<PathBuf>,
        #[arg(long)]
        key: Option<SecretString>,
    }

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        service: Given<Service>,
    }

    fn parse(words: &[&str], over: &Values) -> Given<Service> {
        let words = ["program"].iter().chain(words).map(Into::into);
        let line =
            parse_command_over::<Line>(<Line as clap::CommandFactory>::command(), over, words);
        line.unwrap().service
    }

    #[test]
    fn given_settings_are_the_defaults_of_another_process() {
        let words = [
            "--model=m",
            "--allow=a,b",
            "--fast",
            "--file=f",
            "--key=geheim",
            "--listen=127.0.0.1:1",
        ];
        let given = parse(&words, &Values::default()).values;
        let text = serde_json::to_string(&given).unwrap();
        assert!(
            !text.contains("geheim") && !text.contains("listen"),
            "{text}"
        );
        assert!(given.has_secret("key") && !given.has_secret("model"));

        let read: Values = serde_json::from_str(&text).unwrap();
        let other = parse(&["--model=n"], &read).arguments;
        assert_eq!(other.model.as_deref(), Some("n"));
        assert_eq!(
            (other.allow, other.fast),
            (vec!["a".to_owned(), "b".to_owned()], true)
        );
        assert_eq!(other.file, Some(std::path::absolute("f").unwrap()));
        assert!(other.key.is_none());
        assert_eq!(other.listen, "127.0.0.1:1");
        let none = parse(&[], &read.without(&["model"])).arguments;
        assert_eq!(none.model, None);
        assert_eq!(parse(&[], &Values::default()).values, Values::default());
    }
}
