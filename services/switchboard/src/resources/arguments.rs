//! The arguments of an operation, as clap knows them.

use std::path::PathBuf;

use clap::{
    Arg, ArgAction, ArgGroup, ArgMatches, Args as _, Command, builder::PossibleValuesParser,
};
use clap_complete::ArgValueCandidates;
use serde_json::value::RawValue;

use super::{
    Body, CreateArguments, Kind, Operation, Param, Resource, Value, complete_connected_devices,
    complete_ids, table,
};
use crate::{
    api::ApiArguments,
    moment,
    output::{FormatArguments, ListArguments},
};

/// Exit codes of all operations.
const EXIT_CODES: &str = "Exit codes: 0 done, 1 refused or not reachable, 64 invalid settings.";

impl Operation {
    /// Adds the arguments, the help and the examples to the command of the operation.
    pub(super) fn augment(
        &'static self,
        resource: &'static Resource,
        mut command: Command,
    ) -> Command {
        for owner in self.owners() {
            command = command.arg(owner_argument(owner));
        }
        if self.owners().next().is_some() {
            let group = ArgGroup::new("owner").args(self.owners()).required(true);
            command = command.group(group);
        }
        if self.has_id() {
            command = command.arg(self.id_argument(self.acts_on(resource)));
        }
        command = command.args(self.params.iter().map(Param::argument));
        command = match (self.body, self.kind) {
            (Body::Document, _) => {
                command.arg(file("File with the document as JSON; - is stdin").default_value("-"))
            }
            (Body::File, _) => command.arg(file("The file; - is stdin").required(true)),
            (_, Kind::Download) => command.arg(file("Output file. Default: stdout")),
            _ => command,
        };
        if !self.question.is_empty() {
            command = command.arg(
                Arg::new("yes")
                    .long("yes")
                    .short('y')
                    .action(ArgAction::SetTrue)
                    .help("Do not ask for confirmation; only a terminal is asked"),
            );
        }
        // The groups of arguments set the help to their own.
        self.augment_connection(command)
            .about(self.about)
            .long_about(self.long_about(resource))
            .after_help(self.help_examples(self.acts_on(resource)))
    }

    fn augment_connection(&self, command: Command) -> Command {
        match self.kind {
            Kind::List => ListArguments::augment_args(command),
            Kind::Show => ApiArguments::augment_args(FormatArguments::augment_args(command)),
            Kind::Edit => {
                let command = FormatArguments::augment_args(command.arg(version_argument()));
                ApiArguments::augment_args(command)
            }
            Kind::Create => {
                CreateArguments::augment_args(command).mut_arg("format", created_format)
            }
            Kind::Send if self.method() == "POST" => CreateArguments::augment_args(command),
            Kind::Send => ApiArguments::augment_args(FormatArguments::augment_args(command)),
            Kind::Delete | Kind::Download => ApiArguments::augment_args(command),
        }
    }

    fn long_about(&self, resource: &'static Resource) -> String {
        let mut about = format!("{}.", self.about);
        if self.kind == Kind::List {
            let shown = self.elements.unwrap_or(resource);
            let columns = shown.columns.iter().filter(|column| !column.is_wide);
            let columns: Vec<_> = columns.map(|column| column.header).collect();
            about += &format!(
                "\n\nColumns: {}. On a terminal they are a table; otherwise each element is a line \
                 without a header, with tabs between the columns.",
                columns.join(", ")
            );
        }
        let resource = self.acts_on(resource);
        if self.has_id() && !resource.path.is_empty() {
            about += match (resource.prefix, resource.title) {
                ("", _) => "",
                (_, "") => {
                    "\n\nID may be shortened to the beginning of an id, if only one element has it."
                }
                _ => {
                    "\n\nID may be shortened to the beginning of an id, or be a name, if only one element has it."
                }
            };
        }
        if self.kind == Kind::Edit {
            about += "\n\nThe change is a JSON merge patch (RFC 7396) of what `show` prints: null \
                      removes a member.";
        }
        about + "\n\n" + EXIT_CODES
    }

    fn id_argument(&self, resource: &'static Resource) -> Arg {
        let kinds = if resource.title.is_empty() {
            "Id"
        } else {
            "Id or name"
        };
        let argument = Arg::new("id")
            .value_name("ID")
            .required(true)
            .help(format!("{kinds} of {}", resource.noun));
        argument.add(if self.needs_connection {
            ArgValueCandidates::new(complete_connected_devices)
        } else {
            ArgValueCandidates::new(move || complete_ids(resource))
        })
    }

