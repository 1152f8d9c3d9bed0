//! One sample on its way, and what is said of it.
//! Never: more of a file in memory than a sample may have.

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use http::Method;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

use super::{Upload, settled};
use crate::{
    exit::{self, Failure},
    query::encoded,
};

/// The largest sample that the API takes, in bytes.
const LARGEST_BYTES: u64 = 10 * 1024 * 1024;

pub(super) async fn run(upload: &Upload) -> Result<(), Failure> {
    let api = upload.api.connect()?;
    let sample = read(upload).await?;
    let path = format!("/v1/voices?{}", query(upload));
    let sent = api.send::<Value>(Method::POST, &path, sample).await;
    let voice = sent.map_err(Failure::general)?;
    if upload.no_wait {
        return exit::print(&voice.to_string());
    }
    settled(&api, voice).await
}

async fn read(upload: &Upload) -> Result<Vec<u8>, Failure> {
    let named = || format!("{} cannot be read", upload.file.display());
    let file = tokio::fs::File::open(&upload.file)
        .await
        .with_context(named)?;
    let mut sample = Vec::new();
    let most = LARGEST_BYTES.saturating_add(1);
    file.take(most)
        .read_to_end(&mut sample)
        .await
        .with_context(named)?;
    if u64::try_from(sample.len()).unwrap_or(u64::MAX) > LARGEST_BYTES {
        return Err(Failure::usage(format!(
            "{} has more than {LARGEST_BYTES} bytes; a sample has that many at most",
            upload.file.display()
        )));
    }
    Ok(sample)
}

fn query(upload: &Upload) -> String {
    let name = upload.name.clone().unwrap_or_else(|| {
        let name = upload.file.file_stem().unwrap_or_default();
        name.to_string_lossy().chars().take(100).collect()
    });
    let time = |time: Option<DateTime<Utc>>| time.map(|time| time.to_rfc3339());
    let list = |list: &[String]| (!list.is_empty()).then(|| list.join(","));
    let said = [
        ("name", Some(name)),
        ("provider", Some(upload.provider.clone())),
        ("languages", list(&upload.language)),
        ("labels", list(&upload.label)),
        ("consent_by", Some(upload.consent_by.clone())),
        ("consent_statement", Some(upload.consent.clone())),
        ("consent_agreed_at", time(upload.consent_agreed_at)),
        ("consent_expires_at", time(upload.consent_expires_at)),
    ];
    let said = said.into_iter().filter_map(|(name, value)| {
        let value = encoded(&value?);
        Some(format!("{name}={value}"))
    });
    said.collect::<Vec<_>>().join("&")
}
