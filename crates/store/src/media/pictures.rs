//! Pictures: metadata in the database, bytes in the object store.
//! Invariant: a row's bytes exist, and no transaction waits for the object store.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use switchboard_catalog::UriTemplate;
use switchboard_protocol::id::PictureId;
use uuid::Uuid;

use crate::{
    Owner, PendingUpload, Store, StoreError, TenantTransaction,
    database::with_timeout,
    media::objects::{ObjectError, ObjectKey, hex},
};

/// A picture to insert. Its properties were read from the bytes.
#[derive(Debug, Clone)]
pub struct NewPicture {
    /// The id of the picture.
    pub id: PictureId,
    /// The display name; 1 to 100 characters.
    pub name: String,
    /// The resource URI, without expressions; derived from the id if not given.
    pub uri: Option<UriTemplate>,
    /// The media type.
    pub mime_type: &'static str,
    /// The width in pixels.
    pub width: i32,
    /// The height in pixels.
    pub height: i32,
    /// The bytes.
    pub bytes: Bytes,
}

/// A stored picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// The id of the picture.
    pub id: PictureId,
    /// Its owner.
    pub owner: Owner,
    /// The display name.
    pub name: String,
    /// The resource URI.
    pub uri: String,
    /// The media type.
    pub mime_type: String,
    /// The width in pixels.
    pub width: i32,
    /// The height in pixels.
    pub height: i32,
    /// The size in bytes.
    pub size_bytes: i64,
    /// The SHA-256 of the bytes.
    pub sha256: Vec<u8>,
    /// The name of its object.
    object: String,
    /// Time of the upload.
    pub created_at: DateTime<Utc>,
}

impl Picture {
    /// The object key of its bytes.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey::picture(self.owner, &self.object)
    }

    /// The hash as lower-case hexadecimal digits.
    #[must_use]
    pub fn sha256_hex(&self) -> String {
        hex(&self.sha256)
    }
}

/// The result of inserting a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PictureWrite {
    /// It was inserted.
    Written(Box<Picture>),
    /// The owner has another resource with this URI.
    UriTaken,
}

/// The result of deleting a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PictureRemoval {
    /// It was deleted.
    Removed,
    /// The owner has no picture with this id.
    Unknown,
    /// It was not deleted: a template or an NPC refers to it.
    InUse,
}

/// The reason why a picture was not stored or deleted.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// No object store is configured.
    #[error("there is no object store; set --objects or SWITCHBOARD_OBJECTS")]
    NoObjects,
    /// The object store failed.
    #[error("the object store failed while processing a picture")]
    Objects(#[from] ObjectError),
    /// The database failed.
    #[error("the database failed while processing a picture")]
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
    object: String,
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
            object: row.object,
            created_at: row.created_at,
        }
    }
}

impl TenantTransaction {
    /// Inserts the row of a picture whose bytes are uploaded. It becomes visible with the commit;
    /// commit only if the result is [`PictureWrite::Written`].
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn add_picture(
        &mut self,
        owner: Owner,
        picture: &PendingUpload<NewPicture>,
    ) -> Result<PictureWrite, StoreError> {
        let stored = with_timeout(insert(self.connection(), owner, picture)).await?;
        Ok(stored.map_or(PictureWrite::UriTaken, |stored| {
            PictureWrite::Written(Box::new(stored))
        }))
    }
}

impl Store {
    /// Uploads the bytes of a picture, before the transaction that inserts its row.
    ///
    /// # Errors
    /// [`PictureError`] if there is no object store, or it fails.
    pub async fn upload_picture(
        &self,
        owner: Owner,
        picture: NewPicture,
    ) -> Result<PendingUpload<NewPicture>, PictureError> {
        let objects = self.objects().ok_or(PictureError::NoObjects)?;
        let key = ObjectKey::new_picture(owner, picture.id);
        PendingUpload::put(objects, key, picture.bytes.clone(), picture).await
    }

    /// Adds a picture: first its bytes, then its row.
    ///
    /// # Errors
    /// [`PictureError`] if there is no object store, or if one of the two stores fails.
    pub async fn add_picture(
        &self,
        owner: Owner,
        picture: NewPicture,
    ) -> Result<PictureWrite, PictureError> {
        let upload = self.upload_picture(owner, picture).await?;
        let added = async {
            let mut creation = self.begin(owner).await?;
            let write = creation.add_picture(owner, &upload).await?;
            Ok::<_, StoreError>(
                matches!(write, PictureWrite::Written(_)).then_some((creation, write)),
            )
        };
        let Some((creation, write)) = upload.discard_on_error(added.await).await? else {
            upload.discard().await;
            return Ok(PictureWrite::UriTaken);
        };
        creation.commit().await?;
        Ok(write)
    }

