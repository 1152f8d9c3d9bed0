//! Objects in a folder or a bucket, the pictures, voices and recordings that consist of them, and the deletion
//! of orphaned ones.

pub(crate) mod objects;
pub(crate) mod orphans;
pub(crate) mod pending_upload;
pub(crate) mod pictures;
pub(crate) mod recordings;
pub(crate) mod voices;
