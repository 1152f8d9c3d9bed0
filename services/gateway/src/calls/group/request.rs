//! The request body of a group call, and the devices that it chooses.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use switchboard_identity::{Caller, outside_key};
use switchboard_protocol::{
    id::DeviceId,
    label::{DeviceLabel, MAX_LABELS},
};
use switchboard_runtime::problem::{Problem, ProblemKind};
use switchboard_store::StoreError;
use utoipa::ToSchema;

use crate::{
    Gateway,
    calls::request::{CallBody, CallRequest, invalid, present},
    devices::{Reach, labels_within},
    store_unavailable,
};

/// Devices of one group. Protects devices from a mistake, and memory.
const MAX_DEVICES: usize = 200;
/// Calls of one group in flight. Protects the bus.
const MAX_AT_ONCE: u16 = 50;
const DEFAULT_AT_ONCE: u16 = 20;

/// A service and the devices that are called: those with a label, with all of some labels, or a list.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewGroupCall)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupBody {
    /// All devices that have this label.
    #[schema(value_type = DeviceLabel, required = false)]
    #[serde(default, deserialize_with = "present")]
    label: Option<DeviceLabel>,
    /// All devices that have all of these labels.
    #[schema(value_type = Vec<DeviceLabel>, required = false, min_items = 1, max_items = 16)]
    #[serde(default, deserialize_with = "present")]
    labels: Option<Vec<DeviceLabel>>,
    /// These devices.
    #[schema(value_type = Vec<DeviceId>, required = false, min_items = 1, max_items = 200)]
    #[serde(default, deserialize_with = "present")]
    devices: Option<Vec<DeviceId>>,
    /// Name of the service; at most 256 bytes.
    #[schema(value_type = String, min_length = 1, example = "get_current_time")]
    service: Box<str>,
    /// Arguments of the service, validated for each device against the schema that it registered. By default
    /// `{}`.
    #[schema(value_type = Object, required = false)]
    #[serde(default, deserialize_with = "present")]
    params: Option<Box<RawValue>>,
    /// How long each call may take from when it is made, in milliseconds.
    #[schema(example = 30000)]
    #[serde(default = "crate::calls::request::default_timeout_ms")]
    timeout_ms: u64,
    /// How many calls are in flight at the same time.
    #[schema(minimum = 1, maximum = 50, example = 20)]
    #[serde(default = "default_at_once")]
    at_once: u16,
}

const fn default_at_once() -> u16 {
    DEFAULT_AT_ONCE
}

/// Which devices are called.
enum Chosen {
    Labelled(Vec<DeviceLabel>),
    /// Each once.
    Listed(Vec<DeviceId>),
}

/// A validated group call.
pub(super) struct GroupRequest {
    chosen: Chosen,
    pub(super) call: CallRequest,
    pub(super) at_once: usize,
}

impl GroupBody {
    /// Validates the body. An error names the invalid member.
    pub(super) fn parse(self) -> Result<GroupRequest, Problem> {
        let chosen = match (self.label, self.labels, self.devices) {
            (Some(label), None, None) => Chosen::Labelled(vec![label]),
            (None, Some(labels), None) if (1..=MAX_LABELS).contains(&labels.len()) => {
                Chosen::Labelled(labels)
            }
            (None, None, Some(devices)) if !devices.is_empty() => Chosen::Listed(distinct(devices)),
            (None, Some(_), None) => {
                let detail = format!("`labels` must have 1 to {MAX_LABELS} elements.");
                return Err(invalid("labels", detail));
            }
            (None, None, Some(_)) => {
                let detail = format!("`devices` must have 1 to {MAX_DEVICES} elements.");
                return Err(invalid("devices", detail));
            }
            _ => {
                let detail = "A group call has exactly one of `label`, `labels` and `devices`.";
                return Err(Problem::invalid_body("", detail));
            }
        };
        if let Chosen::Listed(devices) = &chosen
            && devices.len() > MAX_DEVICES
        {
            return Err(too_many(devices.len() as u64));
        }
        if !(1..=MAX_AT_ONCE).contains(&self.at_once) {
            let detail = format!("`at_once` must be from 1 to {MAX_AT_ONCE}.");
            return Err(invalid("at_once", detail));
        }
        let call = CallBody::sync(self.service, self.params, self.timeout_ms);
        let (call, _) = call.parse()?;
        Ok(GroupRequest {
            chosen,
            call,
            at_once: self.at_once.into(),
        })
    }
}