    /// One picture that the reader can read.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn picture(
        &self,
        reader: Owner,
        id: PictureId,
    ) -> Result<Option<Picture>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            r#"SELECT p.id, p.org_id, p.name, r.uri, p.mime_type, p.width, p.height, p.size_bytes, p.sha256, p.object AS "object!", p.created_at
             FROM pictures p JOIN resources r ON r.picture_id = p.id
             WHERE p.id = $1 AND (p.org_id = $2 OR p.org_id IS NULL)"#,
            id.uuid(),
            reader.column()
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(reader).await?)
                .await
        })
        .await?;
        Ok(row.map(Picture::from))
    }

    /// Pictures that the reader can read, in the order of their upload, strictly after `after`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
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
                      p.height AS "height!", p.size_bytes AS "size_bytes!", p.sha256 AS "sha256!", p.object AS "object!",
                      p.created_at AS "created_at!"
               FROM (SELECT * FROM own UNION ALL SELECT * FROM public) p JOIN resources r ON r.picture_id = p.id
               ORDER BY p.id LIMIT $3"#,
            reader.column(),
            after.map_or(Uuid::nil(), PictureId::uuid),
            i64::from(limit)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(reader).await?).await })
                .await?;
        Ok(rows.into_iter().map(Picture::from).collect())
    }

    /// Deletes a picture that nothing refers to: first its row, then its bytes.
    ///
    /// # Errors
    /// [`PictureError`] if there is no object store or the database fails. Bytes that could not be
    /// deleted are logged, and later deleted as orphans.
    pub async fn delete_picture(
        &self,
        owner: Owner,
        id: PictureId,
    ) -> Result<PictureRemoval, PictureError> {
        let objects = self.objects().ok_or(PictureError::NoObjects)?;
        let query = sqlx::query!(
            r#"DELETE FROM pictures WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2 RETURNING own_object, object AS "object!""#,
            id.uuid(),
            owner.column()
        );
        let removed = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(owner).await?)
                .await
        });
        let deleted = match removed.await {
            Ok(Some(deleted)) => deleted,
            Ok(None) => return Ok(PictureRemoval::Unknown),
            Err(StoreError::Refused(sqlx::Error::Database(error)))
                if matches!(
                    error.constraint(),
                    Some("template_pictures_picture_exists" | "npc_pictures_picture_exists")
                ) =>
            {
                return Ok(PictureRemoval::InUse);
            }
            Err(error) => return Err(error.into()),
        };
        // An object that several pictures may share is deleted as an orphan after the last of them.
        if deleted.own_object {
            let key = ObjectKey::picture(owner, &deleted.object);
            if let Err(error) = objects.delete(&key).await {
                tracing::warn!(error = error.report(), picture.id = %id, "could not delete the bytes of a deleted picture; they are left to the orphan collection");
            }
        }
        Ok(PictureRemoval::Removed)
    }
}

/// `None` if the URI is taken.
async fn insert(
    connection: &mut PgConnection,
    owner: Owner,
    upload: &PendingUpload<NewPicture>,
) -> Result<Option<Picture>, sqlx::Error> {
    let picture = &upload.row;
    let uri = match &picture.uri {
        Some(uri) => uri.as_str().to_owned(),
        None => format!("switchboard://pictures/{}", picture.id),
    };
    let size_bytes = i64::try_from(picture.bytes.len()).unwrap_or(i64::MAX);
    let inserted = sqlx::query!(
        r#"INSERT INTO pictures (id, org_id, name, mime_type, width, height, size_bytes, sha256, own_object)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, true) RETURNING created_at, object AS "object!""#,
        picture.id.uuid(),
        owner.column(),
        picture.name,
        picture.mime_type,
        picture.width,
        picture.height,
        size_bytes,
        upload.sha256
    )
    .fetch_one(&mut *connection)
    .await?;
    // An expired memory does not block its URI.
    sqlx::query!(
        "DELETE FROM memories m USING resources r
         WHERE r.memory_id = m.id AND r.org_id IS NOT DISTINCT FROM $1 AND r.uri = $2 AND m.expires_at <= now()",
        owner.column(),
        uri
    )
    .execute(&mut *connection)
    .await?;
    let resource = sqlx::query!(
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
        sha256: upload.sha256.clone(),
        object: inserted.object,
        created_at: inserted.created_at,
    };
    Ok((resource.rows_affected() > 0).then_some(stored))
}
