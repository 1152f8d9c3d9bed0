//! The resources of the API as one table. Each operation of the table is a subcommand, with its
//! arguments, its help, and its output.
//!
//! Commands whose work is more than one request are beside the table, in `commands/`.

mod arguments;
mod create;
mod job;
mod lookup;
mod operation;
mod run;
pub(crate) mod table;

use std::{fmt::Display, pin::Pin, process::ExitCode};

use clap::{ArgMatches, Command, FromArgMatches, Subcommand};

pub(crate) use self::{
    arguments::created_format,
    create::{CreateArguments, KeyedApi},
    job::{JobStatus, JobWatch},
    lookup::{Pages, complete_connected_devices, complete_contexts, complete_ids},
    operation::{Body, Kind, Operation, Param, Value},
};
use crate::{exit::Failure, output::Column};

/// A collection of the API, and the subcommand that manages it.
pub(crate) struct Resource {
    /// The subcommand.
    pub(crate) name: &'static str,
    /// What one element is called, with its article.
    pub(crate) noun: &'static str,
    /// The help of the subcommand.
    pub(crate) about: &'static str,
    /// Path of the collection; empty if it cannot be listed.
    pub(crate) path: &'static str,
    /// Member of a page that holds the elements.
    pub(crate) member: &'static str,
    /// Page size: small where each element can be large.
    pub(crate) page: u16,
    /// Member of an element that is its id.
    pub(crate) id: &'static str,
    /// How an id begins; empty if clients choose the ids.
    pub(crate) prefix: &'static str,
    /// Member of an element by which users know it; empty if there is none.
    pub(crate) title: &'static str,
    /// What `list` shows.
    pub(crate) columns: &'static [Column],
    /// The subcommands of the table. A single one without a name is the command itself.
    pub(crate) operations: &'static [Operation],
    /// Subcommands with code of their own.
    pub(crate) custom: Option<Custom>,
    /// The key of a local `up` that is used: that of its operator.
    pub(crate) is_for_operators: bool,
}

/// Subcommands of a resource with code of their own.
pub(crate) struct Custom {
    augment: fn(Command) -> Command,
    has: fn(&str) -> bool,
    run: fn(&ArgMatches) -> Running,
}

/// A subcommand that runs, until its exit code.
type Running = Pin<Box<dyn Future<Output = Result<ExitCode, Failure>> + Send>>;

/// Subcommands that [`Custom`] can hold.
pub(crate) trait Action: Subcommand + Send + 'static {
    /// Runs the subcommand.
    fn run(self) -> impl Future<Output = Result<ExitCode, Failure>> + Send;
}

/// A subcommand of a resource, with its arguments.
pub(crate) struct Invocation {
    resource: &'static Resource,
    /// `None` is the custom subcommand.
    operation: Option<&'static Operation>,
    matches: ArgMatches,
}

impl Resource {
    const NONE: Self = Self {
        name: "",
        noun: "",
        about: "",
        path: "",
        member: "",
        page: 200,
        id: "id",
        prefix: "",
        title: "",
        columns: &[],
        operations: &[],
        custom: None,
        is_for_operators: false,
    };

    /// Returns the path of an element.
    pub(crate) fn element_path(&self, id: impl Display) -> String {
        format!("{}/{id}", self.path)
    }

    /// Returns the operation that is the command itself.
    fn only_operation(&self) -> Option<&'static Operation> {
        match self.operations {
            [only] if only.name.is_empty() => Some(only),
            _ => None,
        }
    }

    fn command(&'static self) -> Command {
        let command = Command::new(self.name).about(self.about);
        if let Some(only) = self.only_operation() {
            return only.augment(self, command);
        }
        let command = command
            .subcommand_required(true)
            .arg_required_else_help(true);
        let command = match &self.custom {
            Some(custom) => (custom.augment)(command),
            None => command,
        };
        let operations = self.operations.iter();
        command.subcommands(
            operations.map(|operation| operation.augment(self, Command::new(operation.name))),
        )
    }
}

impl Custom {
    /// The subcommands of a type.
    pub(crate) const fn of<A: Action>() -> Self {
        Self {
            augment: A::augment_subcommands,
            has: A::has_subcommand,
            run: |matches| {
                let action = A::from_arg_matches(matches).map_err(Failure::usage);
                Box::pin(async move { action?.run().await })
            },
        }
    }
}

