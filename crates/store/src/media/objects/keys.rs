//! Names of objects: owner, kind and row.
//! Invariant: a name is used once; each upload gets a new one.

use std::fmt;

use object_store::path::Path as ObjectPath;
use switchboard_protocol::id::{PictureId, RecordingId, SkillsBookId, VoiceId};
use uuid::Uuid;

use crate::Owner;

/// The name of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectKey(String);

/// The row that an object belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    /// A picture, as its row names it.
    Picture(String),
    /// A part of a skills book.
    Part { book: Uuid, object: Uuid },
    /// The sample of a voice.
    Voice(Uuid),
    /// A recording.
    Recording(Uuid),
}

impl ObjectKey {
    /// The top-level folders, one per kind.
    pub(crate) const FOLDERS: [&str; 4] = ["pictures", "recordings", "skills-books", "voices"];

    /// The bytes of a new picture.
    pub(crate) fn new_picture(owner: Owner, picture: PictureId) -> Self {
        Self::picture(owner, &picture.uuid().simple().to_string())
    }

    /// The bytes of a picture whose row has this name.
    pub(crate) fn picture(owner: Owner, object: &str) -> Self {
        Self(format!("pictures/{owner}/{object}"))
    }

    /// A part of a skills book; each upload of it is another object.
    pub(crate) fn skills_book_part(owner: Owner, book: SkillsBookId, object: Uuid) -> Self {
        Self(format!("skills-books/{owner}/{book}/{}", object.simple()))
    }

    /// The folder of a skills book's parts.
    pub(crate) fn skills_book(owner: Owner, book: SkillsBookId) -> String {
        format!("skills-books/{owner}/{book}")
    }

    /// The sample of a voice.
    pub(crate) fn voice(owner: Owner, voice: VoiceId) -> Self {
        Self(format!("voices/{owner}/{voice}"))
    }

    /// A recording.
    pub(crate) fn recording(owner: Owner, recording: RecordingId) -> Self {
        Self(format!("recordings/{owner}/{recording}"))
    }

    pub(super) fn path(&self) -> ObjectPath {
        ObjectPath::from(self.0.as_str())
    }

    pub(super) fn from_path(path: &ObjectPath) -> Self {
        Self(path.to_string())
    }

    /// The row that the object belongs to; `None` for objects of other programs.
    pub(crate) fn kind(&self) -> Option<ObjectKind> {
        let mut segments = self.0.split('/');
        let (kind, _owner, name) = (segments.next()?, segments.next()?, segments.next()?);
        let below = segments.next();
        if segments.next().is_some() {
            return None;
        }
        match (kind, below) {
            ("pictures", None) if [32, 64].contains(&name.len()) => {
                Some(ObjectKind::Picture(name.to_owned()))
            }
            ("skills-books", Some(object)) => Some(ObjectKind::Part {
                book: name.parse::<SkillsBookId>().ok()?.uuid(),
                object: Uuid::try_parse(object).ok()?,
            }),
            ("voices", None) => Some(ObjectKind::Voice(name.parse::<VoiceId>().ok()?.uuid())),
            ("recordings", None) => Some(ObjectKind::Recording(
                name.parse::<RecordingId>().ok()?.uuid(),
            )),
            _ => None,
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::objects::hex;

    #[test]
    fn object_key_parses_to_its_kind() {
        let owner = Owner::Installation;
        let id = Uuid::now_v7();
        let check = |key: ObjectKey, expect: Option<ObjectKind>| {
            assert_eq!(key.kind(), expect, "{key}");
        };
        let simple = id.simple().to_string();
        let key = ObjectKey::new_picture(owner, PictureId::from_uuid(id));
        check(key, Some(ObjectKind::Picture(simple.clone())));
        let hash = hex(&[7; 32]);
        let key = ObjectKey::picture(owner, &hash);
        check(key, Some(ObjectKind::Picture(hash)));
        let key = ObjectKey::skills_book_part(owner, SkillsBookId::from_uuid(id), id);
        let (book, object) = (id, id);
        check(key, Some(ObjectKind::Part { book, object }));
        let key = ObjectKey::voice(owner, VoiceId::from_uuid(id));
        check(key, Some(ObjectKind::Voice(id)));
        let key = ObjectKey::recording(owner, RecordingId::from_uuid(id));
        check(key, Some(ObjectKind::Recording(id)));
        for foreign in [
            String::new(),
            "pictures/public/notes.txt".to_owned(),
            format!("pictures/public/{simple}/x"),
            format!("voices/public/{simple}"),
            format!("backups/public/{simple}"),
        ] {
            check(ObjectKey(foreign), None);
        }
    }
}
