//! Inserting, changing, training again and deleting voices.
//! Invariant: a write names the version that its author has read.

use sqlx::PgConnection;
use switchboard_protocol::id::VoiceId;

use super::{
    NewVoice, StoredVoice, VoiceChange, VoiceConsent, VoiceError, VoiceRemake, VoiceRemoval,
    VoiceSettings, VoiceState,
    deletions::{schedule_deletion, training_key},
};
use crate::{
    Owner, PendingUpload, Store, StoreError, TenantTransaction, database::with_timeout,
    media::objects::ObjectKey,
};

impl TenantTransaction {
    /// Inserts the row of a voice whose sample is uploaded. It becomes visible with the commit.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn add_voice(
        &mut self,
        owner: Owner,
        voice: &PendingUpload<NewVoice>,
    ) -> Result<StoredVoice, StoreError> {
        with_timeout(insert(self.connection(), owner, voice)).await
    }
}

impl Store {
    /// Uploads the sample of a voice, before the transaction that inserts its row.
    ///
    /// # Errors
    /// [`VoiceError`] if there is no object store, or it fails.
    pub async fn upload_voice(
        &self,
        owner: Owner,
        voice: NewVoice,
    ) -> Result<PendingUpload<NewVoice>, VoiceError> {
        let objects = self.objects().ok_or(VoiceError::NoObjects)?;
        let key = ObjectKey::voice(owner, voice.id);
        PendingUpload::put(objects, key, voice.bytes.clone(), voice).await
    }

    /// Replaces the settings of a voice with this version.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn change_voice(
        &self,
        owner: Owner,
        id: VoiceId,
        version: i64,
        settings: &VoiceSettings,
    ) -> Result<VoiceChange, StoreError> {
        let query = sqlx::query!(
            "UPDATE voices SET name = $4, languages = $5, labels = $6, version = version + 1, updated_at = now()
             WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2 AND version = $3",
            id.uuid(),
            owner.column(),
            version,
            settings.name,
            &settings.languages,
            &settings.labels
        );
        let changed =
            with_timeout(async { query.execute(&mut *self.tenant_conn(owner).await?).await })
                .await?;
        if changed.rows_affected() == 0 {
            return Ok(VoiceChange::Stale);
        }
        let voice = self.voice(owner, id).await?;
        Ok(voice.map_or(VoiceChange::Stale, |voice| {
            VoiceChange::Written(Box::new(voice))
        }))
    }

    /// Trains a voice again from its sample; a training in progress continues.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn remake_voice(&self, owner: Owner, id: VoiceId) -> Result<VoiceRemake, StoreError> {
        let rejection = with_timeout(async {
            let mut transaction = self.begin_tenant(owner).await?;
            let locked = sqlx::query!(
                r#"SELECT provider, made_as, coalesce(consent_expires_at <= now(), false) AS "ended!",
                          state IN ('uploaded', 'training') AS "under_way!"
                   FROM voices WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2 FOR UPDATE"#,
                id.uuid(),
                owner.column()
            )
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(locked) = locked else {
                return Ok(Some(VoiceRemake::Unknown));
            };
            if locked.ended {
                return Ok(Some(VoiceRemake::NoConsent));
            }
            if locked.under_way {
                return Ok(None);
            }
            sqlx::query!(
                "UPDATE voices SET state = 'uploaded', error_kind = NULL, error_detail = NULL, made_as = NULL,
                                   making = making + 1, worker = NULL, due_at = now(), attempts = 0, failures = 0,
                                   updated_at = now()
                 WHERE id = $1",
                id.uuid()
            )
            .execute(&mut *transaction)
            .await?;
            schedule_deletion(
                &mut transaction,
                &locked.provider,
                locked.made_as.as_deref(),
                None,
            )
            .await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(None)
        });
        if let Some(rejection) = rejection.await? {
            return Ok(rejection);
        }
        let voice = self.voice(owner, id).await?;
        Ok(voice.map_or(VoiceRemake::Unknown, |voice| {
            VoiceRemake::Started(Box::new(voice))
        }))
    }

    /// Deletes an unused voice: first its row, then its sample. Its provider's copy is deleted in
    /// the background.
    ///
    /// # Errors
    /// [`VoiceError`] if there is no object store or the database fails. A sample that could not be
    /// deleted is logged, and later deleted as an orphan.
    pub async fn delete_voice(
        &self,
        owner: Owner,
        id: VoiceId,
    ) -> Result<VoiceRemoval, VoiceError> {
        let objects = self.objects().ok_or(VoiceError::NoObjects)?;
        let removed = with_timeout(async {
            let mut transaction = self.begin_tenant(owner).await?;
            let deleted = sqlx::query!(
                r#"DELETE FROM voices WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2
                   RETURNING provider, made_as, making, state = 'training' AS "under_way!""#,
                id.uuid(),
                owner.column()
            )
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(deleted) = deleted else {
                return Ok(false);
            };
            let key = deleted.under_way.then(|| training_key(id, deleted.making));
            schedule_deletion(
                &mut transaction,
                &deleted.provider,
                deleted.made_as.as_deref(),
                key.as_deref(),
            )
            .await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(true)
        });
        match removed.await {
            Ok(false) => return Ok(VoiceRemoval::Unknown),
            Ok(true) => {}
            Err(StoreError::Refused(sqlx::Error::Database(error)))
                if error
                    .constraint()
                    .is_some_and(|name| name.ends_with("_voices_voice_exists")) =>
            {
                return Ok(VoiceRemoval::InUse);
            }
            Err(error) => return Err(error.into()),
        }
        let key = ObjectKey::voice(owner, id);
        if let Err(error) = objects.delete(&key).await {
            tracing::warn!(%error, object = %key, "could not delete the sample of a deleted voice; it is left to the orphan collection");
        }
        Ok(VoiceRemoval::Removed)
    }
}

async fn insert(
    connection: &mut PgConnection,
    owner: Owner,
    upload: &PendingUpload<NewVoice>,
) -> Result<StoredVoice, sqlx::Error> {
    let voice = &upload.row;
    let (settings, consent, sample) = (&voice.settings, &voice.consent, &voice.sample);
    let size_bytes = i64::try_from(voice.bytes.len()).unwrap_or(i64::MAX);
    let row = sqlx::query!(
        "INSERT INTO voices (id, org_id, name, languages, labels, consent_by, consent_statement, consent_agreed_at,
                             consent_expires_at, mime_type, duration_ms, sample_rate_hz, channels, size_bytes, sha256,
                             provider)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
         RETURNING consent_agreed_at, consent_expires_at, version, created_at, updated_at",
        voice.id.uuid(),
        owner.column(),
        settings.name,
        &settings.languages,
        &settings.labels,
        consent.by,
        consent.statement,
        consent.agreed_at,
        consent.expires_at,
        sample.mime_type,
        sample.duration_ms,
        sample.sample_rate_hz,
        sample.channels,
        size_bytes,
        upload.sha256,
        voice.provider
    )
    .fetch_one(connection)
    .await?;
    Ok(StoredVoice {
        id: voice.id,
        owner,
        settings: settings.clone(),
        // As it will be read: the database stores microseconds.
        consent: VoiceConsent {
            agreed_at: row.consent_agreed_at,
            expires_at: row.consent_expires_at,
            ..consent.clone()
        },
        provider: voice.provider.clone(),
        made_as: None,
        sample: sample.clone(),
        size_bytes,
        sha256: upload.sha256.clone(),
        state: VoiceState::Uploaded,
        fault: None,
        version: row.version,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}
