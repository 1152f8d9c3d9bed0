//! Authentication of HTTP callers by API key, access token or session, what their credentials reach,
//! and the quotas of their organisations, the same for all services.
//! Invariant: secrets do not appear in responses or logs.

mod api_key;
mod approvals;
mod authenticator;
mod caller;
mod credential_check;
mod key_cache;
mod labelled_devices;
mod problems;
mod quotas;
mod seal;
mod session;

pub use api_key::{ApiKeySecret, Checksum};
pub use approvals::{Approvals, ApprovalsUnavailable, ApprovedServices};
pub use authenticator::Authenticator;
pub use caller::{Caller, CallerId, Credential};
pub use credential_check::CredentialCheck;
pub use problems::outside_key;
pub use quotas::{QuotaError, Quotas};
pub use seal::Seal;
pub use session::{
    Holder, KeyHash, Session, Sessions, StartedSession, Transport, check_site, cleared_cookies,
    set_cookie,
};
