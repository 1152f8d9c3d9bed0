//! The language of messages to the device's users.

use switchboard_phrases::Language;
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
    pub(crate) fn language(&self, edge: &Edge) -> Language {
        let of_device = self.locale();
        let of_org = edge.bus.org_locale(self.key.org);
        let tags = [of_device.as_deref(), of_org.as_deref()];
        Language::preferred(tags.into_iter().flatten()).unwrap_or_default()
    }
}
