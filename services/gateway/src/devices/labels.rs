//! Labels and notes of devices, and lists by label.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    extract::{FromRequestParts, State},
    http::request::Parts,
    response::Response,
};
use http::{Uri, uri::PathAndQuery};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use switchboard_bus::LiveEvent;
use switchboard_protocol::{
    id::DeviceId,
    label::{DeviceLabel, MAX_LABELS},
};
use switchboard_runtime::{
    paging::{Cursor, JsonElements, Limit, List, Paging},
    problem::{Json, Path, Problem, Query},
};
use switchboard_store::{DeviceNotes, LabelCount, StoreError};
use utoipa::ToSchema;

use super::{
    device_unavailable,
    page::{Reach, labels_within},
    unknown,
};
use crate::{
    Gateway,
    admission::{RequireAdmin, RequireRead},
    page_response, store_unavailable,
};

/// Protects lists of devices and the database.
pub(crate) const MAX_NOTE_CHARS: usize = 2_000;

/// Labels that a device must have, each a parameter `label` of a query.
#[derive(Debug, Default)]
pub(crate) struct Labels(pub(crate) Vec<DeviceLabel>);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let joined = String::deserialize(source)?;
        let labels = joined.split(',').map(str::parse);
        let labels: Result<Vec<DeviceLabel>, _> = labels.collect();
        let labels = labels.map_err(serde::de::Error::custom)?;
        if labels.len() > MAX_LABELS {
            return Err(serde::de::Error::custom("a device has 16 labels at most"));
        }
        Ok(Self(labels))
    }
}

/// Query parameters of which `label` may occur more than once.
pub(crate) struct LabelledQuery<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for LabelledQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        if let Some(joined) = joined(&parts.uri) {
            parts.uri = joined;
        }
        let Query(query) = Query::from_request_parts(parts, state).await?;
        Ok(Self(query))
    }
}

/// The URI with one parameter `label`, in place of several: labels have no commas.
fn joined(uri: &Uri) -> Option<Uri> {
    let is_label = |pair: &&str| pair.starts_with("label=");
    let (labels, mut others): (Vec<&str>, Vec<&str>) = uri.query()?.split('&').partition(is_label);
    if labels.len() < 2 {
        return None;
    }
    let values = labels.iter().filter_map(|pair| pair.split_once('='));
    let values: Vec<&str> = values.map(|(_, value)| value).collect();
    let label = format!("label={}", values.join(","));
    others.push(&label);
    let path: PathAndQuery = format!("{}?{}", uri.path(), others.join("&"))
        .parse()
        .ok()?;
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).ok()
}

/// What a merge patch changes of a device (RFC 7396); null resets a member.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = DevicePatch)]
#[serde(deny_unknown_fields)]
pub(crate) struct DevicePatch {
    /// All labels of the device, in any order; null for none.
    #[schema(value_type = Option<Vec<DeviceLabel>>, required = false, max_items = 16)]
    #[serde(default, deserialize_with = "given")]
    labels: Option<Option<BTreeSet<DeviceLabel>>>,
    /// A text for people; null for none.
    #[schema(value_type = Option<String>, required = false, example = "Left shelf, needs a new battery")]
    #[serde(default, deserialize_with = "given")]
    note: Option<Option<String>>,
}

/// Distinguishes `null` from an absent member.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    source: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(source).map(Some)
}

/// The labels and the note of a device.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeviceNotes)]
pub(crate) struct NotesView {
    /// The labels of the device in byte order.
    #[schema(max_items = 16, value_type = Vec<DeviceLabel>)]
    labels: Vec<String>,
    /// A text for people; null if there is none.
    #[schema(example = "Left shelf, needs a new battery")]
    note: Option<String>,
}

impl From<DeviceNotes> for NotesView {
    fn from(DeviceNotes { labels, note }: DeviceNotes) -> Self {
        Self {
            labels,
            note: Some(note).filter(|note| !note.is_empty()),
        }
    }
}

