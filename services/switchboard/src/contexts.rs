//! Contexts: addresses and keys of installations, each with a name, as `switchboard login` stores
//! them.
//!
//! Invariant: only their owner can read them.

use std::{collections::BTreeMap, fs, io, path::PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::{
    data_folder::{create_private, user_folder, write_private},
    exit::Failure,
};

const FILE: &str = "contexts.json";

/// All contexts of a user.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Contexts {
    /// The one that commands use by default.
    pub(crate) current: Option<String>,
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// One installation and a credential.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Context {
    pub(crate) url: String,
    pub(crate) api_key: String,
    /// PEM file of certificate authorities to trust, instead of the system's.
    pub(crate) tls_ca: Option<PathBuf>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Contexts {
    /// Reads the contexts; none without a file or a home folder.
    ///
    /// # Errors
    /// When the file exists and cannot be read.
    pub(crate) fn read() -> Result<Self, Failure> {
        let Some(folder) = folder() else {
            return Ok(Self::default());
        };
        let file = folder.join(FILE);
        match fs::read_to_string(&file) {
            Ok(text) => Ok(serde_json::from_str(&text).with_context(|| {
                format!("{} is damaged: delete it and log in again", file.display())
            })?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Failure::general(format!(
                "cannot read {}: {error}",
                file.display()
            ))),
        }
    }

    /// Stores the contexts.
    ///
    /// # Errors
    /// When there is no home folder, or the file cannot be written.
    pub(crate) fn save(&self) -> Result<(), Failure> {
        let folder = folder().ok_or_else(|| {
            Failure::usage("there is no home folder: set HOME or XDG_CONFIG_HOME")
        })?;
        create_private(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let text = serde_json::to_string_pretty(self).context("cannot write JSON")?;
        write_private(&folder, FILE, &text.into())
    }

    /// Returns a context with its name.
    ///
    /// # Errors
    /// When there is none of this name; the error lists those that exist.
    pub(crate) fn get(&self, name: &str) -> Result<(String, Context), Failure> {
        let context = self.contexts.get(name).ok_or_else(|| {
            let names: Vec<_> = self.contexts.keys().map(String::as_str).collect();
            Failure::usage(match names.as_slice() {
                [] => format!("no context {name}: there are none; see `switchboard login --help`"),
                _ => format!("no context {name}: there are {}", names.join(", ")),
            })
        })?;
        Ok((name.to_owned(), context.clone()))
    }

    /// Returns the current context with its name.
    pub(crate) fn current(&self) -> Option<(String, Context)> {
        self.get(self.current.as_deref()?).ok()
    }
}

fn folder() -> Option<PathBuf> {
    user_folder("XDG_CONFIG_HOME", ".config")
}
