//! The object store: bytes too large for a row, by a key that names their owner and their hash.
//! Never: a list of what is in it; which objects there are is in the database.

use std::{fmt, fs::DirBuilder, os::unix::fs::DirBuilderExt, path::Path, sync::Arc};

use bytes::Bytes;
use object_store::{ObjectStore, ObjectStoreExt, local::LocalFileSystem, path::Path as ObjectPath};

use switchboard_protocol::id::SkillsBookId;
use uuid::Uuid;

use crate::{StoreError, owner::Owner};

/// What an operator sets.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct ObjectsConfig {
    /// Where pictures and skills books are kept: a folder as `file:///var/lib/switchboard/objects`, the same for all
    /// processes; without it there are none
    #[arg(long, env = "SWITCHBOARD_OBJECTS", value_name = "URL")]
    pub objects: Option<String>,
}

/// One object store; cheap to clone.
#[derive(Clone)]
pub struct Objects {
    inner: Arc<dyn ObjectStore>,
}

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectKey(String);

impl ObjectKey {
    /// The picture with these bytes that belongs to this owner.
    pub(crate) fn picture(owner: Owner, sha256: &[u8]) -> Self {
        Self(format!("pictures/{owner}/{}", hex(sha256)))
    }

    /// A part of a skills book; each writing of it is another object.
    pub(crate) fn skills_book_part(owner: Owner, book: SkillsBookId, object: Uuid) -> Self {
        Self(format!("skills-books/{owner}/{book}/{}", object.simple()))
    }

    fn path(&self) -> ObjectPath {
        ObjectPath::from(self.0.as_str())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why an object was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// There is none with this key.
    #[error("the object is missing")]
    Missing(#[source] object_store::Error),
    /// The store did not do it.
    #[error("the object store failed")]
    Failed(#[source] object_store::Error),
}

impl From<object_store::Error> for ObjectError {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { .. } => Self::Missing(error),
            error => Self::Failed(error),
        }
    }
}

impl Objects {
    /// The store that an operator set; `None` when none is set.
    ///
    /// # Errors
    /// [`StoreError::Setting`] when it is no URL of a folder, or the folder cannot be made.
    pub fn from_config(config: &ObjectsConfig) -> Result<Option<Self>, StoreError> {
        let Some(url) = &config.objects else {
            return Ok(None);
        };
        let folder = url
            .strip_prefix("file://")
            .filter(|path| path.starts_with('/'));
        let plain = folder.filter(|path| !path.contains(['%', '?', '#']));
        let folder = plain.ok_or(StoreError::Setting(
            "--objects or SWITCHBOARD_OBJECTS must be file:// and the absolute path of a folder without % ? #",
        ))?;
        Self::in_folder(Path::new(folder)).map(Some)
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
        Ok(self.inner.get(&key.path()).await?.bytes().await?)
    }

    /// Writes an object whole; writing the same again changes nothing.
    pub(crate) async fn put(&self, key: &ObjectKey, bytes: Bytes) -> Result<(), ObjectError> {
        self.inner.put(&key.path(), bytes.into()).await?;
        Ok(())
    }

    /// Removes an object, if it is there.
    pub(crate) async fn delete(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        match self.inner.delete(&key.path()).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_are_taken() {
        fn check(url: Option<&str>, usable: bool) {
            let config = ObjectsConfig {
                objects: url.map(str::to_owned),
            };
            let opened = Objects::from_config(&config);
            assert_eq!(opened.is_ok(), usable, "{url:?}");
            if let Err(error) = opened {
                assert!(error.to_string().contains("SWITCHBOARD_OBJECTS"), "{error}");
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("a b/c");
        check(None, true);
        check(Some(&format!("file://{}", inside.display())), true);
        assert!(inside.is_dir());
        check(Some(&inside.display().to_string()), false);
        check(Some("file://relative"), false);
        check(Some("file:///a%20b"), false);
        check(Some("s3://bucket"), false);
        check(Some("file:///proc/version/x"), false);
        check(Some(""), false);
    }

    #[tokio::test]
    async fn an_object_is_there_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::in_folder(folder.path()).unwrap();
        let key = ObjectKey::picture(Owner::Installation, &[0xab; 32]);
        assert_eq!(
            key.to_string(),
            format!("pictures/public/{}", "ab".repeat(32))
        );
        let missing = objects.get(&key).await;
        assert!(
            matches!(missing, Err(ObjectError::Missing(_))),
            "{missing:?}"
        );
        objects.delete(&key).await.unwrap();
        for _ in 0..2 {
            objects.put(&key, Bytes::from_static(b"x")).await.unwrap();
        }
        assert_eq!(objects.get(&key).await.unwrap(), "x");
        objects.delete(&key).await.unwrap();
        let missing = objects.get(&key).await;
        assert!(
            matches!(missing, Err(ObjectError::Missing(_))),
            "{missing:?}"
        );
    }
}
