//! Pictures: what is known of them in the database, their bytes in the object store.
//! Never: a row whose bytes are missing; bytes without a row are only waste.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use switchboard_protocol::id::PictureId;
use uuid::Uuid;

use crate::{
    Creation, Store, StoreError,
    database::bounded,
    objects::{ObjectError, ObjectKey, Objects, hex},
    owner::Owner,
    uri_template::UriTemplate,
};

/// A picture about to be stored; what it says of the bytes has been read from them.
#[derive(Debug, Clone)]
pub struct NewPicture {
    /// Its id.
    pub id: PictureId,
    /// What people call it; 1 to 100 characters.
    pub name: String,
    /// Where agents read it, without expressions; by its id when not given.
    pub uri: Option<UriTemplate>,
    /// What the bytes are.
    pub mime_type: &'static str,
    /// In pixels.
    pub width: i32,
    /// In pixels.
    pub height: i32,
    /// The bytes.
    pub bytes: Bytes,
}

/// A picture as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Its id.
    pub id: PictureId,
    /// Whose it is.
    pub owner: Owner,
    /// What people call it.
    pub name: String,
    /// Where agents read it.
    pub uri: String,
    /// What the bytes are.
    pub mime_type: String,
    /// In pixels.
    pub width: i32,
    /// In pixels.
    pub height: i32,
    /// How many bytes.
    pub size_bytes: i64,
    /// Of the bytes.
    pub sha256: Vec<u8>,
    /// When it was sent.
    pub created_at: DateTime<Utc>,
}

impl Picture {
    /// Where its bytes are in the object store.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey::picture(self.owner, &self.sha256)
    }

    /// The hash as lower-case hexadecimal digits.
    #[must_use]
    pub fn sha256_hex(&self) -> String {
        hex(&self.sha256)
    }
}

/// What became of a picture that was to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PictureWrite {
    /// It is stored.
    Written(Box<Picture>),
    /// Something else of the owner is read under this URI.
    UriTaken,
}

/// What became of a picture that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PictureRemoval {
    /// It is gone.
    Removed,
    /// The owner has none with this id.
    Unknown,
    /// It stays: a template or an NPC shows it.
    InUse,
}

