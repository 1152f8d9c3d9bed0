//! Collection of orphaned objects: uploads without a commit, and objects that were not deleted with
//! their row.
//! Invariant: an object younger than any transaction is not deleted, because its row may still be
//! inserted.

use std::{collections::HashSet, time::Duration};

use chrono::{TimeDelta, Utc};
use switchboard_protocol::id::{OrgId, RecordingId, SkillsBookId, VoiceId};

use crate::{
    Owner, Store, StoreError,
    database::with_timeout,
    media::objects::{ObjectError, ObjectKey, ObjectKind},
};

/// How many objects one query checks.
const BATCH_SIZE: usize = 500;

/// The reason why orphaned objects were not deleted.
#[derive(Debug, thiserror::Error)]
pub enum OrphanError {
    /// The object store failed.
    #[error("the object store did not list or delete orphaned objects")]
    Objects(#[from] ObjectError),
    /// The database failed.
    #[error("the database did not determine which objects are orphaned")]
    Store(#[from] StoreError),
}

impl Store {
    /// Deletes objects without a row, and those of cancelled books, if they are older than
    /// `older_than`, which must exceed the duration of any transaction. Returns how many. Objects
    /// of other programs remain.
    ///
    /// # Errors
    /// [`OrphanError`] if one of the two stores fails; objects found until then are deleted.
    pub async fn delete_orphaned_objects(
        &self,
        older_than: Duration,
    ) -> Result<usize, OrphanError> {
        let Some(objects) = self.objects() else {
            return Ok(0);
        };
        let age = TimeDelta::from_std(older_than).unwrap_or(TimeDelta::MAX);
        let before = Utc::now().checked_sub_signed(age).unwrap_or_default();
        let mut removed: usize = 0;
        for folder in ObjectKey::FOLDERS {
            let mut listing = objects.list(folder);
            loop {
                let mut old = Vec::with_capacity(BATCH_SIZE);
                while old.len() < BATCH_SIZE
                    && let Some((key, put_at)) = listing.next().await?
                {
                    if put_at < before {
                        old.push(key);
                    }
                }
                let is_last = old.len() < BATCH_SIZE;
                for key in self.filter_orphans(old).await? {
                    objects.delete(&key).await?;
                    removed = removed.saturating_add(1);
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(removed)
    }

    /// Those of our keys that no row refers to.
    async fn filter_orphans(&self, keys: Vec<ObjectKey>) -> Result<Vec<ObjectKey>, StoreError> {
        let (mut pictures, mut books) = (Vec::new(), Vec::new());
        let (mut parts, mut voices) = (Vec::new(), Vec::new());
        let (mut recordings, mut ours) = (Vec::new(), Vec::new());
        for key in keys {
            match key.kind() {
                Some(ObjectKind::Picture(object)) => pictures.push(object),
                Some(ObjectKind::Part { book, object }) => {
                    books.push(book);
                    parts.push(object);
                }
                Some(ObjectKind::Voice(id)) => voices.push(id),
                Some(ObjectKind::Recording(id)) => recordings.push(id),
                None => continue,
            }
            ours.push(key);
        }
        if ours.is_empty() {
            return Ok(ours);
        }
        let referenced: HashSet<ObjectKey> = with_timeout(async {
            let mut connection = self.system_conn().await?;
            let pictures = sqlx::query!(
                "SELECT org_id, object FROM pictures WHERE object = ANY ($1)",
                &pictures
            )
            .fetch_all(&mut *connection)
            .await?;
            let parts = sqlx::query!(
                "SELECT b.org_id, p.book_id, p.object FROM skills_book_parts p JOIN skills_books b ON b.id = p.book_id
                 WHERE p.book_id = ANY ($1) AND p.object = ANY ($2) AND b.state <> 'cancelled'",
                &books,
                &parts
            )
            .fetch_all(&mut *connection)
            .await?;
            let voices = sqlx::query!("SELECT org_id, id FROM voices WHERE id = ANY ($1)", &voices)
                .fetch_all(&mut *connection)
                .await?;
            let recordings = sqlx::query!(
                "SELECT org_id, id FROM recordings WHERE id = ANY ($1)",
                &recordings
            )
            .fetch_all(&mut *connection)
            .await?;
            let pictures = pictures.into_iter().map(|picture| {
                ObjectKey::picture(Owner::from_column(picture.org_id), &picture.object)
            });
            let parts = parts.into_iter().map(|part| {
                let book = SkillsBookId::from_uuid(part.book_id);
                ObjectKey::skills_book_part(Owner::from_column(part.org_id), book, part.object)
            });
            let voices = voices.into_iter().map(|voice| {
                let id = VoiceId::from_uuid(voice.id);
                ObjectKey::voice(Owner::from_column(voice.org_id), id)
            });
            let recordings = recordings.into_iter().map(|recording| {
                let owner = Owner::Org(OrgId::from_uuid(recording.org_id));
                ObjectKey::recording(owner, RecordingId::from_uuid(recording.id))
            });
            let referenced = pictures.chain(parts).chain(voices).chain(recordings);
            Ok::<_, sqlx::Error>(referenced.collect())
        })
        .await?;
        ours.retain(|key| !referenced.contains(key));
        Ok(ours)
    }
}
