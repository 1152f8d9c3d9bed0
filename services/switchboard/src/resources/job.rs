//! Waiting for elements that are processed in the background, across restarts of the control plane.

use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use super::Resource;
use crate::{
    api::Api,
    exit::{self, Failure},
};

/// Interval of status requests.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Timeout while the API is unreachable; longer than a restart of the control plane.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Status of a background job.
#[derive(Deserialize)]
pub(crate) struct JobStatus {
    /// Id of the element.
    pub(crate) id: String,
    /// State, as named by the API.
    pub(crate) state: String,
    /// Progress from 0 to 1, where known.
    #[serde(default)]
    pub(crate) progress: f64,
    /// Error of a failed job.
    #[serde(default)]
    error: Option<JobError>,
}

#[derive(Deserialize)]
struct JobError {
    detail: String,
}

/// Waits for the job of an element.
pub(crate) struct JobWatch<'a> {
    /// The client.
    pub(crate) api: &'a Api,
    /// Resource of the element.
    pub(crate) resource: &'a Resource,
    /// States that the element leaves without further requests.
    pub(crate) transient_states: &'a [&'a str],
}

impl JobStatus {
    /// Parses the status in a document.
    pub(crate) fn parse(document: &RawValue) -> Result<Self, Failure> {
        let status = serde_json::from_str(document.get());
        Ok(status.context("the response has no job status")?)
    }
}

impl JobWatch<'_> {
    /// Waits until the job has ended and returns the element. Calls `on_status` with every
    /// intermediate status.
    pub(crate) async fn wait(
        &self,
        mut document: Box<RawValue>,
        on_status: impl Fn(&JobStatus),
    ) -> Result<Box<RawValue>, Failure> {
        loop {
            let status = JobStatus::parse(&document)?;
            if !self.transient_states.contains(&status.state.as_str()) {
                return match status.error {
                    Some(JobError { detail }) => Err(Failure::general(format!(
                        "{} {}: {detail}",
                        status.id, status.state
                    ))),
                    None => Ok(document),
                };
            }
            on_status(&status);
            sleep(POLL_INTERVAL).await;
            document = self.fetch(&status.id).await?;
        }
    }

    /// Requests the element; retries while the API is unreachable.
    async fn fetch(&self, id: &str) -> Result<Box<RawValue>, Failure> {
        let path = self.resource.element_path(id);
        let mut unreachable_since = None;
        loop {
            let error = match self.api.get(&path).await {
                Ok(document) => return Ok(document),
                Err(error) => error,
            };
            let since = *unreachable_since.get_or_insert_with(|| {
                if !error.is_refusal() {
                    exit::print_stderr(&format!("switchboard: {id}: {error}; retrying"));
                }
                Instant::now()
            });
            if error.is_refusal() || since.elapsed() >= UNREACHABLE_TIMEOUT {
                return Err(Failure::general(format!(
                    "{id} was sent, but its result is unknown; check it with `switchboard {} show {id}`: {error}",
                    self.resource.name
                )));
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}
