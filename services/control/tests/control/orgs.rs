//! `/v1/org`: the settings of the caller's organisation.

use http::{Method, StatusCode, header};
use serde_json::{Value, json};
use switchboard_test_support::eventually::eventually_true;

use crate::{
    installation::{Installation, OPERATOR_KEY, body},
    npcs::{ResourceResponse, is, problem},
};

const PATH: &str = "/v1/org";

#[tokio::test]
async fn organisation_has_a_default_npc() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let org_before = installation.fetch(&org.key, PATH).await;
    assert_eq!(org_before.etag, "\"1\"");
    assert_eq!(
        (
            &org_before.body["org_id"],
            &org_before.body["name"],
            &org_before.body["default_npc_id"]
        ),
        (&json!(org.id), &json!("Toys"), &Value::Null)
    );
    let document = json!({"overrides": {"name": "Rex"}});
    let npc = installation.create(&org.key, "/v1/npcs", document).await;
    let patch = json!({"default_npc_id": npc.id()});
    let set = installation
        .patch_ok(&org.key, &org_before, patch.clone())
        .await;
    assert_eq!(
        (
            set.etag.as_str(),
            &set.body["version"],
            &set.body["default_npc_id"]
        ),
        ("\"2\"", &json!(2), &json!(npc.id()))
    );
    assert_eq!(set.body["name"], "Toys");
    assert_ne!(set.body["updated_at"], org_before.body["updated_at"]);
    assert_eq!(set.body["created_at"], org_before.body["created_at"]);
    assert_eq!(installation.fetch(&org.key, PATH).await.body, set.body);
    // A patch without effect creates no version; the complete view is such a patch.
    let same = installation
        .patch_ok(&org.key, &set, set.body.clone())
        .await;
    assert_eq!((same.etag, same.body), (set.etag.clone(), set.body.clone()));
    let renamed = installation
        .patch_ok(&org.key, &set, json!({"name": "Games"}))
        .await;
    assert_eq!(
        (&renamed.body["name"], &renamed.body["default_npc_id"]),
        (&json!("Games"), &json!(npc.id()))
    );
    let patch = json!({"default_npc_id": null});
    let none = installation.patch_ok(&org.key, &renamed, patch).await;
    assert_eq!(none.body["default_npc_id"], Value::Null);
}

#[tokio::test]
async fn deleted_default_npc_is_unset() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let document = json!({"overrides": {"name": "Rex"}});
    let npc = installation.create(&org.key, "/v1/npcs", document).await;
    let org_before = installation.fetch(&org.key, PATH).await;
    let patch = json!({"default_npc_id": npc.id()});
    let set = installation
        .patch_ok(&org.key, &org_before, patch.clone())
        .await;
    let removed = installation.delete(&org.key, &npc.path, &npc.etag).await;
    assert_eq!(removed.status(), StatusCode::NO_CONTENT);
    let after = installation.fetch(&org.key, PATH).await;
    assert_eq!(after.body["default_npc_id"], Value::Null);
    let (status, slug, _) = installation
        .patch_rejected(&org.key, &set, patch.clone())
        .await;
    assert_eq!(
        (status, slug),
        (412, json!("/problems/precondition_failed"))
    );
    let (status, slug, pointer) = installation.patch_rejected(&org.key, &after, patch).await;
    assert_eq!(
        (status, (slug, pointer)),
        (422, is("invalid_body", "/default_npc_id"))
    );
    let log = "/v1/audit-log?resource=org&action=changed";
    let (_, log) = installation
        .send(Method::GET, log, Some(&org.key), None)
        .await;
    let entries = log["entries"].as_array().unwrap();
    let changed: Vec<_> = entries.iter().map(|entry| &entry["changed"]).collect();
    // The entry of the deletion is that of the NPC.
    assert_eq!(changed, [&json!(["default_npc_id"])]);
    assert_eq!(entries[0]["resource_id"], org.id);
}

