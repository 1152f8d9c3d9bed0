//! Pictures: what is known of them in the database, their bytes in the object store.
//! Never: a row whose bytes are missing, or a transaction that waits for the object store.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use switchboard_protocol::id::PictureId;
use uuid::Uuid;

use crate::{
    Creation, Placed, Store, StoreError,
    database::bounded,
    objects::{ObjectError, ObjectKey, hex},
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
    /// Which object they are.
    object: String,
    /// When it was sent.
    pub created_at: DateTime<Utc>,
}

impl Picture {
    /// Where its bytes are in the object store.
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

impl Creation {
    /// Adds the row of a picture whose bytes are put; it is not seen before the commit. What became of it says whether
    /// there is something to commit.
    ///
    /// # Errors
    /// As every query.
    pub async fn add_picture(
        &mut self,
        owner: Owner,
        picture: &Placed<NewPicture>,
    ) -> Result<PictureWrite, StoreError> {
        let stored = bounded(insert(self.connection(), owner, picture)).await?;
        Ok(stored.map_or(PictureWrite::UriTaken, |stored| {
            PictureWrite::Written(Box::new(stored))
        }))
    }
}

impl Store {
    /// Puts the bytes of a picture, before the transaction begins in which its row is made.
    ///
    /// # Errors
    /// [`PictureError`] when there is no object store, or it fails.
    pub async fn place_picture(
        &self,
        owner: Owner,
        picture: NewPicture,
    ) -> Result<Placed<NewPicture>, PictureError> {
        let objects = self.objects().ok_or(PictureError::NoObjects)?;
        let key = ObjectKey::new_picture(owner, picture.id);
        Placed::put(objects, key, picture.bytes.clone(), picture).await
    }

    /// Adds a picture: first its bytes, then its row.
    ///
    /// # Errors
    /// [`PictureError`] when there is no object store, or one of the two stores fails.
    pub async fn add_picture(
        &self,
        owner: Owner,
        picture: NewPicture,
    ) -> Result<PictureWrite, PictureError> {
        let placed = self.place_picture(owner, picture).await?;
        let added = async {
            let mut creation = self.begin(owner).await?;
            let write = creation.add_picture(owner, &placed).await?;
            Ok::<_, StoreError>(
                matches!(write, PictureWrite::Written(_)).then_some((creation, write)),
            )
        };
        let Some((creation, write)) = placed.kept_if(added.await).await? else {
            placed.take_away().await;
            return Ok(PictureWrite::UriTaken);
        };
        creation.commit().await?;
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
            r#"SELECT p.id, p.org_id, p.name, r.uri, p.mime_type, p.width, p.height, p.size_bytes, p.sha256, p.object AS "object!", p.created_at
             FROM pictures p JOIN resources r ON r.picture_id = p.id
             WHERE p.id = $1 AND (p.org_id = $2 OR p.org_id IS NULL)"#,
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
                      p.height AS "height!", p.size_bytes AS "size_bytes!", p.sha256 AS "sha256!", p.object AS "object!",
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

    /// Removes a picture that no template and no NPC shows: first its row, then its bytes.
    ///
    /// # Errors
    /// [`PictureError`] when there is no object store or the database fails. Bytes that could not be removed are
    /// logged, and are left over until they are looked for.
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
        let removed =
            bounded(async { query.fetch_optional(&mut *self.within(owner).await?).await });
        let gone = match removed.await {
            Ok(Some(gone)) => gone,
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
        // One that several pictures may share is left over when the last of them is gone.
        if gone.own_object {
            let key = ObjectKey::picture(owner, &gone.object);
            if let Err(error) = objects.delete(&key).await {
                tracing::warn!(error = error.report(), picture.id = %id, "the bytes of a removed picture were left behind");
            }
        }
        Ok(PictureRemoval::Removed)
    }
}

/// `None` when the URI is taken.
async fn insert(
    connection: &mut PgConnection,
    owner: Owner,
    placed: &Placed<NewPicture>,
) -> Result<Option<Picture>, sqlx::Error> {
    let picture = &placed.what;
    let uri = match &picture.uri {
        Some(uri) => uri.as_str().to_owned(),
        None => format!("switchboard://pictures/{}", picture.id),
    };
    let size_bytes = i64::try_from(picture.bytes.len()).unwrap_or(i64::MAX);
    let made = sqlx::query!(
        r#"INSERT INTO pictures (id, org_id, name, mime_type, width, height, size_bytes, sha256, own_object)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, true) RETURNING created_at, object AS "object!""#,
        picture.id.uuid(),
        owner.column(),
        picture.name,
        picture.mime_type,
        picture.width,
        picture.height,
        size_bytes,
        placed.sha256
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
        sha256: placed.sha256.clone(),
        object: made.object,
        created_at: made.created_at,
    };
    Ok((published.rows_affected() > 0).then_some(stored))
}
