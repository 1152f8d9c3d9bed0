//! A collection of the API, such as `/v1/npcs`, as subcommands work on it: page by page, or one element.
//! Never: more of a collection in memory than one page.

use std::{
    collections::BTreeMap,
    fmt::Display,
    io::{IsTerminal as _, Read as _},
    path::Path,
};

use anyhow::Context as _;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::{
    api::{Api, ApiArguments, ApiError},
    exit::{self, Failure},
    query::encoded,
};

/// One collection.
pub(crate) struct Collection {
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

/// How something is made.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArguments {
    /// Makes repeating safe: the same key within 24 hours makes nothing twice; another one each time when not set
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    api: ApiArguments,
}

/// What was made.
#[derive(Deserialize)]
struct Made {
    id: String,
}

impl CreateArguments {
    /// Makes something from this body, under the key that was given or one that nobody else has; prints its id.
    pub(crate) async fn make(&self, path: &str, body: Vec<u8>) -> Result<(), Failure> {
        let random = || format!("{:032x}", rand::random::<u128>());
        let key = self.idempotency_key.clone().unwrap_or_else(random);
        let made = self.api.connect()?.make(path, body, &key).await;
        if let Err(ApiError::Unreachable { .. }) = &made {
            exit::say(&format!(
                "switchboard: it may have been made; repeat it safely with --idempotency-key {key}"
            ));
        }
        let made: Made = made.map_err(Failure::general)?;
        exit::print(&made.id)
    }
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
    pub(crate) async fn each(
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
            path.extend(cursor.iter().map(|cursor| format!("&cursor={cursor}")));
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

/// All bytes of a file, or of stdin when it is `-`.
pub(crate) fn read_input(file: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let shown = || format!("{} cannot be read", file.display());
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        let stdin = std::io::stdin().lock();
        stdin
            .take(most + 1)
            .read_to_end(&mut bytes)
            .context("stdin cannot be read")?;
    } else {
        let opened = std::fs::File::open(file).with_context(shown)?;
        opened
            .take(most + 1)
            .read_to_end(&mut bytes)
            .with_context(shown)?;
    }
    if u64::try_from(bytes.len()).is_ok_and(|length| length > most) {
        return Err(Failure::usage(format!(
            "{} has more than {most} bytes",
            file.display()
        )));
    }
    Ok(bytes)
}

/// Writes bytes to a file, or to stdout when none is named or it is `-`.
pub(crate) fn write_output(file: Option<&Path>, bytes: &[u8]) -> Result<(), Failure> {
    match file.filter(|file| *file != Path::new("-")) {
        Some(file) => std::fs::write(file, bytes)
            .with_context(|| format!("{} cannot be written", file.display()))
            .map_err(Failure::from),
        None => exit::print_bytes(bytes),
    }
}

fn member<T: DeserializeOwned>(
    page: &BTreeMap<String, Box<RawValue>>,
    name: &str,
) -> Result<T, Failure> {
    let value = page.get(name).map_or("null", |value| value.get());
    let value = serde_json::from_str(value);
    Ok(value.with_context(|| format!("the page has no usable `{name}`"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_has_a_limit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"four").unwrap();
        assert_eq!(read_input(file.path(), 4).unwrap(), b"four");
        assert!(read_input(file.path(), 3).is_err());
        assert!(read_input(Path::new("/no/such/file"), 3).is_err());
    }
}
