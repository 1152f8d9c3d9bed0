//! What became of what was to be done with a voice.
//! Never: a decision; those are made where it is written.

use super::StoredVoice;
use crate::{StoreError, objects::ObjectError};

/// What became of a voice that was to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VoiceChange {
    /// It is changed; this is it.
    Written(Box<StoredVoice>),
    /// The owner has none with this id and this version.
    Stale,
}

/// What became of a voice that was to be made again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VoiceRemake {
    /// It will be, or is being made already.
    Begun(Box<StoredVoice>),
    /// The owner has none with this id.
    Unknown,
    /// The consent has ended.
    NoConsent,
}

/// What became of a voice that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VoiceRemoval {
    /// It is gone.
    Removed,
    /// The owner has none with this id.
    Unknown,
    /// It stays: a template or an NPC speaks with it.
    InUse,
}

/// Why a voice was not stored or removed.
#[derive(Debug, thiserror::Error)]
pub enum VoiceError {
    /// No object store is set.
    #[error("there is no object store; set --objects or SWITCHBOARD_OBJECTS")]
    NoObjects,
    /// The object store did not do it.
    #[error("the object store did not do its part of a voice")]
    Objects(#[from] ObjectError),
    /// The database did not do it.
    #[error("the database did not do its part of a voice")]
    Store(#[from] StoreError),
}
