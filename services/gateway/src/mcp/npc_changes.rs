//! What changes in what one NPC's endpoint offers: it is looked at again whenever its organisation's settings change.
//! Never: a word about what other NPCs have, or a look for each of many changes.

use std::{collections::HashMap, sync::Arc, time::Duration};

use switchboard_protocol::{
    id::{DeviceId, DeviceKey, NpcId, OrgId},
    schema::Digest,
};
use switchboard_store::{StoreError, ToolPolicy, WholePrompt};
use tokio::time::Instant;

use super::changes;
use crate::Gateway;

/// Between two looks. Protects the database from many listeners while an organisation writes a lot.
const PAUSE: Duration = Duration::from_millis(500);
/// After a look that failed.
const REST: Duration = Duration::from_secs(2);

/// An NPC that somebody follows.
pub(super) struct Followed {
    gateway: Arc<Gateway>,
    org: OrgId,
    npc: NpcId,
    /// Whether the client sees prompts and resources.
    reads: bool,
    known: Option<Known>,
    offered: HashMap<DeviceId, Option<Digest>>,
    /// When it is to be looked at.
    due: Option<Instant>,
    looked: Instant,
}

/// What decides what its endpoint offers.
#[derive(PartialEq)]
struct Known {
    devices: Vec<DeviceId>,
    policy: ToolPolicy,
    /// For those who see them only, and so is what follows.
    prompt: Option<WholePrompt>,
    resources: Option<String>,
}

/// What came of a look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// The NPC is not there any more.
    pub(super) gone: bool,
    pub(super) tools: bool,
    pub(super) prompts: bool,
    pub(super) resources: bool,
}

impl Followed {
    /// Follows it from this moment on; what cannot be read yet is looked at later.
    pub(super) async fn begin(gateway: &Arc<Gateway>, org: OrgId, npc: NpcId, reads: bool) -> Self {
        let mut followed = Self {
            gateway: Arc::clone(gateway),
            org,
            npc,
            reads,
            known: None,
            offered: HashMap::new(),
            due: None,
            looked: Instant::now(),
        };
        if followed.look().await.gone {
            followed.note();
        }
        followed
    }

    /// Something changed in the organisation's settings.
    pub(super) fn note(&mut self) {
        let due = Instant::now().max(self.looked + PAUSE);
        self.due.get_or_insert(due);
    }

    /// When it has to be looked at.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Looks at what it has become.
    pub(super) async fn look(&mut self) -> News {
        self.due = None;
        let now = self.read().await;
        self.looked = Instant::now();
        let now = match now {
            Ok(Some(now)) => now,
            Ok(None) => {
                return News {
                    gone: true,
                    ..News::default()
                };
            }
            Err(error) => {
                tracing::warn!(
                    error = error.report(),
                    "what an NPC has become could not be looked up"
                );
                self.due = Some(self.looked + REST);
                return News::default();
            }
        };
        self.follow_devices(&now.devices).await;
        // At the first look, nobody knows what the client has read.
        let Some(known) = self.known.replace(now) else {
            return News {
                gone: false,
                tools: true,
                prompts: self.reads,
                resources: self.reads,
            };
        };
        let now = self.known.as_ref();
        News {
            gone: false,
            tools: now
                .is_some_and(|now| (&now.devices, &now.policy) != (&known.devices, &known.policy)),
            prompts: now.is_some_and(|now| now.prompt != known.prompt),
            resources: now.is_some_and(|now| now.resources != known.resources),
        }
    }

    async fn read(&self) -> Result<Option<Known>, StoreError> {
        let store = &self.gateway.store;
        let Some(npc) = store.npc(self.org, self.npc).await? else {
            return Ok(None);
        };
        let (prompt, resources) = match self.reads {
            true => (
                Some(npc.prompt()),
                Some(store.npc_resources_digest(&npc).await?),
            ),
            false => (None, None),
        };
        Ok(Some(Known {
            devices: npc.settings.devices,
            policy: npc.effective.settings.tools,
            prompt,
            resources,
        }))
    }

    /// Learns what its new devices offer, and forgets the old ones.
    async fn follow_devices(&mut self, devices: &[DeviceId]) {
        self.offered.retain(|device, _| devices.contains(device));
        for device in devices {
            if !self.offered.contains_key(device) {
                let offered = self.offers(device).await;
                self.offered.insert(device.clone(), offered);
            }
        }
    }

    async fn offers(&self, device: &DeviceId) -> Option<Digest> {
        let key = DeviceKey {
            org: self.org,
            device: device.clone(),
        };
        changes::offered_or_remembered(&self.gateway, &key).await
    }

    /// Whether one of its devices offers something else than before.
    pub(super) fn offers_anew(&mut self, device: &DeviceKey, now: Option<Digest>) -> bool {
        let known = match self.offered.get_mut(&device.device) {
            Some(known) if device.org == self.org => known,
            _ => return false,
        };
        let changed = now.is_some() && now != *known;
        if changed {
            *known = now;
        }
        changed
    }

    /// Some changes were missed: whether one of its devices may offer something else.
    pub(super) async fn missed(&mut self) -> bool {
        self.note();
        let mut changed = false;
        for device in self.offered.keys().cloned().collect::<Vec<_>>() {
            let key = DeviceKey {
                org: self.org,
                device,
            };
            let now = changes::offered(&self.gateway, &key).await;
            changed |= self.offers_anew(&key, now);
        }
        changed
    }
}
