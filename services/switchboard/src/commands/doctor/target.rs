//! Which installation is checked: the one that other commands use with the same settings.

use std::path::PathBuf;

use secrecy::SecretString;
use switchboard_runtime::settings::{self, Values};

use super::{
    Arguments,
    finding::{Check, Finding, Problem},
};
use crate::{
    cli::{self, Cli, Command},
    data_folder::Instance,
    exit::Failure,
    shell,
};

/// Flags that `doctor` does not take over from `up`: one selects what is checked, and the other what is
/// printed.
const OWN_FLAGS: [&str; 2] = ["data-dir", "json"];

/// Where the installation is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// The `up` of the data folder.
    Up,
    /// --url.
    Url,
    /// A context of this name.
    Context(String),
    /// Settings of a service, such as DATABASE_URL.
    Settings,
    Nowhere,
}

/// What is checked, and how it is started.
pub(super) struct Target {
    pub(super) place: Place,
    pub(super) url: Option<String>,
    pub(super) key: Option<SecretString>,
    pub(super) tls_ca: Option<PathBuf>,
    pub(super) admin_url: Option<String>,
    pub(super) device_addr: Option<String>,
    /// The command that starts it on this machine.
    pub(super) start: String,
    /// The settings of the `up`.
    settings: Values,
    /// Whether some of them are invalid here, so that none apply.
    has_unreadable_settings: bool,
    /// The flags that are not given here, of those that refer to variables of the environment.
    inherited: Vec<&'static str>,
}

impl Target {
    /// The installation that the settings, a context or the data folder name.
    ///
    /// # Errors
    /// When the named context does not exist.
    pub(super) fn find(arguments: &Arguments, instance: Option<Instance>) -> Result<Self, Failure> {
        let api = &arguments.api;
        let mut target = Self {
            place: Place::Nowhere,
            url: api.url.clone(),
            key: api.api_key.clone(),
            tls_ca: api.tls_ca.clone(),
            admin_url: None,
            device_addr: arguments.addr.clone(),
            start: arguments.start_command(),
            settings: Values::default(),
            has_unreadable_settings: false,
            inherited: Vec::new(),
        };
        let context = api.context()?;
        if api.url.is_some() {
            target.place = Place::Url;
            let key = context.map(|(_, context)| context.api_key.into());
            target.key = target.key.or(key);
        } else if let Some((name, context)) = context {
            target.place = Place::Context(name);
            target.url = Some(context.url);
            target.key = target.key.or(Some(context.api_key.into()));
            target.tls_ca = target.tls_ca.or(context.tls_ca);
        } else if let Some(instance) = instance {
            target.place = Place::Up;
            target.url = instance.http_url;
            target.key = target.key.or(Some(instance.api_key.into()));
            target.admin_url = instance.admin_url;
            target.device_addr = target.device_addr.or(instance.device_addr);
            target.settings = instance.settings;
        } else if arguments.names_a_service() {
            target.place = Place::Settings;
        }
        Ok(target)
    }

    /// The arguments of the command line, with the settings of the `up` for what they leave out.
    pub(super) fn complete(&mut self, own: Arguments) -> Arguments {
        let given = [
            (
                "completions-file",
                own.completions.completions_file.is_some(),
            ),
            ("speech-file", own.speech.speech_file.is_some()),
            ("objects", own.objects.objects.is_some()),
        ];
        let inherited = given.into_iter().filter(|(_, is_given)| !is_given);
        self.inherited = inherited.map(|(flag, _)| flag).collect();
        let values = self.settings.clone().without(&OWN_FLAGS);
        let line = std::env::args_os();
        let parsed = settings::parse_command_over::<Cli>(cli::command(), &values, line);
        // The settings of an `up` of another version may be unknown here.
        match parsed.map(|cli| cli.command) {
            Ok(Command::Doctor(arguments)) => *arguments,
            _ => {
                self.has_unreadable_settings = true;
                own
            }
        }
    }

    /// Whether a file of providers or the object store, if there is one, is that of the `up`, whose
    /// environment may have variables that are not set here.
    pub(super) fn inherits(&self, flag: &str) -> bool {
        self.inherited.contains(&flag)
    }

    /// Why it is not known what the `up` has configured, unless it is given here.
    pub(super) fn unreadable_settings(&self, is_given: bool) -> Option<String> {
        (self.has_unreadable_settings && !is_given)
            .then(|| "the settings in up.json cannot be read by this version".to_owned())
    }

    /// Whether there is something to check.
    pub(super) fn installation(&self) -> Finding {
        let named = match &self.place {
            Place::Up => Ok("the `up` of the data folder".to_owned()),
            Place::Url => Ok("named by --url or SWITCHBOARD_URL".to_owned()),
            Place::Context(name) => Ok(format!("context {name}")),
            Place::Settings => Ok("named by the settings".to_owned()),
            Place::Nowhere => Err(Problem::run_or_set(
                "nothing runs on this data folder, and no other installation is named",
                &self.start,
                "--data-dir, --context or --url",
            )),
        };
        Check::Installation.line("read the settings, the contexts and the data folder", named)
    }

    /// Whether there are ports to check: an `up` that has started once, or an address that is given.
    pub(super) const fn is_running_somewhere(&self) -> bool {
        self.admin_url.is_some() || self.device_addr.is_some() || self.is_elsewhere()
    }

    /// Whether it may be on another machine, so that its settings and programs are not known here.
    pub(super) const fn is_elsewhere(&self) -> bool {
        matches!(self.place, Place::Url | Place::Context(_))
    }

    /// Why it is not known what is configured: only another process has the settings, or the secret
    /// with this flag, unless they are given here too.
    pub(super) fn unknown_settings(
        &self,
        secret: &str,
        is_secret_given: bool,
        is_configured: bool,
    ) -> Option<String> {
        if self.settings.has_secret(secret) && !is_secret_given {
            let variable = settings::variable(secret);
            return Some(format!(
                "the `up` has --{secret}, a secret that is not stored: set {variable} here"
            ));
        }
        if let Some(reason) = self.unreadable_settings(is_configured) {
            return Some(reason);
        }
        (self.is_elsewhere() && !is_configured).then(|| {
            "its settings are not known here: run `switchboard doctor` where it runs".to_owned()
        })
    }

    /// Whether the `up` uses a database of its own.
    pub(super) fn has_private_database(&self) -> bool {
        self.place == Place::Up && !self.settings.has_secret("database-url")
    }

    /// The remedy of an address that does not respond.
    pub(super) fn unreachable(&self, what: String, setting: &str) -> Problem {
        match &self.place {
            Place::Context(name) => {
                let name = shell::quote(name);
                let login = format!("switchboard login URL --context {name}");
                Problem::run_or_set(what, login, "its --tls-ca")
            }
            Place::Url => Problem::set(what, format!("{setting} or --tls-ca")),
            Place::Up | Place::Settings | Place::Nowhere => {
                Problem::run_or_set(what, &self.start, setting)
            }
        }
    }

    /// The remedy of a key that is rejected.
    pub(super) fn rejected_key(&self, what: String) -> Problem {
        match (&self.place, &self.url) {
            (Place::Context(name), Some(url)) => {
                let (name, url) = (shell::quote(name), shell::quote(url));
                Problem::run(what, format!("switchboard login {url} --context {name}"))
            }
            _ => Problem::set(what, "SWITCHBOARD_API_KEY (--api-key)"),
        }
    }
}
