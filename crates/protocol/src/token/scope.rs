//! The scopes of a token. No scope implies another.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use utoipa::ToSchema;

use super::AccessError;

/// One permission of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[schema(example = "read")]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Scope {
    /// Connect as the device that is the token's subject.
    Device = 1,
    /// Call services.
    Call = 1 << 1,
    /// Read devices and settings.
    Read = 1 << 2,
    /// Change settings, keys and tokens, and disconnect devices.
    Admin = 1 << 3,
    /// Issue tokens for devices, and nothing else.
    Provision = 1 << 4,
}

impl Scope {
    /// All scopes, in the order in which they are written.
    pub const ALL: [Self; 5] = [
        Self::Device,
        Self::Call,
        Self::Read,
        Self::Admin,
        Self::Provision,
    ];

    /// Returns the name in tokens and requests.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Call => "call",
            Self::Read => "read",
            Self::Admin => "admin",
            Self::Provision => "provision",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let named = |scope: &Self| scope.as_str() == text;
        Self::ALL
            .into_iter()
            .find(named)
            .ok_or(AccessError::UnknownScope)
    }
}

/// A set of scopes: separated by spaces in a token, an array of strings in other JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Scopes(u8);

impl Scopes {
    /// Returns whether the set has this scope.
    #[must_use]
    pub const fn contains(self, scope: Scope) -> bool {
        self.0 & scope as u8 != 0
    }

    /// Returns whether the set permits nothing.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether the other set has every scope of this one.
    #[must_use]
    pub const fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Iterates over the scopes in the order of [`Scope::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL
            .into_iter()
            .filter(move |scope| self.contains(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope as u8))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for scope in self.iter() {
            write!(f, "{separator}{scope}")?;
            separator = " ";
        }
        Ok(())
    }
}

impl FromStr for Scopes {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        text.split_ascii_whitespace().map(str::parse).collect()
    }
}

impl Serialize for Scopes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Scopes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<Scope>::deserialize(deserializer)?
            .into_iter()
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_round_trip() {
        fn check(text: &str, written: &str, json: &str) {
            let scopes: Scopes = text.parse().unwrap();
            assert_eq!(scopes.to_string(), written);
            assert_eq!(serde_json::to_string(&scopes).unwrap(), json);
            assert_eq!(serde_json::from_str::<Scopes>(json).unwrap(), scopes);
        }
        check("", "", "[]");
        check("device", "device", r#"["device"]"#);
        check("admin  call admin", "call admin", r#"["call","admin"]"#);
        assert_eq!("root".parse::<Scopes>(), Err(AccessError::UnknownScope));
        assert_eq!("Device".parse::<Scopes>(), Err(AccessError::UnknownScope));
    }

    #[test]
    fn is_subset_compares_all_scopes() {
        let some: Scopes = "call read".parse().unwrap();
        let all: Scopes = Scope::ALL.into_iter().collect();
        assert!(some.is_subset(all) && some.is_subset(some) && !all.is_subset(some));
        assert!(Scopes::default().is_subset(some) && Scopes::default().is_empty());
    }
}
