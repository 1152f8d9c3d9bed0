//! `switchboard status`: which installation commands use, and what it has.

use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::{Value, json, value::to_raw_value};

use crate::{
    api::{Api, ApiArguments},
    exit::Failure,
    output::FormatArguments,
};

/// Shows which installation commands use, its version, and what the organisation has.
///
/// The address is followed by the place that it comes from: a flag, a context, or a running `up`.
///
/// Exit codes: 0 reachable, 1 refused or not reachable, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    format: FormatArguments,
    #[command(flatten)]
    api: ApiArguments,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let api = arguments.api.connect()?;
    let server: Value = api.get("/").await.map_err(Failure::general)?;
    let mut status = json!({"address": api.address(), "version": server["version"]});
    let mut add = |name: &str, value: &Value| status[name] = value.clone();
    if let Some(org) = readable(&api, "/v1/org").await? {
        add("org_id", &org["org_id"]);
        add("organisation", &org["name"]);
    }
    if let Some(usage) = readable(&api, "/v1/usage").await? {
        let now = usage["now"].as_object();
        now.into_iter()
            .flatten()
            .for_each(|(name, value)| add(name, value));
    }
    arguments
        .format
        .print(&to_raw_value(&status).context("cannot write JSON")?)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a document, `None` if the key may not read it: that of an operator, or one for calls.
async fn readable(api: &Api, path: &str) -> Result<Option<Value>, Failure> {
    match api.get(path).await {
        Ok(document) => Ok(Some(document)),
        Err(error) if error.is_forbidden() => Ok(None),
        Err(error) => Err(Failure::general(error)),
    }
}
