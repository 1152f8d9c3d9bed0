//! A collection of the API such as `/v1/npcs`. Lists are read page by page.

mod change;
mod create;
mod job;

use std::{collections::BTreeMap, fmt::Display};

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

pub(crate) use self::{
    change::ChangeArguments,
    create::{CreateArguments, KeyedApi},
    job::{JobStatus, JobWatch},
};
use crate::{
    api::{Api, ApiArguments},
    exit::{self, Failure},
    query::percent_encode,
};

/// A collection of the API.
pub(crate) struct Collection {
    /// Subcommand of the collection.
    pub(crate) command: &'static str,
    /// Path of the collection.
    pub(crate) path: &'static str,
    /// Member of a page that holds the elements.
    pub(crate) member: &'static str,
    /// Page size: small where each element can be large.
    pub(crate) page: u16,
}

/// A filter of a list: name and optional value of the parameter.
pub(crate) type Filter = (&'static str, Option<String>);

/// Arguments of `list` subcommands.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArguments {
    /// Print each element as a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArguments,
}

impl Collection {
    /// Returns the path of an element.
    pub(crate) fn element_path(&self, id: impl Display) -> String {
        format!("{}/{id}", self.path)
    }

    /// Prints all elements, as JSON or formatted by `line`.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        arguments: &ListArguments,
        filters: &[Filter],
        line: impl Fn(T) -> String,
    ) -> Result<(), Failure> {
        let api = arguments.api.connect()?;
        self.for_each(&api, filters, |element| {
            if arguments.json {
                return exit::print_json_line(&element);
            }
            let element = serde_json::from_str(element.get());
            let element = element
                .with_context(|| format!("an element of {} has an unexpected form", self.path));
            exit::print(&line(element?))
        })
        .await
    }

    /// Calls `take` for each element.
    async fn for_each(
        &self,
        api: &Api,
        filters: &[Filter],
        mut take: impl FnMut(Box<RawValue>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut cursor: Option<String> = None;
        loop {
            let mut path = format!("{}?limit={}", self.path, self.page);
            for (name, value) in filters {
                path.extend(
                    value
                        .iter()
                        .map(|value| format!("&{name}={}", percent_encode(value))),
                );
            }
            path.extend(
                cursor
                    .iter()
                    .map(|cursor| format!("&cursor={}", percent_encode(cursor))),
            );
            let page: BTreeMap<String, Box<RawValue>> =
                api.get(&path).await.map_err(Failure::general)?;
            for element in member::<Vec<Box<RawValue>>>(&page, self.member)? {
                take(element)?;
            }
            cursor = member(&page, "next_cursor")?;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// Prints an element.
    pub(crate) async fn show(&self, api: &ApiArguments, id: impl Display) -> Result<(), Failure> {
        let api = api.connect()?;
        let element: Box<RawValue> = api
            .get(&self.element_path(id))
            .await
            .map_err(Failure::general)?;
        exit::print_json(&element)
    }

    /// Deletes an element regardless of its version.
    pub(crate) async fn remove(&self, api: &ApiArguments, id: impl Display) -> Result<(), Failure> {
        let removed = api.connect()?.remove(&self.element_path(id)).await;
        removed.map_err(Failure::general)
    }
}

fn member<T: DeserializeOwned>(
    page: &BTreeMap<String, Box<RawValue>>,
    name: &str,
) -> Result<T, Failure> {
    let value = page.get(name).map_or("null", |value| value.get());
    let value = serde_json::from_str(value);
    Ok(value.with_context(|| format!("the page has no valid `{name}`"))?)
}
