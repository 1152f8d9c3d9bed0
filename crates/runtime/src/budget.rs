//! Budgets: what a process holds at the same time, with a share for each owner.

mod budgets;
mod crowds;
mod state;

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use axum::http::header;
use parking_lot::Mutex;
use tokio::{sync::oneshot, time::Instant};
use uuid::Uuid;

use self::{budgets::Metrics, state::State};
use crate::problem::{Problem, ProblemKind};

pub use budgets::{BudgetReport, Budgets, OwnerReport, Unit};
pub use crowds::Crowds;

/// Clients retry after this time: what is held briefly is free by then.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A bound on one scarce resource of a process, in bytes or slots, divided among owners.
///
/// A permit is acquired before the resource is used, for example before a body is read, and
/// returns its amount when it is dropped. [`Kind`] decides how much one owner may hold:
///
/// | kind | held for | one owner may hold | then [`try_acquire`](Self::try_acquire) |
/// |---|---|---|---|
/// | brief | milliseconds | everything, while no other owner waits | refuses, or the owner waits |
/// | held | seconds or longer | its share | refuses |
///
/// An acquisition is in one of these states:
///
/// ```text
///               fits                            dropped
///   requested ────────► granted (a permit) ───────────────► returned
///       │ acquire: does not fit      ▲
///       ├───────────────► waiting ───┤ amounts were returned: owners take turns,
///       │                    │       │ each in the order of its requests
///       │ try_acquire        │ deadline
///       └────────────────────┴──────────► refused: `Exhausted`
/// ```
///
/// A waiting owner whose turn it is keeps later ones from being served until its amount fits, so
/// that large amounts are not starved by small ones. An owner at its share is passed over.
///
/// Cost: an acquisition that does not wait locks one mutex, looks at the waiting owners, and updates
/// the entry of its owner, the sum and the gauge; dropping its permit does the same. An entry is
/// allocated at most when the map of owners grows. An owner without permits and waiters has no entry.
///
/// Invariant: the sum of all permits never exceeds the capacity, and no owner exceeds its share.
#[derive(Clone)]
pub struct Budget {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    unit: Unit,
    capacity: usize,
    kind: Kind,
    metrics: Metrics,
    state: Mutex<State>,
}

/// How long a resource is typically held, which decides how much of it one owner may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// For milliseconds, whatever the owner does. One owner may hold everything.
    Brief,
    /// For seconds or longer, or for as long as the owner wants.
    Held {
        /// The most that one owner may hold; at least 1. It does not bound [`Owner::System`].
        share: usize,
    },
}

/// To whom a permit is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// An organisation.
    Org(Uuid),
    /// The network of a client that has not authenticated; see [`Owner::network`].
    Network(IpAddr),
    /// One connection of a trusted proxy, by its number: its clients have no address of their own.
    Proxied(u64),
    /// The process itself.
    System,
}

/// A granted amount of a budget. It is returned when the permit is dropped.
#[must_use = "dropping a permit returns its amount"]
pub struct Permit {
    shared: Arc<Shared>,
    owner: Owner,
    amount: usize,
}

/// Why a budget was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {scope} of the budget `{budget}` is exhausted")]
pub struct Exhausted {
    /// The name of the budget.
    pub budget: &'static str,
    /// Which bound is reached.
    pub scope: Scope,
}

