//! Names that every client takes: letters, digits, `_` and `-`, and not too many of them.
//! Never: a name that changes while the service and the device keep theirs.

use sha2::{Digest as _, Sha256};

/// The longest name that is left as a device chose it; what the protocol's own suite allows.
const LONGEST_CHOSEN: usize = 64;
/// The longest name made here. Clients put a server's name before it and stop at 60.
const LONGEST_MADE: usize = 40;
/// Between a device and its tool.
const SEPARATOR: &str = "__";
/// How much of a name is the device's, where several devices are one server.
const DEVICE_ROOM: usize = 16;
/// What is left for its service.
const SERVICE_ROOM: usize = LONGEST_MADE - DEVICE_ROOM - SEPARATOR.len();
/// Hexadecimal digits of the hash that tells altered names apart.
const HASH_DIGITS: usize = 8;

/// How the tools of a server are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Naming {
    /// The server is one device.
    Alone,
    /// The server is many devices: each tool's name begins with its device's.
    Prefixed,
}

impl Naming {
    /// The part of a tool's name that stands for its service.
    pub(super) fn service(self, service: &str) -> String {
        match self {
            Self::Alone => safe(service, LONGEST_CHOSEN, LONGEST_MADE),
            Self::Prefixed => safe(service, SERVICE_ROOM, SERVICE_ROOM),
        }
    }
}

/// The part of a tool's name that stands for its device.
pub(super) fn device_part(device: &str) -> String {
    safe(device, DEVICE_ROOM, DEVICE_ROOM)
}

/// A tool's name where several devices are one server.
pub(super) fn join(device: &str, service: &str) -> String {
    format!("{device}{SEPARATOR}{service}")
}

/// The two parts of such a name.
pub(super) fn split(name: &str) -> Option<(&str, &str)> {
    name.split_once(SEPARATOR)
}

/// The original where it is safe and at most `chosen` bytes long; else, in at most `made` bytes, what can be read
/// of it and a hash of all of it.
fn safe(original: &str, chosen: usize, made: usize) -> String {
    let is_safe = (1..=chosen).contains(&original.len())
        && original.bytes().all(is_allowed)
        && !original.contains(SEPARATOR)
        && !original.ends_with('_');
    if is_safe {
        return original.to_owned();
    }
    let mut name = String::with_capacity(made);
    for c in original.chars() {
        let c = if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        };
        if name.len() + HASH_DIGITS + 1 >= made {
            break;
        }
        if c != '_' || !name.ends_with('_') {
            name.push(c);
        }
    }
    let readable = name.trim_matches(['_', '-']);
    let hash = Sha256::digest(original.as_bytes());
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let hash = hash.get(..HASH_DIGITS).unwrap_or(&hash);
    if readable.is_empty() {
        format!("_{hash}")
    } else {
        format!("{readable}-{hash}")
    }
}

const fn is_allowed(byte: u8) -> bool {
    matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn safe_names_stay_and_others_are_told_apart() {
        fn check(service: &str, expected: &str) {
            assert_eq!(Naming::Alone.service(service), expected, "{service}");
        }
        check("get_current_time", "get_current_time");
        check("a", "a");
        check("_hidden", "_hidden");
        check("现在几点", "_ea99d70f");
        check("wheel.turn", "wheel_turn-76abe56d");
        check("two words", "two_words-a03f1d61");
        check("double__under", "double_under-cf86f2e6");
        check("", "_e3b0c442");
        check(&"x".repeat(64), &"x".repeat(64));
        check(&"x".repeat(65), &format!("{}-9537c5fd", "x".repeat(31)));
    }

    proptest! {
        #[test]
        fn every_name_is_safe_and_splits_where_it_was_joined(service in ".*", device in "[A-Za-z0-9._:-]{1,64}") {
            for naming in [Naming::Alone, Naming::Prefixed] {
                let name = naming.service(&service);
                prop_assert!((1..=LONGEST_CHOSEN).contains(&name.len()) && name.bytes().all(is_allowed), "{}", name);
            }
            let (device, service) = (device_part(&device), Naming::Prefixed.service(&service));
            let name = join(&device, &service);
            prop_assert!(name.len() <= LONGEST_MADE, "{}", name);
            prop_assert_eq!(split(&name), Some((device.as_str(), service.as_str())));
        }
    }
}
