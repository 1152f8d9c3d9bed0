//! Waiting for an element that is worked on after it was sent, also while the control plane starts again.
//! Never: a wait without end, or one that ends without naming what was waited for.

use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use super::Collection;
use crate::{
    api::Api,
    exit::{self, Failure},
};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// How long nobody may answer: longer than a control plane takes to start again.
const SILENCE: Duration = Duration::from_secs(120);

/// How far an element is.
#[derive(Deserialize)]
pub(crate) struct Standing {
    /// Which one.
    pub(crate) id: String,
    /// The state as the API names it.
    pub(crate) state: String,
    /// The share that is done, where it is known.
    #[serde(default)]
    pub(crate) progress: f64,
    /// Why it is not what it should be.
    #[serde(default)]
    error: Option<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    detail: String,
}

/// Who waits for what.
pub(crate) struct Settling<'a> {
    /// Who is asked.
    pub(crate) api: &'a Api,
    /// Where the element is.
    pub(crate) of: &'a Collection,
    /// The states that are left without anybody's doing.
    pub(crate) passing: &'a [&'a str],
}

impl Standing {
    /// What a document says.
    pub(crate) fn of(document: &RawValue) -> Result<Self, Failure> {
        let standing = serde_json::from_str(document.get());
        Ok(standing.context("the answer does not say how far it is")?)
    }
}

impl Settling<'_> {
    /// Waits until an element is what it will be, and gives it; each look before is handed over.
    pub(crate) async fn settled(
        &self,
        mut document: Box<RawValue>,
        seen: impl Fn(&Standing),
    ) -> Result<Box<RawValue>, Failure> {
        loop {
            let standing = Standing::of(&document)?;
            if !self.passing.contains(&standing.state.as_str()) {
                return match standing.error {
                    Some(Fault { detail }) => Err(Failure::general(format!(
                        "{} {}: {detail}",
                        standing.id, standing.state
                    ))),
                    None => Ok(document),
                };
            }
            seen(&standing);
            sleep(LOOK).await;
            document = self.look(&standing.id).await?;
        }
    }

    /// One look, again while nobody answers.
    async fn look(&self, id: &str) -> Result<Box<RawValue>, Failure> {
        let place = self.of.at(id);
        let mut silent_since = None;
        loop {
            let error = match self.api.get(&place).await {
                Ok(document) => return Ok(document),
                Err(error) => error,
            };
            let since = *silent_since.get_or_insert_with(|| {
                if !error.is_refusal() {
                    exit::say(&format!("switchboard: {id}: {error}; it is asked again"));
                }
                Instant::now()
            });
            if error.is_refusal() || since.elapsed() >= SILENCE {
                return Err(Failure::general(format!(
                    "{id} was sent, and its end was not seen; look with `switchboard {} show {id}`: {error}",
                    self.of.command
                )));
            }
            sleep(LOOK).await;
        }
    }
}
