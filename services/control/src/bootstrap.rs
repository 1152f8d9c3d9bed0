//! The first organisation of an installation that runs as one process.

use secrecy::{ExposeSecret, SecretString};
use switchboard_identity::{ApiKeySecret, Checksum};
use switchboard_protocol::{id::OrgId, token::Scope};
use switchboard_store::{Store, StoreError};
use uuid::Uuid;

use crate::resources::api_keys;

const NAME: &str = "default";

/// Returns the organisation with this API key, and creates it if there is none. It can be called at
/// every start, and by several processes at the same time.
///
/// # Errors
/// [`StoreError::Setting`] when the key is not a valid API key, otherwise the errors of the store.
pub async fn bootstrap(store: &Store, api_key: &SecretString) -> Result<OrgId, StoreError> {
    let secret = ApiKeySecret::parse(api_key.expose_secret());
    let secret = secret.filter(|secret| secret.checksum() != Checksum::Wrong);
    let secret = secret.ok_or(StoreError::Setting(
        "the first API key must be `sb_` and 43 characters of base64url, with a valid checksum",
    ))?;
    let hash = secret.hash();
    if let Some(key) = store.api_key_by_hash(&hash).await? {
        return Ok(key.org);
    }
    let org = OrgId::from_uuid(Uuid::now_v7());
    let key = api_keys::new_key("first key", &secret, Scope::ALL.into_iter().collect());
    match store.create_org(org, NAME, &key).await {
        Ok(_) => Ok(org),
        // Another process has created it in the meantime.
        Err(conflict @ StoreError::Conflict(_)) => {
            let key = store.api_key_by_hash(&hash).await?;
            key.map(|key| key.org).ok_or(conflict)
        }
        Err(error) => Err(error),
    }
}
