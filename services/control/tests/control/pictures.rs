//! `/v1/pictures`.

use axum::{body::Body, response::Response};
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use switchboard_store::ResourceBody;

use crate::installation::{Installation, OPERATOR_KEY, body};

const MAX_BYTES: usize = 10 * 1024 * 1024;

/// The header of a PNG, padded to a number of bytes.
fn png(width: u32, height: u32, bytes: usize) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    png.extend(width.to_be_bytes());
    png.extend(height.to_be_bytes());
    png.extend(b"\x08\x06\0\0\0");
    png.resize(bytes.max(png.len()), 0);
    png
}

impl Installation {
    pub(crate) async fn upload(
        &self,
        key: &str,
        query: &str,
        content_type: &str,
        bytes: Vec<u8>,
    ) -> Response {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("/v1/pictures{query}"))
            .header(header::AUTHORIZATION, format!("Bearer {key}"))
            .header(header::CONTENT_TYPE, content_type);
        self.answer(request.body(Body::from(bytes)).unwrap()).await
    }

    /// Uploads a valid picture.
    pub(crate) async fn picture(&self, key: &str, query: &str, bytes: Vec<u8>) -> Value {
        let response = self.upload(key, query, "image/png", bytes).await;
        let status = response.status();
        let picture = body(response).await;
        assert_eq!(status, StatusCode::CREATED, "{picture}");
        picture
    }
}

fn path(picture: &Value) -> String {
    format!("/v1/pictures/{}", picture["id"].as_str().unwrap())
}

#[tokio::test]
async fn picture_is_created_listed_and_deleted() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let query = "?name=Bello&uri=pics://bello";
    let response = installation
        .upload(&org.key, query, "image/png", png(3, 2, 100))
        .await;
    let location = response.headers()[header::LOCATION]
        .to_str()
        .unwrap()
        .to_owned();
    let picture = body(response).await;
    assert_eq!(location, path(&picture));
    assert_eq!(
        (
            &picture["name"],
            &picture["uri"],
            &picture["mime_type"],
            &picture["width"],
            &picture["height"],
            &picture["size_bytes"]
        ),
        (
            &json!("Bello"),
            &json!("pics://bello"),
            &json!("image/png"),
            &json!(3),
            &json!(2),
            &json!(100)
        )
    );
    assert_eq!(picture["sha256"].as_str().unwrap().len(), 64);
    let (_, found) = installation
        .send(Method::GET, &location, Some(&org.key), None)
        .await;
    assert_eq!(found, picture);
    let (_, page) = installation
        .send(Method::GET, "/v1/pictures", Some(&org.key), None)
        .await;
    assert_eq!(page, json!({"pictures": [picture], "next_cursor": null}));

    for expected in [StatusCode::NO_CONTENT, StatusCode::NOT_FOUND] {
        let (status, _) = installation
            .send(Method::DELETE, &location, Some(&org.key), None)
            .await;
        assert_eq!(status, expected);
    }
    assert_eq!(installation.objects().len(), 0);
}

#[tokio::test]
async fn bytes_are_returned_unchanged() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let bytes = png(3, 2, 100);
    let picture = installation.picture(&org.key, "", bytes.clone()).await;
    let location = path(&picture);
    let response = installation
        .request(
            Method::GET,
            &format!("{location}/content"),
            Some(&org.key),
            None,
        )
        .await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "image/png");
    assert_eq!(
        response.headers()[header::X_CONTENT_TYPE_OPTIONS],
        "nosniff"
    );
    assert_eq!(
        response.headers()[header::ETAG].to_str().unwrap(),
        format!("\"{}\"", picture["sha256"].as_str().unwrap())
    );
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        bytes
    );
}

#[tokio::test]
async fn cached_picture_is_not_sent_again() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let picture = installation.picture(&org.key, "", png(1, 1, 50)).await;
    let ask = async |tag: &str| {
        let request = Request::builder()
            .uri(format!("{}/content", path(&picture)))
            .header(header::AUTHORIZATION, format!("Bearer {}", org.key))
            .header(header::IF_NONE_MATCH, tag);
        installation
            .answer(request.body(Body::empty()).unwrap())
            .await
            .status()
    };
    let tag = format!("\"{}\"", picture["sha256"].as_str().unwrap());
    assert_eq!(ask(&tag).await, StatusCode::NOT_MODIFIED);
    assert_eq!(ask("\"another\"").await, StatusCode::OK);
}

