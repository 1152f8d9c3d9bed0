//! `GET /v1/devices`: the devices of an organisation in pages, all of them or those of a filter.
//!
//! IDs and connected devices are filtered where they are stored. For other filters, a request reads a
//! bounded number of devices: its page may be short, even empty, with a cursor.

use std::{collections::HashMap, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};
use switchboard_protocol::{
    id::{DeviceId, DeviceRange},
    label::DeviceLabel,
};
use switchboard_runtime::{
    budget::Owner,
    paging::{self, Cursor, JsonElements, Limit, List},
    problem::Problem,
    response_budget::{PageCharge, hold_until_sent},
};
use utoipa::{IntoParams, ToSchema};

use super::{
    device::{DeviceView, Registered},
    labels::{LabelledQuery, Labels},
    merge::{DeviceEntry, DevicePage},
    page::{self, Reach, Unavailable, only_connected},
    services::ServicesCache,
};
use crate::{
    Gateway, admission::RequireRead, bus_unavailable, calls::request::MAX_SERVICE_BYTES,
    store_unavailable,
};

/// Devices that a filtered request reads at a time.
const SCAN_LIMIT: Limit = Limit::fixed(200);
/// Devices that a filtered request reads at most. Protects Redis and the database.
const MAX_SCANNED: usize = 1_000;
/// Registrations that a filtered request reads at most, in bytes.
const MAX_SCANNED_BYTES: usize = 4 * 1024 * 1024;

/// What a list shows of the services of each device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ServicesDetail {
    /// `services`: the object as the device registered it.
    #[default]
    Full,
    /// `service_names` instead of `services`.
    Names,
    /// Neither.
    None,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Only devices that are connected, or only those that are not.
    #[param(example = true)]
    online: Option<bool>,
    /// Only devices whose IDs begin with this text.
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9._:-]{1,64}$", example = "toy-")]
    prefix: Option<DeviceId>,
    /// Only devices that registered a service of this name.
    #[param(max_length = 256, example = "wave")]
    service: Option<String>,
    /// Only devices that have this label; repeated: that have all of them.
    #[param(value_type = Vec<DeviceLabel>, required = false, max_items = 16)]
    #[serde(default)]
    label: Labels,
    /// What the page has of the services of each device.
    #[param(inline, required = false, example = "names")]
    #[serde(default)]
    services: ServicesDetail,
    /// Maximum number of devices in the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "paging::default_limit")]
    limit: u16,
    /// `next_cursor` of the previous page.
    cursor: Option<Cursor>,
}

/// A page of devices.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Devices)]
pub(crate) struct DeviceList {
    /// The devices in byte order of their IDs.
    #[schema(max_items = 200, value_type = Vec<DeviceView>)]
    devices: JsonElements,
    /// `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
    /// True if devices may be missing: the database is unavailable, so that only connected devices are
    /// listed without labels, or services could not be read that a filter needs. Omitted otherwise.
    #[schema(required = false, example = true)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    incomplete: bool,
}

