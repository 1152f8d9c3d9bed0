//! Services of a device: their definitions and their implementations.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use crate::exit::Failure;

use super::{command::Command, demo};

/// A set of services.
pub(crate) struct Services {
    definitions: Map<String, Value>,
    runner: Runner,
}

enum Runner {
    Demo { scratch: PathBuf },
    Commands(HashMap<String, Command>),
}

/// The file of `--services`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    services: Map<String, Value>,
}

impl Services {
    /// Creates the demo services: get_current_time, create_file and echo.
    pub(crate) fn demo(scratch: PathBuf) -> Self {
        Self {
            definitions: demo::definitions(),
            runner: Runner::Demo { scratch },
        }
    }

    /// Reads services and their commands from a file.
    ///
    /// # Errors
    /// When the file is invalid, or a service has no command.
    pub(crate) fn from_file(path: &Path) -> Result<Self, Failure> {
        let wrong = |what: String| Failure::usage(format!("--services {}: {what}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Self::from_json(&text).map_err(wrong)
    }

    fn from_json(text: &str) -> Result<Self, String> {
        let File { services } = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut definitions = Map::new();
        let mut commands = HashMap::new();
        for (name, mut definition) in services {
            commands.insert(name.clone(), Command::take_from(&name, &mut definition)?);
            definitions.insert(name, definition);
        }
        Ok(Self {
            definitions,
            runner: Runner::Commands(commands),
        })
    }

    /// Returns the definitions to register.
    pub(super) const fn definitions(&self) -> &Map<String, Value> {
        &self.definitions
    }

    /// Runs a service; the error is for the caller.
    pub(super) async fn call(
        &self,
        service: &str,
        params: &RawValue,
    ) -> Result<Box<RawValue>, String> {
        let unknown = || format!("this device has no service `{service}`");
        match &self.runner {
            Runner::Demo { scratch } => demo::call(service, params, scratch)
                .await
                .unwrap_or_else(|| Err(unknown())),
            Runner::Commands(commands) => {
                commands.get(service).ok_or_else(unknown)?.run(params).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn services_file_has_definitions_and_commands() {
        let json = r#"{"services":{
            "shout":{"description":"d","parameters":{"type":"object"},"command":["tr","a-z","A-Z"]},
            "plain":{"description":"d","command":["echo","two text"],"env":["A_1"]},
            "fail":{"description":"d","command":["sh","-c","echo no >&2; exit 3"]},
            "slow":{"description":"d","timeout_ms":20,"command":["sleep","60"]}}}"#;
        let services = Services::from_json(json).unwrap();
        assert!(services.definitions()["shout"].get("command").is_none());
        assert!(services.definitions()["plain"].get("env").is_none());
        let params = RawValue::from_string(r#"{"a":"b"}"#.to_owned()).unwrap();
        let check = async |name: &str, expect: Result<&str, &str>| {
            let got = services.call(name, &params).await;
            assert_eq!(
                got.as_ref().map(|json| json.get()).map_err(String::as_str),
                expect,
                "{name}"
            );
        };
        check("shout", Ok(r#"{"A":"B"}"#)).await;
        check("plain", Ok(r#""two text""#)).await;
        check("fail", Err("no")).await;
        check("slow", Err("the command took longer than 20 ms")).await;
        check("absent", Err("this device has no service `absent`")).await;
    }

    #[test]
    fn invalid_services_file_is_explained() {
        fn check(json: &str, expect: &str) {
            let error = Services::from_json(json).err().unwrap();
            assert!(error.contains(expect), "{json}: {error}");
        }
        check("{", "EOF");
        check(r#"{"services":{},"more":1}"#, "more");
        check(r#"{"services":{"a":{}}}"#, "`a` has no `command`");
        check(
            r#"{"services":{"a":{"command":[]}}}"#,
            "`a` has no `command`",
        );
        check(
            r#"{"services":{"a":{"command":["x",1]}}}"#,
            "`a` has no `command`",
        );
        for program in ["no-such-program", "/no/such/program", "./Cargo.toml"] {
            let json = format!(r#"{{"services":{{"a":{{"command":["{program}"]}}}}}}"#);
            check(&json, &format!("the service `a` cannot run `{program}`"));
        }
        for env in [r#""HOME""#, "[1]", r#"["A=B"]"#, r#"[""]"#, r#"["1A"]"#] {
            let json = format!(r#"{{"services":{{"a":{{"command":["x"],"env":{env}}}}}}}"#);
            check(&json, "`env` of the service `a`");
        }
    }
}
