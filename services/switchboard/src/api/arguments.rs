//! The address and the credential of the API: from flags, a context, or a running `up`.
//!
//! Invariant: the key of the current context is sent to the address of that context only.

use std::{ffi::OsString, path::PathBuf};

use clap_complete::ArgValueCandidates;
use secrecy::SecretString;
use switchboard_runtime::settings;

use super::Api;
use crate::{
    arguments::DataArguments,
    contexts::{Context, Contexts},
    data_folder::Instance,
    exit::Failure,
    help::CONNECTION,
    resources::complete_contexts,
};

/// Address and credential of the API. Default: those of a running `up`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ApiArguments {
    /// URL of the HTTP API. Default: that of the context, or of the `up` running on --data-dir
    #[arg(long, env, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// API key or access token. Default: the key of the context, or of the `up` running on --data-dir
    #[arg(long, env, hide_env_values = true, value_name = "KEY")]
    pub(crate) api_key: Option<SecretString>,
    /// PEM file of certificate authorities to trust, instead of the system's
    #[arg(long, env, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Context of `switchboard login` to use. Default: the current one, unless --data-dir is given
    #[arg(long, env, value_name = "NAME", add = ArgValueCandidates::new(complete_contexts))]
    pub(crate) context: Option<String>,
    #[command(flatten)]
    pub(crate) data: DataArguments,
}

/// Address and credential that are stored, and where.
struct Stored {
    /// The place, for messages.
    place: String,
    url: Option<String>,
    key: SecretString,
    tls_ca: Option<PathBuf>,
}

/// The flags of a connection on a command line that is being completed.
#[derive(clap::Parser)]
struct CompletedLine {
    #[command(flatten)]
    api: ApiArguments,
}

impl ApiArguments {
    /// Creates a client; missing settings are taken from a context or from a running `up`.
    ///
    /// # Errors
    /// When a setting is missing and neither provides it.
    pub(crate) fn connect(&self) -> Result<Api, Failure> {
        self.connect_with(|instance| instance.api_key)
    }

    /// Creates a client that has the operator's key if it uses a running `up`.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub(crate) fn connect_as_operator(&self) -> Result<Api, Failure> {
        self.connect_with(|instance| instance.operator_key)
    }

    fn connect_with(&self, key: fn(Instance) -> String) -> Result<Api, Failure> {
        let missing = self.url.is_none() || self.api_key.is_none();
        let stored = if missing { self.stored(key)? } else { None };
        let none = |what: &str, flag: &str, variable: &str| {
            Failure::usage(format!(
                "no {what}: use `switchboard login`, start `switchboard up`, or use {flag} or the environment variable {variable}"
            ))
        };
        let (place, from_url, from_key, from_ca) = match stored {
            Some(stored) => (stored.place, stored.url, Some(stored.key), stored.tls_ca),
            None => (String::new(), None, None, None),
        };
        let (url, place, tls_ca) = match (&self.url, from_url) {
            (Some(url), _) => (url.clone(), "--url or SWITCHBOARD_URL".to_owned(), None),
            (None, Some(url)) => (url, place, from_ca),
            (None, None) => return Err(none("URL of the API", "--url", "SWITCHBOARD_URL")),
        };
        let key = self.api_key.clone().or(from_key);
        let key = key.ok_or_else(|| none("API key", "--api-key", "SWITCHBOARD_API_KEY"))?;
        let tls_ca = self.tls_ca.clone().or(tls_ca);
        Api::new(&url, key, tls_ca.as_deref(), &place)
    }

    /// Returns the context that is named, or the current one. Its key is not sent to an address that
    /// is given by --url unless the context is named too.
    ///
    /// # Errors
    /// When the contexts cannot be read, or the named one does not exist.
    pub(crate) fn context(&self) -> Result<Option<(String, Context)>, Failure> {
        match &self.context {
            Some(name) => Contexts::read()?.get(name).map(Some),
            None if self.data.data_dir.is_some() || self.url.is_some() => Ok(None),
            None => Ok(Contexts::read()?.current()),
        }
    }

    /// The context, or a running `up`.
    fn stored(&self, key: fn(Instance) -> String) -> Result<Option<Stored>, Failure> {
        if let Some((name, context)) = self.context()? {
            return Ok(Some(Stored {
                place: format!("context {name}"),
                url: Some(context.url),
                key: context.api_key.into(),
                tls_ca: context.tls_ca,
            }));
        }
        let folder = self.data.path()?;
        Ok(self.data.instance()?.map(|instance| Stored {
            place: format!("`up` on {}", folder.display()),
            url: instance.http_url.clone(),
            key: key(instance).into(),
            tls_ca: None,
        }))
    }

    /// The flags of the command line that a shell completes, which is after `--`.
    ///
    /// # Errors
    /// When a flag is invalid.
    pub(crate) fn of_completion() -> Result<Self, Failure> {
        let is_known = |flag: &str| flag == "config" || CONNECTION.contains(&flag);
        let mut words = std::env::args_os().skip_while(|word| word != "--").skip(1);
        let mut line = vec![OsString::from("switchboard")];
        while let Some(word) = words.next() {
            let text = word.to_string_lossy();
            let (flag, value) = text
                .split_once('=')
                .map_or((&*text, None), |(f, v)| (f, Some(v)));
            if flag.strip_prefix("--").is_some_and(is_known) {
                line.push(flag.into());
                line.extend(value.map(OsString::from).or_else(|| words.next()));
            }
        }
        let parsed: Result<CompletedLine, _> = settings::parse(line);
        parsed.map(|line| line.api).map_err(Failure::usage)
    }
}
