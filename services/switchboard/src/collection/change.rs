//! How an element is changed: by a JSON merge patch (RFC 7396) out of a file.
//! Never: a patch read or judged here.

use std::{fmt::Display, path::PathBuf};

use http::{HeaderValue, Method, header};
use serde_json::value::RawValue;

use super::{Collection, print_document};
use crate::{
    api::{ApiArguments, Sent},
    exit::Failure,
    files::{LARGEST_FILE, read_input},
};

/// What changes.
#[derive(Debug, clap::Args)]
pub(crate) struct ChangeArguments {
    /// A file with what changes as JSON; null removes; - is stdin
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Only if its ETag still is this version, as 3, or 3-2 where that of the template counts too; in whatever version when not set
    #[arg(long, value_name = "VERSION", value_parser = version)]
    if_version: Option<String>,
    #[command(flatten)]
    api: ApiArguments,
}

impl Collection {
    /// Changes one element and prints it as it is then.
    pub(crate) async fn edit(
        &self,
        id: impl Display,
        change: &ChangeArguments,
    ) -> Result<(), Failure> {
        let body = read_input(&change.file, LARGEST_FILE)?;
        let version = match &change.if_version {
            Some(version) => format!("\"{version}\""),
            None => "*".to_owned(),
        };
        let version = HeaderValue::try_from(version).map_err(Failure::usage)?;
        let sent = Sent {
            method: Method::PATCH,
            path: &self.at(id),
            headers: [(header::IF_MATCH, version)].into_iter().collect(),
            body,
        };
        let changed = change.api.connect()?.bytes(sent).await;
        let changed = changed.map_err(Failure::general)?;
        let changed: Box<RawValue> = serde_json::from_slice(&changed).map_err(Failure::general)?;
        print_document(&changed)
    }
}

fn version(text: &str) -> Result<String, String> {
    if text.split('-').all(|number| number.parse::<u64>().is_ok()) {
        Ok(text.to_owned())
    } else {
        Err("a version is a number, or two with - between them".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_one_number_or_two() {
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
