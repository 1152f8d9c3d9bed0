//! Owners of settings: an organisation, or the installation.

use std::fmt;

use switchboard_protocol::id::OrgId;
use switchboard_runtime::budget;
use uuid::Uuid;

/// The owner of a setting. As a reader, an organisation can read its own settings and the
/// installation's; the installation can read its own only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// An organisation; its settings are private to it.
    Org(OrgId),
    /// The operator; its settings are public: every organisation can read them.
    Installation,
}

impl Owner {
    pub(crate) const fn column(self) -> Option<Uuid> {
        match self {
            Self::Org(org) => Some(org.uuid()),
            Self::Installation => None,
        }
    }

    pub(crate) fn from_column(org_id: Option<Uuid>) -> Self {
        org_id.map_or(Self::Installation, |org| Self::Org(OrgId::from_uuid(org)))
    }

    /// The id of the organisation; 0 for the installation.
    pub(crate) fn key(self) -> Uuid {
        self.column().unwrap_or_default()
    }

    pub(crate) fn from_key(key: Uuid) -> Self {
        Self::from_column(Some(key).filter(|key| !key.is_nil()))
    }

    /// Whether every organisation can read its settings.
    #[must_use]
    pub const fn is_public(self) -> bool {
        matches!(self, Self::Installation)
    }
}

impl From<OrgId> for Owner {
    fn from(org: OrgId) -> Self {
        Self::Org(org)
    }
}

impl From<Owner> for budget::Owner {
    /// The installation has a share like an organisation.
    fn from(owner: Owner) -> Self {
        Self::Org(owner.key())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Org(org) => org.fmt(f),
            Self::Installation => f.write_str("public"),
        }
    }
}
