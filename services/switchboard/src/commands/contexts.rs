//! `switchboard contexts`: the installations that `switchboard login` has stored.

use std::process::ExitCode;

use anyhow::Context as _;
use clap_complete::ArgValueCandidates;
use serde_json::{json, value::to_raw_value};

use crate::{
    contexts::Contexts,
    exit::{self, Failure},
    output::{Column, Format, Printer},
    resources::complete_contexts,
};

const COLUMNS: [Column; 3] = [
    Column::new("NAME", "name"),
    Column::new("CURRENT", "current"),
    Column::new("URL", "url"),
];

/// Lists, selects and removes the contexts that `switchboard login` stores.
///
/// Commands use --url and --api-key, or else --context, or else --data-dir, or else the current
/// context, or else the `up` running on the default data folder.
///
/// Exit codes: 0 done, 1 the file cannot be read or written, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Lists contexts, without their keys
    List {
        /// Format of the output. Default: table on a terminal, otherwise tsv
        #[arg(short = 'o', long = "output", value_enum, value_name = "FORMAT")]
        format: Option<Format>,
    },
    /// Makes a context the current one
    Use {
        /// Name of the context
        #[arg(
            value_name = "NAME",
            required_unless_present = "none",
            add = ArgValueCandidates::new(complete_contexts)
        )]
        name: Option<String>,
        /// Use no context: commands find the running `up` again
        #[arg(long, conflicts_with = "name")]
        none: bool,
    },
    /// Removes a context and its key from this machine; the key stays valid
    Remove {
        /// Name of the context
        #[arg(value_name = "NAME", add = ArgValueCandidates::new(complete_contexts))]
        name: String,
    },
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let mut contexts = Contexts::read()?;
    match arguments.action {
        Action::List { format } => list(&contexts, format)?,
        Action::Use { name, .. } => {
            contexts.current = name
                .map(|name| contexts.get(&name))
                .transpose()?
                .map(|(name, _)| name);
            contexts.save()?;
        }
        Action::Remove { name } => {
            contexts.get(&name)?;
            contexts.contexts.remove(&name);
            if contexts.current.as_ref() == Some(&name) {
                contexts.current = None;
                exit::print_stderr("switchboard: there is no current context now");
            }
            contexts.save()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(contexts: &Contexts, format: Option<Format>) -> Result<(), Failure> {
    let mut printer = Printer::new(format, &COLUMNS);
    for (name, context) in &contexts.contexts {
        let is_current = contexts.current.as_ref() == Some(name);
        let shown = to_raw_value(&json!({"name": name, "current": is_current, "url": context.url}));
        printer.add(shown.context("cannot write JSON")?)?;
    }
    printer.finish()
}
