//! Instructions to install PostgreSQL on this system.

use std::fs;

/// A system whose installation command is known.
struct System {
    /// Name for users.
    name: &'static str,
    /// Values of `ID` and `ID_LIKE` in os-release.
    ids: &'static [&'static str],
    command: &'static str,
}

const MACOS: System = System {
    name: "macOS",
    ids: &[],
    command: "brew install postgresql@17",
};

const SYSTEMS: [System; 4] = [
    System {
        name: "Debian, Ubuntu",
        ids: &["debian", "ubuntu"],
        command: "apt-get install postgresql",
    },
    System {
        name: "Fedora",
        ids: &["fedora", "rhel"],
        command: "dnf install postgresql-server",
    },
    System {
        name: "Alpine",
        ids: &["alpine"],
        command: "apk add postgresql",
    },
    MACOS,
];

/// The locations of os-release, in the order of precedence.
const OS_RELEASE: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// Continues the sentence "Install it …": with the command of this system, or with the commands of
/// all known systems if this one is unknown.
pub(crate) fn instructions() -> String {
    if cfg!(target_os = "macos") {
        return instructions_for(Some(&MACOS));
    }
    let os_release = OS_RELEASE.iter().find_map(|at| fs::read_to_string(at).ok());
    instructions_for(identify(&os_release.unwrap_or_default()))
}

fn instructions_for(system: Option<&System>) -> String {
    if let Some(system) = system {
        return format!("with `{}`", system.command);
    }
    let commands = SYSTEMS.map(|system| format!("{}: `{}`", system.name, system.command));
    format!("({})", commands.join("; "))
}

/// Returns the system that an os-release file describes: the one named by `ID`, otherwise the first
/// known one in `ID_LIKE`.
fn identify(os_release: &str) -> Option<&'static System> {
    let value = |key: &str| {
        let mut assignments = os_release.lines().filter_map(|line| line.split_once('='));
        let found = assignments.find(|(name, _)| name.trim() == key);
        found.map_or("", |(_, value)| value.trim().trim_matches(['"', '\'']))
    };
    let mut ids = value("ID")
        .split_whitespace()
        .chain(value("ID_LIKE").split_whitespace());
    ids.find_map(|id| SYSTEMS.iter().find(|system| system.ids.contains(&id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_of_known_system_contain_only_its_command() {
        fn check(os_release: &str, expected: &str) {
            assert_eq!(instructions_for(identify(os_release)), expected);
        }
        let debian = "with `apt-get install postgresql`";
        check("NAME=\"Debian GNU/Linux\"\nID=debian\n", debian);
        check("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", debian);
        check("ID_LIKE='debian'\n", debian);
        let fedora = "with `dnf install postgresql-server`";
        check("ID=fedora\n", fedora);
        check("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", fedora);
        check("ID=alpine\nVERSION_ID=3.22\n", "with `apk add postgresql`");
        assert_eq!(
            instructions_for(Some(&MACOS)),
            "with `brew install postgresql@17`"
        );
    }

    #[test]
    fn instructions_of_unknown_system_contain_all_commands() {
        for os_release in ["", "ID=plan9\n", "VARIANT_ID=debian\n", "debian\n"] {
            let found = instructions_for(identify(os_release));
            for System { name, command, .. } in &SYSTEMS {
                assert!(found.contains(&format!("{name}: `{command}`")), "{found}");
            }
        }
    }
}
