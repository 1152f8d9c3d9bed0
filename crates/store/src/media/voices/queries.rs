//! Queries on voices.
//! Invariant: a voice whose consent has ended is returned as expired, even before a worker updated
//! its row.

use chrono::{DateTime, Utc};
use switchboard_protocol::id::VoiceId;
use uuid::Uuid;

use super::{StoredVoice, VoiceConsent, VoiceFault, VoiceSample, VoiceSettings, VoiceState};
use crate::{Owner, Store, StoreError, database::with_timeout};

/// Restricts a list of voices.
#[derive(Debug, Clone, Default)]
pub struct VoiceFilter {
    /// Voices in this state.
    pub state: Option<VoiceState>,
    /// Voices with this language tag, or with one that begins with it; case-insensitive.
    pub language: Option<String>,
    /// Voices of this provider.
    pub provider: Option<String>,
}

pub(super) struct Row {
    id: Uuid,
    org_id: Option<Uuid>,
    name: String,
    languages: Vec<String>,
    labels: Vec<String>,
    consent_by: String,
    consent_statement: String,
    consent_agreed_at: DateTime<Utc>,
    consent_expires_at: Option<DateTime<Utc>>,
    mime_type: String,
    duration_ms: i32,
    sample_rate_hz: i32,
    channels: i32,
    size_bytes: i64,
    sha256: Vec<u8>,
    provider: String,
    made_as: Option<String>,
    state: String,
    error_kind: Option<String>,
    error_detail: Option<String>,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for StoredVoice {
    fn from(row: Row) -> Self {
        let state = VoiceState::from_column(&row.state);
        let ended = row.consent_expires_at.is_some_and(|end| end <= Utc::now());
        let fault = match row.error_kind {
            _ if ended && state == VoiceState::Expired => Some(VoiceFault::consent_ended()),
            Some(kind) => Some(VoiceFault::new(&kind, row.error_detail.unwrap_or_default())),
            None => None,
        };
        Self {
            id: VoiceId::from_uuid(row.id),
            owner: Owner::from_column(row.org_id),
            settings: VoiceSettings {
                name: row.name,
                languages: row.languages,
                labels: row.labels,
            },
            consent: VoiceConsent {
                by: row.consent_by,
                statement: row.consent_statement,
                agreed_at: row.consent_agreed_at,
                expires_at: row.consent_expires_at,
            },
            provider: row.provider,
            made_as: row.made_as,
            sample: VoiceSample {
                mime_type: row.mime_type,
                duration_ms: row.duration_ms,
                sample_rate_hz: row.sample_rate_hz,
                channels: row.channels,
            },
            size_bytes: row.size_bytes,
            sha256: row.sha256,
            state,
            fault,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

impl Store {
    /// One voice that the reader can read.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn voice(
        &self,
        reader: Owner,
        id: VoiceId,
    ) -> Result<Option<StoredVoice>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            r#"SELECT id, org_id, name, languages, labels, consent_by, consent_statement, consent_agreed_at,
                      consent_expires_at, mime_type, duration_ms, sample_rate_hz, channels, size_bytes, sha256, provider,
                      made_as, CASE WHEN consent_expires_at <= now() THEN 'expired' ELSE state END AS "state!",
                      error_kind, error_detail, version, created_at, updated_at
               FROM voices WHERE id = $1 AND (org_id = $2 OR org_id IS NULL)"#,
            id.uuid(),
            reader.column()
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(reader).await?)
                .await
        })
        .await?;
        Ok(row.map(StoredVoice::from))
    }

    /// Voices that the reader can read, in the order of their upload, strictly after `after`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn voices(
        &self,
        reader: Owner,
        filter: &VoiceFilter,
        after: Option<VoiceId>,
        limit: u32,
    ) -> Result<Vec<StoredVoice>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            r#"SELECT id AS "id!", org_id, name AS "name!", languages AS "languages!", labels AS "labels!",
                      consent_by AS "consent_by!", consent_statement AS "consent_statement!",
                      consent_agreed_at AS "consent_agreed_at!", consent_expires_at, mime_type AS "mime_type!",
                      duration_ms AS "duration_ms!", sample_rate_hz AS "sample_rate_hz!", channels AS "channels!",
                      size_bytes AS "size_bytes!", sha256 AS "sha256!", provider AS "provider!", made_as,
                      CASE WHEN consent_expires_at <= now() THEN 'expired' ELSE state END AS "state!",
                      error_kind, error_detail, version AS "version!", created_at AS "created_at!",
                      updated_at AS "updated_at!"
               FROM (SELECT * FROM voices WHERE org_id = $1 AND id > $2
                     UNION ALL SELECT * FROM voices WHERE org_id IS NULL AND id > $2) read
               WHERE ($3::text IS NULL OR CASE WHEN consent_expires_at <= now() THEN 'expired' ELSE state END = $3)
                     AND ($4::text IS NULL OR EXISTS (
                         SELECT FROM unnest(languages) language WHERE starts_with(lower(language) || '-', lower($4) || '-')))
                     AND ($5::text IS NULL OR provider = $5)
               ORDER BY id LIMIT $6"#,
            reader.column(),
            after.map_or(Uuid::nil(), VoiceId::uuid),
            filter.state.map(VoiceState::as_str),
            filter.language,
            filter.provider,
            i64::from(limit)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(reader).await?).await })
                .await?;
        Ok(rows.into_iter().map(StoredVoice::from).collect())
    }
}
