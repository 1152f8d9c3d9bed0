//! The memory of what waits in a connection: for its device to read it, or for the bus to take it.

use switchboard_runtime::budget::{Budget, Exhausted, Owner, Permit};

use super::ConnectionHandle;

/// Less is not charged: the number of connections bounds it.
pub(super) const FREE_BYTES: usize = 4 * 1024;

/// What one part of a connection has acquired of the budget `device_messages`: the turns, or the
/// bytes that the socket does not accept. A queued call has a permit of its own. Together they are
/// what a device can let grow by not reading, or by not ending what it began.
///
/// Boxed, because most connections have nothing that waits.
#[derive(Default)]
pub(crate) struct WaitingBytes(Option<Box<Permit>>);

impl WaitingBytes {
    /// Charges `bytes` in all. Returns what is more than that.
    ///
    /// # Errors
    /// When the budget has no room for more; what was charged before stays.
    pub(crate) fn set(
        &mut self,
        bytes: usize,
        budget: &Budget,
        owner: Owner,
    ) -> Result<(), Exhausted> {
        let held = self.0.as_ref().map_or(0, |permit| permit.amount());
        match &mut self.0 {
            _ if bytes <= FREE_BYTES => self.0 = None,
            Some(permit) if bytes > held => permit.try_grow(bytes - held)?,
            Some(permit) => permit.shrink(held - bytes),
            none => *none = Some(Box::new(budget.try_acquire(owner, bytes)?)),
        }
        Ok(())
    }
}

impl ConnectionHandle {
    /// To whom the connection is charged.
    pub(crate) fn owner(&self) -> Owner {
        Owner::Org(self.key.org.uuid())
    }
}
