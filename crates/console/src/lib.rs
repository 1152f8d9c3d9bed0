//! The web console at `/console`: its files, embedded and compressed at build time, with the headers
//! that keep the page to itself.
//!
//! Invariant: the page runs only scripts of this process. Texts of devices are never among them.

use axum::{
    Router,
    extract::Path,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use switchboard_runtime::problem::{self, Problem, ProblemKind};

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The page; every address that is not a file's shows it.
const PAGE: &str = "index.html";
/// Nothing from other hosts, no script or style from a string, no frame around the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
                      media-src 'self' blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
/// The address of a file contains the hash of all files.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// One embedded file.
struct File {
    /// Path below the folder `console`.
    name: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
}

/// Returns the routes of the console: its files below `/console/HASH/`, and the page at all other
/// addresses below `/console`, because the router of the page works on addresses.
pub fn routes() -> Router {
    let page = |headers: HeaderMap| async move { respond(PAGE, &headers) };
    Router::new()
        .route("/console", get(page))
        .route("/console/", get(page))
        .route("/console/{*path}", get(file))
        .method_not_allowed_fallback(problem::method_not_allowed)
}

/// A file of this version, or the page. The files of another version are gone: a page that is still
/// open must not get the page in the place of a script.
async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    match path.split_once('/') {
        Some((HASH, name)) if name != PAGE => respond(name, &headers),
        Some((folder, _)) if is_hash(folder) => missing(),
        _ => respond(PAGE, &headers),
    }
}

fn is_hash(folder: &str) -> bool {
    folder.len() == HASH.len() && folder.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn missing() -> Response {
    let detail = "This version of the console has no such file; reload the page.";
    Problem::new(ProblemKind::NotFound, detail).into_response()
}

fn respond(name: &str, request: &HeaderMap) -> Response {
    let Some(file) = FILES.iter().find(|file| file.name == name) else {
        return missing();
    };
    let fixed = HeaderValue::from_static;
    let mut headers = HeaderMap::from_iter([
        (header::CONTENT_TYPE, fixed(media_type(name))),
        (header::VARY, fixed("accept-encoding")),
        (header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
        (header::REFERRER_POLICY, fixed("no-referrer")),
        (CROSS_ORIGIN_RESOURCE_POLICY, fixed("same-origin")),
    ]);
    if name == PAGE {
        headers.extend([
            (header::CACHE_CONTROL, fixed("no-cache")),
            (header::ETAG, fixed(TAG)),
            (header::CONTENT_SECURITY_POLICY, fixed(POLICY)),
            (CROSS_ORIGIN_OPENER_POLICY, fixed("same-origin")),
        ]);
        let known = request.get(header::IF_NONE_MATCH);
        if known.is_some_and(|known| known == TAG) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
    } else {
        headers.insert(header::CACHE_CONTROL, fixed(IMMUTABLE));
    }
    if accepts_gzip(request) {
        headers.insert(header::CONTENT_ENCODING, fixed("gzip"));
        return (headers, Bytes::from_static(file.gzip)).into_response();
    }
    (headers, Bytes::from_static(file.plain)).into_response()
}

const CROSS_ORIGIN_RESOURCE_POLICY: header::HeaderName =
    header::HeaderName::from_static("cross-origin-resource-policy");
const CROSS_ORIGIN_OPENER_POLICY: header::HeaderName =
    header::HeaderName::from_static("cross-origin-opener-policy");

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

/// Whether a client names gzip, or anything, without refusing it.
fn accepts_gzip(request: &HeaderMap) -> bool {
    let values = request.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|coding| coding.split_once(';').unwrap_or((coding, "")));
    codings.any(|(coding, weight)| {
        let refused = matches!(weight.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
        coding.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use axum::{
        body::{Body, to_bytes},
        http::Request,
    };
    use flate2::read::GzDecoder;
    use tower::ServiceExt as _;

    use super::*;

    async fn get(
        path: &str,
        headers: &[(header::HeaderName, &str)],
    ) -> (StatusCode, HeaderMap, Vec<u8>) {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let response = routes()
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, 4 * 1024 * 1024).await.unwrap();
        (parts.status, parts.headers, body.into())
    }

    #[tokio::test]
    async fn page_is_at_every_address_and_checked_again_each_time() {
        for path in [
            "/console",
            "/console/",
            "/console/devices/toy-1",
            "/console/devices/a.js",
        ] {
            let (status, headers, body) = get(path, &[]).await;
            assert_eq!(status, StatusCode::OK, "{path}");
            assert_eq!(headers[header::CONTENT_SECURITY_POLICY], POLICY);
            assert_eq!(headers[header::CACHE_CONTROL], "no-cache");
            assert_eq!(headers[CROSS_ORIGIN_OPENER_POLICY], "same-origin");
            let page = String::from_utf8(body).unwrap();
            assert!(
                page.contains(&format!("src=\"/console/{HASH}/main.js\"")),
                "{page}"
            );
            assert!(!page.contains('{'), "{page}");
        }
        let known = [(header::IF_NONE_MATCH, TAG)];
        let (status, headers, body) = get("/console/", &known).await;
        assert_eq!((status, body.len()), (StatusCode::NOT_MODIFIED, 0));
        assert_eq!(headers[header::CONTENT_SECURITY_POLICY], POLICY);
    }

    #[tokio::test]
    async fn every_file_that_the_page_names_is_served_for_ever() {
        let (_, _, body) = get("/console/", &[]).await;
        let page = String::from_utf8(body).unwrap();
        let named = page.split('"').filter(|text| text.starts_with("/console/"));
        let mut count = 0;
        for path in named {
            let (status, headers, plain) = get(path, &[]).await;
            assert_eq!(status, StatusCode::OK, "{path}");
            assert_eq!(headers[header::CACHE_CONTROL], IMMUTABLE, "{path}");
            assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{path}");
            let accepting = [(header::ACCEPT_ENCODING, "br, gzip;q=0.8")];
            let (_, headers, compressed) = get(path, &accepting).await;
            assert_eq!(headers[header::CONTENT_ENCODING], "gzip", "{path}");
            let mut unpacked = Vec::new();
            GzDecoder::new(compressed.as_slice())
                .read_to_end(&mut unpacked)
                .unwrap();
            assert_eq!(unpacked, plain, "{path}");
            count += 1;
        }
        assert!(count > 20, "{count} files");
    }

    #[tokio::test]
    async fn files_of_another_version_are_missing() {
        for path in [
            "/console/0123456789abcdef/main.js",
            &format!("/console/{HASH}/no.js"),
            &format!("/console/{HASH}/index.html"),
        ] {
            let (status, headers, _) = get(path, &[]).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
            assert_eq!(headers[header::CONTENT_TYPE], "application/problem+json");
        }
    }

    #[test]
    fn gzip_is_sent_to_those_who_accept_it() {
        for (value, expected) in [
            ("gzip", true),
            ("deflate, GZIP ;q=1.0", true),
            ("gzip;q=0", false),
            ("br", false),
            ("", false),
        ] {
            let request =
                HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))]);
            assert_eq!(accepts_gzip(&request), expected, "{value:?}");
        }
    }
}
