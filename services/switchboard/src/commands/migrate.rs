//! `switchboard migrate`: applies database migrations.

use std::process::ExitCode;

use switchboard_store::StoreError;

use crate::{
    arguments,
    exit::{self, Failure},
};

/// Applies database migrations to DATABASE_URL.
///
/// Safe to run at any time, also concurrently.
///
/// Exit codes: 0 up to date, 1 failed, 64 invalid settings.
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
        .map_err(|error| failed("cannot be inspected", error))?;
    store
        .migrate()
        .await
        .map_err(|error| failed("cannot be migrated", error))?;
    exit::print(&if before.applied == before.known {
        format!("the database is up to date at version {}", before.known)
    } else {
        format!(
            "the database was migrated from version {} to {}",
            before.applied, before.known
        )
    })?;
    Ok(ExitCode::SUCCESS)
}
