//! The folder of `switchboard up`: who may use it, and what a running instance leaves for others.
//! Never: a secret that anyone but its owner can read, two instances in one folder.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use switchboard_identity::ApiKeySecret;

use crate::{arguments::DataArguments, exit::Failure, process::Ready};

const INSTANCE: &str = "up.json";
const LOCK: &str = "up.lock";

/// What `up` keeps over restarts, and where its running (or last) instance is reached.
#[derive(Serialize, Deserialize)]
pub(crate) struct Instance {
    pub(crate) org_id: Option<String>,
    pub(crate) api_key: String,
    pub(crate) operator_key: String,
    pub(crate) device_addr: Option<String>,
    pub(crate) http_url: Option<String>,
    pub(crate) admin_url: Option<String>,
}

impl Instance {
    /// One that has never run: new keys, no addresses.
    pub(crate) fn new() -> Self {
        let new_key = || ApiKeySecret::generate().expose_secret().to_owned();
        Self {
            org_id: None,
            api_key: new_key(),
            operator_key: new_key(),
            device_addr: None,
            http_url: None,
            admin_url: None,
        }
    }

    /// Takes over where this start is reached.
    pub(crate) fn describe(&mut self, ready: &Ready) {
        self.org_id.clone_from(&ready.org_id);
        self.device_addr.clone_from(&ready.device_addr);
        self.http_url.clone_from(&ready.http_url);
        self.admin_url = Some(ready.admin_url.clone());
    }
}

/// The folder while this process holds it.
#[derive(Debug)]
pub(crate) struct DataFolder {
    path: PathBuf,
    // The lock lasts as long as the open file.
    _lock: File,
}

impl DataArguments {
    /// The folder that is meant, whether it exists or not.
    ///
    /// # Errors
    /// When none is named and there is no home to put it in.
    pub(crate) fn path(&self) -> Result<PathBuf, Failure> {
        let platform = || {
            let absolute = |name| {
                std::env::var_os(name)
                    .map(PathBuf::from)
                    .filter(|p| p.is_absolute())
            };
            let home = || absolute("HOME");
            let data = absolute("XDG_DATA_HOME").or_else(|| {
                let below = if cfg!(target_os = "macos") {
                    "Library/Application Support"
                } else {
                    ".local/share"
                };
                home().map(|home| home.join(below))
            });
            data.map(|data| data.join("switchboard"))
        };
        self.data_dir.clone().or_else(platform).ok_or_else(|| {
            Failure::usage("there is no home to keep data in: name a folder with --data-dir")
        })
    }

    /// What the running (or last) `up` left for others, if there was one.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub(crate) fn instance(&self) -> Result<Option<Instance>, Failure> {
        read_instance(&self.path()?)
    }
}

impl DataFolder {
    /// Creates the folder if need be and takes it for this process.
    ///
    /// # Errors
    /// When it cannot be created or another `up` holds it.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .with_context(|| format!("the data folder {shown} cannot be created"))?;
        let path = fs::canonicalize(path).with_context(|| format!("{shown} cannot be used"))?;
        let lock = take_lock(&path)?;
        Ok(Self { path, _lock: lock })
    }

    /// The folder itself, absolute.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What an earlier start left here.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub(crate) fn instance(&self) -> Result<Option<Instance>, Failure> {
        read_instance(&self.path)
    }

    /// Replaces what is kept here; after a crash it is either the old or the new.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub(crate) fn keep(&self, instance: &Instance) -> Result<(), Failure> {
        let write = || -> io::Result<()> {
            let partial = self.path.join(format!("{INSTANCE}.partial"));
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&partial)?;
            serde_json::to_writer_pretty(&file, instance)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&partial, self.path.join(INSTANCE))?;
            File::open(&self.path)?.sync_all()
        };
        write().with_context(|| format!("{}/{INSTANCE} cannot be written", self.path.display()))?;
        Ok(())
    }
}

fn take_lock(folder: &Path) -> Result<File, Failure> {
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(folder.join(LOCK))
        .with_context(|| format!("{} cannot be locked", folder.display()))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Only for the message: without the number it still says what is wrong.
            let _ = lock.read_to_string(&mut holder);
            return Err(Failure::general(format!(
                "another `switchboard up` (process {}) uses {}: end it, or give this one a folder \
                 and ports of its own with --data-dir, --device-listen, --http-listen and --admin-listen",
                holder.trim(),
                folder.display(),
            )));
        }
        Err(TryLockError::Error(error)) => {
            return Err(Failure::general(format!(
                "{} cannot be locked: {error}",
                folder.display()
            )));
        }
    }
    lock.set_len(0)
        .and_then(|()| writeln!(lock, "{}", std::process::id()))
        .with_context(|| format!("{} cannot be written", folder.display()))?;
    Ok(lock)
}

fn read_instance(folder: &Path) -> Result<Option<Instance>, Failure> {
    let path = folder.join(INSTANCE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Failure::general(format!(
                "{} cannot be read: {error}",
                path.display()
            )));
        }
    };
    let instance = serde_json::from_str(&text).with_context(|| {
        format!(
            "{} is damaged: remove it to get a new API key",
            path.display()
        )
    })?;
    Ok(Some(instance))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_only_its_owner_reads_it() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a/b");
        let folder = DataFolder::open(&path).unwrap();
        assert!(folder.instance().unwrap().is_none());
        let instance = Instance::new();
        assert_eq!(instance.api_key.len(), "sb_".len() + 43);
        folder.keep(&instance).unwrap();
        assert_eq!(
            folder.instance().unwrap().unwrap().api_key,
            instance.api_key
        );
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&path.join(INSTANCE)), 0o600);
    }

    #[test]
    fn a_folder_is_held_once() {
        let temporary = tempfile::tempdir().unwrap();
        let first = DataFolder::open(temporary.path()).unwrap();
        let refused = format!("{:?}", DataFolder::open(temporary.path()).unwrap_err());
        assert!(
            refused.contains(&std::process::id().to_string()),
            "{refused}"
        );
        drop(first);
        DataFolder::open(temporary.path()).unwrap();
    }
}
