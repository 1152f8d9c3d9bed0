//! `/v1/templates`.

use axum::response::Response;
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};

use crate::installation::{Installation, OPERATOR_KEY, Org, body};

/// A template in a response, and its entity tag.
struct TemplateResponse {
    path: String,
    etag: String,
    body: Value,
}

async fn parse(response: Response, status: StatusCode) -> TemplateResponse {
    let header = |name| {
        response
            .headers()
            .get(&name)
            .map(|value: &http::HeaderValue| value.to_str().unwrap().to_owned())
    };
    let (etag, location) = (header(header::ETAG), header(header::LOCATION));
    let got = response.status();
    let body = body(response).await;
    assert_eq!(got, status, "{body}");
    let path = format!("/v1/templates/{}", body["id"].as_str().unwrap());
    if status == StatusCode::CREATED {
        assert_eq!(location.as_deref(), Some(path.as_str()));
    }
    TemplateResponse {
        path,
        etag: etag.unwrap(),
        body,
    }
}

impl Installation {
    async fn create_template(&self, key: &str, document: Value) -> TemplateResponse {
        let response = self
            .request(Method::POST, "/v1/templates", Some(key), Some(document))
            .await;
        parse(response, StatusCode::CREATED).await
    }

    pub(crate) async fn conditional(
        &self,
        method: Method,
        path: &str,
        key: &str,
        etag: Option<&str>,
        patch: Option<Value>,
    ) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        request = request.header(header::CONTENT_TYPE, "application/merge-patch+json");
        if let Some(etag) = etag {
            request = request.header(header::IF_MATCH, etag);
        }
        let body = patch.map(|patch| patch.to_string()).unwrap_or_default();
        self.answer(request.body(body.into()).unwrap()).await
    }
}

fn bello() -> Value {
    json!({
        "name": "Bello",
        "tags": ["dog"],
        "persona": {"role": "a watchdog", "greeting": ["Wuff!"]},
        "model": {"provider": "local", "model": "small", "temperature": 0.5},
        "prompt": {
            "name": "bello",
            "arguments": [{"name": "who", "required": true}],
            "messages": [{"role": "user", "content": {"type": "text", "text": "Greet {{who}}."}}],
        },
    })
}

#[tokio::test]
async fn template_is_created_updated_and_deleted() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let first = installation.create_template(&org.key, bello()).await;
    assert_eq!(first.etag, "\"1\"");
    assert!(first.body["id"].as_str().unwrap().starts_with("tpl_"));
    assert_eq!(
        (
            &first.body["visibility"],
            &first.body["org_id"],
            &first.body["version"]
        ),
        (&json!("private"), &json!(org.id), &json!(1))
    );
    assert_eq!(first.body["persona"]["greeting"], json!(["Wuff!"]));

    let found = installation
        .request(Method::GET, &first.path, Some(&org.key), None)
        .await;
    let found = parse(found, StatusCode::OK).await;
    assert_eq!((&found.body, found.etag.as_str()), (&first.body, "\"1\""));

    let patch = json!({"tags": ["dog", "toy"], "model": null, "persona": {"role": "a lapdog"}});
    let patched = installation
        .conditional(
            Method::PATCH,
            &first.path,
            &org.key,
            Some("\"1\""),
            Some(patch),
        )
        .await;
    let patched = parse(patched, StatusCode::OK).await;
    assert_eq!(patched.etag, "\"2\"");
    assert_eq!(patched.body["model"], Value::Null);
    assert_eq!(patched.body["persona"]["role"], "a lapdog");
    assert_eq!(patched.body["persona"]["greeting"], json!(["Wuff!"]));
    assert_eq!(patched.body["created_at"], first.body["created_at"]);

    // The complete view as a patch changes nothing and creates no version.
    let same = installation
        .conditional(
            Method::PATCH,
            &first.path,
            &org.key,
            Some("*"),
            Some(patched.body.clone()),
        )
        .await;
    assert_eq!(parse(same, StatusCode::OK).await.body, patched.body);

    let gone = installation
        .conditional(Method::DELETE, &first.path, &org.key, Some("\"2\""), None)
        .await;
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
    let (status, problem) = installation
        .send(Method::GET, &first.path, Some(&org.key), None)
        .await;
    assert_eq!(
        (status, &problem["type"]),
        (StatusCode::NOT_FOUND, &json!("/problems/not_found"))
    );
}

