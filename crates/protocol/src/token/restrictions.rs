//! What restricts a credential beside its scopes: the devices and the services that it reaches.
//!
//! Invariant: what a credential creates reaches no more than the credential itself.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

use crate::{id::DeviceId, label::DeviceLabel};

/// Patterns of one credential. With [`MAX_PATTERNS_JSON_BYTES`] it protects tokens and lookups.
pub const MAX_PATTERNS: usize = 32;
/// The patterns of one credential as JSON: a token with them fits a header.
pub const MAX_PATTERNS_JSON_BYTES: usize = 1_500;
/// As long as the longest name of a service, and `*`.
const MAX_PATTERN_BYTES: usize = 129;
/// At the end of a pattern: any rest.
const WILDCARD: char = '*';

/// The name of a service, or the beginning of names followed by `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePattern(Box<str>);

/// Why a text is not a [`ServicePattern`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a service is its name, or the beginning of names and `*`: 1 to {MAX_PATTERN_BYTES} bytes without control characters"
)]
pub struct PatternError;

/// The restrictions of a credential. Each that is absent permits everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restrictions {
    /// The beginning of the ids of the devices that it reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_prefix: Option<DeviceId>,
    /// The label of the devices that it reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_label: Option<DeviceLabel>,
    /// The services that it reaches; at least one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<Vec<ServicePattern>>,
}

/// The restriction that excludes something, as a document names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside<'a> {
    /// The device has another beginning.
    DevicePrefix(&'a DeviceId),
    /// The device has not this label.
    DeviceLabel(&'a DeviceLabel),
    /// The service is none of these.
    Services(&'a [ServicePattern]),
}

impl ServicePattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// When it is empty, too long, or has control characters.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let is_valid = (1..=MAX_PATTERN_BYTES).contains(&text.len());
        if is_valid && !text.chars().any(char::is_control) {
            Ok(Self(text.into()))
        } else {
            Err(PatternError)
        }
    }

    /// Returns the pattern as it was written.
    #[must_use]
    pub const fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a service with this name is permitted.
    #[must_use]
    pub fn permits(&self, service: &str) -> bool {
        match self.0.strip_suffix(WILDCARD) {
            Some(beginning) => service.starts_with(beginning),
            None => *self.0 == *service,
        }
    }

    /// Whether every service of the other pattern is one of this pattern.
    fn covers(&self, other: &Self) -> bool {
        match (
            self.0.strip_suffix(WILDCARD),
            other.0.strip_suffix(WILDCARD),
        ) {
            (Some(beginning), Some(other)) => other.starts_with(beginning),
            (None, Some(_)) => false,
            (_, None) => self.permits(&other.0),
        }
    }
}

impl Restrictions {
    /// Whether nothing is restricted.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.restricts_devices().is_none() && self.services.is_none()
    }

    /// The first restriction of devices, if they are restricted.
    #[must_use]
    pub const fn restricts_devices(&self) -> Option<Outside<'_>> {
        match (&self.device_prefix, &self.device_label) {
            (Some(prefix), _) => Some(Outside::DevicePrefix(prefix)),
            (None, Some(label)) => Some(Outside::DeviceLabel(label)),
            (None, None) => None,
        }
    }

    /// Checks the beginning of a device's id. What labels the device has is not known here.
    ///
    /// # Errors
    /// The restriction that excludes it.
    pub fn check_prefix(&self, device: &DeviceId) -> Result<(), Outside<'_>> {
        match &self.device_prefix {
            Some(prefix) if !device.as_str().starts_with(prefix.as_str()) => {
                Err(Outside::DevicePrefix(prefix))
            }
            _ => Ok(()),
        }
    }

    /// Checks that services with this name are within reach.
    ///
    /// # Errors
    /// The restriction that excludes them.
    pub fn check_service(&self, service: &str) -> Result<(), Outside<'_>> {
        match &self.services {
            Some(patterns) if !patterns.iter().any(|pattern| pattern.permits(service)) => {
                Err(Outside::Services(patterns))
            }
            _ => Ok(()),
        }
    }

    /// The restrictions of what a credential with these creates: those that are requested, and its own
    /// where none is.
    ///
    /// # Errors
    /// The restriction that a requested one exceeds.
    pub fn narrowed(&self, requested: Self) -> Result<Self, Outside<'_>> {
        if let Some(prefix) = &requested.device_prefix {
            self.check_prefix(prefix)?;
        }
        if let (Some(own), Some(requested)) = (&self.device_label, &requested.device_label)
            && own != requested
        {
            return Err(Outside::DeviceLabel(own));
        }
        if let (Some(own), Some(requested)) = (&self.services, &requested.services) {
            let is_covered = |one: &ServicePattern| own.iter().any(|pattern| pattern.covers(one));
            if !requested.iter().all(is_covered) {
                return Err(Outside::Services(own));
            }
        }
        Ok(Self {
            device_prefix: requested
                .device_prefix
                .or_else(|| self.device_prefix.clone()),
            device_label: requested.device_label.or_else(|| self.device_label.clone()),
            services: requested.services.or_else(|| self.services.clone()),
        })
    }
}

impl Outside<'_> {
    /// The member of a document that has the restriction.
    #[must_use]
    pub const fn member(&self) -> &'static str {
        match self {
            Self::DevicePrefix(_) => "device_prefix",
            Self::DeviceLabel(_) => "device_label",
            Self::Services(_) => "services",
        }
    }
}

impl fmt::Display for Outside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DevicePrefix(prefix) => {
                write!(f, "devices whose ids begin with `{prefix}`")
            }
            Self::DeviceLabel(label) => write!(f, "devices that have the label `{label}`"),
            Self::Services(patterns) => {
                f.write_str("the services ")?;
                for (at, pattern) in patterns.iter().enumerate() {
                    let separator = if at == 0 { "" } else { ", " };
                    write!(f, "{separator}`{}`", pattern.as_str())?;
                }
                Ok(())
            }
        }
    }
}