/// Why a picture was not stored or removed.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// No object store is set.
    #[error("there is no object store; set --objects or SWITCHBOARD_OBJECTS")]
    NoObjects,
    /// The object store did not do it.
    #[error("the object store did not take the picture")]
    Objects(#[from] ObjectError),
    /// The database did not do it.
    #[error("the database did not take the picture")]
    Store(#[from] StoreError),
}

struct Row {
    id: Uuid,
    org_id: Option<Uuid>,
    name: String,
    uri: String,
    mime_type: String,
    width: i32,
    height: i32,
    size_bytes: i64,
    sha256: Vec<u8>,
    created_at: DateTime<Utc>,
}

impl From<Row> for Picture {
    fn from(row: Row) -> Self {
        Self {
            id: PictureId::from_uuid(row.id),
            owner: Owner::from_column(row.org_id),
            name: row.name,
            uri: row.uri,
            mime_type: row.mime_type,
            width: row.width,
            height: row.height,
            size_bytes: row.size_bytes,
            sha256: row.sha256,
            created_at: row.created_at,
        }
    }
}

impl Creation {
    /// Adds a picture: its bytes, and its row, which is not seen before the commit. What became of it says whether
    /// there is something to commit.
    ///
    /// # Errors
    /// [`PictureError`] when there is no object store, or one of the two stores fails.
    pub async fn add_picture(
        &mut self,
        owner: Owner,
        picture: NewPicture,
    ) -> Result<PictureWrite, PictureError> {
        let objects = self.objects().ok_or(PictureError::NoObjects)?;
        let bytes = picture.bytes.clone();
        // Some milliseconds that no other request should wait for.
        let hashing = tokio::task::spawn_blocking(move || Sha256::digest(&bytes).to_vec());
        let sha256 = hashing.await.map_err(|_| StoreError::Unavailable(None))?;
        let key = ObjectKey::picture(owner, &sha256);
        let written = bounded(async {
            lock(self.connection(), &key).await?;
            let Some(stored) = insert(self.connection(), owner, &picture, sha256).await? else {
                return Ok(Ok(PictureWrite::UriTaken));
            };
            if let Err(error) = objects.put(&key, picture.bytes.clone()).await {
                return Ok(Err(error));
            }
            Ok::<_, sqlx::Error>(Ok(PictureWrite::Written(Box::new(stored))))
        });
        Ok(written.await??)
    }
}

impl Store {
    /// As [`Creation::add_picture`], in a transaction of its own.
    ///
    /// # Errors
    /// As there.
    pub async fn add_picture(
        &self,
        owner: Owner,
        picture: NewPicture,
    ) -> Result<PictureWrite, PictureError> {
        let mut creation = self.begin(owner).await?;
        let write = creation.add_picture(owner, picture).await?;
        if matches!(write, PictureWrite::Written(_)) {
            creation.commit().await?;
        }
        Ok(write)
    }

    /// One picture that this reader sees.
    ///
    /// # Errors
    /// As every query.
    pub async fn picture(
        &self,
        reader: Owner,
        id: PictureId,
    ) -> Result<Option<Picture>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "SELECT p.id, p.org_id, p.name, r.uri, p.mime_type, p.width, p.height, p.size_bytes, p.sha256, p.created_at
             FROM pictures p JOIN resources r ON r.picture_id = p.id
             WHERE p.id = $1 AND (p.org_id = $2 OR p.org_id IS NULL)",
            id.uuid(),
            reader.column()
        );
        let row =
            bounded(async { query.fetch_optional(&mut *self.within(reader).await?).await }).await?;
        Ok(row.map(Picture::from))
    }

    /// Pictures that this reader sees, in the order of their sending, strictly after `after`.
    ///
    /// # Errors
    /// As every query.
    pub async fn pictures(
        &self,
        reader: Owner,
        after: Option<PictureId>,
        limit: u32,
    ) -> Result<Vec<Picture>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            r#"WITH own AS (SELECT * FROM pictures WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT $3),
                    public AS (SELECT * FROM pictures WHERE org_id IS NULL AND id > $2 ORDER BY id LIMIT $3)
               SELECT p.id AS "id!", p.org_id, p.name AS "name!", r.uri, p.mime_type AS "mime_type!", p.width AS "width!",
                      p.height AS "height!", p.size_bytes AS "size_bytes!", p.sha256 AS "sha256!",
                      p.created_at AS "created_at!"
               FROM (SELECT * FROM own UNION ALL SELECT * FROM public) p JOIN resources r ON r.picture_id = p.id
               ORDER BY p.id LIMIT $3"#,
            reader.column(),
            after.map_or(Uuid::nil(), PictureId::uuid),
            i64::from(limit)
        );
        let rows =
            bounded(async { query.fetch_all(&mut *self.within(reader).await?).await }).await?;
        Ok(rows.into_iter().map(Picture::from).collect())
    }

    /// Removes a picture that no template and no NPC shows: first its row, then its bytes, unless another picture of
    /// the owner has the same.
    ///
    /// # Errors
    /// [`PictureError`] when there is no object store or the database fails. Bytes that could not be removed are
    /// left behind and logged.
    pub async fn delete_picture(
        &self,
        owner: Owner,
        id: PictureId,
    ) -> Result<PictureRemoval, PictureError> {
        let objects = self.objects().ok_or(PictureError::NoObjects)?;
        let query = sqlx::query_scalar!(
            "DELETE FROM pictures WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2 RETURNING sha256",
            id.uuid(),
            owner.column()
        );
        let sha256 =
            match bounded(async { query.fetch_optional(&mut *self.within(owner).await?).await })
                .await
            {
                Ok(Some(sha256)) => sha256,
                Ok(None) => return Ok(PictureRemoval::Unknown),
                Err(StoreError::Refused(sqlx::Error::Database(answer)))
                    if matches!(
                        answer.constraint(),
                        Some("template_pictures_picture_exists" | "npc_pictures_picture_exists")
                    ) =>
                {
                    return Ok(PictureRemoval::InUse);
                }
                Err(error) => return Err(error.into()),
            };
        if let Err(error) = self.remove_unused(objects, owner, &sha256).await {
            tracing::warn!(%error, picture.id = %id, "the bytes of a removed picture were left behind");
        }
        Ok(PictureRemoval::Removed)
    }

    /// Removes bytes that no picture has any more. Under the lock that whoever sends the same bytes takes as well:
    /// either they see the bytes gone and write them, or their row is seen here.
    async fn remove_unused(
        &self,
        objects: &Objects,
        owner: Owner,
        sha256: &[u8],
    ) -> Result<(), PictureError> {
        let key = ObjectKey::picture(owner, sha256);
        let removed = bounded(async {
            let mut transaction = self.begin_within(owner).await?;
            lock(&mut transaction, &key).await?;
            let used = sqlx::query_scalar!(
                "SELECT id FROM pictures WHERE sha256 = $1 AND org_id IS NOT DISTINCT FROM $2 LIMIT 1",
                sha256,
                owner.column()
            )
            .fetch_optional(&mut *transaction)
            .await?;
            let removed = match used {
                Some(_) => Ok(()),
                None => objects.delete(&key).await,
            };
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(removed)
        });
        Ok(removed.await??)
    }
}