#[tokio::test]
async fn change_requires_the_current_version() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let template = installation.create_template(&org.key, bello()).await;
    for method in [Method::PATCH, Method::DELETE] {
        let check = async |etag: Option<&str>, status: u16, slug: &str| {
            let patch = Some(json!({"name": "Rex"}));
            let response = installation
                .conditional(method.clone(), &template.path, &org.key, etag, patch)
                .await;
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(body(response).await["type"], format!("/problems/{slug}"));
        };
        check(None, 428, "precondition_required").await;
        check(Some("\"2\""), 412, "precondition_failed").await;
        check(Some("W/\"1\""), 412, "precondition_failed").await;
    }
    let (_, found) = installation
        .send(Method::GET, &template.path, Some(&org.key), None)
        .await;
    assert_eq!(found, template.body);
}

#[tokio::test]
async fn i7_one_of_concurrent_changes_succeeds() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let template = installation.create_template(&org.key, bello()).await;
    let change = |name: &'static str| {
        let patch = Some(json!({"name": name}));
        installation.conditional(
            Method::PATCH,
            &template.path,
            &org.key,
            Some("\"1\""),
            patch,
        )
    };
    let (one, two, three, four) = tokio::join!(change("A"), change("B"), change("C"), change("D"));
    let mut statuses = [one, two, three, four].map(|response| response.status().as_u16());
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412, 412, 412]);
}

impl Installation {
    /// Sends a template with these members replaced, and checks the pointer of the problem.
    async fn assert_rejected(&self, key: &str, change: Value, pointer: &str) {
        let mut document = bello();
        for (name, value) in change.as_object().unwrap() {
            document[name] = value.clone();
        }
        let (status, problem) = self
            .send(Method::POST, "/v1/templates", Some(key), Some(document))
            .await;
        let got = (
            status.as_u16(),
            &problem["type"],
            &problem["errors"][0]["pointer"],
        );
        assert_eq!(
            got,
            (422, &json!("/problems/invalid_body"), &json!(pointer)),
            "{problem}"
        );
    }
}

#[tokio::test]
async fn invalid_template_is_rejected_with_its_pointer() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let check = async |change, pointer| {
        installation
            .assert_rejected(&org.key, change, pointer)
            .await
    };
    check(json!({"name": ""}), "/name").await;
    check(json!({"name": 7}), "/name").await;
    check(json!({"tools": [null, []]}), "/tools").await;
    check(json!({"nmae": "x"}), "/nmae").await;
    check(json!({"version": 7}), "/version").await;
    check(json!({"persona": {"role": "a\0"}}), "/persona/role").await;
    let long = "x".repeat(16_001);
    check(
        json!({"persona": {"backstory": long}}),
        "/persona/backstory",
    )
    .await;
    let hot = json!({"provider": "p", "model": "m", "temperature": 3});
    check(json!({"model": hot}), "/model/temperature").await;
    check(
        json!({"avatar": format!("pic_{}", "0".repeat(32))}),
        "/avatar",
    )
    .await;
    check(json!({"visibility": "secret"}), "/visibility").await;

    let public = Some(json!({"name": "Bello", "visibility": "public"}));
    let (status, problem) = installation
        .send(Method::POST, "/v1/templates", Some(&org.key), public)
        .await;
    let got = (status.as_u16(), &problem["type"]);
    assert_eq!(got, (403, &json!("/problems/operator_only")));
    let (_, page) = installation
        .send(Method::GET, "/v1/templates", Some(&org.key), None)
        .await;
    assert_eq!(page, json!({"templates": [], "next_cursor": null}));
}

#[tokio::test]
async fn invalid_prompt_is_rejected_with_its_pointer() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let check = async |content: Value, pointer: &str| {
        let messages = json!([{"role": "user", "content": content}]);
        let change = json!({"prompt": {"messages": messages}});
        let pointer = format!("/prompt/messages/0/content{pointer}");
        installation
            .assert_rejected(&org.key, change, &pointer)
            .await;
    };
    check(json!({"type": "text", "text": "{{who}}"}), "/text").await;
    check(json!({"type": "text", "text": "a", "uri": "b:c"}), "/uri").await;
    check(json!({"type": "resource", "uri": "no uri"}), "/uri").await;
    check(json!({"type": "song"}), "/type").await;
    check(json!(["text", "a"]), "").await;
    let unknown = format!("pic_{}", "0".repeat(32));
    check(
        json!({"type": "image", "picture_id": unknown}),
        "/picture_id",
    )
    .await;
}

