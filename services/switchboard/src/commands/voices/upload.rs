//! Upload of a voice sample.

use chrono::{DateTime, Utc};
use serde_json::value::RawValue;

use super::{Upload, wait_and_print};
use crate::{exit::Failure, files, query::percent_encode, resources::table::VOICES};

/// Maximum size of a sample accepted by the API.
const MAX_SAMPLE_BYTES: u64 = 10 * 1024 * 1024;

pub(super) async fn run(upload: &Upload) -> Result<(), Failure> {
    let path = format!("{}?{}", VOICES.path, query(upload)?);
    let sample = files::read_input(&upload.file, MAX_SAMPLE_BYTES)?;
    let creation = upload.create.begin()?.with_progress(sample.len());
    let voice: Box<RawValue> = creation.create(&path, sample).await?;
    if upload.no_wait {
        return upload.create.format.print(&voice);
    }
    wait_and_print(&creation.api, voice, upload.create.format).await
}

fn query(upload: &Upload) -> Result<String, Failure> {
    let name = match &upload.name {
        Some(given) => given.clone(),
        None if files::is_stream(&upload.file) => {
            return Err(Failure::usage("stdin has no file name: use --name"));
        }
        None => {
            let name = upload.file.file_stem().unwrap_or_default();
            name.to_string_lossy().chars().take(100).collect()
        }
    };
    let time = |time: Option<DateTime<Utc>>| time.map(|time| time.to_rfc3339());
    let list = |list: &[String]| (!list.is_empty()).then(|| list.join(","));
    let parameters = [
        ("name", Some(name)),
        ("provider", Some(upload.provider.clone())),
        ("languages", list(&upload.language)),
        ("labels", list(&upload.label)),
        ("consent_by", Some(upload.consent_by.clone())),
        ("consent_statement", Some(upload.consent.clone())),
        ("consent_agreed_at", time(upload.consent_agreed_at)),
        ("consent_expires_at", time(upload.consent_expires_at)),
    ];
    let parameters = parameters.into_iter().filter_map(|(name, value)| {
        let value = percent_encode(&value?);
        Some(format!("{name}={value}"))
    });
    Ok(parameters.collect::<Vec<_>>().join("&"))
}