#[tokio::test]
async fn locale_of_an_organisation_is_published_to_all_nodes() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let before = installation.fetch(&org.key, PATH).await;
    assert_eq!(before.body["locale"], Value::Null);
    let id = org.id.parse().unwrap();
    let check = async |before: &ResourceResponse, locale: Value| {
        let patch = json!({"locale": locale});
        let set = installation.patch_ok(&org.key, before, patch).await;
        assert_eq!(set.body["locale"], locale);
        let is_known =
            || installation.bus.org_locale(id, str::to_owned).as_deref() == locale.as_str();
        eventually_true("the locale is known", is_known).await;
        set
    };
    let set = check(&before, json!("zh-Hans-CN")).await;
    assert_eq!(set.etag, "\"2\"");
    let unset = check(&set, Value::Null).await;
    let log = "/v1/audit-log?resource=org&action=changed";
    let (_, log) = installation
        .send(Method::GET, log, Some(&org.key), None)
        .await;
    assert_eq!(log["entries"][0]["changed"], json!(["locale"]), "{log}");
    for invalid in [
        json!("zh_CN"),
        json!(""),
        json!("d"),
        json!("de".repeat(20)),
    ] {
        let patch = json!({"locale": invalid});
        let (status, slug, pointer) = installation.patch_rejected(&org.key, &unset, patch).await;
        assert_eq!(
            (status, (slug, pointer)),
            (422, is("invalid_body", "/locale"))
        );
    }
}

#[tokio::test]
async fn invalid_org_is_rejected_with_its_pointer() {
    let installation = Installation::start().await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Games").await,
    );
    let document = json!({"overrides": {"name": "Rex"}});
    let theirs = installation.create(&other.key, "/v1/npcs", document).await;
    let org_before = installation.fetch(&org.key, PATH).await;
    let check = async |patch: Value, pointer: &str| {
        let (status, slug, place) = installation
            .patch_rejected(&org.key, &org_before, patch.clone())
            .await;
        assert_eq!(
            (status, (slug, place)),
            (422, is("invalid_body", pointer)),
            "{patch}"
        );
    };
    check(json!({"default_npc_id": theirs.id()}), "/default_npc_id").await;
    check(
        json!({"default_npc_id": format!("npc_{}", "0".repeat(32))}),
        "/default_npc_id",
    )
    .await;
    check(json!({"default_npc_id": "Rex"}), "/default_npc_id").await;
    check(json!({"name": null}), "/name").await;
    check(json!({"name": ""}), "/name").await;
    check(json!({"name": " Toys"}), "/name").await;
    check(json!({"name": "x".repeat(101)}), "/name").await;
    check(json!({"org_id": other.id}), "/org_id").await;
    check(json!({"version": 7}), "/version").await;
    check(json!({"created_at": null}), "/created_at").await;
    check(json!({"npc": 7}), "/npc").await;
    check(json!([]), "").await;
    assert_eq!(
        installation.fetch(&org.key, PATH).await.body,
        org_before.body
    );

    let name = json!({"name": "Games"});
    let response = installation.patch(&org.key, PATH, None, name.clone()).await;
    let (status, slug, _) = problem(response).await;
    assert_eq!(
        (status, slug),
        (428, json!("/problems/precondition_required"))
    );
    let stale = ResourceResponse {
        etag: "\"2\"".to_owned(),
        ..org_before
    };
    let (status, slug, _) = installation
        .patch_rejected(&org.key, &stale, name.clone())
        .await;
    assert_eq!(
        (status, slug),
        (412, json!("/problems/precondition_failed"))
    );
    let any = installation.patch(&org.key, PATH, Some("*"), name).await;
    assert_eq!(any.headers()[header::ETAG], "\"2\"");
    assert_eq!(body(any).await["name"], "Games");
    // The operator has no organisation.
    let (status, _) = installation
        .send(Method::GET, PATH, Some(OPERATOR_KEY), None)
        .await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}
