//! Changes of elements by JSON merge patch (RFC 7396).

use std::{fmt::Display, path::PathBuf};

use http::{HeaderValue, Method, header};
use serde_json::value::RawValue;

use super::Collection;
use crate::{
    api::{ApiArguments, ApiRequest},
    exit::{self, Failure},
    files::{MAX_FILE_BYTES, read_input},
};

/// Arguments of `edit` subcommands.
#[derive(Debug, clap::Args)]
pub(crate) struct ChangeArguments {
    /// File with the merge patch as JSON; null removes a member; - is stdin
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Change only this version, the ETag without quotes: 3, or 3-2 if the version of the template
    /// counts too. Default: any version
    #[arg(long, value_name = "VERSION", value_parser = version)]
    if_version: Option<String>,
    #[command(flatten)]
    api: ApiArguments,
}

impl Collection {
    /// Changes an element and prints the result.
    pub(crate) async fn edit(
        &self,
        id: impl Display,
        change: &ChangeArguments,
    ) -> Result<(), Failure> {
        let body = read_input(&change.file, MAX_FILE_BYTES)?;
        let version = match &change.if_version {
            Some(version) => format!("\"{version}\""),
            None => "*".to_owned(),
        };
        let version = HeaderValue::try_from(version).map_err(Failure::usage)?;
        let sent = ApiRequest {
            method: Method::PATCH,
            path: &self.element_path(id),
            headers: [(header::IF_MATCH, version)].into_iter().collect(),
            body,
        };
        let changed = change.api.connect()?.bytes(sent).await;
        let changed = changed.map_err(Failure::general)?;
        let changed: Box<RawValue> = serde_json::from_slice(&changed).map_err(Failure::general)?;
        exit::print_json(&changed)
    }
}

fn version(text: &str) -> Result<String, String> {
    if text.split('-').all(|number| number.parse::<u64>().is_ok()) {
        Ok(text.to_owned())
    } else {
        Err("a version is a number, or two numbers joined by a hyphen".to_owned())
    }
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
