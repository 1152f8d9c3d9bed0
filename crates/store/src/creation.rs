//! A transaction in which something is made, so that what belongs together is there together or not at all.
//! Never: a commit that whoever began it did not ask for.

use sqlx::{PgConnection, Postgres, Transaction};

use crate::{Owner, Store, StoreError, database::bounded};

/// A transaction in which something is made. Dropped without [`Creation::commit`], nothing was.
#[derive(Debug)]
pub struct Creation {
    owner: Owner,
    transaction: Transaction<'static, Postgres>,
}

impl Store {
    /// Begins to make something of this owner's.
    ///
    /// # Errors
    /// As every query.
    pub async fn begin(&self, owner: impl Into<Owner>) -> Result<Creation, StoreError> {
        let owner = owner.into();
        Ok(Creation {
            owner,
            transaction: bounded(self.begin_within(owner)).await?,
        })
    }
}

impl Creation {
    /// Makes it last.
    ///
    /// # Errors
    /// As every query; it may have been made.
    pub async fn commit(self) -> Result<(), StoreError> {
        bounded(self.transaction.commit()).await
    }

    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }

    /// For whom it speaks.
    pub(crate) const fn owner(&self) -> Owner {
        self.owner
    }
}
