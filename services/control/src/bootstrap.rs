//! The organisation that an installation of one process starts with.
//! Never: a second one for the same key.

use secrecy::{ExposeSecret, SecretString};
use switchboard_identity::ApiKeySecret;
use switchboard_protocol::{access::Scope, id::OrgId};
use switchboard_store::{Store, StoreError};
use uuid::Uuid;

use crate::api_keys;

const NAME: &str = "default";

/// Makes sure that there is an organisation with this API key, and says which it is. Can be asked at every start,
/// and by several processes at once.
///
/// # Errors
/// [`StoreError::Setting`] when the key has not the form of one, else as every query of the store.
pub async fn bootstrap(store: &Store, api_key: &SecretString) -> Result<OrgId, StoreError> {
    let secret = ApiKeySecret::parse(api_key.expose_secret()).ok_or(StoreError::Setting(
        "the first API key must be `sb_` and 43 characters of base64url",
    ))?;
    let hash = secret.hash();
    if let Some(key) = store.api_key_by_hash(&hash).await? {
        return Ok(key.org);
    }
    let org = OrgId::from_uuid(Uuid::now_v7());
    let key = api_keys::new_key("first key", &secret, Scope::ALL.into_iter().collect());
    match store.create_org(org, NAME, &key).await {
        Ok(_) => Ok(org),
        // Another process was faster.
        Err(conflict @ StoreError::Conflict(_)) => {
            let key = store.api_key_by_hash(&hash).await?;
            key.map(|key| key.org).ok_or(conflict)
        }
        Err(error) => Err(error),
    }
}
