//! Whose a setting is: an organisation's, or the installation's, which every organisation reads.
//! Never: a way from one organisation to another.

use std::fmt;

use switchboard_protocol::id::OrgId;
use uuid::Uuid;

/// Whose a setting is. As a reader, an organisation sees its own settings and the installation's, the installation
/// its own only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Written by an organisation and private to it.
    Org(OrgId),
    /// Written by the operator and public: every organisation reads it.
    Installation,
}

impl Owner {
    /// The column `org_id`.
    pub(crate) const fn column(self) -> Option<Uuid> {
        match self {
            Self::Org(org) => Some(org.uuid()),
            Self::Installation => None,
        }
    }

    pub(crate) fn from_column(org_id: Option<Uuid>) -> Self {
        org_id.map_or(Self::Installation, |org| Self::Org(OrgId::from_uuid(org)))
    }

    /// Whether every organisation reads it.
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

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Org(org) => org.fmt(f),
            Self::Installation => f.write_str("public"),
        }
    }
}
