//! The data folder of `switchboard up`: its lock, and the description of the running instance.
//!
//! Invariant: secrets are readable by their owner only, and one process at a time uses the folder.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use switchboard_identity::ApiKeySecret;
use switchboard_runtime::settings::Values;
use switchboard_store::MasterKeys;

use crate::{arguments::DataArguments, exit::Failure, process::Ready};

const INSTANCE: &str = "up.json";
const LOCK: &str = "up.lock";
const MASTER_KEY: &str = "master.key";

/// Keys that `up` keeps across restarts, and addresses of its current or last run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Instance {
    pub(crate) org_id: Option<String>,
    pub(crate) api_key: String,
    pub(crate) operator_key: String,
    pub(crate) device_addr: Option<String>,
    pub(crate) http_url: Option<String>,
    pub(crate) admin_url: Option<String>,
    /// The settings of the current or last run, for `switchboard doctor`.
    #[serde(default)]
    pub(crate) settings: Values,
}

impl Instance {
    /// Creates an instance with new keys and without addresses.
    pub(crate) fn new() -> Self {
        let new_key = || ApiKeySecret::generate().expose_secret().to_owned();
        Self {
            org_id: None,
            api_key: new_key(),
            operator_key: new_key(),
            device_addr: None,
            http_url: None,
            admin_url: None,
            settings: Values::default(),
        }
    }

    /// Sets the addresses of the current run.
    pub(crate) fn set_addresses(&mut self, ready: &Ready) {
        self.org_id.clone_from(&ready.org_id);
        self.device_addr.clone_from(&ready.device_addr);
        self.http_url.clone_from(&ready.http_url);
        self.admin_url = Some(ready.admin_url.clone());
    }
}

/// A data folder locked by this process.
#[derive(Debug)]
pub(crate) struct DataFolder {
    path: PathBuf,
    // The lock is held while the file is open.
    _lock: File,
}

impl DataArguments {
    /// Returns the path of the folder, whether it exists or not.
    ///
    /// # Errors
    /// When none is configured and there is no home folder.
    pub(crate) fn path(&self) -> Result<PathBuf, Failure> {
        let platform = || user_folder("XDG_DATA_HOME", ".local/share");
        self.data_dir.clone().or_else(platform).ok_or_else(|| {
            Failure::usage("there is no home folder: set a data folder with --data-dir")
        })
    }

    /// Reads the description of the current or last run of `up`, if any.
    ///
    /// # Errors
    /// When the file exists and cannot be read.
    pub(crate) fn instance(&self) -> Result<Option<Instance>, Failure> {
        read_instance(&self.path()?)
    }
}

impl DataFolder {
    /// Creates the folder if necessary and locks it.
    ///
    /// # Errors
    /// When it cannot be created, or another `up` has locked it.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        create_private(path).with_context(|| format!("cannot create the data folder {shown}"))?;
        let path = fs::canonicalize(path).with_context(|| format!("cannot use {shown}"))?;
        let lock = take_lock(&path)?;
        Ok(Self { path, _lock: lock })
    }

    /// Returns the absolute path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the description of an earlier run, if any.
    ///
    /// # Errors
    /// When the file exists and cannot be read.
    pub(crate) fn instance(&self) -> Result<Option<Instance>, Failure> {
        read_instance(&self.path)
    }

    /// Replaces the description atomically.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn save(&self, instance: &Instance) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(instance).context("cannot write JSON")?;
        write_private(&self.path, INSTANCE, &text.into())
    }

    /// Reads the master key of the private database; `None` if there is no file.
    ///
    /// # Errors
    /// When the file is not readable or contains no key.
    pub(crate) fn master_keys(&self) -> Result<Option<MasterKeys>, Failure> {
        let path = self.master_key_path();
        if !path.exists() {
            return Ok(None);
        }
        let keys = MasterKeys::read(&path).map_err(Failure::general)?;
        Ok(Some(keys))
    }

    /// Creates the master key of the private database, and stores it before it is used.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn create_master_key(&self) -> Result<MasterKeys, Failure> {
        let key = MasterKeys::generate();
        write_private(&self.path, MASTER_KEY, &key)?;
        MasterKeys::parse(key.expose_secret()).map_err(Failure::general)
    }

    pub(crate) fn master_key_path(&self) -> PathBuf {
        self.path.join(MASTER_KEY)
    }
}

/// Replaces a file that only its owner can read, atomically.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write_private(folder: &Path, name: &str, text: &SecretString) -> Result<(), Failure> {
    let write = || -> io::Result<()> {
        let partial = folder.join(format!("{name}.partial"));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&partial)?;
        file.write_all(text.expose_secret().as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&partial, folder.join(name))?;
        File::open(folder)?.sync_all()
    };
    write().with_context(|| format!("cannot write {}/{name}", folder.display()))?;
    Ok(())
}

/// Creates a folder that only its owner can read.
///
/// # Errors
/// When it cannot be created.
pub(crate) fn create_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Returns the folder of Switchboard below a folder of the user: that of an XDG variable, or a
/// default below the home folder. `None` without a home folder.
pub(crate) fn user_folder(variable: &str, default: &str) -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let default = if cfg!(target_os = "macos") {
        "Library/Application Support"
    } else {
        default
    };
    let home = || absolute("HOME").map(|home| home.join(default));
    absolute(variable)
        .or_else(home)
        .map(|folder| folder.join("switchboard"))
}

fn take_lock(folder: &Path) -> Result<File, Failure> {
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(folder.join(LOCK))
        .with_context(|| format!("cannot lock {}", folder.display()))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Only for the error message, which also works without the process id.
            let _ = lock.read_to_string(&mut holder);
            return Err(Failure::general(format!(
                "another `switchboard up` (process {}) uses {}: stop it, or use another folder \
                 and other ports with --data-dir, --device-listen, --http-listen and --admin-listen",
                holder.trim(),
                folder.display(),
            )));
        }
        Err(TryLockError::Error(error)) => {
            return Err(Failure::general(format!(
                "cannot lock {}: {error}",
                folder.display()
            )));
        }
    }
    lock.set_len(0)
        .and_then(|()| writeln!(lock, "{}", std::process::id()))
        .with_context(|| format!("cannot write {}", folder.display()))?;
    Ok(lock)
}

fn read_instance(folder: &Path) -> Result<Option<Instance>, Failure> {
    let path = folder.join(INSTANCE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Failure::general(format!(
                "cannot read {}: {error}",
                path.display()
            )));
        }
    };
    let instance = serde_json::from_str(&text).with_context(|| {
        format!(
            "{} is damaged: delete it to get a new API key",
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
    fn instance_is_stored_and_readable_by_owner_only() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a/b");
        let folder = DataFolder::open(&path).unwrap();
        assert!(folder.instance().unwrap().is_none());
        let instance = Instance::new();
        assert_eq!(instance.api_key.len(), "sb_".len() + 43);
        folder.save(&instance).unwrap();
        assert_eq!(
            folder.instance().unwrap().unwrap().api_key,
            instance.api_key
        );
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&path.join(INSTANCE)), 0o600);

        assert!(folder.master_keys().unwrap().is_none());
        let created = folder.create_master_key().unwrap();
        let read = folder.master_keys().unwrap().unwrap();
        assert_eq!(read.current_id(), created.current_id());
        assert_eq!(mode(&path.join(MASTER_KEY)), 0o600);
    }

    #[test]
    fn data_folder_is_locked_once() {
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
