//! `switchboard call`: calls a service of a device. Calls are not retried; the exit code reports
//! the outcome.

use std::process::ExitCode;

use clap_complete::ArgValueCandidates;
use indicatif::ProgressBar;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use switchboard_protocol::{id::DeviceId, outcome::Outcome};

use crate::{
    api::{Api, ApiArguments, ApiError, CallAnswer, CallRequest},
    exit::{self, Failure},
    progress,
    resources::complete_connected_devices,
};

/// The call was not accepted, or the API is unreachable.
pub(crate) const NOT_ACCEPTED: u8 = 9;

/// Calls a service of a device.
///
/// Prints the data of the result as JSON; with --async or --queued, prints the id of the call, for
/// `switchboard calls show`.
///
/// With --progress, what the device reports about the call appears on stderr, on a terminal as a bar.
///
/// Exit codes: 0 succeeded, 1 failed, 2 invalid params, 3 unknown device or service, 4 offline, 5
/// overloaded, 6 cancelled, 7 timed out, 8 lost (the device may have acted), 9 not accepted or API
/// unreachable, 64 invalid settings. With --async or --queued: 0 accepted, 8, 9 or 64.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Id of the device
    #[arg(add = ArgValueCandidates::new(complete_connected_devices))]
    device: DeviceId,
    /// Name of the service
    service: String,
    /// Parameters, a JSON object
    #[arg(default_value = "{}", value_name = "JSON", value_parser = params)]
    params: Box<RawValue>,
    /// Timeout of the call in milliseconds. Default: set by the server
    #[arg(long, value_name = "MILLISECONDS")]
    timeout_ms: Option<u64>,
    /// Return without waiting for the result
    #[arg(long = "async", conflicts_with = "queued")]
    no_wait: bool,
    /// Return without waiting for the result, and hold the call until the device is connected
    #[arg(long)]
    queued: bool,
    /// Milliseconds that a queued call waits for the device. Default: set by the server
    #[arg(long, value_name = "MILLISECONDS", requires = "queued")]
    expires_in_ms: Option<u64>,
    /// Report the progress and the log messages of the device on stderr until the call ends
    #[arg(long, conflicts_with_all = ["no_wait", "queued"])]
    progress: bool,
    /// Return the first outcome for repeated calls with the same key, instead of calling again
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    api: ApiArguments,
}

#[derive(Deserialize)]
struct Progress {
    progress: f64,
    total: Option<f64>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct Log {
    level: String,
    data: Value,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let api = arguments.api.connect()?;
    let request = CallRequest {
        service: &arguments.service,
        params: &arguments.params,
        timeout_ms: arguments.timeout_ms,
        mode: match (arguments.no_wait, arguments.queued) {
            (true, _) => Some("async"),
            (_, true) => Some("queued"),
            _ => None,
        },
        expires_in_ms: arguments.expires_in_ms,
    };
    let (device, key) = (&arguments.device, arguments.idempotency_key.as_deref());
    if request.mode.is_some() {
        let kept = api.create_async_call(device, &request, key).await;
        exit::print(&kept.map_err(refused)?.call_id.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let answer = match arguments.progress {
        true => Box::pin(follow(&api, device, &request, key)).await,
        false => api.call(device, &request, key).await,
    };
    finish(answer.map_err(refused)?)
}

/// Calls a device, and reports on stderr what it sends until the result: on a terminal the progress
/// is a bar.
async fn follow(
    api: &Api,
    device: &DeviceId,
    request: &CallRequest<'_>,
    key: Option<&str>,
) -> Result<CallAnswer, ApiError> {
    let mut events = api.call_events(device, request, key).await?;
    let bar = progress::bar(0, "{bar:40} {pos}/{len} {msg}");
    while let Some(event) = events.next().await.map_err(|error| api.failed(&error))? {
        match event.name.as_str() {
            "progress" => {
                let Ok(sent) = serde_json::from_str(&event.data) else {
                    continue;
                };
                report(&bar, sent);
            }
            "log" => {
                if let Ok(Log { level, data }) = serde_json::from_str(&event.data) {
                    bar.suspend(|| exit::print_stderr(&format!("{level}: {}", plain(&data))));
                }
            }
            "result" => {
                bar.finish_and_clear();
                return api.streamed_answer(&event.data);
            }
            _ => {}
        }
    }
    Err(api.unanswered("the stream ended before the result"))
}

fn report(
    bar: &ProgressBar,
    Progress {
        progress,
        total,
        message,
    }: Progress,
) {
    if bar.is_hidden() {
        let of = total.map(|total| format!("/{total}")).unwrap_or_default();
        let message = message.map(|text| format!(" {}", plain(&Value::from(text))));
        exit::print_stderr(&format!("{progress}{of}{}", message.unwrap_or_default()));
        return;
    }
    bar.set_length(total.unwrap_or_default() as u64);
    bar.set_position(progress as u64);
    bar.set_message(plain(&Value::from(message.unwrap_or_default())));
}

/// Text of a device without the characters that control a terminal.
fn plain(data: &Value) -> String {
    let text = match data {
        Value::String(text) => text.clone(),
        data => data.to_string(),
    };
    text.replace(char::is_control, " ")
}

/// Maps a rejected call, or one without a result, to its exit code.
pub(crate) fn refused(error: ApiError) -> Failure {
    match &error {
        ApiError::Refused(problem) => {
            let code = problem.outcome.map_or(NOT_ACCEPTED, exit_code);
            Failure::with_code(code, problem)
        }
        ApiError::Unanswered { .. } => {
            let reason = format!("lost, delivered: unknown; {error}");
            Failure::with_code(exit_code(Outcome::Lost), reason)
        }
        ApiError::Unreachable { .. } => Failure::with_code(NOT_ACCEPTED, error),
    }
}

fn finish(answer: CallAnswer) -> Result<ExitCode, Failure> {
    let (data, error) = answer
        .result
        .map_or((None, None), |result| (result.data, result.error));
    if let Some(data) = data {
        exit::print_json(&data)?;
    }
    if !answer.result_valid {
        exit::print_stderr(
            "switchboard: result_valid: false; the data does not match the output schema that the service declares, or could not be checked",
        );
    }
    if answer.outcome == Outcome::Succeeded {
        return Ok(ExitCode::SUCCESS);
    }
    let reason = error.unwrap_or_else(|| format!("the call ended as {}", answer.outcome.as_str()));
    Err(Failure::with_code(exit_code(answer.outcome), reason))
}

pub(crate) const fn exit_code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Succeeded => 0,
        Outcome::Failed => 1,
        Outcome::Invalid => 2,
        Outcome::UnknownDevice | Outcome::UnknownService => 3,
        Outcome::Offline => 4,
        Outcome::Overloaded => 5,
        Outcome::Cancelled => 6,
        Outcome::TimedOut => 7,
        Outcome::Lost => 8,
        Outcome::Expired => 10,
    }
}

pub(crate) fn params(text: &str) -> Result<Box<RawValue>, String> {
    let raw: Box<RawValue> =
        serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    if raw.get().starts_with('{') {
        Ok(raw)
    } else {
        Err("parameters must be a JSON object".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_must_be_an_object() {
        fn check(text: &str, valid: bool) {
            assert_eq!(params(text).is_ok(), valid, "{text}");
        }
        check(r#" {"a":"坏"} "#, true);
        check("{}", true);
        check("[]", false);
        check("{", false);
        check("", false);
    }

    #[test]
    fn exit_code_covers_every_outcome() {
        let codes: Vec<u8> = Outcome::ALL.into_iter().map(exit_code).collect();
        assert_eq!(codes, [0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 10]);
    }
}