/// One at a time for the same bytes, until the transaction ends.
async fn lock(connection: &mut PgConnection, key: &ObjectKey) -> Result<(), sqlx::Error> {
    sqlx::query!(
        r#"SELECT pg_advisory_xact_lock(hashtextextended($1, 0)) AS "locked: ()""#,
        key.to_string()
    )
    .fetch_one(connection)
    .await
    .map(drop)
}

/// `None` when the URI is taken.
async fn insert(
    connection: &mut PgConnection,
    owner: Owner,
    picture: &NewPicture,
    sha256: Vec<u8>,
) -> Result<Option<Picture>, sqlx::Error> {
    let uri = match &picture.uri {
        Some(uri) => uri.as_str().to_owned(),
        None => format!("switchboard://pictures/{}", picture.id),
    };
    let size_bytes = i64::try_from(picture.bytes.len()).unwrap_or(i64::MAX);
    let created_at = sqlx::query_scalar!(
        "INSERT INTO pictures (id, org_id, name, mime_type, width, height, size_bytes, sha256)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING created_at",
        picture.id.uuid(),
        owner.column(),
        picture.name,
        picture.mime_type,
        picture.width,
        picture.height,
        size_bytes,
        sha256
    )
    .fetch_one(&mut *connection)
    .await?;
    // A memory that has ended keeps its URI from nobody.
    sqlx::query!(
        "DELETE FROM memories m USING resources r
         WHERE r.memory_id = m.id AND r.org_id IS NOT DISTINCT FROM $1 AND r.uri = $2 AND m.expires_at <= now()",
        owner.column(),
        uri
    )
    .execute(&mut *connection)
    .await?;
    let published = sqlx::query!(
        "INSERT INTO resources (org_id, uri, picture_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        owner.column(),
        uri,
        picture.id.uuid()
    )
    .execute(connection)
    .await?;
    let stored = Picture {
        id: picture.id,
        owner,
        name: picture.name.clone(),
        uri,
        mime_type: picture.mime_type.to_owned(),
        width: picture.width,
        height: picture.height,
        size_bytes,
        sha256,
        created_at,
    };
    Ok((published.rows_affected() > 0).then_some(stored))
}