fn distinct(devices: Vec<DeviceId>) -> Vec<DeviceId> {
    let mut seen = HashSet::new();
    let mut devices = devices;
    devices.retain(|device| seen.insert(device.clone()));
    devices
}

impl GroupRequest {
    /// The devices of the group. Of a label, those that the caller reaches.
    ///
    /// # Errors
    /// When a listed device or the service is outside of the credential, when there are too many, or
    /// when the database is unavailable.
    pub(super) async fn devices(
        &self,
        gateway: &Gateway,
        caller: &Caller,
    ) -> Result<Vec<DeviceId>, Problem> {
        let checked = caller.check_service(&self.call.service);
        checked.map_err(|outside| outside_key(&outside))?;
        let labels = match &self.chosen {
            Chosen::Listed(devices) => {
                for device in devices {
                    let checked = caller.check_device(device);
                    checked.map_err(|outside| outside_key(&outside))?;
                }
                return Ok(devices.clone());
            }
            Chosen::Labelled(labels) => labels_within(caller, labels),
        };
        let Reach { org, range } = Reach::after(caller, None);
        let store = &gateway.store;
        let limit = u32::try_from(MAX_DEVICES).unwrap_or(u32::MAX);
        let found = store.labelled_devices(org, range, &labels, limit + 1).await;
        let found = found.map_err(|error| unavailable(&error))?;
        if found.len() > MAX_DEVICES {
            let count = store.count_labelled_devices(org, range, &labels).await;
            return Err(too_many(count.map_err(|error| unavailable(&error))?));
        }
        Ok(found)
    }
}

fn too_many(count: u64) -> Problem {
    let detail = format!(
        "The group has {count} devices; the limit is {MAX_DEVICES}. Choose fewer, and repeat the call for the others."
    );
    Problem::new(ProblemKind::InvalidBody, detail)
        .at("")
        .with("devices", count)
        .with("limit", MAX_DEVICES)
}

fn unavailable(error: &StoreError) -> Problem {
    store_unavailable(
        error,
        "the devices of a group could not be read",
        "The labels of devices cannot be read at the moment; nothing was sent, and a retry is safe.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_has_one_choice_of_devices() {
        fn check(json: &str, expected: Result<usize, &str>) {
            let body: Result<GroupBody, _> = serde_json::from_str(json);
            let parsed = body.map_err(|error| error.to_string());
            let parsed = parsed.and_then(|body| body.parse().map_err(|problem| problem.detail));
            match (parsed, expected) {
                (Ok(request), Ok(at_once)) => assert_eq!(request.at_once, at_once, "{json}"),
                (Err(refused), Err(part)) => assert!(refused.contains(part), "{json}: {refused}"),
                (Ok(_), Err(part)) => panic!("{json} is accepted in spite of {part}"),
                (Err(refused), Ok(_)) => panic!("{json}: {refused}"),
            }
        }
        check(r#"{"service":"a","label":"x"}"#, Ok(20));
        check(r#"{"service":"a","labels":["x","y"],"at_once":50}"#, Ok(50));
        check(r#"{"service":"a","devices":["x","x"],"at_once":1}"#, Ok(1));
        check(r#"{"service":"a"}"#, Err("exactly one"));
        check(
            r#"{"service":"a","label":"x","devices":["y"]}"#,
            Err("exactly one"),
        );
        check(r#"{"service":"a","labels":[]}"#, Err("`labels`"));
        check(r#"{"service":"a","devices":[]}"#, Err("`devices`"));
        check(r#"{"service":"a","label":null}"#, Err("null"));
        check(
            r#"{"service":"a","label":"x","at_once":0}"#,
            Err("`at_once`"),
        );
        check(
            r#"{"service":"a","label":"x","at_once":51}"#,
            Err("`at_once`"),
        );
        check(r#"{"service":"","label":"x"}"#, Err("`service`"));
        check(
            r#"{"service":"a","label":"x","mode":"async"}"#,
            Err("unknown field"),
        );
        let many: Vec<String> = (0..201).map(|at| format!("\"d{at}\"")).collect();
        let many = format!(r#"{{"service":"a","devices":[{}]}}"#, many.join(","));
        check(&many, Err("201 devices; the limit is 200"));
    }
}