impl Serialize for ServicePattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ServicePattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl PartialSchema for ServicePattern {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(
                "The name of a service, or the beginning of names followed by `*`.",
            ))
            .min_length(Some(1))
            .max_length(Some(MAX_PATTERN_BYTES))
            .examples(["led.*"])
            .into()
    }
}

impl ToSchema for ServicePattern {}

#[cfg(test)]
mod tests {
    use super::*;

    fn restrictions(prefix: Option<&str>, services: Option<&[&str]>) -> Restrictions {
        let patterns = |texts: &[&str]| {
            let parsed = texts
                .iter()
                .map(|text| ServicePattern::parse(text).unwrap());
            parsed.collect()
        };
        Restrictions {
            device_prefix: prefix.map(|prefix| prefix.parse().unwrap()),
            device_label: None,
            services: services.map(patterns),
        }
    }

    #[test]
    fn pattern_permits_a_name_or_a_beginning() {
        fn check(pattern: &str, service: &str, expected: bool) {
            let parsed = ServicePattern::parse(pattern).unwrap();
            assert_eq!(parsed.permits(service), expected, "{pattern} {service}");
        }
        check("wave", "wave", true);
        check("wave", "waves", false);
        check("wave", "Wave", false);
        check("led.*", "led.on", true);
        check("led.*", "led.", true);
        check("led.*", "led", false);
        check("*", "anything", true);
        // Only the last character is a wildcard.
        check("l*d", "led", false);
        check("l*d", "l*d", true);
        check("灯*", "灯光", true);
        for invalid in ["", "a\nb", &"x".repeat(130)] {
            assert_eq!(
                ServicePattern::parse(invalid),
                Err(PatternError),
                "{invalid:?}"
            );
        }
    }

    #[test]
    fn beginning_and_service_are_checked() {
        let limited = restrictions(Some("toy-"), Some(&["wave", "led.*"]));
        let device = |id: &str| id.parse::<DeviceId>().unwrap();
        assert_eq!(limited.check_prefix(&device("toy-1")), Ok(()));
        assert_eq!(limited.check_prefix(&device("toy-")), Ok(()));
        let outside = limited.check_prefix(&device("lamp-1"));
        assert_eq!(
            outside.unwrap_err().to_string(),
            "devices whose ids begin with `toy-`"
        );
        assert_eq!(limited.check_service("led.on"), Ok(()));
        let outside = limited.check_service("reset").unwrap_err();
        assert_eq!(outside.member(), "services");
        assert_eq!(outside.to_string(), "the services `wave`, `led.*`");
        let none = Restrictions::default();
        assert!(none.is_none());
        assert_eq!(none.check_prefix(&device("lamp-1")), Ok(()));
        assert_eq!(none.check_service("reset"), Ok(()));
    }

    #[test]
    fn created_credential_reaches_no_more_than_its_creator() {
        type Given<'a> = (Option<&'a str>, Option<&'a [&'a str]>);
        fn check(own: Given<'_>, requested: Given<'_>, expected: Result<Given<'_>, &str>) {
            let own = restrictions(own.0, own.1);
            let narrowed = own.narrowed(restrictions(requested.0, requested.1));
            let expected = expected.map(|(prefix, services)| restrictions(prefix, services));
            assert_eq!(narrowed.map_err(|outside| outside.member()), expected);
        }
        let toys: Given<'_> = (Some("toy-"), Some(&["wave", "led.*"]));
        check((None, None), toys, Ok(toys));
        check(toys, (None, None), Ok(toys));
        let one: Given<'_> = (Some("toy-1"), Some(&["led.on", "led.color.*"]));
        check(toys, one, Ok(one));
        check(toys, (Some("to"), None), Err("device_prefix"));
        check(toys, (Some("lamp-"), None), Err("device_prefix"));
        check(toys, (None, Some(&["wave", "reset"])), Err("services"));
        check(toys, (None, Some(&["*"])), Err("services"));
        check(toys, (None, Some(&["le*"])), Err("services"));
        check(toys, (None, Some(&["wave*"])), Err("services"));
    }

    #[test]
    fn created_credential_has_the_label_of_its_creator() {
        let labelled = |label: Option<&str>| Restrictions {
            device_label: label.map(|label| label.parse().unwrap()),
            ..Restrictions::default()
        };
        let (none, kitchen) = (labelled(None), labelled(Some("room:kitchen")));
        assert_eq!(none.narrowed(kitchen.clone()).unwrap(), kitchen);
        assert_eq!(kitchen.narrowed(none).unwrap(), kitchen);
        assert_eq!(kitchen.narrowed(kitchen.clone()).unwrap(), kitchen);
        let outside = kitchen.narrowed(labelled(Some("room:hall"))).unwrap_err();
        assert_eq!(outside.member(), "device_label");
        assert_eq!(
            outside.to_string(),
            "devices that have the label `room:kitchen`"
        );
    }

    #[test]
    fn restrictions_survive_json() {
        let all = restrictions(Some("toy-"), Some(&["wave", "led.*"]));
        let json = serde_json::to_string(&all).unwrap();
        assert_eq!(
            json,
            r#"{"device_prefix":"toy-","services":["wave","led.*"]}"#
        );
        assert_eq!(serde_json::from_str::<Restrictions>(&json).unwrap(), all);
        assert_eq!(
            serde_json::to_string(&Restrictions::default()).unwrap(),
            "{}"
        );
        assert!(serde_json::from_str::<Restrictions>(r#"{"services":[""]}"#).is_err());
    }
}
