//! A collection of the API, such as `/v1/npcs`, as subcommands work on it: page by page, or one element.
//! Never: more of a collection in memory than one page.

mod change;
mod making;
mod settling;

use std::{collections::BTreeMap, fmt::Display, io::IsTerminal as _};

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

pub(crate) use self::{
    change::ChangeArguments,
    making::{CreateArguments, Making},
    settling::{Settling, Standing},
};
use crate::{
    api::{Api, ApiArguments},
    exit::{self, Failure},
    query::encoded,
};

/// One collection.
pub(crate) struct Collection {
    /// The subcommand for it.
    pub(crate) command: &'static str,
    /// Where it is.
    pub(crate) path: &'static str,
    /// The member of a page that has its elements.
    pub(crate) member: &'static str,
    /// How many a page has: few where each may be as long as a body.
    pub(crate) page: u16,
}

/// Narrows a list: the parameter's name, and its value if it is given.
pub(crate) type Filter = (&'static str, Option<String>);

/// How a list is printed.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArguments {
    /// Print each as a JSON object instead
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArguments,
}

impl Collection {
    /// Where one element is.
    pub(crate) fn at(&self, id: impl Display) -> String {
        format!("{}/{id}", self.path)
    }

    /// Prints all elements, each as its own JSON or as the line that is made of it.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        arguments: &ListArguments,
        filters: &[Filter],
        line: impl Fn(T) -> String,
    ) -> Result<(), Failure> {
        let api = arguments.api.connect()?;
        self.each(&api, filters, |element| {
            if arguments.json {
                return exit::print(element.get());
            }
            let element = serde_json::from_str(element.get());
            let element =
                element.with_context(|| format!("one of {} is not as expected", self.path));
            exit::print(&line(element?))
        })
        .await
    }

    /// Hands over all elements, one after the other.
    async fn each(
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
                        .map(|value| format!("&{name}={}", encoded(value))),
                );
            }
            path.extend(
                cursor
                    .iter()
                    .map(|cursor| format!("&cursor={}", encoded(cursor))),
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

    /// Prints one element: as it is served, or set out for a person who looks.
    pub(crate) async fn show(&self, api: &ApiArguments, id: impl Display) -> Result<(), Failure> {
        let api = api.connect()?;
        let element: Box<RawValue> = api.get(&self.at(id)).await.map_err(Failure::general)?;
        print_document(&element)
    }

    /// Removes one element, in whatever version it is.
    pub(crate) async fn remove(&self, api: &ApiArguments, id: impl Display) -> Result<(), Failure> {
        let removed = api.connect()?.remove(&self.at(id)).await;
        removed.map_err(Failure::general)
    }
}

/// Prints a document as it is served, or set out for a person who looks.
pub(crate) fn print_document(document: &RawValue) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() {
        return exit::print(document.get());
    }
    let document: serde_json::Value =
        serde_json::from_str(document.get()).context("the answer is no JSON")?;
    exit::print(&format!("{document:#}"))
}

fn member<T: DeserializeOwned>(
    page: &BTreeMap<String, Box<RawValue>>,
    name: &str,
) -> Result<T, Failure> {
    let value = page.get(name).map_or("null", |value| value.get());
    let value = serde_json::from_str(value);
    Ok(value.with_context(|| format!("the page has no usable `{name}`"))?)
}