#[tokio::test]
async fn type_is_detected_from_the_bytes() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let check = async |content_type: &str, bytes: Vec<u8>, status: u16, expected: &str| {
        let response = installation.upload(&org.key, "", content_type, bytes).await;
        assert_eq!(response.status().as_u16(), status);
        let answer = body(response).await;
        let found = answer.get("mime_type").or(answer.get("type"));
        assert_eq!(found, Some(&json!(expected)), "{answer}");
    };
    check("image/jpeg", png(3, 2, 60), 201, "image/png").await;
    check(
        "image/png",
        b"GIF89a\x03\0\x02\0\0\0\0;".to_vec(),
        201,
        "image/gif",
    )
    .await;
    check(
        "image/png",
        b"<script>alert(1)</script>".to_vec(),
        415,
        "/problems/unsupported_picture",
    )
    .await;
    check("image/png", Vec::new(), 400, "/problems/empty_body").await;
    check(
        "image/png",
        png(3, 2, 0)[..20].to_vec(),
        422,
        "/problems/broken_picture",
    )
    .await;
    check(
        "image/png",
        png(65_000, 65_000, 60),
        422,
        "/problems/picture_too_large",
    )
    .await;
    check("image/png", png(1, 1, MAX_BYTES), 201, "image/png").await;
    check(
        "image/png",
        png(1, 1, MAX_BYTES + 1),
        413,
        "/problems/body_too_large",
    )
    .await;
    assert_eq!(installation.objects().len(), 3);
}

#[tokio::test]
async fn invalid_query_stores_nothing() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    installation
        .picture(&org.key, "?uri=pics://a", png(1, 1, 50))
        .await;
    let check = async |query: &str, status: u16, slug: &str| {
        let response = installation
            .upload(&org.key, query, "image/png", png(9, 9, 70))
            .await;
        assert_eq!(response.status().as_u16(), status, "{query}");
        assert_eq!(
            body(response).await["type"],
            format!("/problems/{slug}"),
            "{query}"
        );
    };
    check("?name=", 400, "invalid_query").await;
    check("?nmae=x", 400, "invalid_query").await;
    check("?uri=nothing", 400, "invalid_query").await;
    check("?uri=pics://%7Bid%7D", 400, "invalid_query").await;
    check("?uri=switchboard://pictures/x", 400, "invalid_query").await;
    check("?uri=pics://a", 409, "uri_taken").await;
    assert_eq!(installation.objects().len(), 1);
}

#[tokio::test]
async fn identical_pictures_have_separate_objects() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let one = installation
        .picture(&org.key, "?name=one", png(4, 4, 80))
        .await;
    let two = installation
        .picture(&org.key, "?name=two", png(4, 4, 80))
        .await;
    assert_eq!(one["sha256"], two["sha256"]);
    assert_eq!(installation.objects().len(), 2);
    for (picture, left) in [(one, 1), (two, 0)] {
        let (status, _) = installation
            .send(Method::DELETE, &path(&picture), Some(&org.key), None)
            .await;
        assert_eq!(
            (status, installation.objects().len()),
            (StatusCode::NO_CONTENT, left)
        );
    }
}

#[tokio::test]
async fn prompt_with_too_many_picture_bytes_is_rejected() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let large = png(1, 1, 5 * 1024 * 1024);
    let large = installation.picture(&org.key, "", large).await;
    let content = json!({"type": "image", "picture_id": large["id"]});
    let message = json!({"role": "user", "content": content});
    for (count, expected) in [
        (2, StatusCode::CREATED),
        (3, StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        let template = json!({"name": "Bello", "prompt": {"messages": vec![&message; count]}});
        let (status, answer) = installation
            .send(
                Method::POST,
                "/v1/templates",
                Some(&org.key),
                Some(template),
            )
            .await;
        assert_eq!(status, expected, "{answer}");
        if count == 3 {
            assert_eq!(answer["errors"][0]["pointer"], "/prompt/messages");
            let detail = answer["detail"].as_str().unwrap();
            assert!(detail.contains("15728640 bytes"), "{detail}");
        }
    }
}

