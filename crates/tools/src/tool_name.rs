//! Tool names that all clients accept: letters, digits, `_` and `-`, bounded in length.
//! Invariant: names are stable, and different services or devices have different names.

use sha2::{Digest as _, Sha256};

/// Maximum bytes of a name that stays as registered: the limit of the MCP conformance suite.
const MAX_ORIGINAL_BYTES: usize = 64;
/// Maximum bytes of a generated name. Clients prepend the name of the server, up to 60 in total.
const MAX_GENERATED_BYTES: usize = 40;
/// Separates the part of the device from that of the service.
const SEPARATOR: &str = "__";
/// Maximum bytes of the part for the device.
const MAX_DEVICE_BYTES: usize = 16;
/// Maximum bytes of the part for the service.
const MAX_SERVICE_BYTES: usize = MAX_GENERATED_BYTES - MAX_DEVICE_BYTES - SEPARATOR.len();
/// Hexadecimal digits of the hash that distinguishes generated names.
const HASH_DIGITS: usize = 8;

/// How the tools of a server are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Naming {
    /// The server has one device.
    Alone,
    /// The server has several devices; each tool name starts with its device.
    Prefixed,
}

impl Naming {
    /// The part of a tool name for the service.
    #[must_use]
    pub fn service(self, service: &str) -> String {
        match self {
            Self::Alone => safe(service, MAX_ORIGINAL_BYTES, MAX_GENERATED_BYTES),
            Self::Prefixed => safe(service, MAX_SERVICE_BYTES, MAX_SERVICE_BYTES),
        }
    }
}

/// The part of a tool name for the device.
#[must_use]
pub fn device_part(device: &str) -> String {
    safe(device, MAX_DEVICE_BYTES, MAX_DEVICE_BYTES)
}

/// The part of a tool name for the device, parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DevicePart {
    /// The id of the device.
    Id,
    /// Generated from the id of the device.
    Generated,
    /// No device has this part.
    Invalid,
}

impl DevicePart {
    /// Parses the part for the device.
    #[must_use]
    pub fn parse(part: &str) -> Self {
        if is_valid(part, MAX_DEVICE_BYTES) {
            Self::Id
        } else if part.len() <= MAX_DEVICE_BYTES
            && part.bytes().all(is_allowed)
            && looks_generated(part)
        {
            Self::Generated
        } else {
            Self::Invalid
        }
    }
}

/// The first bytes of the SHA-256 of the device id from which this part was generated.
#[must_use]
pub fn generated_hash(part: &str) -> Option<[u8; HASH_DIGITS / 2]> {
    let digits = part.get(part.len().checked_sub(HASH_DIGITS)?..)?;
    let hash = u32::from_str_radix(digits, 16).ok()?;
    looks_generated(part).then(|| hash.to_be_bytes())
}

/// A prefixed tool name.
#[must_use]
pub fn join(device: &str, service: &str) -> String {
    format!("{device}{SEPARATOR}{service}")
}

/// The parts of a prefixed tool name: of the device, and of the service.
#[must_use]
pub fn split(name: &str) -> Option<(&str, &str)> {
    name.split_once(SEPARATOR)
}

/// The original name when it is valid and has at most `max_original` bytes; else a generated one of
/// at most `max_generated` bytes: a readable part and a hash of the original.
fn safe(original: &str, max_original: usize, max_generated: usize) -> String {
    if is_valid(original, max_original) {
        return original.to_owned();
    }
    let mut name = String::with_capacity(max_generated);
    for c in original.chars() {
        let c = if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        };
        if name.len() + HASH_DIGITS + 1 >= max_generated {
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

/// Whether a name stays as registered.
fn is_valid(name: &str, max_original: usize) -> bool {
    (1..=max_original).contains(&name.len())
        && name.bytes().all(is_allowed)
        && !name.contains(SEPARATOR)
        && !name.ends_with('_')
        && !looks_generated(name)
}

/// Whether a name has the form of a generated one. Such a name is replaced, so that no original
/// name equals a generated one.
fn looks_generated(name: &str) -> bool {
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
    fn valid_names_stay_and_others_are_hashed() {
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

    #[test]
    fn hash_of_a_generated_part_is_that_of_the_device() {
        for device in [
            "living.room",
            "a-device-with-a-long-name",
            "_",
            "toy_1-e373e779",
        ] {
            let hash: [u8; 32] = Sha256::digest(device).into();
            let found = generated_hash(&device_part(device));
            assert_eq!(
                found.as_ref().map(<[u8; 4]>::as_slice),
                Some(&hash[..4]),
                "{device}"
            );
        }
        for part in ["toy-1", "", "deadbeef", "a-DEADBEEF", "a-+eadbeef"] {
            assert_eq!(generated_hash(part), None, "{part}");
        }
    }

    /// Names that are likely to collide: plain, altered and generated ones.
    fn colliding_names() -> impl Strategy<Value = String> {
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
        fn different_names_stay_different(one in colliding_names(), other in colliding_names()) {
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
            prop_assert_eq!(DevicePart::parse(&part), if part == one { DevicePart::Id } else { DevicePart::Generated });
            if part != one {
                prop_assert_ne!(DevicePart::parse(&one), DevicePart::Id);
            }
        }
        #[test]
        fn names_are_valid_and_split_at_the_separator(service in ".*", device in "[A-Za-z0-9._:-]{1,64}") {
            for naming in [Naming::Alone, Naming::Prefixed] {
                let name = naming.service(&service);
                prop_assert!((1..=MAX_ORIGINAL_BYTES).contains(&name.len()) && name.bytes().all(is_allowed), "{}", name);
            }
            let (device, service) = (device_part(&device), Naming::Prefixed.service(&service));
            let name = join(&device, &service);
            prop_assert!(name.len() <= MAX_GENERATED_BYTES, "{}", name);
            prop_assert_eq!(split(&name), Some((device.as_str(), service.as_str())));
        }
    }
}
