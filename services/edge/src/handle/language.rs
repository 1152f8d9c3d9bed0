//! The language of messages to the device's users.

use switchboard_phrases::{Language, Preference};
use switchboard_protocol::locale::Locale;

use super::ConnectionHandle;
use crate::edge::Edge;

impl ConnectionHandle {
    /// Keeps the language that AUTH names. Called by the connection's own task.
    pub(crate) fn set_locale(&self, locale: Locale) {
        self.state.lock().locale = Some(Box::new(locale));
    }

    /// The language of the device's users as a BCP 47 tag, if AUTH names one.
    pub(crate) fn locale(&self) -> Option<String> {
        let state = self.state.lock();
        state
            .locale
            .as_ref()
            .map(|locale| locale.as_str().to_owned())
    }

    /// The language of messages to the device's users where their own message does not decide it: that
    /// of the device, else that of its organisation.
    pub(crate) fn preference(&self, edge: &Edge) -> Preference {
        let of_device = {
            let state = self.state.lock();
            Preference::of_user(state.locale.as_deref().map(Locale::as_str))
        };
        let of_org = edge.bus.org_locale(self.key.org, Language::from_tag);
        of_device.or(of_org.flatten())
    }

    /// The same for messages that answer no message of a user.
    pub(crate) fn language(&self, edge: &Edge) -> Language {
        self.preference(edge).language()
    }
}
