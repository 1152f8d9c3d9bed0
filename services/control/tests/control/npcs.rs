//! `/v1/npcs`: the effective settings of an NPC.

use axum::response::Response;
use http::{Method, StatusCode, header};
use serde_json::{Value, json};

use crate::installation::{Installation, body};

/// A resource in a response, and its entity tag.
pub(crate) struct ResourceResponse {
    pub(crate) path: String,
    pub(crate) etag: String,
    pub(crate) body: Value,
}

impl ResourceResponse {
    pub(crate) fn id(&self) -> &str {
        self.body["id"].as_str().unwrap()
    }
}

async fn parse(path: &str, response: Response, status: StatusCode) -> ResourceResponse {
    let etag = response.headers().get(header::ETAG).cloned();
    let location = response.headers().get(header::LOCATION).cloned();
    let got = response.status();
    let body = body(response).await;
    assert_eq!(got, status, "{body}");
    let path = match location {
        Some(location) => location.to_str().unwrap().to_owned(),
        None => path.to_owned(),
    };
    ResourceResponse {
        path,
        etag: etag.unwrap().to_str().unwrap().to_owned(),
        body,
    }
}

impl Installation {
    /// Creates a template or an NPC.
    pub(crate) async fn create(&self, key: &str, path: &str, document: Value) -> ResourceResponse {
        let response = self.request(Method::POST, path, Some(key), Some(document));
        parse(path, response.await, StatusCode::CREATED).await
    }

    pub(crate) async fn fetch(&self, key: &str, path: &str) -> ResourceResponse {
        let response = self.request(Method::GET, path, Some(key), None).await;
        parse(path, response, StatusCode::OK).await
    }

    pub(crate) async fn patch_ok(
        &self,
        key: &str,
        before: &ResourceResponse,
        patch: Value,
    ) -> ResourceResponse {
        let (path, etag) = (&before.path, Some(before.etag.as_str()));
        let response = self.conditional(Method::PATCH, path, key, etag, Some(patch));
        parse(path, response.await, StatusCode::OK).await
    }

    /// Sends an invalid patch. Returns the status, type and pointer of the problem.
    pub(crate) async fn patch_rejected(
        &self,
        key: &str,
        before: &ResourceResponse,
        patch: Value,
    ) -> (u16, Value, Value) {
        let (path, etag) = (&before.path, Some(before.etag.as_str()));
        let response = self.conditional(Method::PATCH, path, key, etag, Some(patch));
        problem(response.await).await
    }

    pub(crate) async fn delete(&self, key: &str, path: &str, etag: &str) -> Response {
        self.conditional(Method::DELETE, path, key, Some(etag), None)
            .await
    }

    pub(crate) async fn ids(&self, key: &str, path: &str) -> Vec<String> {
        let (status, page) = self.send(Method::GET, path, Some(key), None).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        let npcs = page["npcs"].as_array().unwrap().iter();
        npcs.map(|npc| npc["id"].as_str().unwrap().to_owned())
            .collect()
    }
}

pub(crate) async fn problem(response: Response) -> (u16, Value, Value) {
    let status = response.status().as_u16();
    let body = body(response).await;
    (
        status,
        body["type"].clone(),
        body["errors"][0]["pointer"].clone(),
    )
}

pub(crate) fn is(slug: &str, pointer: &str) -> (Value, Value) {
    (json!(format!("/problems/{slug}")), json!(pointer))
}

pub(crate) fn bello() -> Value {
    json!({
        "name": "Bello", "tags": ["dog"], "persona": {"role": "a watchdog", "backstory": "Found in a box."},
        "voice": {"voice_id": "deep", "rate": 1.0},
    })
}