#[tokio::test]
async fn malformed_body_is_rejected() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let check = async |bytes: &[u8], status: u16, slug: &str| {
        let request = Request::builder()
            .method(Method::POST)
            .uri("/v1/templates")
            .header(header::AUTHORIZATION, format!("Bearer {}", org.key))
            .header(header::CONTENT_TYPE, "application/json");
        let response = installation
            .answer(request.body(bytes.to_vec().into()).unwrap())
            .await;
        assert_eq!(response.status().as_u16(), status);
        assert_eq!(body(response).await["type"], format!("/problems/{slug}"));
    };
    check(b"", 400, "empty_body").await;
    check(b"{\"name\":", 400, "malformed_json").await;
    check(b"{\"name\": \"\xff\"}", 400, "malformed_json").await;
    check(b"{\"name\": \"\\ud800\"}", 400, "malformed_json").await;
    check(b"[]", 422, "invalid_body").await;
    check(b"null", 422, "invalid_body").await;
    check(b"{\"name\": \"A\", \"name\": \"B\"}", 422, "invalid_body").await;
    let deep = [b"{\"persona\": ".as_slice(), &[b'['; 1_000]].concat();
    check(&deep, 400, "malformed_json").await;
}

#[tokio::test]
async fn patch_cannot_change_read_only_members() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let template = installation.create_template(&org.key, bello()).await;
    let check = async |patch: Value, pointer: &str| {
        let response = installation
            .conditional(
                Method::PATCH,
                &template.path,
                &org.key,
                Some("\"1\""),
                Some(patch),
            )
            .await;
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(body(response).await["errors"][0]["pointer"], pointer);
    };
    check(json!({"id": "tpl_1"}), "/id").await;
    check(json!({"version": 9}), "/version").await;
    check(json!({"visibility": "public"}), "/visibility").await;
    check(json!({"org_id": null}), "/org_id").await;
    check(json!({"name": null}), "/name").await;
    check(json!({"tags": "dog"}), "/tags").await;
    check(json!({"persona": {"mood": "good"}}), "/persona/mood").await;
    check(json!([]), "").await;
    let (_, found) = installation
        .send(Method::GET, &template.path, Some(&org.key), None)
        .await;
    assert_eq!(found, template.body);
}

#[tokio::test]
async fn prompt_name_is_unique() {
    let installation = Installation::start().await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Games").await,
    );
    installation.create_template(&org.key, bello()).await;
    installation.create_template(&other.key, bello()).await;
    let (status, problem) = installation
        .send(Method::POST, "/v1/templates", Some(&org.key), Some(bello()))
        .await;
    assert_eq!(
        (status, &problem["type"], &problem["errors"][0]["pointer"]),
        (
            StatusCode::CONFLICT,
            &json!("/problems/prompt_name_taken"),
            &json!("/prompt/name")
        )
    );
    let rex = installation
        .create_template(&org.key, json!({"name": "Rex"}))
        .await;
    let patch = Some(json!({"prompt": bello()["prompt"]}));
    let taken = installation
        .conditional(Method::PATCH, &rex.path, &org.key, Some("\"1\""), patch)
        .await;
    assert_eq!(taken.status(), StatusCode::CONFLICT);
}

#[tokio::test]
async fn templates_of_others_are_not_accessible() {
    let installation = Installation::start().await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Games").await,
    );
    let template = installation.create_template(&org.key, bello()).await;
    for (method, etag) in [
        (Method::GET, None),
        (Method::PATCH, Some("\"1\"")),
        (Method::DELETE, Some("\"1\"")),
    ] {
        let patch = Some(json!({"name": "Rex"}));
        let response = installation
            .conditional(method, &template.path, &other.key, etag, patch)
            .await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
    }
    for nonsense in [
        "tpl_",
        "tpl_1",
        "x",
        "%00",
        "mem_00000000000000000000000000000001",
    ] {
        let path = format!("/v1/templates/{nonsense}");
        let (status, _) = installation
            .send(Method::GET, &path, Some(&org.key), None)
            .await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{nonsense}");
    }
    let (_, page) = installation
        .send(Method::GET, "/v1/templates", Some(&other.key), None)
        .await;
    assert_eq!(page["templates"], json!([]));
}