    /// Two or three lines that work as they are, once the names exist.
    fn help_examples(&self, resource: &Resource) -> String {
        let command = format!("switchboard {} {}", resource.name, self.name);
        let command = command.trim_end();
        let id = match resource.title {
            "" => format!("{}01a1fdc1", resource.prefix),
            _ => "Rex".to_owned(),
        };
        let id = if resource.prefix.is_empty() {
            "toy-1".to_owned()
        } else {
            id
        };
        let owner = self
            .owners()
            .next()
            .map_or(String::new(), |owner| format!(" --{owner} Rex"));
        let generic: &[&str] = match self.kind {
            _ if !self.examples.is_empty() => self.examples,
            Kind::List => &["", "-o wide", "-o json"],
            Kind::Show if self.has_id() => &["ID", "ID -o table"],
            Kind::Show => &["", "-o table"],
            Kind::Delete => &["ID", "ID --yes"],
            Kind::Edit if self.has_id() => &["ID change.json", "ID change.json --if-version 3"],
            Kind::Edit => &["change.json", "change.json --if-version 3"],
            Kind::Create => &["new.json", "new.json --idempotency-key once-1"],
            Kind::Download => &["ID file", "ID >file"],
            Kind::Send => &["ID", "ID --context production"],
        };
        generic
            .iter()
            .fold("Examples:".to_owned(), |text, example| {
                let example = example.replace("ID", &id);
                let line = format!("{command}{owner} {example}");
                text + "\n  " + line.trim_end()
            })
    }
}

impl Param {
    /// The name of the argument among the matches; parameters may be called as connection flags are.
    pub(super) fn key(&self) -> String {
        format!("param {}", self.member)
    }

    fn argument(&self) -> Arg {
        let argument = Arg::new(self.key())
            .help(self.help)
            .required(self.is_required);
        let argument = match self.flag {
            "" => argument,
            flag => argument.long(flag),
        };
        let argument = match table::completed_by(self.flag) {
            Some(resource) => argument.add(ArgValueCandidates::new(move || complete_ids(resource))),
            None => argument,
        };
        match self.value {
            Value::Text(name) => argument.value_name(name),
            Value::Texts(name) => argument
                .value_name(name)
                .value_delimiter(',')
                .action(ArgAction::Append)
                .num_args(1),
            Value::Choice(values) => argument
                .value_name(self.flag.to_uppercase())
                .value_parser(PossibleValuesParser::new(values)),
            Value::Json => argument.value_name("JSON").value_parser(json),
            Value::Time => argument.value_name("TIME").value_parser(moment::parse),
            Value::Switch(_) => argument.action(ArgAction::SetTrue),
            Value::Bool => argument
                .value_name("true|false")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_parser(PossibleValuesParser::new(["true", "false"])),
        }
    }

    /// The value as text, of a query; lists are joined by commas.
    pub(super) fn text_of(&self, matches: &ArgMatches) -> Option<String> {
        let key = self.key();
        match self.value {
            Value::Switch(meaning) => matches.get_flag(&key).then(|| meaning.to_owned()),
            Value::Texts(_) => {
                let values: Vec<String> = matches.get_many(&key)?.cloned().collect();
                Some(values.join(","))
            }
            Value::Json => matches
                .get_one::<Box<RawValue>>(&key)
                .map(ToString::to_string),
            Value::Text(_) | Value::Choice(_) | Value::Time | Value::Bool => {
                matches.get_one::<String>(&key).cloned()
            }
        }
    }

    /// The value as a member of a JSON object.
    pub(super) fn json_of(&self, matches: &ArgMatches) -> Option<serde_json::Value> {
        match self.value {
            Value::Texts(_) => {
                let values = matches.get_many::<String>(&self.key())?;
                Some(values.cloned().collect())
            }
            Value::Switch(_) | Value::Json | Value::Bool => {
                serde_json::from_str(&self.text_of(matches)?).ok()
            }
            Value::Text(_) | Value::Choice(_) | Value::Time => {
                self.text_of(matches).map(Into::into)
            }
        }
    }
}

fn owner_argument(owner: &'static str) -> Arg {
    let argument = Arg::new(owner).long(owner).value_name("ID");
    match table::owner(owner) {
        Some(resource) => argument
            .help(format!("Id or name of {}", resource.noun))
            .add(ArgValueCandidates::new(move || complete_ids(resource))),
        None => argument,
    }
}

fn file(help: &'static str) -> Arg {
    Arg::new("file")
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help(help)
}

fn version_argument() -> Arg {
    Arg::new("if_version")
        .long("if-version")
        .value_name("VERSION")
        .value_parser(version)
        .help(
            "Change only this version, the ETag without quotes: 3, or 3-2 if the version of the \
             template counts too. Default: any version",
        )
}

/// The format of commands that print the id of what they create.
pub(crate) fn created_format(argument: Arg) -> Arg {
    argument.help("Print what is created, in this format. Default: its id alone")
}

fn version(text: &str) -> Result<String, String> {
    if text.split('-').all(|number| number.parse::<u64>().is_ok()) {
        Ok(text.to_owned())
    } else {
        Err("a version is a number, or two numbers joined by a hyphen".to_owned())
    }
}

fn json(text: &str) -> Result<Box<RawValue>, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_one_or_two_numbers() {
        fn check(text: &str, expected: bool) {
            assert_eq!(version(text).is_ok(), expected, "{text}");
        }
        check("1", true);
        check("12-3", true);
        check("", false);
        check("1-", false);
        check("*", false);
        check("1\", \"2", false);
    }
}
