//! Objects that are uploaded before their row is inserted: no transaction waits for the object
//! store, and no row lacks its bytes.
//! Invariant: bytes whose row may exist are not deleted here; orphans are collected later.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{
    StoreError,
    media::objects::{ObjectError, ObjectKey, Objects},
};

/// An uploaded object whose row is not inserted yet.
#[derive(Debug)]
#[must_use]
pub struct PendingUpload<T> {
    objects: Objects,
    key: ObjectKey,
    pub(crate) row: T,
    pub(crate) sha256: Vec<u8>,
}

impl<T> PendingUpload<T> {
    /// Uploads the bytes under an unused key.
    pub(crate) async fn put<E>(
        objects: &Objects,
        key: ObjectKey,
        bytes: Bytes,
        row: T,
    ) -> Result<Self, E>
    where
        E: From<ObjectError> + From<StoreError>,
    {
        let hashed = bytes.clone();
        // Hashing takes milliseconds; it must not block other requests.
        let hashing = tokio::task::spawn_blocking(move || Sha256::digest(&hashed).to_vec());
        let sha256 = hashing.await.map_err(|_| StoreError::Unavailable(None))?;
        objects.put(&key, bytes).await?;
        Ok(Self {
            objects: objects.clone(),
            key,
            row,
            sha256,
        })
    }

    /// Passes the result through, and deletes the bytes if it is an error. The transaction must
    /// have ended without a commit.
    ///
    /// # Errors
    /// The given one.
    pub async fn discard_on_error<V, E>(&self, result: Result<V, E>) -> Result<V, E> {
        if result.is_err() {
            self.discard().await;
        }
        result
    }

    pub(crate) async fn discard(&self) {
        if let Err(error) = self.objects.delete(&self.key).await {
            tracing::warn!(error = error.report(), object = %self.key, "could not delete an uploaded object without a row; it is left to the orphan collection");
        }
    }
}
