//! Bytes that are put before their row is made: no transaction waits for the object store, and no row is without its bytes.
//! Never: bytes taken away whose row may have been made; what nobody took away, a sweep does.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{
    StoreError,
    objects::{ObjectError, ObjectKey, Objects},
};

/// Something whose bytes are in the object store, and whose row is not made yet.
#[derive(Debug)]
#[must_use]
pub struct Placed<T> {
    objects: Objects,
    key: ObjectKey,
    pub(crate) what: T,
    pub(crate) sha256: Vec<u8>,
}

impl<T> Placed<T> {
    /// Puts the bytes under a key that nobody has used before.
    pub(crate) async fn put<E>(
        objects: &Objects,
        key: ObjectKey,
        bytes: Bytes,
        what: T,
    ) -> Result<Self, E>
    where
        E: From<ObjectError> + From<StoreError>,
    {
        let hashed = bytes.clone();
        // Some milliseconds that no other request should wait for.
        let hashing = tokio::task::spawn_blocking(move || Sha256::digest(&hashed).to_vec());
        let sha256 = hashing.await.map_err(|_| StoreError::Unavailable(None))?;
        objects.put(&key, bytes).await?;
        Ok(Self {
            objects: objects.clone(),
            key,
            what,
            sha256,
        })
    }

    /// What became of it before anything was committed: when that is an error, the bytes are taken away again. The
    /// transaction must be over by then.
    ///
    /// # Errors
    /// The given one.
    pub async fn kept_if<V, E>(&self, made: Result<V, E>) -> Result<V, E> {
        if made.is_err() {
            self.take_away().await;
        }
        made
    }

    pub(crate) async fn take_away(&self) {
        if let Err(error) = self.objects.delete(&self.key).await {
            tracing::warn!(error = error.report(), object = %self.key, "an object without a row was left behind");
        }
    }
}
