//! The signing and sealing keys in the database: at startup a service checks that its master keys
//! decrypt them, and the control plane encrypts them with the current one.

use switchboard_runtime::{backoff::Backoff, shutdown::Shutdown};
use switchboard_store::{MasterKeyConfig, MasterKeys, Store, StoreError};
use tracing::{info, warn};

use crate::process::Process;

/// What a service does with the keys in the database.
#[derive(Debug, Clone)]
pub(crate) enum StoredKeys {
    /// It reads the one that seals sessions, and refuses sessions without it.
    Sessions(MasterKeyConfig),
    /// It reads them.
    Read(MasterKeyConfig),
    /// It reads and creates them, and encrypts all of them with the current master key.
    Own(MasterKeyConfig),
}

impl StoredKeys {
    /// Returns the store with the master keys of the service.
    pub(crate) fn with_master_keys(&self, store: Store) -> Store {
        match self {
            Self::Sessions(config) | Self::Read(config) | Self::Own(config) => {
                store.with_master_keys(config.keys().cloned().unwrap_or_default())
            }
        }
    }

    /// Checks or encrypts the keys as soon as the database is available. If one of them cannot be
    /// decrypted, the process ends, unless it only needs that of sessions.
    pub(crate) fn start(&self, store: &Store, process: &Process) {
        let is_owner = match self {
            Self::Read(_) => false,
            Self::Own(_) => true,
            Self::Sessions(_) => {
                self.warn_without_sessions(store, process);
                return;
            }
        };
        if is_owner {
            warn_without_master_key(store.master_keys());
        }
        let (store, stage) = (store.clone(), process.stages.database.clone());
        process.spawn_part(
            "reading the keys in the database",
            &process.stages.database,
            async move { open_when_available(&store, is_owner, &stage).await },
        );
    }

    /// Logs a warning if the key of sessions cannot be decrypted. The service does without sessions then.
    fn warn_without_sessions(&self, store: &Store, process: &Process) {
        let (store, stage) = (store.clone(), process.stages.database.clone());
        let check = async move {
            let checked = open_when_available(&store, false, &stage).await;
            if let Err(error) = checked {
                warn!(%error, "sessions of the console are refused: this service has not the master key of the keys in the database");
            }
            Ok::<(), StoreError>(())
        };
        process.spawn_part(
            "reading the keys in the database",
            &process.stages.database,
            check,
        );
    }
}

/// Encrypts all keys in the database with the current master key.
///
/// # Errors
/// [`StoreError::MasterKey`] when one of them cannot be decrypted, or the errors of the database.
pub(crate) async fn rewrap(store: &Store) -> Result<(), StoreError> {
    let rewrapped = store.rewrap_keys().await?;
    let master_keys = store.master_keys();
    match master_keys.current_id() {
        Some(id) => info!(
            master_key.id = id,
            keys = rewrapped.keys,
            keys.changed = rewrapped.changed,
            key_set.public_keys = master_keys.key_set_public_keys().join(","),
            "the keys in the database are encrypted with the master key"
        ),
        None if rewrapped.changed > 0 => warn!(
            keys.changed = rewrapped.changed,
            "keys in the database that were encrypted are stored in the clear again"
        ),
        None => {}
    }
    Ok(())
}

/// Logs a warning if keys are stored in the clear.
pub(crate) fn warn_without_master_key(master_keys: &MasterKeys) {
    if master_keys.current_id().is_none() {
        warn!(
            "the keys that sign access tokens and seal secrets are stored in the clear in \
             PostgreSQL and its backups: set SWITCHBOARD_MASTER_KEY or --master-key-file"
        );
    }
}

async fn open_when_available(
    store: &Store,
    is_owner: bool,
    stage: &Shutdown,
) -> Result<(), switchboard_store::MasterKeyError> {
    let mut backoff = Backoff::new();
    let mut is_logged = false;
    loop {
        let opened = if is_owner {
            rewrap(store).await
        } else {
            store.check_keys().await
        };
        match opened {
            Ok(()) => return Ok(()),
            Err(StoreError::MasterKey(error)) => return Err(error),
            Err(error) if !is_logged && !error.is_unavailable() => {
                is_logged = true;
                warn!(
                    error = error.report(),
                    "the keys in the database cannot be read; retrying"
                );
            }
            Err(_) => {}
        }
        if !backoff.pause_until_stopped(stage).await {
            return Ok(());
        }
    }
}
