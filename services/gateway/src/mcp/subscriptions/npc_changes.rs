//! The changes of one NPC's endpoint. The NPC is read again whenever the settings of its
//! organisation change.

use std::{collections::HashMap, sync::Arc, time::Duration};

use sha2::{Digest as _, Sha256};
use switchboard_catalog::{ToolPolicy, WholePrompt};
use switchboard_protocol::{
    id::{DeviceId, DeviceKey, NpcId, OrgId},
    schema::Digest,
};
use switchboard_store::StoreError;
use tokio::time::Instant;

use super::changes;
use crate::Gateway;

/// Minimum time between two reads. Protects the database while an organisation's settings change
/// often.
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);
/// Delay after a failed read.
const RETRY_BACKOFF: Duration = Duration::from_secs(2);

/// An NPC that a client watches.
pub(super) struct NpcWatch {
    gateway: Arc<Gateway>,
    org: OrgId,
    npc: NpcId,
    /// Whether the client can see prompts and resources.
    can_read: bool,
    snapshot: Option<NpcSnapshot>,
    registrations: HashMap<DeviceId, Option<Digest>>,
    refresh_due: Option<Instant>,
    refreshed: Instant,
}

/// What the content of the endpoint depends on. Prompts are large, and each listener has a snapshot.
struct NpcSnapshot {
    devices: Vec<DeviceId>,
    policy: ToolPolicy,
    /// Digest of the prompt. `None` if the client cannot see it.
    prompt: Option<[u8; 32]>,
    /// Digest of the resources. `None` if the client cannot see them.
    resources: Option<String>,
}

/// What has changed since the last read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NpcChanges {
    pub(super) deleted: bool,
    pub(super) tools: bool,
    pub(super) prompts: bool,
    pub(super) resources: bool,
}

impl NpcWatch {
    /// Watches an NPC from now on. What cannot be read yet is read later.
    pub(super) async fn new(
        gateway: &Arc<Gateway>,
        org: OrgId,
        npc: NpcId,
        can_read: bool,
    ) -> Self {
        let mut watch = Self {
            gateway: Arc::clone(gateway),
            org,
            npc,
            can_read,
            snapshot: None,
            registrations: HashMap::new(),
            refresh_due: None,
            refreshed: Instant::now(),
        };
        if watch.refresh().await.deleted {
            watch.schedule_refresh();
        }
        watch
    }

    pub(super) fn schedule_refresh(&mut self) {
        let due = Instant::now().max(self.refreshed + REFRESH_INTERVAL);
        self.refresh_due.get_or_insert(due);
    }

    pub(super) const fn refresh_due(&self) -> Option<Instant> {
        self.refresh_due
    }

    /// Reads the NPC and compares it with the previous snapshot.
    pub(super) async fn refresh(&mut self) -> NpcChanges {
        self.refresh_due = None;
        let current = self.read().await;
        self.refreshed = Instant::now();
        let current = match current {
            Ok(Some(current)) => current,
            Ok(None) => {
                return NpcChanges {
                    deleted: true,
                    ..NpcChanges::default()
                };
            }
            Err(error) => {
                tracing::warn!(
                    error = error.report(),
                    "a watched NPC could not be read; retrying"
                );
                self.refresh_due = Some(self.refreshed + RETRY_BACKOFF);
                return NpcChanges::default();
            }
        };
        self.update_devices(&current.devices).await;
        let previous = self.snapshot.take();
        let changes = match &previous {
            // At the first read it is unknown what the client has read.
            None => NpcChanges {
                deleted: false,
                tools: true,
                prompts: self.can_read,
                resources: self.can_read,
            },
            Some(previous) => NpcChanges {
                deleted: false,
                tools: (&current.devices, &current.policy) != (&previous.devices, &previous.policy),
                prompts: current.prompt != previous.prompt,
                resources: current.resources != previous.resources,
            },
        };
        self.snapshot = Some(current);
        changes
    }

    async fn read(&self) -> Result<Option<NpcSnapshot>, StoreError> {
        let store = &self.gateway.store;
        let Some(npc) = store.npc_without_card(self.org, self.npc).await? else {
            return Ok(None);
        };
        let (prompt, resources) = match self.can_read {
            true => (
                Some(digest(&npc.prompt())),
                Some(store.npc_resources_digest(&npc).await?),
            ),
            false => (None, None),
        };
        Ok(Some(NpcSnapshot {
            devices: npc.settings.devices,
            policy: npc.effective.settings.tools,
            prompt,
            resources,
        }))
    }

    /// Reads the registrations of new devices and drops those of removed ones.
    async fn update_devices(&mut self, devices: &[DeviceId]) {
        self.registrations
            .retain(|device, _| devices.contains(device));
        for device in devices {
            if !self.registrations.contains_key(device) {
                let key = self.key(device);
                let registration = changes::registration(&self.gateway, &key).await;
                self.registrations.insert(device.clone(), registration);
            }
        }
    }

    fn key(&self, device: &DeviceId) -> DeviceKey {
        DeviceKey {
            org: self.org,
            device: device.clone(),
        }
    }

    /// Updates the registration of a device. Returns whether it has changed and the device
    /// belongs to the NPC.
    pub(super) fn update(&mut self, device: &DeviceKey, current: Option<Digest>) -> bool {
        let known = match self.registrations.get_mut(&device.device) {
            Some(known) if device.org == self.org => known,
            _ => return false,
        };
        let changed = current.is_some() && current != *known;
        if changed {
            *known = current;
        }
        changed
    }

    /// Reads everything again after events were missed. Returns whether a registration has
    /// changed.
    pub(super) async fn resync(&mut self) -> bool {
        self.schedule_refresh();
        let mut changed = false;
        for device in self.registrations.keys().cloned().collect::<Vec<_>>() {
            let key = self.key(&device);
            let current = changes::live_registration(&self.gateway, &key).await;
            changed |= self.update(&key, current);
        }
        changed
    }
}

fn digest(prompt: &WholePrompt) -> [u8; 32] {
    let WholePrompt { listed, messages } = prompt;
    let (title, description) = (&listed.title, &listed.description);
    let content = (
        &listed.name,
        title,
        description,
        &listed.arguments,
        messages,
    );
    Sha256::digest(serde_json::to_vec(&content).unwrap_or_default()).into()
}
