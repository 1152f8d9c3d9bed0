//! The object store for bytes that are too large for a row.
//! Invariant: every operation has a timeout, and none runs within a transaction: objects are
//! uploaded before their row is inserted, and deleted after it.

mod deletion;
mod http;
mod keys;
mod s3;
#[cfg(test)]
mod tests;

use std::{
    env, fmt, fs::DirBuilder, os::unix::fs::DirBuilderExt, path::Path, sync::Arc, time::Duration,
};

use bytes::Bytes;
use futures_util::{TryStreamExt as _, stream::BoxStream};
use object_store::{ObjectStore, ObjectStoreExt, local::LocalFileSystem, path::Path as ObjectPath};

use tokio::time::timeout;

use crate::{StoreError, error::report};
pub use keys::ObjectKey;
pub(crate) use keys::ObjectKind;

/// The timeout for reading or writing one object, including retries. Shorter than the store's
/// callers wait, so that the error names the object store.
const OBJECT_TIMEOUT: Duration = Duration::from_secs(12);
/// A key without an object; reading it tests the access.
const PROBE: &str = "probe";
/// S3's error code for a missing bucket; the library reports missing buckets and objects alike.
const NO_BUCKET: &str = "<Code>NoSuchBucket</Code>";

/// Configuration of the object store.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct ObjectsConfig {
    /// Where pictures, skills books and voices are stored: a folder as
    /// file:///var/lib/switchboard/objects, or s3://BUCKET/PREFIX with the usual AWS_… variables;
    /// the same for all processes; without it, these features are disabled
    #[arg(long, env, value_name = "URL")]
    pub objects: Option<String>,
}

/// An object store; cheap to clone.
#[derive(Clone)]
pub struct Objects {
    inner: Arc<dyn ObjectStore>,
}

/// An object that is read part by part, so that it is never in memory in whole.
pub struct ObjectStream(BoxStream<'static, object_store::Result<Bytes>>);

/// The reason why an object was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// There is no object with this key.
    #[error("the object is missing")]
    Missing(#[source] object_store::Error),
    /// The bucket does not exist.
    #[error("the bucket of the object store does not exist")]
    NoBucket(#[source] object_store::Error),
    /// The credentials are not accepted, or do not permit the operation.
    #[error("the object store rejected the credentials")]
    Denied(#[source] object_store::Error),
    /// The operation did not complete within the timeout.
    #[error("the object store did not respond in time")]
    TimedOut,
    /// The object store reported another error.
    #[error("the object store failed")]
    Failed(#[source] object_store::Error),
}

impl From<object_store::Error> for ObjectError {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { .. } if error.to_string().contains(NO_BUCKET) => {
                Self::NoBucket(error)
            }
            object_store::Error::NotFound { .. } => Self::Missing(error),
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. } => Self::Denied(error),
            error => Self::Failed(error),
        }
    }
}

impl ObjectError {
    /// The error and all its causes on one line, for the log.
    #[must_use]
    pub fn report(&self) -> String {
        report(self)
    }
}

impl ObjectsConfig {
    /// The folder of the objects, if they are files.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        let folder = self.objects.as_deref()?.strip_prefix("file://")?;
        let plain = folder.starts_with('/') && !folder.contains(['%', '?', '#']);
        plain.then_some(Path::new(folder))
    }
}

impl Objects {
    /// The configured store; `None` if there is none. A bucket is not accessed yet.
    ///
    /// # Errors
    /// [`StoreError::Setting`] if the URL is not of a folder or bucket, the folder cannot be
    /// created, or the AWS variables are unusable.
    pub fn from_config(config: &ObjectsConfig) -> Result<Option<Self>, StoreError> {
        Self::from_settings(config, env::vars())
    }

    /// As [`Objects::from_config`], with explicit environment variables.
    ///
    /// # Errors
    /// As that method.
    pub fn from_settings(
        config: &ObjectsConfig,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<Option<Self>, StoreError> {
        let Some(url) = &config.objects else {
            return Ok(None);
        };
        if let Some(place) = url.strip_prefix(s3::SCHEME) {
            let inner = s3::open(place, variables)?;
            return Ok(Some(Self { inner }));
        }
        let folder = config.folder().ok_or(StoreError::Setting(
            "--objects or SWITCHBOARD_OBJECTS must be file:// and the absolute path of a folder without % ? #, \
             or s3://BUCKET/PREFIX",
        ))?;
        Self::in_folder(folder).map(Some)
    }

    /// Stores objects as files below this folder, which is created if necessary.
    ///
    /// # Errors
    /// [`StoreError::Setting`] if it cannot be created or is not a folder.
    pub fn in_folder(folder: &Path) -> Result<Self, StoreError> {
        // Only this user can read the objects.
        let creation = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let created = creation.map_err(|error| {
            tracing::error!(%error, folder = %folder.display(), "object folder cannot be created");
        });
        let opened = created.and_then(|()| {
            // An acknowledged write survives a power failure.
            let local = LocalFileSystem::new_with_prefix(folder);
            local.map(|local| local.with_fsync(true)).map_err(|error| {
                tracing::error!(%error, folder = %folder.display(), "object folder cannot be used");
            })
        });
        let local = opened.map_err(|()| {
            StoreError::Setting("the folder in --objects or SWITCHBOARD_OBJECTS cannot be used")
        })?;
        Ok(Self {
            inner: Arc::new(local),
        })
    }

    /// The bytes of an object.
    ///
    /// # Errors
    /// [`ObjectError::Missing`] if there is none with this key.
    pub async fn get(&self, key: &ObjectKey) -> Result<Bytes, ObjectError> {
        with_timeout(async { self.inner.get(&key.path()).await?.bytes().await }).await
    }

    /// The bytes of an object, part by part.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn stream(&self, key: &ObjectKey) -> Result<ObjectStream, ObjectError> {
        let found = with_timeout(self.inner.get(&key.path())).await?;
        Ok(ObjectStream(found.into_stream()))
    }

    /// Checks that the store exists and grants access.
    ///
    /// # Errors
    /// [`ObjectError`] other than [`ObjectError::Missing`].
    pub async fn probe(&self) -> Result<(), ObjectError> {
        match with_timeout(self.inner.get(&ObjectPath::from(PROBE))).await {
            Ok(_) | Err(ObjectError::Missing(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes a whole object; repeating the write changes nothing.
    pub(crate) async fn put(&self, key: &ObjectKey, bytes: Bytes) -> Result<(), ObjectError> {
        with_timeout(self.inner.put(&key.path(), bytes.into())).await?;
        Ok(())
    }
}

impl ObjectStream {
    /// The next bytes, some KiB; `None` after the last ones.
    ///
    /// # Errors
    /// [`ObjectError`] if they are not read within the timeout of an object.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ObjectError> {
        with_timeout(self.0.try_next()).await
    }
}

/// Applies the timeout to an operation.
async fn with_timeout<T>(
    work: impl Future<Output = object_store::Result<T>>,
) -> Result<T, ObjectError> {
    let result = timeout(OBJECT_TIMEOUT, work).await;
    Ok(result.map_err(|_| ObjectError::TimedOut)??)
}

impl fmt::Debug for ObjectStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStream").finish_non_exhaustive()
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objects({})", self.inner)
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
