//! The object store: bytes too large for a row, by a key that names their owner and their row.
//! Never: a wait for it without a limit, or within a transaction: rows are made after their bytes, and go before them.

mod http;
mod keys;
mod removal;
mod s3;
#[cfg(test)]
mod tests;

use std::{
    env, fmt, fs::DirBuilder, os::unix::fs::DirBuilderExt, path::Path, sync::Arc, time::Duration,
};

use bytes::Bytes;
use object_store::{ObjectStore, ObjectStoreExt, local::LocalFileSystem, path::Path as ObjectPath};

use tokio::time::timeout;

use crate::{StoreError, error::report};
pub use keys::ObjectKey;
pub(crate) use keys::PutFor;

/// How long reading or writing one object may take, with all its attempts. Less than a caller of the store waits, so
/// that it is known what was slow.
const OBJECT_LIMIT: Duration = Duration::from_secs(12);
/// Nothing is ever under this key; whether the store can be asked is found out by asking for it.
const PROBE: &str = "probe";
/// What S3 says of a bucket that does not exist, where its library says of object and bucket alike: not found.
const NO_BUCKET: &str = "<Code>NoSuchBucket</Code>";

/// What an operator sets.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct ObjectsConfig {
    /// Where pictures, skills books and voices are kept: a folder as file:///var/lib/switchboard/objects, or
    /// s3://BUCKET/PREFIX with the usual AWS_… variables; the same for all processes; without it there are none
    #[arg(long, env = "SWITCHBOARD_OBJECTS", value_name = "URL")]
    pub objects: Option<String>,
}

/// One object store; cheap to clone.
#[derive(Clone)]
pub struct Objects {
    inner: Arc<dyn ObjectStore>,
}

/// Why an object was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// There is none with this key.
    #[error("the object is missing")]
    Missing(#[source] object_store::Error),
    /// The place itself is not there.
    #[error("the bucket of the object store does not exist")]
    NoBucket(#[source] object_store::Error),
    /// The store does not let us in, or not do this.
    #[error("the object store refuses the credentials")]
    Denied(#[source] object_store::Error),
    /// The store did not do it within the limit.
    #[error("the object store did not answer in time")]
    TimedOut,
    /// The store did not do it.
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
    /// The folder of objects, when they are files.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        let folder = self.objects.as_deref()?.strip_prefix("file://")?;
        let plain = folder.starts_with('/') && !folder.contains(['%', '?', '#']);
        plain.then_some(Path::new(folder))
    }
}

impl Objects {
    /// The store that an operator set; `None` when none is set. One in a bucket is not asked anything yet.
    ///
    /// # Errors
    /// [`StoreError::Setting`] when it is no URL of a folder or bucket, the folder cannot be made, or the bucket cannot
    /// be reached in the way that the environment says.
    pub fn from_config(config: &ObjectsConfig) -> Result<Option<Self>, StoreError> {
        Self::from_settings(config, env::vars())
    }

    /// As [`Objects::from_config`], with other variables than those of this process.
    ///
    /// # Errors
    /// As there.
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

    /// Objects as files below this folder, which is made if need be.
    ///
    /// # Errors
    /// [`StoreError::Setting`] when it cannot be made or is no folder.
    pub fn in_folder(folder: &Path) -> Result<Self, StoreError> {
        // What is in it is for those only who ask this program.
        let maker = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let made = maker.map_err(|error| {
            tracing::error!(%error, folder = %folder.display(), "the folder for objects cannot be made");
        });
        let opened = made.and_then(|()| {
            // What was answered with success survives a power cut.
            let local = LocalFileSystem::new_with_prefix(folder);
            local.map(|local| local.with_fsync(true)).map_err(|error| {
                tracing::error!(%error, folder = %folder.display(), "the folder for objects cannot be used");
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
    /// [`ObjectError::Missing`] when there is none with this key.
    pub async fn get(&self, key: &ObjectKey) -> Result<Bytes, ObjectError> {
        limited(async { self.inner.get(&key.path()).await?.bytes().await }).await
    }

    /// Asks whether there is such a place, and whether it lets us in.
    ///
    /// # Errors
    /// [`ObjectError`] when not, but never [`ObjectError::Missing`].
    pub async fn probe(&self) -> Result<(), ObjectError> {
        match limited(self.inner.get(&ObjectPath::from(PROBE))).await {
            Ok(_) | Err(ObjectError::Missing(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes an object whole; writing the same again changes nothing.
    pub(crate) async fn put(&self, key: &ObjectKey, bytes: Bytes) -> Result<(), ObjectError> {
        limited(self.inner.put(&key.path(), bytes.into())).await?;
        Ok(())
    }
}

/// Lets nobody wait for ever.
async fn limited<T>(work: impl Future<Output = object_store::Result<T>>) -> Result<T, ObjectError> {
    let answer = timeout(OBJECT_LIMIT, work).await;
    Ok(answer.map_err(|_| ObjectError::TimedOut)??)
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