#[tokio::test]
async fn npc_follows_its_template_unless_pinned() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let template = installation
        .create(&org.key, "/v1/templates", bello())
        .await;
    let overrides = json!({"persona": {"role": "a lapdog"}, "voice": {"rate": 1.5}});
    let document = json!({"template_id": template.id(), "overrides": overrides});
    let npc = installation.create(&org.key, "/v1/npcs", document).await;
    assert!(npc.id().starts_with("npc_"));
    assert_eq!(npc.path, format!("/v1/npcs/{}", npc.id()));
    assert_eq!(
        (npc.etag.as_str(), &npc.body["version"]),
        ("\"1-1\"", &json!(1))
    );
    assert_eq!(npc.body["overrides"], overrides);
    assert_eq!(npc.body["org_id"], org.id);
    let effective = &npc.body["effective"];
    assert_eq!(effective["name"], "Bello");
    assert_eq!(effective["persona"]["role"], "a lapdog");
    assert_eq!(effective["persona"]["backstory"], "Found in a box.");
    assert_eq!(
        (&effective["voice"]["voice_id"], &effective["voice"]["rate"]),
        (&json!("deep"), &json!(1.5))
    );
    let document = json!({"template_id": template.id(), "template_version": 1});
    let pinned = installation.create(&org.key, "/v1/npcs", document).await;

    let patch = json!({"persona": {"role": "a guard", "backstory": "Born in a barn."}, "tags": []});
    installation.patch_ok(&org.key, &template, patch).await;
    let after = installation.fetch(&org.key, &npc.path).await;
    assert_eq!(
        (after.etag.as_str(), &after.body["effective_version"]),
        ("\"1-2\"", &json!(2))
    );
    assert_eq!(after.body["effective"]["persona"]["role"], "a lapdog");
    assert_eq!(
        after.body["effective"]["persona"]["backstory"],
        "Born in a barn."
    );
    assert_eq!(after.body["effective"]["tags"], json!([]));
    let stays = installation.fetch(&org.key, &pinned.path).await;
    assert_eq!(
        (stays.body, stays.etag),
        (pinned.body.clone(), pinned.etag.clone())
    );

    // The entity tag includes the version of the template.
    let (status, slug, _) = installation
        .patch_rejected(&org.key, &npc, json!({"device_ids": ["a"]}))
        .await;
    assert_eq!(
        (status, slug),
        (412, json!("/problems/precondition_failed"))
    );
    let follows = installation
        .patch_ok(&org.key, &pinned, json!({"template_version": null}))
        .await;
    assert_eq!(
        (follows.etag.as_str(), &follows.body["effective"]["tags"]),
        ("\"2-2\"", &json!([]))
    );
    let back = installation
        .patch_ok(&org.key, &follows, json!({"template_version": 1}))
        .await;
    assert_eq!(back.body["effective"], pinned.body["effective"]);
    let (status, slug, pointer) = installation
        .patch_rejected(&org.key, &back, json!({"template_version": 3}))
        .await;
    assert_eq!(
        (status, (slug, pointer)),
        (422, is("invalid_body", "/template_version"))
    );
}

#[tokio::test]
async fn npc_without_template_has_its_own_settings() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let npc = installation
        .create(&org.key, "/v1/npcs", json!({"overrides": bello()}))
        .await;
    assert_eq!(npc.etag, "\"1\"");
    assert_eq!(npc.body["effective"]["persona"]["role"], "a watchdog");
    assert_eq!(
        (
            &npc.body["template_id"],
            &npc.body["effective_version"],
            &npc.body["lapsed"]
        ),
        (&Value::Null, &Value::Null, &json!([]))
    );
    let refused = installation
        .patch_rejected(&org.key, &npc, json!({"overrides": {"name": null}}))
        .await;
    assert_eq!(
        (refused.0, (refused.1, refused.2)),
        (422, is("invalid_body", "/overrides/name"))
    );
    let template = installation
        .create(&org.key, "/v1/templates", json!({"name": "T"}))
        .await;
    let patch = json!({"template_id": template.id(), "overrides": {"name": null}});
    let made_from = installation.patch_ok(&org.key, &npc, patch).await;
    assert_eq!(
        (
            &made_from.body["effective"]["name"],
            &made_from.body["effective"]["tags"]
        ),
        (&json!("T"), &json!(["dog"]))
    );
}

#[tokio::test]
async fn override_is_merged_and_removed() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let template = installation
        .create(&org.key, "/v1/templates", bello())
        .await;
    let document = json!({"template_id": template.id(), "overrides": {"tags": ["toy"], "voice": {"rate": 2.0}}});
    let first = installation.create(&org.key, "/v1/npcs", document).await;
    let patch = json!({"overrides": {"voice": {"pitch": 2.0}, "persona": {"role": "a guard"}, "tags": null}});
    let second = installation.patch_ok(&org.key, &first, patch).await;
    assert_eq!(
        second.body["overrides"],
        json!({"voice": {"rate": 2.0, "pitch": 2.0}, "persona": {"role": "a guard"}})
    );
    assert_eq!(second.body["effective"]["tags"], json!(["dog"]));
    // The complete view as a patch changes nothing, even if the client writes 1.0 as 1.
    let mut whole = second.body.clone();
    whole["effective"]["voice"]["rate"] = json!(2);
    let same = installation.patch_ok(&org.key, &second, whole).await;
    assert_eq!(
        (same.etag, same.body),
        (second.etag.clone(), second.body.clone())
    );
    for (patch, pointer) in [
        (json!({"id": "npc_1"}), "/id"),
        (json!({"version": 7}), "/version"),
        (json!({"effective": {"name": "Rex"}}), "/effective"),
        (json!({"lapsed": ["/overrides/voice"]}), "/lapsed"),
        (json!({"nmae": "x"}), "/nmae"),
        (json!({"overrides": {"tags": "toy"}}), "/overrides/tags"),
        (json!({"overrides": {"mood": "good"}}), "/overrides/mood"),
        (
            json!({"overrides": {"voice": {"rate": 9}}}),
            "/overrides/voice/rate",
        ),
        (
            json!({"overrides": {"persona": {"role": "a\0"}}}),
            "/overrides/persona/role",
        ),
        (
            json!({"overrides": null, "template_id": null}),
            "/overrides/name",
        ),
        (json!([]), ""),
    ] {
        let (status, slug, at) = installation.patch_rejected(&org.key, &second, patch).await;
        assert_eq!((status, (slug, at)), (422, is("invalid_body", pointer)));
    }
    for etag in [None, Some("\"1-1\""), Some("\"2\"")] {
        let patch = Some(json!({"overrides": null}));
        let response = installation.conditional(Method::PATCH, &second.path, &org.key, etag, patch);
        let expected = if etag.is_none() { 428 } else { 412 };
        assert_eq!(response.await.status().as_u16(), expected);
    }
    assert_eq!(
        installation.fetch(&org.key, &second.path).await.body,
        second.body
    );
}

