//! `switchboard devices label`, and the other commands about a device that are more than one request.

use std::{collections::BTreeSet, process::ExitCode};

use clap_complete::ArgValueCandidates;
use http::Method;
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use switchboard_protocol::{id::DeviceId, label::DeviceLabel};

use super::approvals::{Approve, Unapprove};
use crate::{
    api::ApiArguments,
    exit::Failure,
    output::FormatArguments,
    resources::{self, complete_ids, table::DEVICES},
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    Label(Label),
    Approve(Approve),
    Unapprove(Unapprove),
}

/// Adds and removes labels of a device, or sets its note, and prints both.
///
/// `+LABEL` and `LABEL` add a label, `-LABEL` removes it. Flags come before the device.
#[derive(Debug, clap::Args)]
pub(crate) struct Label {
    /// Text for people, at most 2,000 characters; empty for none
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Id of the device
    #[arg(value_name = "ID", add = ArgValueCandidates::new(|| complete_ids(&DEVICES)))]
    device: DeviceId,
    /// Labels to add, and with a hyphen before them to remove
    #[arg(value_name = "+LABEL|-LABEL", allow_hyphen_values = true)]
    changes: Vec<Change>,
    #[command(flatten)]
    format: FormatArguments,
    #[command(flatten)]
    api: ApiArguments,
}

/// A label to add or to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Add(DeviceLabel),
    Remove(DeviceLabel),
}

impl std::str::FromStr for Change {
    type Err = switchboard_protocol::label::LabelError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix('-') {
            Some(label) => Ok(Self::Remove(label.parse()?)),
            None => Ok(Self::Add(text.strip_prefix('+').unwrap_or(text).parse()?)),
        }
    }
}

/// What a device has.
#[derive(Deserialize)]
struct Labels {
    labels: BTreeSet<DeviceLabel>,
}

impl resources::Action for Action {
    async fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Label(label) => label.apply().await?,
            Self::Approve(approve) => approve.run().await?,
            Self::Unapprove(unapprove) => unapprove.run().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Label {
    async fn apply(self) -> Result<(), Failure> {
        let api = self.api.connect()?;
        let path = DEVICES.element_path(&self.device);
        let mut patch = json!({});
        if let Some(note) = &self.note {
            patch["note"] = json!(note);
        }
        if !self.changes.is_empty() {
            let Labels { mut labels } = api.get(&path).await.map_err(Failure::general)?;
            for change in self.changes {
                match change {
                    Change::Add(label) => labels.insert(label),
                    Change::Remove(label) => labels.remove(&label),
                };
            }
            patch["labels"] = json!(labels);
        }
        let body = patch.to_string().into_bytes();
        let changed: Box<RawValue> = api
            .send(Method::PATCH, &path, body)
            .await
            .map_err(Failure::general)?;
        self.format.print(&changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_adds_or_removes_a_label() {
        let label = || "room:kitchen".parse::<DeviceLabel>().unwrap();
        let check = |text: &str, expected: Option<Change>| {
            assert_eq!(text.parse::<Change>().ok(), expected, "{text}");
        };
        check("room:kitchen", Some(Change::Add(label())));
        check("+room:kitchen", Some(Change::Add(label())));
        check("-room:kitchen", Some(Change::Remove(label())));
        check("+", None);
        check("two words", None);
    }
}
