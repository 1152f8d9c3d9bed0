//! Members of a bounded resource by owner and age, to find which one is closed for a new one.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::Owner;

/// Members that can be closed when there is no room for a new one, such as the connections that
/// have not authenticated. The members of one owner are a crowd.
///
/// The oldest member of the largest crowd is closed first; of crowds with one size, that with the
/// oldest member loses it. A flood from one owner thus closes its own members.
///
/// Cost: a few steps in ordered maps for each change. An owner without members has no entry.
///
/// Invariant: `sizes` and `ranks` have one entry for each crowd with members.
#[derive(Debug)]
pub struct Crowds<T> {
    /// By owner and age.
    members: BTreeMap<(Owner, u64), T>,
    sizes: BTreeMap<Owner, usize>,
    /// The last one is the crowd that loses a member first.
    ranks: BTreeSet<Rank>,
}

/// The size of a crowd, the number of its oldest member, and its owner.
type Rank = (usize, Reverse<u64>, Owner);

impl<T> Default for Crowds<T> {
    fn default() -> Self {
        Self {
            members: BTreeMap::new(),
            sizes: BTreeMap::new(),
            ranks: BTreeSet::new(),
        }
    }
}

impl<T> Crowds<T> {
    /// Adds a member. Its number is its age: an older member has a smaller one. No other member
    /// has the same.
    pub fn insert(&mut self, owner: Owner, number: u64, member: T) {
        self.remove_rank(owner);
        self.members.insert((owner, number), member);
        *self.sizes.entry(owner).or_default() += 1;
        self.insert_rank(owner);
    }

    /// Removes a member. Returns `None` if it was removed before.
    pub fn remove(&mut self, owner: Owner, number: u64) -> Option<T> {
        self.remove_rank(owner);
        let member = self.members.remove(&(owner, number));
        if member.is_some()
            && let Some(size) = self.sizes.get_mut(&owner)
        {
            *size -= 1;
            if *size == 0 {
                self.sizes.remove(&owner);
            }
        }
        self.insert_rank(owner);
        member
    }

    /// Removes the oldest member of an owner, or of the largest crowd. Returns `None` if there is
    /// none.
    pub fn pop_oldest(&mut self, owner: Option<Owner>) -> Option<T> {
        let (_, Reverse(number), owner) = match owner {
            Some(owner) => self.rank(owner)?,
            None => *self.ranks.last()?,
        };
        self.remove(owner, number)
    }

    /// Removes the oldest member that fits, of the largest crowd that has one. Visits all members
    /// if none fits.
    pub fn pop_oldest_fit(&mut self, fits: impl Fn(&T) -> bool) -> Option<T> {
        let (owner, number) = self.ranks.iter().rev().find_map(|(.., owner)| {
            let mut crowd = self.members.range((*owner, 0)..=(*owner, u64::MAX));
            let ((_, number), _) = crowd.find(|(_, member)| fits(member))?;
            Some((*owner, *number))
        })?;
        self.remove(owner, number)
    }

    /// Returns the number of members of an owner.
    #[must_use]
    pub fn size(&self, owner: Owner) -> usize {
        self.sizes.get(&owner).copied().unwrap_or_default()
    }

    /// Returns the size of the largest crowd and its oldest member.
    #[must_use]
    pub fn peek(&self) -> Option<(usize, &T)> {
        let (size, Reverse(number), owner) = self.ranks.last()?;
        let oldest = self.members.get(&(*owner, *number))?;
        Some((*size, oldest))
    }

    /// Returns the oldest member of an owner.
    #[must_use]
    pub fn oldest(&self, owner: Owner) -> Option<&T> {
        let mut crowd = self.members.range((owner, 0)..=(owner, u64::MAX));
        crowd.next().map(|(_, member)| member)
    }

    /// Returns whether there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn insert_rank(&mut self, owner: Owner) {
        let rank = self.rank(owner);
        self.ranks.extend(rank);
    }

    fn remove_rank(&mut self, owner: Owner) {
        if let Some(rank) = self.rank(owner) {
            self.ranks.remove(&rank);
        }
    }

    fn rank(&self, owner: Owner) -> Option<Rank> {
        let size = *self.sizes.get(&owner)?;
        let ((_, oldest), _) = self.members.range((owner, 0)..).next()?;
        Some((size, Reverse(*oldest), owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(number: u64) -> Owner {
        Owner::Proxied(number)
    }

    /// Members that are named by their numbers.
    fn crowds(owners: &[u64]) -> Crowds<u64> {
        let mut crowds = Crowds::default();
        for (number, of) in (0..).zip(owners) {
            crowds.insert(owner(*of), number, number);
        }
        crowds
    }

    #[test]
    fn crowd_of_greatest_size_loses_its_oldest_member() {
        let mut crowds = crowds(&[1, 2, 3, 2, 3, 2]);
        assert_eq!(crowds.peek(), Some((3, &1)));
        // Then two crowds have two members each, and one of them has the oldest.
        let closed: Vec<_> = std::iter::from_fn(|| crowds.pop_oldest(None)).collect();
        assert_eq!(closed, [1, 2, 3, 0, 4, 5]);
        assert!(crowds.is_empty() && crowds.sizes.is_empty() && crowds.ranks.is_empty());
        assert_eq!(crowds.peek(), None);
    }

    #[test]
    fn crowd_of_greatest_size_with_a_fit_loses_the_oldest_one() {
        let mut crowds = crowds(&[1, 2, 1, 2, 1, 3]);
        assert_eq!(crowds.pop_oldest_fit(|number| *number > 0), Some(2));
        // Now both have two members, and that with the oldest one has no fit.
        assert_eq!(crowds.pop_oldest_fit(|number| number % 2 == 1), Some(1));
        assert_eq!(crowds.pop_oldest_fit(|number| *number == 5), Some(5));
        assert_eq!(crowds.pop_oldest_fit(|number| *number == 5), None);
        assert_eq!(crowds.size(owner(1)), 2);
    }

    #[test]
    fn member_is_removed_once() {
        let mut crowds = crowds(&[1, 1, 2]);
        assert_eq!(crowds.remove(owner(1), 0), Some(0));
        assert_eq!(crowds.remove(owner(1), 0), None);
        // It is no member of another owner.
        assert_eq!(crowds.remove(owner(2), 1), None);
        assert_eq!(crowds.remove(owner(3), 0), None);
        assert_eq!((crowds.size(owner(1)), crowds.size(owner(3))), (1, 0));
        assert_eq!(crowds.pop_oldest(Some(owner(2))), Some(2));
        assert_eq!(crowds.pop_oldest(Some(owner(2))), None);
        assert_eq!(crowds.pop_oldest(None), Some(1));
    }
}