#[tokio::test]
async fn override_lapses_when_its_template_changes() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let template = installation
        .create(&org.key, "/v1/templates", bello())
        .await;
    let document =
        json!({"template_id": template.id(), "overrides": {"voice": {"rate": 2.0}, "name": "Rex"}});
    let npc = installation.create(&org.key, "/v1/npcs", document).await;
    let voiceless = installation
        .patch_ok(&org.key, &template, json!({"voice": null}))
        .await;
    let npc = installation.fetch(&org.key, &npc.path).await;
    assert_eq!(npc.body["lapsed"], json!(["/overrides/voice"]));
    assert_eq!(
        (
            &npc.body["effective"]["voice"],
            &npc.body["effective"]["name"]
        ),
        (&Value::Null, &json!("Rex"))
    );
    let npc = installation
        .patch_ok(&org.key, &npc, json!({"device_ids": ["toy-1"]}))
        .await;
    let (status, slug, at) = installation
        .patch_rejected(&org.key, &npc, json!({"overrides": {"name": "Max"}}))
        .await;
    assert_eq!(
        (status, (slug, at)),
        (422, is("invalid_body", "/overrides/voice/voice_id"))
    );
    installation
        .patch_ok(&org.key, &voiceless, json!({"voice": {"voice_id": "high"}}))
        .await;
    let npc = installation.fetch(&org.key, &npc.path).await;
    assert_eq!(npc.body["lapsed"], json!([]));
    assert_eq!(
        (
            &npc.body["effective"]["voice"]["voice_id"],
            &npc.body["effective"]["voice"]["rate"]
        ),
        (&json!("high"), &json!(2.0))
    );
}

#[tokio::test]
async fn template_in_use_cannot_be_deleted() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let template = installation
        .create(&org.key, "/v1/templates", bello())
        .await;
    for pin in [json!(null), json!(1)] {
        let document = json!({"template_id": template.id(), "template_version": pin});
        let npc = installation.create(&org.key, "/v1/npcs", document).await;
        let refused = installation
            .delete(&org.key, &template.path, &template.etag)
            .await;
        assert_eq!(problem(refused).await.0, 409);
        let listed = format!("/v1/npcs?template_id={}", template.id());
        assert_eq!(installation.ids(&org.key, &listed).await, [npc.id()]);
        let gone = installation.delete(&org.key, &npc.path, &npc.etag).await;
        assert_eq!(gone.status(), StatusCode::NO_CONTENT);
        let (status, _) = installation
            .send(Method::GET, &npc.path, Some(&org.key), None)
            .await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }
    let gone = installation
        .delete(&org.key, &template.path, &template.etag)
        .await;
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn invalid_npc_is_rejected_with_its_pointer() {
    let installation = Installation::start().await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Games").await,
    );
    let foreign = installation
        .create(&other.key, "/v1/templates", bello())
        .await;
    let own = installation
        .create(&org.key, "/v1/templates", bello())
        .await;
    let unknown = format!("tpl_{}", "0".repeat(32));
    let picture = format!("pic_{}", "0".repeat(32));
    for (document, pointer) in [
        (json!({}), "/overrides/name"),
        (json!({"name": "Bello"}), "/name"),
        (json!({"template_id": unknown}), "/template_id"),
        (json!({"template_id": foreign.id()}), "/template_id"),
        (
            json!({"template_id": foreign.id(), "template_version": 1}),
            "/template_id",
        ),
        (
            json!({"template_id": own.id(), "template_version": 2}),
            "/template_version",
        ),
        (
            json!({"template_id": own.id(), "template_version": -1}),
            "/template_version",
        ),
        (
            json!({"overrides": {"name": "A"}, "template_version": 1}),
            "/template_version",
        ),
        (json!({"overrides": {"name": ""}}), "/overrides/name"),
        (
            json!({"overrides": {"name": "A", "avatar": picture}}),
            "/overrides/avatar",
        ),
        (
            json!({"overrides": {"name": "A", "tags": null}}),
            "/overrides/tags",
        ),
        (
            json!({"overrides": {"name": "A"}, "device_ids": ["a", "b c"]}),
            "/device_ids/1",
        ),
        (
            json!({"overrides": {"name": "A"}, "device_ids": ["a", "a"]}),
            "/device_ids/1",
        ),
    ] {
        let response = installation.request(
            Method::POST,
            "/v1/npcs",
            Some(&org.key),
            Some(document.clone()),
        );
        let (status, slug, at) = problem(response.await).await;
        assert_eq!(
            (status, (slug, at)),
            (422, is("invalid_body", pointer)),
            "{document}"
        );
    }
    assert!(installation.ids(&org.key, "/v1/npcs").await.is_empty());
}
