//! Recordings of spoken messages, of organisations that have switched them on.
//! Invariant: whether one is stored depends on the setting at that time, not on what its edge knew.

use std::time::Duration;

use switchboard_bus::{Recording, Turn};
use switchboard_identity::QuotaError;
use switchboard_protocol::id::{DeviceKey, OrgId, RecordingId};
use switchboard_runtime::{
    budget::{Owner, Permit},
    labels,
    quota::Quota,
};
use switchboard_store::NewRecording;
use tokio::time::timeout;
use tracing::warn;
use uuid::Uuid;

use crate::Chat;

/// Time to look up the setting. The answer waits for it; later than that, nothing is recorded.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(500);

labels! {
    /// The result of a recording.
    pub(crate) enum RecordingEnd {
        Stored => "stored",
        /// The organisation has switched recordings off.
        SwitchedOff => "switched_off",
        /// The budget of pictures had no room.
        NoRoom => "no_room",
        /// The organisation was at its quota of object bytes.
        QuotaExceeded => "quota_exceeded",
        Failed => "failed",
    }
}

/// A recording until its turn has ended.
pub(crate) struct PendingRecording {
    device: DeviceKey,
    recording: Recording,
    _permit: Permit,
}

/// Whether further messages to this organisation's devices are recorded.
pub(crate) async fn is_on(chat: &Chat, org: OrgId) -> bool {
    match timeout(LOOKUP_TIMEOUT, chat.store.records_speech(org)).await {
        Ok(Ok(is_on)) => is_on,
        Ok(Err(error)) => {
            warn!(error = error.report(), org.id = %org, "cannot look up whether to record");
            false
        }
        Err(_) => false,
    }
}

impl PendingRecording {
    /// Takes the recording out of a turn, and charges it.
    pub(crate) fn take(chat: &Chat, turn: &mut Turn) -> Option<Self> {
        let recording = turn.recording.take()?;
        let owner = Owner::Org(turn.device.org.uuid());
        let permit = chat.pictures.try_acquire(owner, recording.file.len());
        let Ok(permit) = permit else {
            chat.metrics.recordings.inc(RecordingEnd::NoRoom);
            return None;
        };
        Some(Self {
            device: turn.device.clone(),
            recording,
            _permit: permit,
        })
    }

    /// Stores it if its organisation still wants that.
    pub(crate) async fn store(self, chat: &Chat) {
        let end = self.try_store(chat).await;
        chat.metrics.recordings.inc(end);
    }

    async fn try_store(&self, chat: &Chat) -> RecordingEnd {
        let org = self.device.org;
        let bytes = u64::try_from(self.recording.file.len()).unwrap_or(u64::MAX);
        match chat.quotas.admit(org, Quota::ObjectBytes, bytes).await {
            Ok(()) => {}
            Err(QuotaError::Exceeded(_)) => return RecordingEnd::QuotaExceeded,
            Err(QuotaError::Store(error)) => {
                warn!(error = error.report(), "a recording is not stored");
                return RecordingEnd::Failed;
            }
        }
        let recording = NewRecording {
            id: RecordingId::from_uuid(Uuid::now_v7()),
            device: self.device.device.clone(),
            duration_ms: self.recording.ms,
            file: self.recording.file.clone(),
        };
        match chat.store.add_recording(org, recording).await {
            Ok(true) => RecordingEnd::Stored,
            Ok(false) => RecordingEnd::SwitchedOff,
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                warn!(%error, cause, org.id = %org, "a recording is not stored");
                RecordingEnd::Failed
            }
        }
    }
}
