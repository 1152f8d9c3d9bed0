//! Admission of a request: authentication, the scope of its route, and rate limits.
//!
//! Invariant: the body of a request is not read before its caller is admitted.

use std::{sync::Arc, time::Instant};

use axum::{extract::FromRequestParts, http::request::Parts};
use switchboard_identity::{Caller, CallerId};
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    outcome::Delivered,
    token::Scope,
};
use switchboard_runtime::{
    http::received_at,
    metrics::Counters,
    problem::Problem,
    rate_limit::{RateLimited, TokenBuckets},
};

use crate::{Config, Gateway, metrics::ShedReason};

/// A caller with the scope `call`.
pub(crate) struct RequireCall(pub(crate) Caller);

/// A caller with the scope `read`.
pub(crate) struct RequireRead(pub(crate) Caller);

/// A caller with the scope `admin`.
pub(crate) struct RequireAdmin(pub(crate) Caller);

impl FromRequestParts<Arc<Gateway>> for RequireCall {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<Gateway>) -> Result<Self, Problem> {
        admit(parts, state, Scope::Call).await.map(Self)
    }
}

impl FromRequestParts<Arc<Gateway>> for RequireRead {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<Gateway>) -> Result<Self, Problem> {
        admit(parts, state, Scope::Read).await.map(Self)
    }
}

impl FromRequestParts<Arc<Gateway>> for RequireAdmin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<Gateway>) -> Result<Self, Problem> {
        admit(parts, state, Scope::Admin).await.map(Self)
    }
}

/// A caller with the scope `call` who makes a call. A refusal states that the call was not sent.
pub(crate) struct MakeCall {
    pub(crate) caller: Caller,
    /// When the head of the request was complete: authentication counts towards the call's timeout.
    pub(crate) started: Instant,
}

impl FromRequestParts<Arc<Gateway>> for MakeCall {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<Gateway>) -> Result<Self, Problem> {
        let admitted = admit(parts, state, Scope::Call).await;
        Ok(Self {
            caller: admitted.map_err(|problem| problem.with("delivered", Delivered::No))?,
            started: received_at(&parts.extensions),
        })
    }
}

async fn admit(parts: &Parts, gateway: &Gateway, scope: Scope) -> Result<Caller, Problem> {
    let caller = gateway
        .authenticator
        .authenticate(&parts.headers, &parts.extensions);
    let caller = caller.await?;
    caller.require(scope)?;
    gateway.rate_limits.admit_caller(&caller)?;
    Ok(caller)
}

/// The token buckets of one gateway. Requests over the limit are refused, not delayed.
pub(crate) struct RateLimits {
    callers: TokenBuckets<CallerId>,
    /// An organisation can create any number of callers.
    orgs: TokenBuckets<OrgId>,
    devices: TokenBuckets<DeviceKey>,
    shed: Counters<ShedReason>,
}

impl RateLimits {
    pub(crate) fn new(config: &Config, shed: Counters<ShedReason>) -> Self {
        Self {
            shed,
            callers: TokenBuckets::new(config.caller_rate_per_s, config.caller_burst),
            orgs: TokenBuckets::new(config.org_rate_per_s, config.org_burst),
            devices: TokenBuckets::new(config.called_device_rate_per_s, config.called_device_burst),
        }
    }

    /// Takes one request from the buckets of a caller and its organisation.
    pub(crate) fn admit_caller(&self, caller: &Caller) -> Result<(), Problem> {
        let taken = self.callers.take(&caller.id());
        let taken = taken.inspect_err(|_| self.shed.inc(ShedReason::CallerRate));
        taken.map_err(rate_limited)?;
        let taken = self.orgs.take(&caller.org);
        let taken = taken.inspect_err(|_| self.shed.inc(ShedReason::OrgRate));
        taken.map_err(rate_limited)
    }

    /// Takes one call from a device's bucket.
    pub(crate) fn admit_call(&self, device: &DeviceKey) -> Result<(), RateLimited> {
        let taken = self.devices.take(device);
        taken.inspect_err(|_| self.shed.inc(ShedReason::DeviceRate))
    }

    /// Drops the buckets that are full again.
    pub(crate) fn sweep(&self) {
        self.callers.sweep();
        self.orgs.sweep();
        self.devices.sweep();
    }
}

/// The problem for a rate-limited request, which did not reach a device.
pub(crate) fn rate_limited(refused: RateLimited) -> Problem {
    Problem::from(refused).with("delivered", Delivered::No)
}
