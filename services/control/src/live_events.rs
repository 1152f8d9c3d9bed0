//! Shows changes of settings to those who watch their organisation.
//!
//! Invariant: a change is stored before it is shown. Changes of public resources are not shown.

use switchboard_bus::{Bus, LiveEvent};
use switchboard_protocol::id::{OrgId, SkillsBookId, VoiceId, WebhookId};
use switchboard_store::{BookState, Owner, VoiceState};

use crate::Control;

impl Control {
    /// A setting without a type of its own was created, changed or deleted.
    pub(crate) fn setting_changed(&self, owner: Owner, kind: &'static str, id: impl ToString) {
        record(&self.bus, owner, || LiveEvent::SettingChanged {
            kind,
            id: id.to_string(),
        });
    }

    /// A webhook was created, changed or deleted.
    pub(crate) fn webhook_changed(&self, org: OrgId, id: WebhookId) {
        webhook_changed(&self.bus, org, id);
    }

    /// A skills book has this state from now on, or none, because it is deleted.
    pub(crate) fn book_changed(&self, owner: Owner, id: SkillsBookId, state: Option<BookState>) {
        book_changed(&self.bus, owner, id, state);
    }

    /// The same of a voice.
    pub(crate) fn voice_changed(&self, owner: Owner, id: VoiceId, state: Option<VoiceState>) {
        voice_changed(&self.bus, owner, id, state);
    }
}

/// Like the method, for workers.
pub(crate) fn webhook_changed(bus: &Bus, org: OrgId, id: WebhookId) {
    record(bus, Owner::Org(org), || LiveEvent::WebhookChanged {
        id: id.to_string(),
    });
}

/// Like the method, for workers.
pub(crate) fn book_changed(bus: &Bus, owner: Owner, id: SkillsBookId, state: Option<BookState>) {
    record(bus, owner, || LiveEvent::BookChanged {
        id: id.to_string(),
        state: state.map(BookState::as_str),
    });
}

/// Like the method, for workers.
pub(crate) fn voice_changed(bus: &Bus, owner: Owner, id: VoiceId, state: Option<VoiceState>) {
    record(bus, owner, || LiveEvent::VoiceChanged {
        id: id.to_string(),
        state: state.map(VoiceState::as_str),
    });
}

fn record(bus: &Bus, owner: Owner, event: impl FnOnce() -> LiveEvent) {
    if let Owner::Org(org) = owner {
        bus.record_live(org, event);
    }
}
