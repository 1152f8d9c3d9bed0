//! Who is calling over HTTP: the holder of an API key or of an access token, found out the same way by every service.
//! Never: what the caller may do with a resource (handlers ask [`Caller::require`]), and never a secret in an answer or a log.

mod api_key;
mod authenticator;
mod caller;
mod key_verdicts;
mod refusal;
mod standing;

pub use api_key::ApiKeySecret;
pub use authenticator::Authenticator;
pub use caller::{Caller, CallerId, Credential};
pub use standing::Standing;
