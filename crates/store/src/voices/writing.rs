//! How voices are added, changed, made again and removed.
//! Never: a version written over one that its writer has not seen, or a provider's voice that nobody lets go of.

use sqlx::PgConnection;
use switchboard_protocol::id::VoiceId;

use super::{
    NewVoice, StoredVoice, VoiceChange, VoiceConsent, VoiceError, VoiceRemake, VoiceRemoval,
    VoiceSettings, VoiceState,
    removals::{let_go, making_key},
};
use crate::{
    Creation, Placed, Store, StoreError, database::bounded, objects::ObjectKey, owner::Owner,
};

impl Creation {
    /// Adds the row of a voice whose sample is put; it is not seen before the commit.
    ///
    /// # Errors
    /// As every query.
    pub async fn add_voice(
        &mut self,
        owner: Owner,
        voice: &Placed<NewVoice>,
    ) -> Result<StoredVoice, StoreError> {
        bounded(insert(self.connection(), owner, voice)).await
    }
}

impl Store {
    /// Puts the sample of a voice, before the transaction begins in which its row is made.
    ///
    /// # Errors
    /// [`VoiceError`] when there is no object store, or it fails.
    pub async fn place_voice(
        &self,
        owner: Owner,
        voice: NewVoice,
    ) -> Result<Placed<NewVoice>, VoiceError> {
        let objects = self.objects().ok_or(VoiceError::NoObjects)?;
        let key = ObjectKey::voice(owner, voice.id);
        Placed::put(objects, key, voice.bytes.clone(), voice).await
    }

    /// Replaces what may be changed of a voice that its owner has in this version.
    ///
    /// # Errors
    /// As every query.
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
            bounded(async { query.execute(&mut *self.within(owner).await?).await }).await?;
        if changed.rows_affected() == 0 {
            return Ok(VoiceChange::Stale);
        }
        let voice = self.voice(owner, id).await?;
        Ok(voice.map_or(VoiceChange::Stale, |voice| {
            VoiceChange::Written(Box::new(voice))
        }))
    }

    /// Has a voice made again from its sample; one that is being made goes on.
    ///
    /// # Errors
    /// As every query.
    pub async fn remake_voice(&self, owner: Owner, id: VoiceId) -> Result<VoiceRemake, StoreError> {
        let refused = bounded(async {
            let mut transaction = self.begin_within(owner).await?;
            let held = sqlx::query!(
                r#"SELECT provider, made_as, coalesce(consent_expires_at <= now(), false) AS "ended!",
                          state IN ('uploaded', 'training') AS "under_way!"
                   FROM voices WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2 FOR UPDATE"#,
                id.uuid(),
                owner.column()
            )
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(held) = held else {
                return Ok(Some(VoiceRemake::Unknown));
            };
            if held.ended {
                return Ok(Some(VoiceRemake::NoConsent));
            }
            if held.under_way {
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
            let_go(
                &mut transaction,
                &held.provider,
                held.made_as.as_deref(),
                None,
            )
            .await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(None)
        });
        if let Some(refused) = refused.await? {
            return Ok(refused);
        }
        let voice = self.voice(owner, id).await?;
        Ok(voice.map_or(VoiceRemake::Unknown, |voice| {
            VoiceRemake::Begun(Box::new(voice))
        }))
    }

    /// Removes a voice that nobody speaks with: first its row, then its sample. What its provider has of it is let go
    /// of in the background.
    ///
    /// # Errors
    /// [`VoiceError`] when there is no object store or the database fails. A sample that could not be removed is left
    /// behind and logged.
    pub async fn delete_voice(
        &self,
        owner: Owner,
        id: VoiceId,
    ) -> Result<VoiceRemoval, VoiceError> {
        let objects = self.objects().ok_or(VoiceError::NoObjects)?;
        let removed = bounded(async {
            let mut transaction = self.begin_within(owner).await?;
            let gone = sqlx::query!(
                r#"DELETE FROM voices WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2
                   RETURNING provider, made_as, making, state = 'training' AS "under_way!""#,
                id.uuid(),
                owner.column()
            )
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(gone) = gone else {
                return Ok(false);
            };
            let key = gone.under_way.then(|| making_key(id, gone.making));
            let_go(
                &mut transaction,
                &gone.provider,
                gone.made_as.as_deref(),
                key.as_deref(),
            )
            .await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(true)
        });
        match removed.await {
            Ok(false) => return Ok(VoiceRemoval::Unknown),
            Ok(true) => {}
            Err(StoreError::Refused(sqlx::Error::Database(answer)))
                if answer
                    .constraint()
                    .is_some_and(|name| name.ends_with("_voices_voice_exists")) =>
            {
                return Ok(VoiceRemoval::InUse);
            }
            Err(error) => return Err(error.into()),
        }
        let key = ObjectKey::voice(owner, id);
        if let Err(error) = objects.delete(&key).await {
            tracing::warn!(%error, object = %key, "the sample of a removed voice was left behind");
        }
        Ok(VoiceRemoval::Removed)
    }
}

async fn insert(
    connection: &mut PgConnection,
    owner: Owner,
    placed: &Placed<NewVoice>,
) -> Result<StoredVoice, sqlx::Error> {
    let voice = &placed.what;
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
        placed.sha256,
        voice.provider
    )
    .fetch_one(connection)
    .await?;
    Ok(StoredVoice {
        id: voice.id,
        owner,
        settings: settings.clone(),
        // As it will be read: the database counts microseconds.
        consent: VoiceConsent {
            agreed_at: row.consent_agreed_at,
            expires_at: row.consent_expires_at,
            ..consent.clone()
        },
        provider: voice.provider.clone(),
        made_as: None,
        sample: sample.clone(),
        size_bytes,
        sha256: placed.sha256.clone(),
        state: VoiceState::Uploaded,
        fault: None,
        version: row.version,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}
