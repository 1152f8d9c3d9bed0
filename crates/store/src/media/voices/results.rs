//! Results of operations on voices.

use super::StoredVoice;
use crate::{StoreError, media::objects::ObjectError};

/// The result of changing a voice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VoiceChange {
    /// It was changed.
    Written(Box<StoredVoice>),
    /// The owner has no voice with this id and this version.
    Stale,
}

/// The result of training a voice again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VoiceRemake {
    /// It will be trained, or is being trained already.
    Started(Box<StoredVoice>),
    /// The owner has no voice with this id.
    Unknown,
    /// The consent has ended.
    NoConsent,
}

/// The result of deleting a voice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VoiceRemoval {
    /// It was deleted.
    Removed,
    /// The owner has no voice with this id.
    Unknown,
    /// It was not deleted: a template or an NPC uses it.
    InUse,
}

/// The reason why a voice was not stored or deleted.
#[derive(Debug, thiserror::Error)]
pub enum VoiceError {
    /// No object store is configured.
    #[error("there is no object store; set --objects or SWITCHBOARD_OBJECTS")]
    NoObjects,
    /// The object store failed.
    #[error("the object store failed while processing a voice")]
    Objects(#[from] ObjectError),
    /// The database failed.
    #[error("the database failed while processing a voice")]
    Store(#[from] StoreError),
}
