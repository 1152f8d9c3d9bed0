//! Lists of large elements: a page ends by bytes as well, and nothing is left out.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::installation::{Installation, Org};

/// What the elements of a page may have together, and what its JSON may have besides.
const MOST_BYTES: usize = 4 * 1024 * 1024 + 64 * 1024;

/// Settings of about 900 000 bytes.
fn large(name: &str) -> Value {
    let says = json!({"role": "user", "content": {"type": "text", "text": "x".repeat(30_000)}});
    json!({"name": name, "prompt": {"messages": vec![says; 30]}})
}

/// The ids of each page of a list that asks for as many as there may be.
async fn pages(installation: &Installation, org: &Org, path: &str) -> Vec<Vec<Value>> {
    let name = path.rsplit('/').next().unwrap();
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let asked = format!("{path}?limit=200{cursor}");
        let (status, page) = installation
            .send(Method::GET, &asked, Some(&org.key), None)
            .await;
        assert_eq!(status, StatusCode::OK, "{asked}");
        let bytes = page.to_string().len();
        assert!(bytes <= MOST_BYTES, "{asked}: {bytes}");
        let elements = page[name].as_array().unwrap().iter();
        pages.push(elements.map(|one| one["id"].clone()).collect());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return pages,
        }
    }
}

#[tokio::test]
async fn a_page_of_large_templates_or_npcs_ends_by_bytes() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    for (path, most) in [("/v1/templates", 4), ("/v1/npcs", 2)] {
        let mut expected = Vec::new();
        for index in 0..6 {
            let settings = large(&format!("T{index}"));
            let document = match path {
                "/v1/npcs" => json!({"overrides": settings}),
                _ => settings,
            };
            let (status, made) = installation
                .send(Method::POST, path, Some(&org.key), Some(document))
                .await;
            assert_eq!(status, StatusCode::CREATED, "{made}");
            expected.push(made["id"].clone());
        }
        let pages = pages(&installation, &org, path).await;
        let lengths: Vec<_> = pages.iter().map(Vec::len).collect();
        assert_eq!(pages.concat(), expected);
        assert!(
            lengths.iter().all(|length| (1..=most).contains(length)),
            "{path}: {lengths:?}"
        );
        assert_eq!(lengths[0], most, "{path}: {lengths:?}");
    }
}