#[tokio::test]
async fn templates_of_the_operator_are_public() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let mut document = bello();
    document["visibility"] = "public".into();
    let public = installation.create_template(OPERATOR_KEY, document).await;
    assert_eq!(
        (&public.body["visibility"], &public.body["org_id"]),
        (&json!("public"), &Value::Null)
    );
    let own = installation.create_template(&org.key, bello()).await;

    let names = async |query: &str, key: &str| {
        let (status, page) = installation
            .send(
                Method::GET,
                &format!("/v1/templates{query}"),
                Some(key),
                None,
            )
            .await;
        assert_eq!(status, StatusCode::OK, "{page}");
        let ids = page["templates"]
            .as_array()
            .unwrap()
            .iter()
            .map(|template| template["id"].clone());
        ids.collect::<Vec<_>>()
    };
    let (public_id, own_id) = (public.body["id"].clone(), own.body["id"].clone());
    assert_eq!(names("", &org.key).await, [public_id.clone(), own_id]);
    assert_eq!(
        names("?visibility=public", &org.key).await,
        std::slice::from_ref(&public_id)
    );
    assert_eq!(names("", OPERATOR_KEY).await, [public_id]);

    let refused = installation
        .conditional(
            Method::PATCH,
            &public.path,
            &org.key,
            Some("\"1\""),
            Some(json!({"name": "Rex"})),
        )
        .await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let changed = installation
        .conditional(
            Method::PATCH,
            &public.path,
            OPERATOR_KEY,
            Some("\"1\""),
            Some(json!({"name": "Rex"})),
        )
        .await;
    assert_eq!(changed.status(), StatusCode::OK);
    let (status, _) = installation
        .send(Method::GET, &own.path, Some(OPERATOR_KEY), None)
        .await;
    assert_eq!(
        status,
        StatusCode::NOT_FOUND,
        "the operator does not read what is private"
    );
}

#[tokio::test]
async fn list_has_pages() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let mut expected = Vec::new();
    for index in 0..5 {
        let template = installation
            .create_template(&org.key, json!({"name": format!("T{index}")}))
            .await;
        expected.push(template.body["id"].clone());
    }
    let (mut found, mut query, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let path = format!("/v1/templates?limit=2{query}");
        let (_, page) = installation
            .send(Method::GET, &path, Some(&org.key), None)
            .await;
        found.extend(
            page["templates"]
                .as_array()
                .unwrap()
                .iter()
                .map(|template| template["id"].clone()),
        );
        pages += 1;
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        query = format!("&cursor={cursor}");
    }
    assert_eq!((found, pages), (expected, 3));
    for query in [
        "limit=0",
        "limit=201",
        "limit=x",
        "cursor=x",
        "visibility=private",
        "page=2",
    ] {
        let path = format!("/v1/templates?{query}");
        let (status, problem) = installation
            .send(Method::GET, &path, Some(&org.key), None)
            .await;
        assert_eq!(
            (status.as_u16(), &problem["type"]),
            (400, &json!("/problems/invalid_query")),
            "{query}"
        );
    }
}

#[tokio::test]
async fn reads_need_read_and_writes_need_admin() {
    let installation = Installation::start().await;
    let org: Org = installation.new_org("Toys").await;
    let template = installation.create_template(&org.key, bello()).await;
    let limited = async |scope: &str| {
        let request = json!({"name": "limited", "scopes": [scope]});
        let (_, key) = installation
            .send(Method::POST, "/v1/api-keys", Some(&org.key), Some(request))
            .await;
        key["api_key"].as_str().unwrap().to_owned()
    };
    let (reader, caller) = (limited("read").await, limited("call").await);
    let check = async |method: Method, key: Option<&str>, status: u16| {
        let path = if method == Method::POST {
            "/v1/templates"
        } else {
            &template.path
        };
        let (got, problem) = installation
            .send(method, path, key, Some(json!({"name": "x"})))
            .await;
        assert_eq!(got.as_u16(), status, "{problem}");
    };
    check(Method::GET, Some(&reader), 200).await;
    check(Method::GET, Some(&caller), 403).await;
    check(Method::GET, None, 401).await;
    check(Method::POST, Some(&reader), 403).await;
    check(Method::PATCH, Some(&reader), 403).await;
    check(Method::DELETE, Some(&reader), 403).await;
}