/// Sets the labels and the note of a device, connected or not, with a JSON merge patch (RFC 7396).
///
/// `labels` replaces all labels of the device. A device that is forgotten loses both.
#[utoipa::path(
    patch, path = "/v1/devices/{id}", tag = "Devices", operation_id = "labelDevice",
    params(("id" = DeviceId, Path, description = "ID of the device")),
    request_body(content = DevicePatch, content_type = "application/merge-patch+json"),
    responses((status = 200, body = NotesView, description = "The labels and the note of the device")),
    security(("credential" = ["admin"])),
    extensions(("x-problems" = json!(["not_found", "outside_key", "unknown_device", "bus_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn patch(
    State(gateway): State<Arc<Gateway>>,
    RequireAdmin(caller): RequireAdmin,
    Path(id): Path<DeviceId>,
    Json(DevicePatch { labels, note }): Json<DevicePatch>,
) -> Result<axum::Json<NotesView>, Problem> {
    let key = caller.device(id)?;
    let labels = labels.map(|labels| labels.unwrap_or_default().into_iter().collect::<Vec<_>>());
    let note = note.map(Option::unwrap_or_default);
    check(labels.as_deref(), note.as_deref())?;
    if !gateway.knows(&key).await? {
        return Err(unknown(&key.device));
    }
    let store = gateway.store.with_actor(&caller.credential.caller_name());
    let notes = match (&labels, &note) {
        (None, None) => store.device_notes(key.org, &key.device).await,
        _ => {
            store
                .set_device_notes(key.org, &key.device, labels.as_deref(), note.as_deref())
                .await
        }
    };
    let notes = notes.map_err(|error| not_labelled(&error))?;
    tracing::info!(org.id = %key.org, device.id = %key.device, "device labelled");
    gateway
        .bus
        .record_live(key.org, || LiveEvent::DeviceChanged {
            device_id: key.device.clone(),
        });
    Ok(axum::Json(notes.into()))
}

fn check(labels: Option<&[DeviceLabel]>, note: Option<&str>) -> Result<(), Problem> {
    if labels.is_some_and(|labels| labels.len() > MAX_LABELS) {
        let detail = format!("`labels` must have {MAX_LABELS} elements at most.");
        return Err(Problem::invalid_body("/labels", detail));
    }
    if note.is_some_and(|note| note.chars().count() > MAX_NOTE_CHARS) {
        let detail = format!("`note` must have {MAX_NOTE_CHARS} characters at most.");
        return Err(Problem::invalid_body("/note", detail));
    }
    if note.is_some_and(|note| note.contains('\0')) {
        return Err(Problem::invalid_body(
            "/note",
            "`note` must not contain U+0000.".to_owned(),
        ));
    }
    Ok(())
}

impl Gateway {
    /// Whether a device of the organisation is connected, or was.
    async fn knows(&self, key: &switchboard_protocol::id::DeviceKey) -> Result<bool, Problem> {
        let stored = self.store.device(key.org, &key.device).await;
        if stored
            .map_err(|error| device_unavailable(&error))?
            .is_some()
        {
            return Ok(true);
        }
        // The database lags behind a connection that has just begun.
        let live = self.bus.find(key).await;
        Ok(live
            .map_err(|error| crate::bus_unavailable(&error))?
            .is_some())
    }
}

fn not_labelled(error: &StoreError) -> Problem {
    store_unavailable(
        error,
        "a device could not be labelled",
        "The device cannot be labelled at the moment; a retry is safe.",
    )
}

/// A label that devices have.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LabelCount)]
pub(crate) struct LabelView {
    /// The label.
    #[schema(value_type = DeviceLabel)]
    label: String,
    /// How many devices have it.
    #[schema(minimum = 1, example = 12)]
    devices: i64,
}

/// A page of labels.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Labels)]
pub(crate) struct LabelList {
    /// The labels in byte order.
    #[schema(max_items = 200, value_type = Vec<LabelView>)]
    items: JsonElements,
    /// `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
}

/// Lists the labels that devices of the organisation have.
#[utoipa::path(
    get, path = "/v1/labels", tag = "Devices", operation_id = "listLabels",
    params(Paging),
    responses((status = 200, body = LabelList, description = "A page of labels")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["overloaded", "rate_limited", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    RequireRead(caller): RequireRead,
    Query(Paging { limit, cursor }): Query<Paging>,
) -> Result<Response, Problem> {
    let limit = Limit::new(limit)?;
    let list = List::new("/v1/labels", caller.org);
    let after: Option<DeviceLabel> = list.position(cursor)?;
    let Reach { org, range } = Reach::after(&caller, None);
    let having = labels_within(&caller, &[]);
    let found = gateway
        .store
        .labels(org, range, &having, after.as_ref(), limit.fetch_count())
        .await;
    let found = found.map_err(|error| {
        store_unavailable(
            &error,
            "labels could not be listed",
            "The labels cannot be listed at the moment; a retry is safe.",
        )
    })?;
    let (items, next_cursor) = limit.json_page(
        found,
        |one| list.cursor(&one.label),
        |LabelCount { label, devices }| LabelView { label, devices },
    );
    let bytes = items.bytes();
    page_response(&gateway, org, bytes, LabelList { items, next_cursor }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_one_name_are_joined() {
        fn check(uri: &str, expected: Option<&str>) {
            let joined = joined(&uri.parse().unwrap());
            assert_eq!(joined.map(|uri| uri.to_string()).as_deref(), expected);
        }
        check("/v1/devices", None);
        check("/v1/devices?label=a&limit=2", None);
        check(
            "/v1/devices?label=a&limit=2&label=b%3Ac",
            Some("/v1/devices?limit=2&label=a,b%3Ac"),
        );
        check(
            "http://host/v1/devices?label=&label=b",
            Some("http://host/v1/devices?label=,b"),
        );
    }
}
