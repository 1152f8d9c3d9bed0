//! How objects go: one, all of a folder, or those that a list of them shows to be left over.
//! Never: a decision which of them are; that needs the database.

use chrono::{DateTime, Utc};
use futures_util::{TryStreamExt as _, stream::BoxStream};
use object_store::{ObjectMeta, ObjectStoreExt as _, path::Path as ObjectPath};

use super::{ObjectError, ObjectKey, Objects, limited};

/// How many objects of a folder are removed at once.
const AT_ONCE: usize = 16;

/// The objects of a folder, one after the other.
pub(crate) struct Listing(BoxStream<'static, object_store::Result<ObjectMeta>>);

impl Listing {
    /// The next one, and when it was put.
    pub(crate) async fn next(&mut self) -> Result<Option<(ObjectKey, DateTime<Utc>)>, ObjectError> {
        let found = limited(self.0.try_next()).await?;
        Ok(found.map(|found| (ObjectKey::at(&found.location), found.last_modified)))
    }
}

impl Objects {
    /// Removes an object, if it is there.
    pub(crate) async fn delete(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        match limited(self.inner.delete(&key.path())).await {
            Ok(()) | Err(ObjectError::Missing(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes all objects of a folder, as many as can be within the time that one may take.
    pub(crate) async fn delete_folder(&self, folder: &str) -> Result<(), ObjectError> {
        let found = self.inner.list(Some(&ObjectPath::from(folder)));
        let removed = found.try_for_each_concurrent(AT_ONCE, |found| async move {
            match self.inner.delete(&found.location).await {
                Err(object_store::Error::NotFound { .. }) => Ok(()),
                answer => answer,
            }
        });
        limited(removed).await
    }

    pub(crate) fn list(&self, folder: &str) -> Listing {
        Listing(self.inner.list(Some(&ObjectPath::from(folder))))
    }
}