crate::labels! {
    /// A bound of a budget.
    pub enum Scope {
        /// The share of one owner.
        Share => "share",
        /// The capacity of the process.
        Total => "total",
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Kind {
    /// A quarter of `capacity` for each owner: three others still find room.
    #[must_use]
    pub const fn quarter_of(capacity: usize) -> Self {
        let share = capacity / 4;
        Self::Held {
            share: if share == 0 { 1 } else { share },
        }
    }
}

impl Owner {
    /// The owner of an unauthenticated connection: the IPv4 address, or the /64 network of an
    /// IPv6 address, because one host has all addresses of its /64.
    #[must_use]
    pub const fn network(address: IpAddr) -> Self {
        Self::Network(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() & !(u64::MAX as u128);
                IpAddr::V6(std::net::Ipv6Addr::from_bits(network))
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Org(org) => write!(f, "org_{}", org.simple()),
            Self::Network(IpAddr::V6(network)) => write!(f, "{network}/64"),
            Self::Network(address) => address.fmt(f),
            Self::Proxied(connection) => write!(f, "proxied_{connection}"),
            Self::System => f.write_str("system"),
        }
    }
}

impl Budget {
    fn new(name: &'static str, unit: Unit, capacity: usize, kind: Kind, metrics: Metrics) -> Self {
        Self {
            shared: Arc::new(Shared {
                name,
                unit,
                capacity,
                kind,
                metrics,
                state: Mutex::default(),
            }),
        }
    }

    /// Returns the most that one owner may hold.
    #[must_use]
    pub fn share(&self) -> usize {
        self.shared.share()
    }

    /// Returns the owners that hold something, each with its amount.
    #[must_use]
    pub fn holders(&self) -> Vec<(Owner, usize)> {
        self.shared.state.lock().owners().collect()
    }

    /// Returns the amount that is held at the moment.
    #[must_use]
    pub fn used(&self) -> usize {
        self.shared.state.lock().used()
    }

    /// Returns the amount that no owner holds at the moment.
    #[must_use]
    pub fn free(&self) -> usize {
        self.shared.capacity.saturating_sub(self.used())
    }

    /// Returns the amount that `owner` can acquire at the moment, if no other owner waits.
    #[must_use]
    pub fn room(&self, owner: Owner) -> usize {
        self.shared.state.lock().room(owner, &self.shared)
    }

    /// Returns the bound that leaves no room for `amount` at the moment, without counting a refusal.
    #[must_use]
    pub fn exhausted(&self, owner: Owner, amount: usize) -> Option<Scope> {
        let state = self.shared.state.lock();
        state.exhausted(owner, amount, &self.shared)
    }

    /// Acquires `amount` at once, or not at all. Waiting owners come first.
    ///
    /// # Errors
    /// [`Exhausted`] when it does not fit.
    pub fn try_acquire(&self, owner: Owner, amount: usize) -> Result<Permit, Exhausted> {
        self.acquire_if_free(owner, amount)
            .map_err(|scope| self.shared.refuse(scope))
    }

    /// The same for a caller that makes room and tries again: it counts no refusal.
    ///
    /// # Errors
    /// The bound that leaves no room for `amount`.
    pub fn acquire_if_free(&self, owner: Owner, amount: usize) -> Result<Permit, Scope> {
        let mut state = self.shared.state.lock();
        let taken = if state.is_contended(&self.shared) {
            Err(Scope::Total)
        } else {
            state.take(owner, amount, &self.shared)
        };
        drop(state);
        taken.map(|()| self.permit(owner, amount))
    }

    /// Acquires `amount`, waiting until `deadline` if it does not fit yet.
    ///
    /// # Errors
    /// [`Exhausted`] at the deadline, and at once for an amount that never fits.
    pub async fn acquire(
        &self,
        owner: Owner,
        amount: usize,
        deadline: Instant,
    ) -> Result<Permit, Exhausted> {
        let waiter = {
            let mut state = self.shared.state.lock();
            if amount > self.shared.share_of(owner) {
                drop(state);
                return Err(self.shared.refuse(Scope::Share));
            }
            if !state.is_contended(&self.shared) && state.take(owner, amount, &self.shared).is_ok()
            {
                drop(state);
                return Ok(self.permit(owner, amount));
            }
            let (sender, receiver) = oneshot::channel();
            let id = state.enqueue(owner, amount, sender);
            drop(state);
            Waiter {
                budget: self,
                owner,
                id,
                receiver,
            }
        };
        waiter.wait(deadline).await
    }

    fn permit(&self, owner: Owner, amount: usize) -> Permit {
        Permit {
            shared: Arc::clone(&self.shared),
            owner,
            amount,
        }
    }

    /// Sends permits to their waiters. A permit whose waiter has left is dropped here, outside the
    /// lock, which grants its amount to the next one.
    fn deliver(&self, grants: Vec<state::Grant>) {
        for grant in grants {
            let _ = grant.sender.send(self.permit(grant.owner, grant.amount));
        }
    }
}

impl Shared {
    /// The most that one owner may hold.
    const fn share(&self) -> usize {
        match self.kind {
            Kind::Held { share } if share < self.capacity => share,
            _ => self.capacity,
        }
    }

    /// The most that this owner may hold.
    const fn share_of(&self, owner: Owner) -> usize {
        match owner {
            Owner::System => self.capacity,
            Owner::Org(_) | Owner::Network(_) | Owner::Proxied(_) => self.share(),
        }
    }

    fn refuse(&self, scope: Scope) -> Exhausted {
        self.metrics.refused.inc(scope);
        Exhausted {
            budget: self.name,
            scope,
        }
    }
}

impl Permit {
    /// Returns the amount.
    #[must_use]
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Grows the permit by `more` at once, or leaves it as it is. Waiting owners do not come
    /// first: who holds a part of what it needs is served before who holds nothing.
    ///
    /// # Errors
    /// [`Exhausted`] when `more` does not fit.
    pub fn try_grow(&mut self, more: usize) -> Result<(), Exhausted> {
        let mut state = self.shared.state.lock();
        let result = state.take(self.owner, more, &self.shared);
        drop(state);
        result.map_err(|scope| self.shared.refuse(scope))?;
        self.amount += more;
        Ok(())
    }

    /// Returns a part of the amount, at most all of it.
    pub fn shrink(&mut self, less: usize) {
        let less = less.min(self.amount);
        self.amount -= less;
        self.give_back(less);
    }

    /// Charges the amount to another owner, for example to the organisation of a connection that
    /// has authenticated. The permit keeps its owner if the other one has no room.
    ///
    /// # Errors
    /// [`Exhausted`] when the amount exceeds what `owner` may hold.
    pub fn transfer(&mut self, owner: Owner) -> Result<(), Exhausted> {
        match self.try_transfer(owner) {
            true => Ok(()),
            false => Err(self.shared.refuse(Scope::Share)),
        }
    }

    /// The same for a caller that continues without room: it counts no refusal. Returns whether
    /// `owner` has room.
    pub fn try_transfer(&mut self, owner: Owner) -> bool {
        let mut state = self.shared.state.lock();
        let moved = state.transfer(self.owner, owner, self.amount, &self.shared);
        let grants = state.grant(&self.shared);
        drop(state);
        self.budget().deliver(grants);
        if moved {
            self.owner = owner;
        }
        moved
    }

    /// Whether another owner waits. Long work is divided, and then passes its turn.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.shared.state.lock().is_awaited_beside(self.owner)
    }

    /// Returns the amount to the owners that wait, and acquires it again after one request of each.
    /// Other requests of the same owner do not come first.
    ///
    /// # Errors
    /// [`Exhausted`] at the deadline.
    pub async fn pass_turn(self, deadline: Instant) -> Result<Self, Exhausted> {
        let (owner, amount) = (self.owner, self.amount);
        let budget = self.budget();
        let (sender, receiver) = oneshot::channel();
        let id = budget
            .shared
            .state
            .lock()
            .enqueue_first(owner, amount, sender);
        let waiter = Waiter {
            budget: &budget,
            owner,
            id,
            receiver,
        };
        drop(self);
        waiter.wait(deadline).await
    }

    fn give_back(&self, amount: usize) {
        if amount == 0 {
            return;
        }
        let mut state = self.shared.state.lock();
        state.give_back(self.owner, amount, &self.shared);
        let grants = state.grant(&self.shared);
        drop(state);
        self.budget().deliver(grants);
    }

    fn budget(&self) -> Budget {
        Budget {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.give_back(self.amount);
    }
}

/// A request in the queue of its owner. It leaves the queue when it is dropped.
struct Waiter<'a> {
    budget: &'a Budget,
    owner: Owner,
    id: i64,
    receiver: oneshot::Receiver<Permit>,
}

impl Waiter<'_> {
    async fn wait(mut self, deadline: Instant) -> Result<Permit, Exhausted> {
        match tokio::time::timeout_at(deadline, &mut self.receiver).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => {
                let shared = &self.budget.shared;
                let scope = shared.state.lock().awaited(self.owner, shared);
                Err(shared.refuse(scope))
            }
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        let mut state = self.budget.shared.state.lock();
        state.forget(self.owner, self.id);
        // The request may have kept others waiting.
        let grants = state.grant(&self.budget.shared);
        drop(state);
        self.budget.deliver(grants);
    }
}

impl From<Exhausted> for Problem {
    /// 429 `overloaded` with the name of the budget.
    fn from(exhausted: Exhausted) -> Self {
        let detail = match exhausted.scope {
            Scope::Share => format!(
                "The share of your organisation or address in the budget `{}` of this node is exhausted; nothing was done.",
                exhausted.budget
            ),
            Scope::Total => format!(
                "The budget `{}` of this node is exhausted; nothing was done.",
                exhausted.budget
            ),
        };
        Self::new(ProblemKind::Overloaded, detail)
            .with("budget", exhausted.budget)
            .header(header::RETRY_AFTER, RETRY_AFTER.as_secs())
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("name", &self.shared.name)
            .field("capacity", &self.shared.capacity)
            .field("kind", &self.shared.kind)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("budget", &self.shared.name)
            .field("owner", &self.owner)
            .field("amount", &self.amount)
            .finish()
    }
}

#[cfg(test)]
mod tests;
