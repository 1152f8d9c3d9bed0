//! How many people are answered over HTTP at a time: all of them together, and those of one organisation.
//! Never: a wait, or an organisation that leaves nothing to the others.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use switchboard_protocol::id::OrgId;

/// The lines of this replica. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Lines {
    most: Most,
    taken: Arc<Mutex<HashMap<OrgId, usize>>>,
}

/// How many there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    pub(crate) of_all: usize,
    pub(crate) of_one: usize,
}

/// One of them, until this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    lines: Lines,
    org: OrgId,
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Busy {
    /// This organisation has as many as it may have.
    Org,
    All,
}

impl Lines {
    pub(crate) fn new(most: Most) -> Self {
        Self {
            most,
            taken: Arc::default(),
        }
    }

    pub(crate) fn take(&self, org: OrgId) -> Result<Taken, Busy> {
        let mut taken = self.taken.lock();
        if taken.get(&org).is_some_and(|own| *own >= self.most.of_one) {
            return Err(Busy::Org);
        }
        if taken.values().sum::<usize>() >= self.most.of_all {
            return Err(Busy::All);
        }
        *taken.entry(org).or_default() += 1;
        Ok(Taken {
            lines: self.clone(),
            org,
        })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut taken = self.lines.taken.lock();
        if let Some(own) = taken.get_mut(&self.org) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.org);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn one_organisation_leaves_lines_to_the_others() {
        let org = |number: u128| OrgId::from_uuid(Uuid::from_u128(number));
        let lines = Lines::new(Most {
            of_all: 3,
            of_one: 2,
        });
        let first = lines.take(org(1)).unwrap();
        let _second = lines.take(org(1)).unwrap();
        assert_eq!(lines.take(org(1)).unwrap_err(), Busy::Org);
        let other = lines.take(org(2)).unwrap();
        assert_eq!(lines.take(org(2)).unwrap_err(), Busy::All);
        drop(first);
        let _again = lines.take(org(1)).unwrap();
        assert_eq!(lines.taken.lock().len(), 2);
        drop(other);
        assert_eq!(lines.taken.lock().len(), 1);
    }
}
