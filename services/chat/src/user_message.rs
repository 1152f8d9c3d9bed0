//! A message of a user, with its sender and the NPC that answers it.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use switchboard_bus::{Bus, ConversationKey, Played};
use switchboard_identity::Caller;
use switchboard_phrases::{Language, Preference};
use switchboard_protocol::{
    id::{ConversationId, DeviceId, DeviceKey, OrgId},
    schema::Digest,
    token::Restrictions,
};
use switchboard_store::Npc;
use switchboard_tools::Naming;

use crate::{
    conversation::model::{Conversation, Exchange},
    picture::ShownPicture,
    usage::UsageOf,
};

/// A message that wants an answer. Its sender is authenticated.
pub(crate) struct UserMessage {
    pub(crate) org: OrgId,
    pub(crate) sender: Participant,
    /// See [`switchboard_bus::NewMessage::registration`].
    pub(crate) registration: Option<Digest>,
    pub(crate) text: String,
    /// See [`switchboard_bus::NewMessage::played`].
    pub(crate) played: Option<Played>,
    /// Boxed, because few messages have one.
    pub(crate) picture: Option<Box<ShownPicture>>,
    /// The NPC that answers; a generic assistant when absent.
    pub(crate) npc: Option<Arc<Npc>>,
    /// The language of our own sentences to the user.
    pub(crate) language: Language,
}

/// The sender of a message.
pub(crate) enum Participant {
    /// The user of a device. The answer can use the services of this device.
    Device(DeviceKey),
    /// A caller over HTTP. The answer can use the services of the NPC's devices.
    Caller {
        conversation: ConversationId,
        /// The caller's user, as memories name them; without one nothing is remembered.
        subject: Option<String>,
        /// Its restrictions are those of the answer.
        caller: Caller,
    },
}

/// The language of our own sentences to a user: that of the text; where it does not decide, the first
/// wanted one, that of the NPC, or that of the organisation. See [`Preference`].
pub(crate) fn language<'a>(
    bus: &Bus,
    org: OrgId,
    text: &str,
    wanted: impl IntoIterator<Item = &'a str>,
    npc: Option<&'a Npc>,
) -> Language {
    let of_npc = npc.and_then(|npc| npc.effective.settings.locale.as_deref());
    let of_npc = of_npc.and_then(Language::from_tag);
    let of_org = bus.org_locale(org, Language::from_tag).flatten();
    let preference = Preference::of_user(wanted).or(of_npc).or(of_org);
    preference.language_of(text)
}

fn short_hash(subject: Option<&str>) -> String {
    let Some(subject) = subject else {
        return String::new();
    };
    let hash = Sha256::digest(subject.as_bytes());
    let digits = hash.iter().take(16).map(|byte| format!("{byte:02x}"));
    digits.collect()
}

impl UserMessage {
    /// The key under which the conversation is stored.
    pub(crate) fn key(&self) -> ConversationKey {
        let npc = match &self.npc {
            Some(npc) => npc.id.to_string(),
            None => "nobody".to_owned(),
        };
        let name = match &self.sender {
            Participant::Device(device) => format!("{npc}/device:{}", device.device),
            // The subject is part of the key: another subject cannot continue the conversation.
            Participant::Caller {
                conversation,
                subject,
                ..
            } => format!("{npc}/{conversation}/{}", short_hash(subject.as_deref())),
        };
        ConversationKey {
            org: self.org,
            name,
        }
    }

    /// The exchange that begins with this message.
    pub(crate) fn start_exchange(&self, id: String) -> Exchange {
        Exchange {
            picture: self.picture.as_deref().map(ShownPicture::stored_name),
            ..Exchange::start(id, &self.text)
        }
    }

    /// An empty conversation for this message.
    pub(crate) fn new_conversation(&self) -> Conversation {
        Conversation::new(self.npc.as_ref().map(|npc| npc.id), self.subject())
    }

    /// The subject of memories of this conversation.
    pub(crate) fn subject(&self) -> Option<String> {
        match &self.sender {
            Participant::Device(device) => Some(format!("device:{}", device.device)),
            Participant::Caller { subject, .. } => subject.clone(),
        }
    }

    /// Whose usage its answer is.
    pub(crate) fn usage_of(&self) -> UsageOf<'_> {
        UsageOf {
            org: self.org,
            device: match &self.sender {
                Participant::Device(device) => Some(&device.device),
                Participant::Caller { .. } => None,
            },
            npc: self.npc.as_ref().map(|npc| npc.id),
        }
    }

    /// Whether it supersedes answers in progress: messages from devices do, unless the NPC's
    /// `barge_in` is off.
    pub(crate) fn supersedes_others(&self) -> bool {
        let npc = self.npc.as_ref();
        let barges_in = npc.is_none_or(|npc| npc.effective.settings.conversation.barge_in);
        barges_in && matches!(self.sender, Participant::Device(_))
    }

    /// Whether memories can be extracted from it.
    pub(crate) fn may_become_memory(&self) -> bool {
        let npc = self.npc.as_ref();
        let wants = npc.is_some_and(|npc| npc.effective.settings.memory.from_conversations);
        wants && self.subject().is_some()
    }

    /// What restricts the answer.
    pub(crate) fn restrictions(&self) -> Option<&Arc<Restrictions>> {
        match &self.sender {
            Participant::Device(_) => None,
            Participant::Caller { caller, .. } => caller.restrictions.as_ref(),
        }
    }

    /// The devices whose services the answer can use.
    pub(crate) fn devices(&self) -> Vec<DeviceKey> {
        match (&self.sender, &self.npc) {
            (Participant::Device(device), _) => vec![device.clone()],
            (Participant::Caller { .. }, None) => Vec::new(),
            (Participant::Caller { caller, .. }, Some(npc)) => {
                let reaches = |device: &&DeviceId| caller.check_device(device).is_ok();
                let devices = npc.settings.devices.iter().filter(reaches).cloned();
                let org = self.org;
                devices.map(|device| DeviceKey { org, device }).collect()
            }
        }
    }

    /// The naming of services as tools: the same as at the MCP endpoints of the device and of the
    /// NPC.
    pub(crate) fn naming(&self) -> Naming {
        match (&self.sender, &self.npc) {
            (Participant::Caller { .. }, Some(npc)) if npc.settings.devices.len() > 1 => {
                Naming::Prefixed
            }
            _ => Naming::Alone,
        }
    }
}
