//! The memory of a page of a list while it is assembled.

use super::ResponseBudget;
use crate::budget::{Exhausted, Owner, Permit};

/// The charge of a page of a list while it is assembled. It grows with what the page holds.
#[derive(Debug)]
pub struct PageCharge<'a> {
    budget: &'a ResponseBudget,
    owner: Owner,
    permit: Option<Permit>,
}

impl<'a> PageCharge<'a> {
    /// Starts a page that holds nothing.
    #[must_use]
    pub const fn new(budget: &'a ResponseBudget, owner: Owner) -> Self {
        Self {
            budget,
            owner,
            permit: None,
        }
    }

    /// Charges `bytes` in all, unless that much is charged already.
    ///
    /// # Errors
    /// As [`ResponseBudget::reserve`]. The page is then dropped.
    pub fn hold(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let Some(permit) = &mut self.permit else {
            self.permit = self.budget.reserve(self.owner, bytes)?;
            return Ok(());
        };
        let more = bytes
            .min(self.budget.0.share())
            .saturating_sub(permit.amount());
        permit.try_grow(more)
    }

    /// The permit of the assembled page, which keeps at most `bytes`. `None` for a small one.
    #[must_use]
    pub fn into_permit(mut self, bytes: usize) -> Option<Permit> {
        if let Some(permit) = &mut self.permit {
            permit.shrink(permit.amount().saturating_sub(bytes));
        }
        self.permit
    }
}
