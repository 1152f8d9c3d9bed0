//! Limits on concurrent answers over HTTP: for all callers, and for each organisation.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use switchboard_protocol::id::OrgId;

/// A concurrency limit without waiting. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct ConcurrencyLimit {
    limits: Limits,
    in_use: Arc<Mutex<HashMap<OrgId, usize>>>,
}

/// Numbers of concurrent answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) total: usize,
    pub(crate) per_org: usize,
}

/// Released when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    limit: ConcurrencyLimit,
    org: OrgId,
}

/// The limit that denied a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitReached {
    Org,
    Total,
}

impl ConcurrencyLimit {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            in_use: Arc::default(),
        }
    }

    pub(crate) fn try_acquire(&self, org: OrgId) -> Result<Permit, LimitReached> {
        let mut in_use = self.in_use.lock();
        if in_use
            .get(&org)
            .is_some_and(|own| *own >= self.limits.per_org)
        {
            return Err(LimitReached::Org);
        }
        if in_use.values().sum::<usize>() >= self.limits.total {
            return Err(LimitReached::Total);
        }
        *in_use.entry(org).or_default() += 1;
        Ok(Permit {
            limit: self.clone(),
            org,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut in_use = self.limit.in_use.lock();
        if let Some(own) = in_use.get_mut(&self.org) {
            *own -= 1;
            if *own == 0 {
                in_use.remove(&self.org);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn org_limit_leaves_permits_to_other_orgs() {
        let org = |number: u128| OrgId::from_uuid(Uuid::from_u128(number));
        let limit = ConcurrencyLimit::new(Limits {
            total: 3,
            per_org: 2,
        });
        let first = limit.try_acquire(org(1)).unwrap();
        let _second = limit.try_acquire(org(1)).unwrap();
        assert_eq!(limit.try_acquire(org(1)).unwrap_err(), LimitReached::Org);
        let other = limit.try_acquire(org(2)).unwrap();
        assert_eq!(limit.try_acquire(org(2)).unwrap_err(), LimitReached::Total);
        drop(first);
        let _third = limit.try_acquire(org(1)).unwrap();
        assert_eq!(limit.in_use.lock().len(), 2);
        drop(other);
        assert_eq!(limit.in_use.lock().len(), 1);
    }
}
