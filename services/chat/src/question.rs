//! What somebody says, and who is to answer it.
//! Never: a credential; whoever asks was let in before.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use switchboard_bus::ConversationKey;
use switchboard_protocol::id::{ConversationId, DeviceKey, OrgId};
use switchboard_store::Npc;
use switchboard_tools::Naming;

use crate::conversation::Conversation;

/// Something said that wants an answer.
pub(crate) struct Question {
    pub(crate) org: OrgId,
    pub(crate) asker: Asker,
    pub(crate) text: String,
    /// Who answers; nobody in particular when not given.
    pub(crate) npc: Option<Arc<Npc>>,
}

/// Who says it.
pub(crate) enum Asker {
    /// The user of a device, whose services answer.
    Device(DeviceKey),
    /// Somebody without one, whom the NPC's own devices answer.
    Person {
        conversation: ConversationId,
        /// As memories name them; nobody is remembered without.
        subject: Option<String>,
    },
}

fn short_hash(subject: Option<&str>) -> String {
    let Some(subject) = subject else {
        return String::new();
    };
    let hash = Sha256::digest(subject.as_bytes());
    let digits = hash.iter().take(16).map(|byte| format!("{byte:02x}"));
    digits.collect()
}

impl Question {
    /// Where the conversation is kept.
    pub(crate) fn key(&self) -> ConversationKey {
        let npc = match &self.npc {
            Some(npc) => npc.id.to_string(),
            None => "nobody".to_owned(),
        };
        let name = match &self.asker {
            Asker::Device(device) => format!("{npc}/device:{}", device.device),
            // Who goes on with somebody else's conversation begins one of their own.
            Asker::Person {
                conversation,
                subject,
            } => format!("{npc}/{conversation}/{}", short_hash(subject.as_deref())),
        };
        ConversationKey {
            org: self.org,
            name,
        }
    }

    pub(crate) fn begin(&self) -> Conversation {
        Conversation::begin(self.npc.as_ref().map(|npc| npc.id), self.subject())
    }

    /// Whom memories of this conversation are about.
    pub(crate) fn subject(&self) -> Option<String> {
        match &self.asker {
            Asker::Device(device) => Some(format!("device:{}", device.device)),
            Asker::Person { subject, .. } => subject.clone(),
        }
    }

    /// Whether it ends answers that are being given: what a device says does, unless its NPC wants to be heard out.
    pub(crate) fn ends_others(&self) -> bool {
        let npc = self.npc.as_ref();
        let barges_in = npc.is_none_or(|npc| npc.effective.settings.conversation.barge_in);
        barges_in && matches!(self.asker, Asker::Device(_))
    }

    /// Whose services answer.
    pub(crate) fn devices(&self) -> Vec<DeviceKey> {
        match (&self.asker, &self.npc) {
            (Asker::Device(device), _) => vec![device.clone()],
            (Asker::Person { .. }, None) => Vec::new(),
            (Asker::Person { .. }, Some(npc)) => {
                let devices = npc.settings.devices.iter().cloned();
                let org = self.org;
                devices.map(|device| DeviceKey { org, device }).collect()
            }
        }
    }

    /// How services are called as tools: as at the MCP endpoints of the device and of the NPC.
    pub(crate) fn naming(&self) -> Naming {
        match (&self.asker, &self.npc) {
            (Asker::Person { .. }, Some(npc)) if npc.settings.devices.len() > 1 => Naming::Prefixed,
            _ => Naming::Alone,
        }
    }
}
