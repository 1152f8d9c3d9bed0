//! A transaction with the scope of one owner, for callers outside this crate.

use sqlx::PgConnection;
use switchboard_protocol::id::OrgId;

use super::scoped::ScopedTransaction;
use crate::{Owner, Store, StoreError, database::with_timeout};

/// A transaction with the scope of one owner. Dropped without [`TenantTransaction::commit`], it is
/// rolled back.
#[derive(Debug)]
pub struct TenantTransaction {
    owner: Owner,
    transaction: ScopedTransaction,
}

impl Store {
    /// Begins a transaction with the scope of this owner.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn begin(&self, owner: impl Into<Owner>) -> Result<TenantTransaction, StoreError> {
        let owner = owner.into();
        Ok(TenantTransaction {
            owner,
            transaction: with_timeout(self.begin_tenant(owner)).await?,
        })
    }

    /// Begins a transaction that locks the row of its organisation. Other ones of this process
    /// wait without a connection until it ends.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn begin_in_turn(&self, org: OrgId) -> Result<TenantTransaction, StoreError> {
        Ok(TenantTransaction {
            owner: org.into(),
            transaction: with_timeout(self.begin_tenant_in_turn(org)).await?,
        })
    }
}

impl TenantTransaction {
    /// Commits the transaction.
    ///
    /// # Errors
    /// [`StoreError`] if the commit fails; it may have taken effect.
    pub async fn commit(self) -> Result<(), StoreError> {
        with_timeout(self.transaction.commit()).await
    }

    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }

    /// The owner whose scope it has.
    pub(crate) const fn owner(&self) -> Owner {
        self.owner
    }
}
