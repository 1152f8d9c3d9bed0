//! Resume tickets: what a device that was authenticated shows when it comes back, so that no node
//! verifies the signature of its token again.
//!
//! Invariant: a ticket is accepted only where and as long as its token would be.

mod holder;

use std::array;

use arc_swap::ArcSwapOption;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::hmac;
use switchboard_protocol::message::ResumeTicket;

pub use self::holder::{TicketHolder, TokenDigest};
use crate::{
    auth::TokenError,
    bus::{Bus, Node},
    clock::unix_time,
    error::BusError,
};

/// The longest lifetime of a ticket.
const MAX_TTL_S: u64 = 24 * 3600;
/// How long tickets are sealed with one key. Not less than [`MAX_TTL_S`]: the former key is accepted
/// for as long.
const PERIOD_S: u64 = MAX_TTL_S;
/// How long a key is stored: it may be created a period early, and is accepted for one after its own.
pub(crate) const SECRET_TTL_S: u64 = 3 * PERIOD_S;
const SECRET_BYTES: usize = 32;
const TAG_BYTES: usize = 32;
/// With the longest device id it has 161 bytes, which are 215 characters.
const MAX_TICKET_BYTES: usize = 256;

/// The key of one period.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TicketSecret(pub(crate) [u8; SECRET_BYTES]);

impl TicketSecret {
    fn random() -> Self {
        Self(rand::random())
    }
}

/// The keys that seal and open tickets.
///
/// Time is divided into periods, each with a key of its own. Nodes that own connections agree on it in
/// the backend: the first that stores a key for a period decides, and stored keys expire. A backend
/// that has lost its data receives the keys again from the nodes. The key of the next period is there
/// before it begins, so that nodes need not enter it at the same moment.
///
/// A node with pinned token keys trusts no secret of the backend: others could issue tickets of any
/// device. Its keys are its own, and its tickets are accepted by itself only.
pub(crate) struct TicketKeys(ArcSwapOption<Keys>);

struct Keys {
    period: u64,
    /// By [`periods`].
    secrets: [TicketSecret; 3],
    keys: [hmac::Key; 3],
}

/// The periods whose keys are accepted in this one: itself, whose key seals, the next and the former.
const fn periods(period: u64) -> [u64; 3] {
    [period, period + 1, period.saturating_sub(1)]
}

/// Why a ticket is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// It has expired, its key is lost, or it is no ticket.
    #[error("this ticket is not accepted here, or no longer; send the access token")]
    Unusable,
    /// Its token is no longer accepted, or cannot be checked yet.
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl TicketKeys {
    pub(crate) fn new() -> Self {
        Self(ArcSwapOption::empty())
    }

    /// The keys of the periods that are accepted in this one: known ones, and new ones.
    fn propose(&self, period: u64) -> [(u64, TicketSecret); 3] {
        let known = self.0.load();
        periods(period).map(|wanted| {
            let known = known.as_ref().and_then(|known| {
                let index = periods(known.period).iter().position(|at| *at == wanted)?;
                known.secrets.get(index).copied()
            });
            (wanted, known.unwrap_or_else(TicketSecret::random))
        })
    }

    fn adopt(&self, period: u64, secrets: [TicketSecret; 3]) {
        let key = |secret: TicketSecret| hmac::Key::new(hmac::HMAC_SHA256, &secret.0);
        let keys = Keys {
            period,
            secrets,
            keys: secrets.map(key),
        };
        self.0.store(Some(keys.into()));
    }

    /// Seals a ticket. Returns it, and for how many seconds it is accepted.
    fn seal(&self, holder: &TicketHolder, now_s: u64) -> Option<(ResumeTicket, u64)> {
        let keys = self.0.load();
        let [key, ..] = &keys.as_ref()?.keys;
        let ttl_s = holder.token.expires_at.saturating_sub(now_s).min(MAX_TTL_S);
        let mut bytes = [0; MAX_TICKET_BYTES];
        let end = holder.write(now_s + ttl_s, &mut bytes)?;
        let (sealed, rest) = bytes.split_at_mut_checked(end)?;
        let tag = hmac::sign(key, sealed);
        rest.get_mut(..TAG_BYTES)?.copy_from_slice(tag.as_ref());
        let ticket = URL_SAFE_NO_PAD.encode(bytes.get(..end + TAG_BYTES)?);
        Some((ResumeTicket::new(ticket), ttl_s))
    }

    /// Opens a ticket that one of the keys has sealed, and that has not expired.
    fn open(&self, ticket: &str, now_s: u64) -> Option<TicketHolder> {
        let mut bytes = [0; MAX_TICKET_BYTES];
        let length = URL_SAFE_NO_PAD.decode_slice(ticket, &mut bytes).ok()?;
        let (sealed, tag) = bytes.get(..length)?.split_last_chunk::<TAG_BYTES>()?;
        let keys = self.0.load();
        let mut keys = keys.as_ref()?.keys.iter();
        if !keys.any(|key| hmac::verify(key, sealed, tag).is_ok()) {
            return None;
        }
        let (holder, expires_at) = TicketHolder::read(sealed)?;
        (now_s < expires_at).then_some(holder)
    }
}

impl Bus {
    /// Issues a ticket to a device that was just authenticated. Returns it, and for how many seconds it
    /// is accepted; `None` while this node has no key.
    #[must_use]
    pub fn issue_ticket(&self, holder: &TicketHolder) -> Option<(ResumeTicket, u64)> {
        self.0.ticket_keys.seal(holder, unix_time().as_secs())
    }

    /// Verifies a ticket, and the token that it was issued for as [`Self::recheck`] does.
    ///
    /// # Errors
    /// [`TicketError`] when one of these fails, or when this node has no keys to verify tokens yet.
    pub fn verify_ticket(&self, ticket: &str) -> Result<TicketHolder, TicketError> {
        if !self.has_keys() {
            return Err(TokenError::NoKeys.into());
        }
        let holder = self.0.ticket_keys.open(ticket, unix_time().as_secs());
        let holder = holder.ok_or(TicketError::Unusable)?;
        self.recheck(&holder.token).map_err(TokenError::from)?;
        Ok(holder)
    }
}

impl Node {
    /// The period that it is now, by the shared clock.
    pub(crate) fn ticket_period(&self) -> u64 {
        self.lease.unix_s() / PERIOD_S
    }

    /// Agrees with the other nodes on the keys of this period.
    ///
    /// # Errors
    /// When the bus is not reachable: the keys that this node has stay in use.
    pub(crate) async fn read_ticket_keys(&self) -> Result<(), BusError> {
        let period = self.ticket_period();
        let proposed = self.ticket_keys.propose(period);
        let secrets = if self.token_keys.is_pinned() {
            proposed.map(|(_, secret)| secret)
        } else {
            let stored = self.backend.ticket_secrets(&proposed).await?;
            let stored: [_; 3] = array::from_fn(|index| stored.get(index).copied());
            let [Some(current), Some(next), Some(former)] = stored else {
                return Err(BusError::Unexpected(
                    "a key of tickets is missing".to_owned(),
                ));
            };
            [current, next, former]
        };
        self.ticket_keys.adopt(period, secrets);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
