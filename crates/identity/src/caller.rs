//! An authenticated caller, and its extractor for handlers.

use std::{collections::HashSet, sync::Arc};

use axum::extract::{FromRef, FromRequestParts};
use http::request::Parts;
use switchboard_protocol::{
    id::{ApiKeyId, DeviceId, DeviceKey, OrgId, TokenId},
    token::{Outside, Restrictions, Scope, Scopes, Subject},
};
use switchboard_runtime::problem::Problem;

use crate::{Authenticator, problems};

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The organisation whose devices and settings the caller can access.
    pub org: OrgId,
    /// The scopes of the credential.
    pub scopes: Scopes,
    /// What restricts the credential beside its scopes; `None` for nothing.
    pub restrictions: Option<Arc<Restrictions>>,
    /// The devices that have the label of the restrictions, as they were when the credential was verified; none are
    /// within reach if they were not read.
    pub labelled: Option<Arc<HashSet<DeviceId>>>,
    /// The credential.
    pub credential: Credential,
}

/// The credential of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// An API key.
    ApiKey(ApiKeyId),
    /// An access token.
    AccessToken {
        /// The token's `jti`.
        id: TokenId,
        /// The token's subject.
        subject: Subject,
    },
}

/// The key of per-caller limits: an API key, or the subject of access tokens, which is the same for
/// successive tokens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallerId {
    /// An API key.
    Key(ApiKeyId),
    /// A subject of an organisation.
    Subject(OrgId, Subject),
}

impl Credential {
    /// The name of the caller, the same for all tokens of one subject. Unique within an
    /// organisation only.
    #[must_use]
    pub fn caller_name(&self) -> String {
        match self {
            Self::ApiKey(id) => id.to_string(),
            Self::AccessToken { subject, .. } => subject.to_string(),
        }
    }
}

impl Caller {
    /// The key of its limits.
    #[must_use]
    pub fn id(&self) -> CallerId {
        match &self.credential {
            Credential::ApiKey(id) => CallerId::Key(*id),
            Credential::AccessToken { subject, .. } => CallerId::Subject(self.org, subject.clone()),
        }
    }

    /// Requires a scope.
    ///
    /// # Errors
    /// A 403 problem with the missing scope.
    pub fn require(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes.contains(scope) {
            Ok(())
        } else {
            Err(problems::insufficient_scope(scope))
        }
    }

    /// Checks that a device is within reach of the credential.
    ///
    /// # Errors
    /// The restriction that excludes it.
    pub fn check_device(&self, device: &DeviceId) -> Result<(), Outside<'_>> {
        let Some(restrictions) = self.restrictions.as_deref() else {
            return Ok(());
        };
        restrictions.check_prefix(device)?;
        let has_label = || {
            let labelled = self.labelled.as_deref();
            labelled.is_some_and(|labelled| labelled.contains(device))
        };
        match &restrictions.device_label {
            Some(label) if !has_label() => Err(Outside::DeviceLabel(label)),
            _ => Ok(()),
        }
    }

    /// Checks that a service of a device is within reach of the credential.
    ///
    /// # Errors
    /// The restriction that excludes it.
    pub fn check_call(&self, device: &DeviceId, service: &str) -> Result<(), Outside<'_>> {
        self.check_device(device)?;
        self.check_service(service)
    }

    /// Checks that services with this name are within reach of the credential.
    ///
    /// # Errors
    /// The restriction that excludes them.
    pub fn check_service(&self, service: &str) -> Result<(), Outside<'_>> {
        let restrictions = self.restrictions.as_deref();
        restrictions.map_or(Ok(()), |restrictions| restrictions.check_service(service))
    }

    /// A device of the organisation, which must be within reach of the credential.
    ///
    /// # Errors
    /// A 403 problem with the restriction.
    pub fn device(&self, device: DeviceId) -> Result<DeviceKey, Problem> {
        let checked = self.check_device(&device);
        checked.map_err(|outside| problems::outside_key(&outside))?;
        Ok(DeviceKey {
            org: self.org,
            device,
        })
    }

    /// Requires that all devices of the organisation are within reach of the credential.
    ///
    /// # Errors
    /// A 403 problem with the restriction.
    pub fn require_all_devices(&self) -> Result<(), Problem> {
        let restrictions = self.restrictions.as_deref();
        match restrictions.and_then(Restrictions::restricts_devices) {
            Some(outside) => Err(problems::outside_key(&outside)),
            None => Ok(()),
        }
    }

    /// Requires that the credential is not restricted.
    ///
    /// # Errors
    /// A 403 problem with the first restriction.
    pub fn require_everything(&self) -> Result<(), Problem> {
        self.require_all_devices()?;
        let restrictions = self.restrictions.as_deref();
        match restrictions.and_then(|restrictions| restrictions.services.as_deref()) {
            Some(patterns) => Err(problems::outside_key(&Outside::Services(patterns))),
            None => Ok(()),
        }
    }

    /// Requires that a service of a device is within reach of the credential.
    ///
    /// # Errors
    /// A 403 problem with the restriction.
    pub fn require_call(&self, device: &DeviceId, service: &str) -> Result<(), Problem> {
        let checked = self.check_call(device, service);
        checked.map_err(|outside| problems::outside_key(&outside))
    }
}

