//! The elements of a collection: all pages of them, the one that a user means, and those that a
//! shell proposes.

use std::{collections::BTreeMap, fmt::Display, ops::ControlFlow, str::FromStr, time::Duration};

use anyhow::Context as _;
use clap_complete::CompletionCandidate;
use serde::de::DeserializeOwned;
use serde_json::{Value, value::RawValue};

use super::{Resource, table::DEVICES};
use crate::{
    api::{Api, ApiArguments},
    contexts::{Context, Contexts},
    exit::{self, Failure},
    output::member_of,
    query::percent_encode,
};

/// Time that a shell waits for proposals.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(2);
/// Candidates that an error about an ambiguous name lists.
const MAX_CANDIDATES: usize = 10;
/// Digits of an id after its prefix.
const ID_DIGITS: usize = 32;
/// Digits that the beginning of an id has at least. Less is a mistake, such as an empty variable.
const MIN_ID_DIGITS: usize = 6;

/// The elements of a list.
pub(crate) struct Pages<'a> {
    pub(crate) api: &'a Api,
    pub(crate) resource: &'a Resource,
    /// Path of the list with its filters.
    pub(crate) path: &'a str,
}

impl Pages<'_> {
    /// Calls `take` for each element of each page, until it breaks.
    pub(crate) async fn for_each(
        &self,
        mut take: impl FnMut(Box<RawValue>) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        let mut cursor: Option<String> = None;
        let sign = if self.path.contains('?') { '&' } else { '?' };
        loop {
            let mut path = format!("{}{sign}limit={}", self.path, self.resource.page);
            if let Some(cursor) = &cursor {
                path += &format!("&cursor={}", percent_encode(cursor));
            }
            let page: BTreeMap<String, Box<RawValue>> =
                self.api.get(&path).await.map_err(Failure::general)?;
            if member::<Option<bool>>(&page, "incomplete")? == Some(true) && cursor.is_none() {
                exit::print_stderr(
                    "switchboard: the list is incomplete: the database is unavailable",
                );
            }
            for element in member::<Vec<Box<RawValue>>>(&page, self.resource.member)? {
                if take(element)?.is_break() {
                    return Ok(());
                }
            }
            cursor = member(&page, "next_cursor")?;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }
}