#[tokio::test]
async fn picture_in_use_cannot_be_deleted() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let avatar = installation.picture(&org.key, "", png(1, 1, 50)).await;
    let found = installation.picture(&org.key, "", png(2, 2, 50)).await;
    let content = json!({"type": "image", "picture_id": found["id"]});
    let template = json!({
        "name": "Bello", "avatar": avatar["id"],
        "prompt": {"messages": [{"role": "user", "content": content}]},
    });
    let (status, template) = installation
        .send(
            Method::POST,
            "/v1/templates",
            Some(&org.key),
            Some(template),
        )
        .await;
    assert_eq!(status, StatusCode::CREATED, "{template}");
    for picture in [&avatar, &found] {
        let (status, problem) = installation
            .send(Method::DELETE, &path(picture), Some(&org.key), None)
            .await;
        assert_eq!(
            (status, &problem["type"]),
            (StatusCode::CONFLICT, &json!("/problems/picture_in_use"))
        );
    }
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!(
            "/v1/templates/{}",
            template["id"].as_str().unwrap()
        ))
        .header(header::AUTHORIZATION, format!("Bearer {}", org.key))
        .header(header::CONTENT_TYPE, "application/merge-patch+json")
        .header(header::IF_MATCH, "\"1\"");
    let patch = json!({"avatar": null}).to_string();
    let changed = installation
        .answer(request.body(patch.into()).unwrap())
        .await;
    assert_eq!(changed.status(), StatusCode::OK);
    let (status, _) = installation
        .send(Method::DELETE, &path(&avatar), Some(&org.key), None)
        .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn pictures_of_others_are_not_accessible() {
    let installation = Installation::start().await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Games").await,
    );
    let picture = installation.picture(&org.key, "", png(1, 1, 50)).await;
    let one = path(&picture);
    for (method, path) in [
        (Method::GET, one.clone()),
        (Method::GET, format!("{one}/content")),
        (Method::DELETE, one),
    ] {
        let (status, _) = installation
            .send(method, &path, Some(&other.key), None)
            .await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
    }
    let template = json!({"name": "Thief", "avatar": picture["id"]});
    let (status, problem) = installation
        .send(
            Method::POST,
            "/v1/templates",
            Some(&other.key),
            Some(template),
        )
        .await;
    assert_eq!(
        (status.as_u16(), &problem["errors"][0]["pointer"]),
        (422, &json!("/avatar"))
    );
    let public = installation.picture(OPERATOR_KEY, "", png(1, 1, 50)).await;
    let (status, found) = installation
        .send(Method::GET, &path(&public), Some(&other.key), None)
        .await;
    assert_eq!((status, found), (StatusCode::OK, public.clone()));
    let (status, _) = installation
        .send(Method::DELETE, &path(&public), Some(&other.key), None)
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn store_returns_pictures_as_resources() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let bytes = png(1, 1, 50);
    installation
        .picture(
            &org.key,
            "?name=Bello&uri=test://static-binary",
            bytes.clone(),
        )
        .await;
    let found = installation
        .store
        .resource_by_uri(org.id(), "test://static-binary")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (found.title.as_str(), found.mime_type.as_str()),
        ("Bello", "image/png")
    );
    let ResourceBody::Picture { key, .. } = found.body else {
        panic!("{found:?}")
    };
    assert_eq!(
        installation
            .store
            .objects()
            .unwrap()
            .get(&key)
            .await
            .unwrap(),
        bytes
    );
}

#[tokio::test]
async fn missing_object_store_is_explained() {
    let installation = Installation::without_objects().await;
    let org = installation.new_org("Toys").await;
    let one = format!("/v1/pictures/pic_{}", "0".repeat(32));
    let content = format!("{one}/content");
    let requests = [
        (Method::POST, "/v1/pictures"),
        (Method::GET, "/v1/pictures"),
        (Method::GET, &one),
        (Method::GET, &content),
        (Method::DELETE, &one),
    ];
    for (method, path) in requests {
        let (status, problem) = installation
            .send(method, path, Some(&org.key), Some(json!({})))
            .await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(problem["type"], "/problems/objects_not_configured");
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("SWITCHBOARD_OBJECTS"),
            "{problem}"
        );
    }
}