impl<S> FromRequestParts<S> for Caller
where
    S: Send + Sync,
    Authenticator: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Authenticator::from_ref(state)
            .authenticate(&parts.headers, &parts.extensions)
            .await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use switchboard_protocol::token::ServicePattern;

    use super::*;

    #[test]
    fn missing_scope_is_in_the_problem() {
        let caller = Caller {
            org: "org_0000000000000000000000000000abcd".parse().unwrap(),
            scopes: [Scope::Call].into_iter().collect(),
            restrictions: None,
            labelled: None,
            credential: Credential::ApiKey("key_0000000000000000000000000000abcd".parse().unwrap()),
        };
        assert!(caller.require(Scope::Call).is_ok());
        let refused = caller.require(Scope::Admin).unwrap_err();
        assert_eq!(
            (refused.status().as_u16(), refused.slug()),
            (403, "insufficient_scope")
        );
        assert!(refused.detail.contains("`admin`"), "{}", refused.detail);
    }

    #[test]
    fn restriction_that_excludes_a_call_is_in_the_problem() {
        let services = ServicePattern::parse("led.*").unwrap();
        let labelled = ["toy-1", "lamp-1"].map(|device| device.parse().unwrap());
        let caller = Caller {
            org: "org_0000000000000000000000000000abcd".parse().unwrap(),
            scopes: [Scope::Call].into_iter().collect(),
            restrictions: Some(Arc::new(Restrictions {
                device_prefix: Some("toy-".parse().unwrap()),
                device_label: Some("room:kitchen".parse().unwrap()),
                services: Some(vec![services]),
            })),
            labelled: Some(Arc::new(labelled.into())),
            credential: Credential::ApiKey("key_0000000000000000000000000000abcd".parse().unwrap()),
        };
        let check = |device: &str, service: &str, expected: Option<(&str, serde_json::Value)>| {
            let required = caller.require_call(&device.parse().unwrap(), service);
            let refused = required.err().map(|problem| {
                assert_eq!(
                    (problem.status().as_u16(), problem.slug()),
                    (403, "outside_key")
                );
                let restriction = problem.extra["restriction"].clone();
                (restriction, problem.extra["value"].clone())
            });
            let expected = expected.map(|(name, value)| (json!(name), value));
            assert_eq!(refused, expected, "{device} {service}");
        };
        check("toy-1", "led.on", None);
        check("lamp-1", "led.on", Some(("device_prefix", json!("toy-"))));
        let label = json!("room:kitchen");
        check("toy-2", "led.on", Some(("device_label", label)));
        let unread = Caller {
            labelled: None,
            ..caller.clone()
        };
        assert!(unread.check_device(&"toy-1".parse().unwrap()).is_err());
        check("toy-1", "reset", Some(("services", json!(["led.*"]))));
    }
}
