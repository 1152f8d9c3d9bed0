//! What is at `/`: links for people, and name, version and links for programs.

use axum::{
    Json, Router,
    http::{HeaderMap, HeaderValue, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};

use super::{DOCUMENT, PAGE};

/// The page of the console.
const CONSOLE: &str = "/console/";
/// The services that serve it.
const WITH_CONSOLE: [&str; 2] = ["gateway", "up"];

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The page needs nothing.
const POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn routes(service: &'static str) -> Router {
    let show = async move |headers: HeaderMap| -> Response {
        let policy = [
            (
                header::CONTENT_SECURITY_POLICY,
                HeaderValue::from_static(POLICY),
            ),
            (header::VARY, HeaderValue::from_static("accept")),
        ];
        if is_browser(&headers) {
            return (policy, Html(page(service))).into_response();
        }
        (policy, Json(description(service))).into_response()
    };
    Router::new().route("/", get(show))
}

/// Browsers name HTML; programs name JSON, anything, or nothing.
fn is_browser(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(header::ACCEPT).iter();
    let mut accepted = accept.filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("text/html"))
}

fn description(service: &str) -> Value {
    let mut links = json!({"document": DOCUMENT, "page": PAGE});
    if WITH_CONSOLE.contains(&service) {
        links["console"] = CONSOLE.into();
    }
    json!({"name": "Switchboard", "service": service, "version": VERSION, "links": links})
}

fn page(service: &str) -> String {
    let console = match WITH_CONSOLE.contains(&service) {
        true => format!("<li><a href=\"{CONSOLE}\">The console</a>"),
        false => String::new(),
    };
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>Switchboard</title><h1>Switchboard</h1><p>{service} {VERSION}</p>\
         <ul>{console}<li><a href=\"{PAGE}\">The API</a><li><a href=\"{DOCUMENT}\">Its OpenAPI document</a></ul></html>\n"
    )
}

#[cfg(test)]
mod tests {
    use axum::{
        body::{Body, to_bytes},
        http::Request,
    };
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn people_get_a_page_and_programs_json() {
        let get = async |accept: Option<&str>| {
            let mut request = Request::get("/");
            if let Some(accept) = accept {
                request = request.header(header::ACCEPT, accept);
            }
            let request = request.body(Body::empty()).unwrap();
            let response = routes("gateway").oneshot(request).await.unwrap();
            assert_eq!(response.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
            let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap();
            let kind = kind.to_owned();
            let body = to_bytes(response.into_body(), 4096).await.unwrap();
            (kind, String::from_utf8(body.to_vec()).unwrap())
        };
        let (kind, page) = get(Some("text/html,application/xhtml+xml,*/*;q=0.8")).await;
        assert_eq!(kind, "text/html; charset=utf-8");
        assert!(
            page.contains("href=\"/docs\"") && page.contains("gateway"),
            "{page}"
        );
        assert!(page.contains("href=\"/console/\""), "{page}");
        for accept in [None, Some("*/*"), Some("application/json")] {
            let (kind, json) = get(accept).await;
            assert_eq!(kind, "application/json");
            let json: Value = serde_json::from_str(&json).unwrap();
            assert_eq!(
                (&json["service"], &json["version"]),
                (&json!("gateway"), &json!(VERSION))
            );
            assert_eq!(json["links"]["document"], "/openapi.json");
            assert_eq!(json["links"]["console"], "/console/");
        }
    }
}
