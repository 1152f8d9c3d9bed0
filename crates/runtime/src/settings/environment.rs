//! Names of environment variables, derived from the names of flags.

use clap::Arg;

/// Prefix of every derived name.
const PREFIX: &str = "SWITCHBOARD_";

/// Flags whose variable has another name: a name of the ecosystem, one that is clearer on its own,
/// or one derived from an earlier name of the flag.
const IRREGULAR: [(&str, &str); 7] = [
    ("addr", "SWITCHBOARD_DEVICE_ADDR"),
    ("chat-max-streams-per-org", "SWITCHBOARD_CHAT_ORG_LINES"),
    ("database-url", "DATABASE_URL"),
    ("id", "SWITCHBOARD_DEVICE_ID"),
    ("log-level", "SWITCHBOARD_LOG"),
    ("redis-url", "REDIS_URL"),
    ("tls", "SWITCHBOARD_DEVICE_TLS"),
];

/// Returns the environment variable of a flag: `SWITCHBOARD_` and the flag in capitals, with
/// underscores for hyphens.
#[must_use]
pub fn variable(flag: &str) -> String {
    let irregular = IRREGULAR.iter().find(|(name, _)| *name == flag);
    irregular.map_or_else(
        || format!("{PREFIX}{}", screaming_snake_case(flag)),
        |(_, variable)| (*variable).to_owned(),
    )
}

/// Gives a flag declared with a bare `#[arg(env)]` its derived variable.
///
/// For a bare `env`, clap uses the name of the field. An explicit `env = "…"` is kept.
pub(super) fn derive_variable(arg: Arg) -> Arg {
    let field = screaming_snake_case(arg.get_id().as_str());
    let is_bare = arg.get_env().is_some_and(|name| name == field.as_str());
    match arg.get_long().map(variable).filter(|_| is_bare) {
        Some(variable) => arg.env(variable),
        None => arg,
    }
}

fn screaming_snake_case(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_of_flag_is_derived_or_irregular() {
        fn check(flag: &str, expected: &str) {
            assert_eq!(variable(flag), expected);
        }
        check("device-listen", "SWITCHBOARD_DEVICE_LISTEN");
        check("config", "SWITCHBOARD_CONFIG");
        check("redis-url", "REDIS_URL");
        check("log-level", "SWITCHBOARD_LOG");
    }

    #[test]
    fn bare_env_gets_the_variable_of_its_flag() {
        fn check(arg: Arg, expected: Option<&str>) {
            let arg = derive_variable(arg);
            let variable = arg.get_env().map(|name| name.to_string_lossy());
            assert_eq!(variable.as_deref(), expected);
        }
        let flag = || Arg::new("idle_limit").long("idle-timeout");
        check(flag().env("IDLE_LIMIT"), Some("SWITCHBOARD_IDLE_TIMEOUT"));
        check(flag().env("OTHER"), Some("OTHER"));
        check(flag(), None);
    }
}