impl Resource {
    /// Returns the id of the element that `given` means: an id, the beginning of one, or a name. Ids
    /// that clients choose are not shortened.
    ///
    /// # Errors
    /// When there are several such elements, or none.
    pub(crate) async fn resolve(&self, api: &Api, given: &str) -> Result<String, Failure> {
        let has_only_own_ids = self.prefix.is_empty() && self.title.is_empty();
        if self.path.is_empty() || self.is_id(given) || (has_only_own_ids && !given.is_empty()) {
            return Ok(given.to_owned());
        }
        if given.is_empty() {
            let noun = self.noun;
            return Err(Failure::usage(format!(
                "the id or the name of {noun} is empty"
            )));
        }
        let is_beginning = !self.prefix.is_empty()
            && given.starts_with(self.prefix)
            && given.len() >= self.prefix.len() + MIN_ID_DIGITS;
        let mut named = Vec::new();
        let mut begun = Vec::new();
        let mut is_id = false;
        let pages = Pages {
            api,
            resource: self,
            path: self.path,
        };
        let take = |element: Box<RawValue>| {
            let (id, title) = self.identify(&element)?;
            is_id |= id == given;
            if !title.is_empty() && title == given {
                named.push((id, title));
            } else if is_beginning && id.starts_with(given) {
                begun.push((id, title));
            }
            Ok(if is_id {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        };
        pages.for_each(take).await?;
        let found = if named.is_empty() { begun } else { named };
        match found.as_slice() {
            _ if is_id => Ok(given.to_owned()),
            [(id, _)] => Ok(id.clone()),
            // Clients choose these ids: the server knows best.
            [] if self.prefix.is_empty() => Ok(given.to_owned()),
            [] => Err(Failure::usage(format!(
                "no {} has the name or the beginning of an id `{given}`: see `switchboard {} list`",
                self.noun
                    .split_once(' ')
                    .map_or(self.noun, |(_, noun)| noun),
                self.name
            ))),
            several => Err(Failure::usage(several.iter().take(MAX_CANDIDATES).fold(
                format!("`{given}` is ambiguous; use one of these ids:"),
                |text, (id, title)| text + "\n  " + id + "  " + title,
            ))),
        }
    }

    /// As [`Self::resolve`], with the type of the id.
    ///
    /// # Errors
    /// Also when the id is malformed.
    pub(crate) async fn resolve_as<T: FromStr<Err: Display>>(
        &self,
        api: &Api,
        given: &str,
    ) -> Result<T, Failure> {
        let id = self.resolve(api, given).await?;
        id.parse()
            .map_err(|error| Failure::usage(format!("`{id}`: {error}")))
    }

    /// Returns the id of an element.
    ///
    /// # Errors
    /// When it is malformed.
    pub(crate) fn identity(&self, element: &RawValue) -> Result<String, Failure> {
        self.identify(element).map(|(id, _)| id)
    }

    fn is_id(&self, text: &str) -> bool {
        let digits = text
            .strip_prefix(self.prefix)
            .filter(|_| !self.prefix.is_empty());
        digits.is_some_and(|digits| {
            digits.len() == ID_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        })
    }

    fn identify(&self, element: &RawValue) -> Result<(String, String), Failure> {
        let element = serde_json::from_str(element.get()).context("the list is malformed")?;
        Ok(self.names(&element))
    }

    /// The id and the title of an element.
    fn names(&self, element: &Value) -> (String, String) {
        let text = |path: &str| {
            let value = member_of(element, path).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        (text(self.id), text(self.title))
    }
}

/// The ids that a shell proposes: those of the first page, with their names.
pub(crate) fn complete_ids(resource: &'static Resource) -> Vec<CompletionCandidate> {
    complete(resource, |_| true)
}

/// The ids of devices that can be called now.
pub(crate) fn complete_connected_devices() -> Vec<CompletionCandidate> {
    complete(&DEVICES, |device| {
        device.get("online") == Some(&Value::Bool(true))
    })
}

/// The names of contexts, with their addresses.
pub(crate) fn complete_contexts() -> Vec<CompletionCandidate> {
    let contexts = Contexts::read().unwrap_or_default().contexts;
    let candidate = |(name, context): (String, Context)| {
        CompletionCandidate::new(name).help(Some(exit::escaped(&context.url).into()))
    };
    contexts.into_iter().map(candidate).collect()
}

fn complete(
    resource: &'static Resource,
    is_proposed: impl Fn(&Value) -> bool,
) -> Vec<CompletionCandidate> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        return Vec::new();
    };
    let proposed = async {
        let arguments = ApiArguments::of_completion()?;
        let api = if resource.is_for_operators {
            arguments.connect_as_operator()
        } else {
            arguments.connect()
        }?;
        let mut candidates = Vec::new();
        let mut left = resource.page;
        let pages = Pages {
            api: &api,
            resource,
            path: resource.path,
        };
        let take = |element: Box<RawValue>| {
            let element: Value =
                serde_json::from_str(element.get()).context("the list is malformed")?;
            if is_proposed(&element) {
                let (id, title) = resource.names(&element);
                let help = (!title.is_empty()).then(|| exit::escaped(&title).into());
                candidates.push(CompletionCandidate::new(id).help(help));
            }
            left = left.saturating_sub(1);
            Ok(if left == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        };
        pages.for_each(take).await?;
        Ok::<_, Failure>(candidates)
    };
    let proposed =
        runtime.block_on(async { tokio::time::timeout(COMPLETION_TIMEOUT, proposed).await });
    proposed.ok().and_then(Result::ok).unwrap_or_default()
}

fn member<T: DeserializeOwned>(
    page: &BTreeMap<String, Box<RawValue>>,
    name: &str,
) -> Result<T, Failure> {
    let value = page.get(name).map_or("null", |value| value.get());
    let value = serde_json::from_str(value);
    Ok(value.with_context(|| format!("the page has no valid `{name}`"))?)
}
