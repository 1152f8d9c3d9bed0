//! Names that every client takes: letters, digits, `_` and `-`, and not too many of them.
//! Never: a name that changes while the service and the device keep theirs, or one that two of them share.

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
pub enum Naming {
    /// The server is one device.
    Alone,
    /// The server is many devices: each tool's name begins with its device's.
    Prefixed,
}

impl Naming {
    /// The part of a tool's name that stands for its service.
    #[must_use]
    pub fn service(self, service: &str) -> String {
        match self {
            Self::Alone => safe(service, LONGEST_CHOSEN, LONGEST_MADE),
            Self::Prefixed => safe(service, SERVICE_ROOM, SERVICE_ROOM),
        }
    }
}

/// The part of a tool's name that stands for its device.
#[must_use]
pub fn device_part(device: &str) -> String {
    safe(device, DEVICE_ROOM, DEVICE_ROOM)
}

/// What the device's part of a tool's name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Its id, and no other device's.
    Id,
    /// Made of its id, and no id itself.
    Made,
    /// No device's.
    Nobody,
}

impl Part {
    /// What this part of a name is.
    #[must_use]
    pub fn of(part: &str) -> Self {
        if is_kept(part, DEVICE_ROOM) {
            Self::Id
        } else if part.len() <= DEVICE_ROOM && part.bytes().all(is_allowed) && looks_made(part) {
            Self::Made
        } else {
            Self::Nobody
        }
    }
}

/// A tool's name where several devices are one server.
#[must_use]
pub fn join(device: &str, service: &str) -> String {
    format!("{device}{SEPARATOR}{service}")
}

/// The two parts of such a name.
#[must_use]
pub fn split(name: &str) -> Option<(&str, &str)> {
    name.split_once(SEPARATOR)
}

/// The original where it is safe and at most `chosen` bytes long; else, in at most `made` bytes, what can be read
/// of it and a hash of all of it.
fn safe(original: &str, chosen: usize, made: usize) -> String {
    if is_kept(original, chosen) {
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

/// Whether a name stays as its device chose it.
fn is_kept(name: &str, chosen: usize) -> bool {
    (1..=chosen).contains(&name.len())
        && name.bytes().all(is_allowed)
        && !name.contains(SEPARATOR)
        && !name.ends_with('_')
        && !looks_made(name)
}

/// Whether a name could have been made here. Such a one is made anew, so that no chosen name equals a made one.
fn looks_made(name: &str) -> bool {
    let at = name.len().saturating_sub(HASH_DIGITS);
    let Some((front, hash)) = name.split_at_checked(at) else {
        return false;
    };
    let is_hash = hash
        .bytes()
        .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_hash && (front.ends_with('-') || front == "_")
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
        check("toy.1", "toy_1-e373e779");
        check("toy_1-e373e779", "toy_1-e373e779-b3d2548c");
        check("_ea99d70f", "ea99d70f-0d2b5558");
        check("report_20260728", "report_20260728");
        check("deadbeef", "deadbeef");
        check("a-DEADBEEF", "a-DEADBEEF");
        check(&"x".repeat(64), &"x".repeat(64));
        check(&"x".repeat(65), &format!("{}-9537c5fd", "x".repeat(31)));
    }

    /// Names that are likely to meet: plain ones, altered ones, and what was made of them.
    fn likely() -> impl Strategy<Value = String> {
        let plain = "[ab._:-]{1,3}|[a-b_-]{20,24}|.{0,3}";
        (plain, 0..3_usize, any::<bool>()).prop_map(|(name, rounds, is_device)| {
            (0..rounds).fold(name, |name, _| match is_device {
                true => device_part(&name),
                false => Naming::Alone.service(&name),
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        #[test]
        fn two_names_never_become_one(one in likely(), other in likely()) {
            prop_assume!(one != other);
            let again = Naming::Alone.service(&one);
            for (one, other) in [(&one, &other), (&one, &again)] {
                if one == other {
                    continue;
                }
                prop_assert_ne!(device_part(one), device_part(other));
                for naming in [Naming::Alone, Naming::Prefixed] {
                    prop_assert_ne!(naming.service(one), naming.service(other));
                }
            }
            let part = device_part(&one);
            prop_assert_eq!(Part::of(&part), if part == one { Part::Id } else { Part::Made });
            if part != one {
                prop_assert_ne!(Part::of(&one), Part::Id);
            }
        }
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
