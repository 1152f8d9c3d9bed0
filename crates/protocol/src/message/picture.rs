//! The picture of a message, as PICTURE frames carry it: its bytes, or the id of an uploaded one.

use std::fmt;

use bytes::Bytes;

use crate::id::PictureId;

/// Maximum bytes of a picture in a message.
pub const MAX_PICTURE_BYTES: usize = 512 * 1024;

/// A picture that a message of a user refers to.
#[derive(Clone, PartialEq, Eq)]
pub enum Picture {
    /// Its bytes.
    Bytes {
        /// The media type, detected from the bytes.
        media_type: &'static str,
        /// The bytes.
        bytes: Bytes,
    },
    /// One that was uploaded before.
    Uploaded(PictureId),
}

impl Picture {
    /// Reads the payload of PICTURE frames; `None` if it is neither a picture nor an id.
    #[must_use]
    pub fn parse(payload: Bytes) -> Option<Self> {
        if let Some(media_type) = media_type(&payload) {
            let bytes = payload;
            return Some(Self::Bytes { media_type, bytes });
        }
        let id = std::str::from_utf8(&payload).ok()?;
        id.parse().ok().map(Self::Uploaded)
    }

    /// Returns the payload that [`Self::parse`] reads.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        match self {
            Self::Bytes { bytes, .. } => bytes.clone(),
            Self::Uploaded(id) => id.to_string().into(),
        }
    }

    /// Returns how many bytes of memory it holds.
    #[must_use]
    pub const fn size_bytes(&self) -> usize {
        match self {
            Self::Bytes { bytes, .. } => bytes.len(),
            Self::Uploaded(_) => 0,
        }
    }
}

impl fmt::Debug for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes { media_type, bytes } => {
                write!(f, "Picture({media_type}, {} bytes)", bytes.len())
            }
            Self::Uploaded(id) => write!(f, "Picture({id})"),
        }
    }
}

/// The media type of a picture, from its first bytes.
fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'\x89', b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_a_picture_or_an_id() {
        fn check(payload: &'static [u8], expected: Option<&str>) {
            let picture = Picture::parse(Bytes::from_static(payload));
            if let Some(picture) = &picture {
                assert_eq!(picture.payload(), payload);
            }
            let shown = picture.map(|picture| format!("{picture:?}"));
            assert_eq!(shown.as_deref(), expected);
        }
        check(b"\xff\xd8\xff\xe0", Some("Picture(image/jpeg, 4 bytes)"));
        check(b"\x89PNG\r\n\x1a\n", Some("Picture(image/png, 8 bytes)"));
        check(b"GIF89a", Some("Picture(image/gif, 6 bytes)"));
        check(b"RIFF1234WEBP", Some("Picture(image/webp, 12 bytes)"));
        check(
            b"pic_00000000000000000000000000000007",
            Some("Picture(pic_00000000000000000000000000000007)"),
        );
        for other in [
            b"".as_slice(),
            b"\xff\xd8",
            b"GIF88a",
            b"RIFF1234WAVE",
            b"<svg/>",
            b"pic_7",
            b"npc_00000000000000000000000000000007",
        ] {
            check(other, None);
        }
    }
}
