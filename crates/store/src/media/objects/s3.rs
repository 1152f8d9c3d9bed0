//! Objects in an S3 bucket: address, credentials and retries.
//! Invariant: nothing is sent without TLS unless the operator permits it.

use std::{sync::Arc, time::Duration};

use super::http::{Connector, is_true};
use crate::StoreError;
use object_store::{
    BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    path::Path as ObjectPath,
    prefix::PrefixStore,
};

/// The scheme of a bucket's URL.
pub(super) const SCHEME: &str = "s3://";
/// The prefix of the environment variables that configure access to buckets.
const VARIABLES: &str = "AWS_";
/// After this time, a failed request is not retried.
const RETRY_TIMEOUT: Duration = Duration::from_secs(6);
/// The maximum number of retries of a transient failure.
const MAX_RETRIES: usize = 3;

const NO_BUCKET: StoreError = StoreError::Setting(
    "--objects or SWITCHBOARD_OBJECTS must be s3://BUCKET or s3://BUCKET/PREFIX, a bucket's name as S3 allows it \
     and a prefix of A-Z a-z 0-9 . _ - and single slashes",
);
const NO_TLS: StoreError = StoreError::Setting(
    "AWS_ENDPOINT_URL does not begin with https://; set AWS_ALLOW_HTTP=true to send objects and requests unencrypted",
);
const UNUSABLE: StoreError = StoreError::Setting(
    "the bucket in --objects or SWITCHBOARD_OBJECTS cannot be used with these AWS_… variables; see the log for the reason",
);

/// The objects of `bucket` or `bucket/prefix`, accessed as the variables configure.
pub(super) fn open(
    place: &str,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Arc<dyn ObjectStore>, StoreError> {
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    if !is_bucket(bucket) || !(prefix.is_empty() || prefix.split('/').all(is_segment)) {
        return Err(NO_BUCKET);
    }
    let variables = variables
        .filter(|(name, value)| name.starts_with(VARIABLES) && !value.is_empty())
        .filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value)));
    let builder = variables
        .fold(AmazonS3Builder::new(), |builder, (key, value)| {
            builder.with_config(key, value)
        })
        .with_bucket_name(bucket)
        .with_http_connector(Connector)
        .with_retry(retries());
    if !requires_tls(&builder) {
        return Err(NO_TLS);
    }
    let bucket = builder.build().map_err(|error| {
        tracing::error!(%error, "object bucket cannot be used");
        UNUSABLE
    })?;
    if prefix.is_empty() {
        return Ok(Arc::new(bucket));
    }
    Ok(Arc::new(PrefixStore::new(bucket, ObjectPath::from(prefix))))
}

/// Approximates S3's rules for bucket names; characters with a meaning in URLs are excluded.
fn is_bucket(name: &str) -> bool {
    let ends_well = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    (3..=63).contains(&name.len())
        && ends_well(bytes.first())
        && ends_well(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(byte))
}

fn is_segment(text: &str) -> bool {
    !["", ".", ".."].contains(&text)
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Whether every request uses TLS, or the operator permits others.
fn requires_tls(builder: &AmazonS3Builder) -> bool {
    let set = |key| builder.get_config_value(&key);
    let allowed = set(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    let endpoint = set(AmazonS3ConfigKey::S3Endpoint).or_else(|| set(AmazonS3ConfigKey::Endpoint));
    is_true(allowed) || endpoint.is_none_or(|url| url.starts_with("https://"))
}

fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(1),
            base: 2.0,
        },
        max_retries: MAX_RETRIES,
        retry_timeout: RETRY_TIMEOUT,
    }
}