impl Invocation {
    /// Runs the subcommand.
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        match (self.operation, &self.resource.custom) {
            (Some(operation), _) => operation.run(self.resource, &self.matches).await?,
            (None, Some(custom)) => return (custom.run)(&self.matches).await,
            (None, None) => {}
        }
        Ok(ExitCode::SUCCESS)
    }

    fn find(matches: &ArgMatches) -> Option<Self> {
        let (name, matches) = matches.subcommand()?;
        let resource = table::ALL
            .into_iter()
            .find(|resource| resource.name == name)?;
        if let Some(only) = resource.only_operation() {
            return Some(Self {
                resource,
                operation: Some(only),
                matches: matches.clone(),
            });
        }
        let (name, of_operation) = matches.subcommand()?;
        if resource
            .custom
            .as_ref()
            .is_some_and(|custom| (custom.has)(name))
        {
            return Some(Self {
                resource,
                operation: None,
                matches: matches.clone(),
            });
        }
        let operation = resource
            .operations
            .iter()
            .find(|operation| operation.name == name);
        Some(Self {
            resource,
            operation: Some(operation?),
            matches: of_operation.clone(),
        })
    }
}

impl FromArgMatches for Invocation {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        Self::find(matches).ok_or_else(missing)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Invocation {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommands(table::ALL.into_iter().map(Resource::command))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        table::ALL.into_iter().any(|resource| resource.name == name)
    }
}

impl std::fmt::Debug for Invocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.resource.name)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;
    use crate::cli;

    /// The operations of the API that commands with code of their own use.
    const OTHERS: [(&str, &str); 17] = [
        ("calls group", "POST /v1/group-calls"),
        ("devices label", "PATCH /v1/devices/{id}"),
        (
            "devices approve",
            "PUT /v1/devices/{id}/services/{service}/approval",
        ),
        ("call", "POST /v1/devices/{id}/calls"),
        ("calls show", "GET /v1/calls/{id}"),
        ("events", "GET /v1/events"),
        ("token", "POST /v1/tokens"),
        ("talk", "POST /v1/npcs/{id}/chat"),
        ("npcs create", "POST /v1/npcs"),
        ("templates export", "GET /v1/templates/{id}/export"),
        ("skills upload", "POST /v1/skills-books"),
        ("skills upload", "PUT /v1/skills-books/{id}/parts/{number}"),
        ("skills upload", "POST /v1/skills-books/{id}/finish"),
        ("skills search", "GET /v1/skills-books/{id}/search"),
        ("voices upload", "POST /v1/voices"),
        ("voices train", "POST /v1/voices/{id}/train"),
        ("templates import", "POST /v1/templates/import"),
    ];

    /// The operations that only browsers use: programs send their key with each request.
    const OF_BROWSERS: [&str; 2] = ["POST /v1/session", "DELETE /v1/session"];

    fn document() -> BTreeSet<String> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let document: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let mut operations = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            let methods = item.as_object().unwrap().keys();
            operations.extend(methods.map(|m| format!("{} {path}", m.to_uppercase())));
        }
        operations
    }

    #[test]
    fn every_operation_of_the_api_has_a_command() {
        let mut covered = BTreeSet::new();
        for resource in table::ALL {
            for route in resource
                .operations
                .iter()
                .flat_map(|operation| operation.routes)
            {
                let (start, rest) = route.split_once('{').unwrap_or((route, ""));
                let rest = rest
                    .split_once('}')
                    .map_or(String::new(), |(_, end)| format!("{{id}}{end}"));
                covered.insert(format!("{start}{rest}"));
            }
        }
        let command = cli::command();
        for (name, route) in OTHERS {
            let found = name
                .split(' ')
                .try_fold(&command, |at, word| at.find_subcommand(word));
            assert!(found.is_some(), "no command {name}");
            covered.insert(route.to_owned());
        }
        covered.extend(OF_BROWSERS.map(str::to_owned));
        let document = document();
        let missing: Vec<_> = document.difference(&covered).collect();
        assert!(missing.is_empty(), "without a command: {missing:?}");
        let unknown: Vec<_> = covered.difference(&document).collect();
        assert!(unknown.is_empty(), "not in the document: {unknown:?}");
    }
}
