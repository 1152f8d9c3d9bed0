//! Lists of large elements: the size of a page is limited, and no element is left out.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::installation::{Installation, Org};

/// The maximum size of the elements of a page, and of the JSON around them.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024 + 64 * 1024;

/// Settings of about 900,000 bytes.
fn large(name: &str) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": "x".repeat(30_000)}});
    json!({"name": name, "prompt": {"messages": vec![message; 30]}})
}

/// The ids of each page, with the maximum `limit`.
async fn pages(installation: &Installation, org: &Org, path: &str) -> Vec<Vec<Value>> {
    let name = path.rsplit('/').next().unwrap();
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let target = format!("{path}?limit=200{cursor}");
        let (status, page) = installation
            .send(Method::GET, &target, Some(&org.key), None)
            .await;
        assert_eq!(status, StatusCode::OK, "{target}");
        let bytes = page.to_string().len();
        assert!(bytes <= MAX_PAGE_BYTES, "{target}: {bytes}");
        let elements = page[name].as_array().unwrap().iter();
        pages.push(elements.map(|one| one["id"].clone()).collect());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return pages,
        }
    }
}

#[tokio::test]
async fn page_of_large_elements_is_limited_in_bytes() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    for (path, max) in [("/v1/templates", 4), ("/v1/npcs", 2)] {
        let mut expected = Vec::new();
        for index in 0..6 {
            let settings = large(&format!("T{index}"));
            let document = match path {
                "/v1/npcs" => json!({"overrides": settings}),
                _ => settings,
            };
            let (status, created) = installation
                .send(Method::POST, path, Some(&org.key), Some(document))
                .await;
            assert_eq!(status, StatusCode::CREATED, "{created}");
            expected.push(created["id"].clone());
        }
        let pages = pages(&installation, &org, path).await;
        let lengths: Vec<_> = pages.iter().map(Vec::len).collect();
        assert_eq!(pages.concat(), expected);
        assert!(
            lengths.iter().all(|length| (1..=max).contains(length)),
            "{path}: {lengths:?}"
        );
        assert_eq!(lengths[0], max, "{path}: {lengths:?}");
    }
}
