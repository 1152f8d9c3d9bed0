//! Objects that no row names: put by a process that died before its commit, or left behind when their row went.
//! Never: one removed that was put a short while ago, whose row may still be made.

use std::{collections::HashSet, time::Duration};

use chrono::{TimeDelta, Utc};
use switchboard_protocol::id::{SkillsBookId, VoiceId};

use crate::{
    Store, StoreError,
    database::bounded,
    objects::{ObjectError, ObjectKey, PutFor},
    owner::Owner,
};

/// How many objects the database is asked about at once.
const BATCH: usize = 500;

/// Why left over objects stay.
#[derive(Debug, thiserror::Error)]
pub enum LeftoversError {
    /// The object store did not do it.
    #[error("the object store did not list or remove what is left over")]
    Objects(#[from] ObjectError),
    /// The database did not do it.
    #[error("the database did not say what is left over")]
    Store(#[from] StoreError),
}

impl Store {
    /// Removes objects that no row names, or only those of a book that was given up, when they were put longer ago than
    /// any transaction lasts; says how many. What the object store holds besides stays.
    ///
    /// # Errors
    /// [`LeftoversError`] when one of the two stores fails; what was found until then is removed.
    pub async fn remove_leftovers(&self, older_than: Duration) -> Result<usize, LeftoversError> {
        let Some(objects) = self.objects() else {
            return Ok(0);
        };
        let age = TimeDelta::from_std(older_than).unwrap_or(TimeDelta::MAX);
        let before = Utc::now().checked_sub_signed(age).unwrap_or_default();
        let mut removed: usize = 0;
        for folder in ObjectKey::FOLDERS {
            let mut listing = objects.list(folder);
            loop {
                let mut old = Vec::with_capacity(BATCH);
                while old.len() < BATCH
                    && let Some((key, put_at)) = listing.next().await?
                {
                    if put_at < before {
                        old.push(key);
                    }
                }
                let is_last = old.len() < BATCH;
                for key in self.unnamed(old).await? {
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

    /// Those that are ours and that no row names.
    async fn unnamed(&self, keys: Vec<ObjectKey>) -> Result<Vec<ObjectKey>, StoreError> {
        let (mut pictures, mut books) = (Vec::new(), Vec::new());
        let (mut parts, mut voices, mut ours) = (Vec::new(), Vec::new(), Vec::new());
        for key in keys {
            match key.put_for() {
                Some(PutFor::Picture(object)) => pictures.push(object),
                Some(PutFor::Part { book, object }) => {
                    books.push(book);
                    parts.push(object);
                }
                Some(PutFor::Voice(id)) => voices.push(id),
                None => continue,
            }
            ours.push(key);
        }
        if ours.is_empty() {
            return Ok(ours);
        }
        let named: HashSet<ObjectKey> = bounded(async {
            let mut connection = self.throughout().await?;
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
            Ok::<_, sqlx::Error>(pictures.chain(parts).chain(voices).collect())
        })
        .await?;
        ours.retain(|key| !named.contains(key));
        Ok(ours)
    }
}
