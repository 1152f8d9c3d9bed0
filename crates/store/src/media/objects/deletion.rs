//! Deletion and listing of objects.

use chrono::{DateTime, Utc};
use futures_util::{
    TryStreamExt as _,
    stream::{self, BoxStream},
};
use object_store::{ObjectMeta, ObjectStoreExt as _, path::Path as ObjectPath};

use super::{ObjectError, ObjectKey, Objects, with_timeout};

/// How many objects of a folder are deleted concurrently.
const MAX_CONCURRENT_DELETES: usize = 16;

/// The objects of a folder, one after the other.
pub(crate) struct Listing(BoxStream<'static, object_store::Result<ObjectMeta>>);

impl Listing {
    /// The next object, and the time of its upload.
    pub(crate) async fn next(&mut self) -> Result<Option<(ObjectKey, DateTime<Utc>)>, ObjectError> {
        let found = with_timeout(self.0.try_next()).await?;
        Ok(found.map(|found| (ObjectKey::from_path(&found.location), found.last_modified)))
    }
}

impl Objects {
    /// Deletes an object, if it exists.
    pub(crate) async fn delete(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        match with_timeout(self.inner.delete(&key.path())).await {
            Ok(()) | Err(ObjectError::Missing(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes these objects, as many as possible within the timeout.
    pub(crate) async fn delete_all(&self, keys: Vec<ObjectKey>) -> Result<(), ObjectError> {
        let keys = stream::iter(keys.into_iter().map(Ok));
        let removed = keys.try_for_each_concurrent(MAX_CONCURRENT_DELETES, |key| async move {
            match self.inner.delete(&key.path()).await {
                Err(object_store::Error::NotFound { .. }) => Ok(()),
                answer => answer,
            }
        });
        with_timeout(removed).await
    }

    /// Deletes all objects of a folder, as many as possible within the timeout.
    pub(crate) async fn delete_folder(&self, folder: &str) -> Result<(), ObjectError> {
        let found = self.inner.list(Some(&ObjectPath::from(folder)));
        let removed = found.try_for_each_concurrent(MAX_CONCURRENT_DELETES, |found| async move {
            match self.inner.delete(&found.location).await {
                Err(object_store::Error::NotFound { .. }) => Ok(()),
                answer => answer,
            }
        });
        with_timeout(removed).await
    }

    pub(crate) fn list(&self, folder: &str) -> Listing {
        Listing(self.inner.list(Some(&ObjectPath::from(folder))))
    }
}
