//! `switchboard migrate`: brings a database up to date.
//! Never: a step backwards.

use std::process::ExitCode;

use switchboard_store::StoreError;

use crate::{
    arguments,
    exit::{self, Failure},
};

/// Brings DATABASE_URL up to date; safe to run at any time and by several at once.
///
/// Exit codes: 0 up to date, 1 failed, 64 wrong settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: switchboard_store::Config,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let store = arguments::open_store(&arguments.database)?;
    let failed = |what: &str, error: StoreError| {
        Failure::general(format!("the database {what}: {}", error.report()))
    };
    let before = store
        .schema_version()
        .await
        .map_err(|error| failed("cannot be looked at", error))?;
    store
        .migrate()
        .await
        .map_err(|error| failed("was not brought up to date", error))?;
    exit::print(&if before.applied == before.known {
        format!("the database is at version {}, as it was", before.known)
    } else {
        format!(
            "the database was brought from version {} to {}",
            before.applied, before.known
        )
    })?;
    Ok(ExitCode::SUCCESS)
}