/// Lists the devices of the organisation, connected or not.
///
/// A page also ends at 4 MiB, with at least one device. With `service` or `online=false` a request looks at
/// 1,000 devices at most, with `label` at 1,000 of those that have it: a page may have fewer elements than
/// `limit`, or none, and a `next_cursor`. With `label` the database reads the labels of all devices after the
/// cursor.
#[utoipa::path(
    get, path = "/v1/devices", tag = "Devices", operation_id = "listDevices",
    params(ListQuery),
    responses((status = 200, body = DeviceList, description = "A page of devices")),
    security(("credential" = ["read"])),
    extensions(("x-problems" = json!(["overloaded", "rate_limited", "bus_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    RequireRead(caller): RequireRead,
    LabelledQuery(mut query): LabelledQuery<ListQuery>,
) -> Result<Response, Problem> {
    let limit = Limit::new(query.limit)?;
    let service = query.service.as_ref();
    if service.is_some_and(|service| service.chars().count() > MAX_SERVICE_BYTES) {
        let detail = format!("`service` must have {MAX_SERVICE_BYTES} characters at most.");
        return Err(Problem::invalid_query(detail));
    }
    let list = List::new("/v1/devices", caller.org);
    let after: Option<DeviceId> = list.position(query.cursor.take())?;
    let owner = Owner::Org(caller.org.uuid());
    query.label.0 = page::labels_within(&caller, &query.label.0);
    let mut page = PageBuilder {
        gateway: &gateway,
        query: &query,
        services: ServicesCache::new(&gateway, &caller),
        charge: PageCharge::new(&gateway.responses, owner),
        devices: JsonElements::default(),
        count: 0,
        last: after,
        incomplete: false,
    };
    let more = page.fill(limit).await?;
    let PageBuilder {
        charge,
        devices,
        last,
        incomplete,
        ..
    } = page;
    let permit = charge.into_permit(devices.bytes());
    let next_cursor = last.filter(|_| more).map(|last| list.cursor(last));
    let page = DeviceList {
        devices,
        next_cursor,
        incomplete,
    };
    let response = axum::Json(page).into_response();
    match permit {
        Some(permit) => hold_until_sent(response, permit).await,
        None => Ok(response),
    }
}

/// A page as it is filled.
struct PageBuilder<'a> {
    gateway: &'a Gateway,
    query: &'a ListQuery,
    services: ServicesCache<'a>,
    /// The registrations and the devices of the page are charged as they are read.
    charge: PageCharge<'a>,
    devices: JsonElements,
    count: u16,
    /// The last device that was looked at.
    last: Option<DeviceId>,
    incomplete: bool,
}

impl PageBuilder<'_> {
    /// Adds devices until the page is full, or the request has read as many as it may. Returns whether
    /// others follow.
    async fn fill(&mut self, limit: Limit) -> Result<bool, Problem> {
        let is_filtered = self.query.service.is_some()
            || self.query.online == Some(false)
            || !self.query.label.0.is_empty();
        let mut scanned = 0;
        loop {
            let batch = if is_filtered { SCAN_LIMIT } else { limit };
            let page = self.read(batch).await?;
            let (more, last) = (page.more, page.last.clone());
            scanned += usize::from(batch.count());
            if self.add_page(page, limit).await? {
                return Ok(true);
            }
            if !more || !is_filtered {
                return Ok(more);
            }
            self.last = last.or(self.last.take());
            if self.count == limit.count()
                || scanned >= MAX_SCANNED
                || self.services.bytes() >= MAX_SCANNED_BYTES
            {
                return Ok(true);
            }
        }
    }

    async fn read(&self, limit: Limit) -> Result<DevicePage, Problem> {
        let (gateway, caller) = (self.gateway, self.services.caller());
        let range = DeviceRange {
            prefix: self.query.prefix.as_ref().map(DeviceId::as_str),
            after: self.last.as_ref().map(DeviceId::as_str),
        };
        let Some(reach) = Reach::within(caller, range) else {
            return Ok(DevicePage::default());
        };
        let labels = &self.query.label.0;
        if !labels.is_empty() {
            let page = page::labelled(gateway, reach, labels, limit).await;
            let mut page = page.map_err(|error| unavailable(&error))?;
            if let Some(online) = self.query.online {
                page.entries.retain(|entry| entry.live.is_some() == online);
            }
            return Ok(page);
        }
        let page = match self.query.online {
            None => page::page(gateway, reach, limit).await,
            Some(true) => page::connected(gateway, reach, limit).await,
            Some(false) => {
                let page = page::disconnected(gateway, reach, limit).await;
                return page.map_err(|error| unavailable(&error));
            }
        };
        page.map_err(|error| bus_unavailable(&error))
    }

    /// Adds the devices that the filter lets pass. Returns whether one of them is left to the next page.
    async fn add_page(&mut self, page: DevicePage, limit: Limit) -> Result<bool, Problem> {
        self.incomplete |= page.incomplete;
        let wanted = &self.query.service;
        let with_names = wanted.is_some() || self.query.services == ServicesDetail::Names;
        let preloaded = if self.query.services == ServicesDetail::Full && wanted.is_none() {
            self.services.preload(&page.entries).await
        } else if with_names {
            self.services.preload_names(&page.entries).await
        } else {
            Ok(())
        };
        if let Err(error) = preloaded {
            self.incomplete = true;
            only_connected(&error);
        }
        self.charge.hold(self.services.bytes())?;
        let mut labels = self.labels(&page).await;
        for entry in page.entries {
            if self.count == limit.count() {
                return Ok(true);
            }
            let id = entry.id.clone();
            let labels = labels.remove(&id).unwrap_or_default();
            if let Some(registered) = self.registered(&entry).await {
                self.charge.hold(self.services.bytes())?;
                if !self
                    .devices
                    .push(&DeviceView::new(entry, labels, registered))
                {
                    return Ok(true);
                }
                self.count += 1;
                self.charge.hold(self.devices.bytes())?;
            }
            self.last = Some(id);
        }
        Ok(false)
    }

    async fn labels(&mut self, page: &DevicePage) -> HashMap<DeviceId, Vec<String>> {
        if page.incomplete {
            return HashMap::new();
        }
        let ids = page.entries.iter().map(|entry| entry.id.to_string());
        let ids: Vec<String> = ids.collect();
        let org = self.services.caller().org;
        let labels = self.gateway.store.labels_of_devices(org, &ids).await;
        labels.unwrap_or_else(|error| {
            self.incomplete = true;
            tracing::warn!(
                error = error.report(),
                "labels of devices could not be read; they are omitted"
            );
            HashMap::new()
        })
    }

    /// What the page shows of the services of a device; `None` if the device is not listed.
    async fn registered(&mut self, entry: &DeviceEntry) -> Option<Registered> {
        let registered = self.read_registered(entry).await;
        registered.unwrap_or_else(|error| {
            if !self.incomplete {
                self.incomplete = true;
                only_connected(&error);
            }
            None
        })
    }

    async fn read_registered(
        &mut self,
        entry: &DeviceEntry,
    ) -> Result<Option<Registered>, switchboard_store::StoreError> {
        let detail = self.query.services;
        if let Some(wanted) = &self.query.service {
            let names = self.services.names(entry).await?;
            self.incomplete |= self.services.has_unread();
            if !names.contains(wanted) {
                return Ok(None);
            }
        }
        Ok(Some(match detail {
            ServicesDetail::Full => Registered::Services(self.services.get(entry).await?),
            ServicesDetail::Names => Registered::Names(self.services.names(entry).await?),
            ServicesDetail::None => Registered::Nothing,
        }))
    }
}

fn unavailable(error: &Unavailable) -> Problem {
    match error {
        Unavailable::Bus(error) => bus_unavailable(error),
        Unavailable::Store(error) => store_unavailable(
            error,
            "stored devices could not be listed",
            "These devices cannot be listed at the moment; a retry is safe.",
        ),
    }
}
