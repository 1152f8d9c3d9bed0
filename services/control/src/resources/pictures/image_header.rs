//! The type and the size of a picture, read from its first bytes. No pixel is decoded.

use imagesize::ImageType;
use switchboard_runtime::problem::{Problem, ProblemKind};

/// The maximum number of pixels. Protects clients that decode the picture.
const MAX_PIXELS: u64 = 64_000_000;

/// The properties of a picture that are known without decoding it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageInfo {
    pub(crate) mime_type: &'static str,
    pub(crate) width: i32,
    pub(crate) height: i32,
}

/// Detects the type and the size of a picture.
pub(crate) fn read_image_info(bytes: &[u8]) -> Result<ImageInfo, Problem> {
    if bytes.is_empty() {
        return Err(Problem::new(
            ProblemKind::EmptyBody,
            "The body must be the picture itself, and it is empty.",
        ));
    }
    let mime_type = match imagesize::image_type(bytes) {
        Ok(ImageType::Png) => "image/png",
        Ok(ImageType::Jpeg) => "image/jpeg",
        Ok(ImageType::Gif) => "image/gif",
        Ok(ImageType::Webp) => "image/webp",
        _ => return Err(no_picture()),
    };
    let size = imagesize::blob_size(bytes).map_err(|_| broken(mime_type))?;
    let (Ok(width), Ok(height)) = (i32::try_from(size.width), i32::try_from(size.height)) else {
        return Err(too_many_pixels());
    };
    if width == 0 || height == 0 {
        return Err(broken(mime_type));
    }
    let pixels = u64::from(width.unsigned_abs()).saturating_mul(height.unsigned_abs().into());
    if pixels > MAX_PIXELS {
        return Err(too_many_pixels());
    }
    Ok(ImageInfo {
        mime_type,
        width,
        height,
    })
}

fn no_picture() -> Problem {
    Problem::new(
        ProblemKind::UnsupportedPicture,
        "The body does not begin like a PNG, JPEG, GIF or WebP picture; send the picture itself as the whole body.",
    )
}

fn broken(mime_type: &str) -> Problem {
    Problem::new(
        ProblemKind::BrokenPicture,
        format!("The body begins like {mime_type}, but its header has no valid size."),
    )
}

fn too_many_pixels() -> Problem {
    Problem::new(
        ProblemKind::PictureTooLarge,
        format!("The picture has more than {MAX_PIXELS} pixels."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        bytes.extend(width.to_be_bytes());
        bytes.extend(height.to_be_bytes());
        bytes.extend(b"\x08\x06\0\0\0");
        bytes
    }

    fn gif(width: u16, height: u16) -> Vec<u8> {
        let mut bytes = b"GIF89a".to_vec();
        bytes.extend(width.to_le_bytes());
        bytes.extend(height.to_le_bytes());
        bytes.extend(b"\0\0\0;");
        bytes
    }

    fn jpeg(width: u16, height: u16) -> Vec<u8> {
        let mut bytes =
            b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff\xc0\0\x11\x08".to_vec();
        bytes.extend(height.to_be_bytes());
        bytes.extend(width.to_be_bytes());
        bytes.extend(b"\x03\x01\x22\0\x02\x11\x01\x03\x11\x01");
        bytes
    }

    fn webp(width: u16, height: u16) -> Vec<u8> {
        let mut bytes = b"RIFF\x1a\0\0\0WEBPVP8 \x0e\0\0\0\x30\x01\0\x9d\x01\x2a".to_vec();
        bytes.extend(width.to_le_bytes());
        bytes.extend(height.to_le_bytes());
        bytes.extend([0; 8]);
        bytes
    }

    #[test]
    fn type_and_size_are_read_from_the_header() {
        fn check(bytes: &[u8], expected: Result<(&'static str, i32, i32), &str>) {
            let found = read_image_info(bytes);
            let info = found
                .as_ref()
                .map(|info| (info.mime_type, info.width, info.height));
            let info = info.map_err(|problem| problem.slug());
            assert_eq!(info, expected, "{:?}", bytes.get(..12));
        }
        check(&png(3, 2), Ok(("image/png", 3, 2)));
        check(&gif(3, 2), Ok(("image/gif", 3, 2)));
        check(&jpeg(3, 2), Ok(("image/jpeg", 3, 2)));
        check(&webp(3, 2), Ok(("image/webp", 3, 2)));
        check(&png(8_000, 8_000), Ok(("image/png", 8_000, 8_000)));
        check(&png(8_001, 8_000), Err("picture_too_large"));
        check(&png(u32::MAX, u32::MAX), Err("picture_too_large"));
        check(&png(0, 7), Err("broken_picture"));
        check(&png(3, 2)[..18], Err("broken_picture"));
        check(&jpeg(3, 2)[..20], Err("broken_picture"));
        check(b"", Err("empty_body"));
        check(b"\x89", Err("unsupported_picture"));
        check(
            b"<svg xmlns='http://www.w3.org/2000/svg'/>",
            Err("unsupported_picture"),
        );
        check(b"BM\0\0\0\0\0\0\0\0\0\0\0\0", Err("unsupported_picture"));
        check(
            b"--boundary\r\nContent-Disposition: form-data",
            Err("unsupported_picture"),
        );
    }
}
