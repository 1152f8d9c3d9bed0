//! `switchboard login`: stores the address and the key of an installation as a context.

use std::{io::Read as _, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::{
    api::Api,
    contexts::{Context, Contexts},
    exit::{self, Failure},
    files, prompt,
};

/// Maximum size of a key on stdin.
const MAX_KEY_BYTES: u64 = 8 * 1024;

/// Stores the address and the key of an installation, and makes it the current context.
///
/// Asks for the key on a terminal, without showing it. The key is stored only if the server accepts
/// it, in a file that only its owner can read: $XDG_CONFIG_HOME/switchboard/contexts.json or
/// ~/.config/switchboard/contexts.json.
///
/// Exit codes: 0 stored, 1 refused or not reachable, 64 invalid settings, 130 Ctrl-C at the question.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// URL of the HTTP API
    #[arg(value_name = "URL")]
    url: String,
    /// API key or access token. Visible to other users of the machine as a flag: prefer --key-stdin
    /// or the environment variable
    #[arg(long, env, hide_env_values = true, value_name = "KEY")]
    api_key: Option<SecretString>,
    /// Read the key from stdin
    #[arg(long)]
    key_stdin: bool,
    /// Name of the context. Default: host and port of the URL
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// PEM file of certificate authorities to trust, instead of the system's
    #[arg(long, env, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Org {
    name: String,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if let Some(key) = arguments.given_key()? {
        return store(arguments, key).await;
    }
    let asked = async {
        let key = prompt::secret("API key").await?.ok_or_else(|| {
            Failure::usage(
                "no API key: use --key-stdin, or the environment variable SWITCHBOARD_API_KEY, or a terminal",
            )
        })?;
        store(arguments, key).await
    };
    prompt::until_interrupted(asked).await
}

/// Stores the context if the server accepts the key.
async fn store(arguments: Arguments, key: SecretString) -> Result<ExitCode, Failure> {
    let tls_ca = arguments
        .tls_ca
        .map(std::path::absolute)
        .transpose()
        .context("--tls-ca")?;
    let api = Api::new(&arguments.url, key.clone(), tls_ca.as_deref(), "URL")?;
    let org = match api.get::<Org>("/v1/org").await {
        Ok(org) => format!(", organisation {}", org.name),
        // The server knows the key, which may not read the organisation: one for calls, or of the operator.
        Err(error) if error.is_forbidden() => String::new(),
        Err(error) => return Err(Failure::general(format!("nothing was stored: {error}"))),
    };
    let host = || {
        let host = arguments.url.split("://").nth(1).unwrap_or_default();
        host.split('/').next().unwrap_or_default().to_owned()
    };
    let name = arguments.context.unwrap_or_else(host);
    let context = Context {
        url: arguments.url.trim_end_matches('/').to_owned(),
        api_key: key.expose_secret().to_owned(),
        tls_ca,
    };
    let mut contexts = Contexts::read()?;
    contexts.current = Some(name.clone());
    contexts.contexts.insert(name.clone(), context);
    contexts.save()?;
    exit::print(&format!("context {name}: {}{org}", arguments.url))?;
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    /// The key of a flag, the environment or stdin.
    fn given_key(&self) -> Result<Option<SecretString>, Failure> {
        if !self.key_stdin {
            return Ok(self.api_key.clone());
        }
        files::hint_stdin("the key");
        let mut key = String::new();
        let stdin = std::io::stdin().lock();
        let read = stdin.take(MAX_KEY_BYTES).read_to_string(&mut key);
        read.context("cannot read the key from stdin")?;
        match key.trim() {
            "" => Err(Failure::usage("--key-stdin: stdin has no key")),
            key => Ok(Some(key.into())),
        }
    }
}
