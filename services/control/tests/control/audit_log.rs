//! The audit log: one entry per change, visible to its owner only, without secrets.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    cases::{Case, Content, credential, operations},
    installation::{Installation, OPERATOR_KEY, Org},
};

/// All entries that this credential can read.
async fn entries(installation: &Installation, credential: &str, filter: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/audit-log?limit=2{filter}{cursor}");
        let (status, page) = installation
            .send(Method::GET, &path, Some(credential), None)
            .await;
        assert_eq!(status, StatusCode::OK, "{page}");
        all.extend(page["entries"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

/// The id of the organisation's first key.
async fn key_id(installation: &Installation, org: &Org) -> String {
    let (_, keys) = installation
        .send(Method::GET, "/v1/api-keys", Some(&org.key), None)
        .await;
    keys["api_keys"][0]["api_key_id"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// The members that a request sets.
fn fields(case: &Case) -> Value {
    let Content::Json(Value::Object(patch)) = &case.content else {
        panic!("a patch is an object");
    };
    json!(patch.keys().collect::<Vec<_>>())
}

fn last<'a>(entries: &'a [Value], field: &str) -> &'a str {
    entries.last().unwrap()[field].as_str().unwrap()
}

/// The action of an operation.
fn action_of(operation: &str) -> &'static str {
    match operation.split(char::is_uppercase).next().unwrap() {
        "create" | "import" => "created",
        "update" | "finish" | "cancel" | "rotate" | "train" => "changed",
        "delete" => "removed",
        "revoke" => "revoked",
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn every_change_has_an_entry() {
    let installation = Installation::start().await;
    let (own, foreign) = (
        installation.new_org("own").await,
        installation.new_org("foreign").await,
    );
    let actor = key_id(&installation, &own).await;
    let of_the_other = entries(&installation, &foreign.key, "").await;
    let mut changes = 0;
    for operation in operations() {
        // It needs HTTPS, and has a test of its own.
        if operation.id == "createSession" {
            continue;
        }
        let case = installation.case(&operation, &own).await;
        if operation.id == "trainVoice" {
            // The training is in progress, so the request changes nothing.
            let voice = json!({"id": case.path.split('/').nth(3)});
            installation.wait_for_state(&own.key, &voice, "ready").await;
        }
        let before = entries(&installation, &own.key, "").await.len();
        let done = installation
            .send_case(&case, credential(&operation, &own), None)
            .await;
        assert!(done.status().is_success(), "{}", operation.id);
        let after = entries(&installation, &own.key, "").await;
        // Parts, deliveries and sessions are not settings.
        let unrecorded = [
            "createOrg",
            "updateOrgAsOperator",
            "uploadSkillsBookPart",
            "testWebhook",
            "retryDelivery",
            "deleteSession",
        ];
        if operation.method == Method::GET || unrecorded.contains(&operation.id.as_str()) {
            assert_eq!(after.len(), before, "{}", operation.id);
            continue;
        }
        changes += 1;
        assert_eq!(after.len(), before + 1, "{}: {after:?}", operation.id);
        assert_eq!(last(&after, "actor"), actor, "{}", operation.id);
        let action = action_of(&operation.id);
        assert_eq!(last(&after, "action"), action, "{}", operation.id);
        if operation.method == Method::PATCH {
            assert_eq!(
                after.last().unwrap()["changed"],
                fields(&case),
                "{}",
                operation.id
            );
        }
        if operation.id == "trainVoice" {
            assert_eq!(after[before]["changed"], json!(["making"]));
        }
        let id = last(&after, "resource_id").to_owned();
        assert!(!case.path.contains('_') || action == "created" || case.path.contains(&id));
        // A rejected change has no entry.
        let refused = installation
            .send_case(&case, Some(&foreign.key), None)
            .await;
        if operation.path.contains("{id}") {
            assert_eq!(refused.status(), StatusCode::NOT_FOUND, "{}", operation.id);
            assert_eq!(entries(&installation, &own.key, "").await.len(), before + 1);
        }
        let about = format!("&resource_id={id}&action={action}&actor={actor}");
        let found = entries(&installation, &own.key, &about).await;
        assert_eq!(found.last(), after.last(), "{}", operation.id);
    }
    assert!(changes > 10, "{changes}");
    let log = json!(entries(&installation, &own.key, "").await).to_string();
    assert!(!log.contains("sb_") && !log.contains("Bello"), "{log}");
    // The prerequisites that the other organisation created for the rejected requests.
    let others = entries(&installation, &foreign.key, "").await;
    assert!(others.starts_with(&of_the_other));
    assert!(others.iter().all(|entry| entry["actor"] != actor.as_str()));
}

#[tokio::test]
async fn entry_has_the_changed_members_of_an_npc() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let document = json!({"overrides": {"name": "Rex", "tags": ["dog"]}, "device_ids": ["toy-1"]});
    let npc = installation.create(&org.key, "/v1/npcs", document).await;
    let mut version = 1;
    let mut check = async |patch: Value, expected: Value| {
        let tag = format!("\"{version}\"");
        let done = installation
            .patch(&org.key, &npc.path, Some(&tag), patch.clone())
            .await;
        assert_eq!(done.status(), StatusCode::OK, "{patch}");
        version += 1;
        let all = entries(&installation, &org.key, "&resource=npc&action=changed").await;
        assert_eq!(all.len(), version - 1, "{patch}");
        assert_eq!(all.last().unwrap()["changed"], expected, "{patch}");
    };
    check(
        json!({"device_ids": ["toy-1", "toy-2"]}),
        json!(["device_ids"]),
    )
    .await;
    check(json!({"device_ids": ["toy-2"]}), json!(["device_ids"])).await;
    let persona = json!({"description": "A dog."});
    check(
        json!({"overrides": {"persona": persona}, "device_ids": ["toy-2"]}),
        json!(["overrides.persona"]),
    )
    .await;
    check(
        json!({"overrides": {"tags": null, "name": "Max"}, "device_ids": []}),
        json!(["device_ids", "overrides.name", "overrides.tags"]),
    )
    .await;
}

#[tokio::test]
async fn actor_is_the_operator_or_the_subject_of_a_token() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let first = entries(&installation, &org.key, "").await;
    let kinds: Vec<_> = first.iter().map(|entry| &entry["resource"]).collect();
    assert_eq!(kinds, ["org", "api_key"]);
    assert!(first.iter().all(|entry| entry["actor"] == "operator"));
    let request = json!({"name": "Bello"});
    let (_, public) = installation
        .send(
            Method::POST,
            "/v1/templates",
            Some(OPERATOR_KEY),
            Some(request),
        )
        .await;
    let of_the_operator = entries(&installation, OPERATOR_KEY, "").await;
    assert_eq!(last(&of_the_operator, "resource_id"), public["id"]);
    assert_eq!(last(&of_the_operator, "actor"), "operator");
    assert_eq!(entries(&installation, &org.key, "").await, first);

    installation.trusted().await;
    // A client with the name of another actor is not that actor.
    let request = json!({"subject": "client:operator", "scopes": ["admin"]});
    let (status, token) = installation
        .send(Method::POST, "/v1/tokens", Some(&org.key), Some(request))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{token}");
    let token = token["access_token"].as_str().unwrap();
    let (status, created) = installation
        .send(
            Method::POST,
            "/v1/templates",
            Some(token),
            Some(json!({"name": "Rex"})),
        )
        .await;
    assert_eq!(status, StatusCode::CREATED, "{created}");
    let all = entries(&installation, &org.key, "&resource=template").await;
    assert_eq!(last(&all, "actor"), "client:operator");
    let path = format!("/v1/templates/{}", created["id"].as_str().unwrap());
    let (status, _) = installation
        .send(
            Method::PATCH,
            &path,
            Some(token),
            Some(json!({"tags": ["a"]})),
        )
        .await;
    assert_eq!(status, StatusCode::PRECONDITION_REQUIRED);
    assert_eq!(
        entries(&installation, &org.key, "&resource=template").await,
        all
    );
}

#[tokio::test]
async fn old_entries_are_deleted_and_filters_are_checked() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    for wrong in [
        "resource_id=toy%201",
        "action=seen",
        "since=yesterday",
        "cursor=1",
        "who=me",
    ] {
        let path = format!("/v1/audit-log?{wrong}");
        let (status, problem) = installation
            .send(Method::GET, &path, Some(&org.key), None)
            .await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong}: {problem}");
    }
    for right in ["resource=approval", "resource_id=toy-1"] {
        let found = entries(&installation, &org.key, &format!("&{right}")).await;
        assert!(found.is_empty(), "{right}: {found:?}");
    }
    let all = entries(&installation, &org.key, "").await;
    let since = format!("&since={}", last(&all, "at").replace('+', "%2B"));
    let until = since.replace("since", "until");
    let newest = entries(&installation, &org.key, &since).await;
    let older = entries(&installation, &org.key, &until).await;
    assert_eq!([older, newest].concat(), all);
    let now = chrono::Utc::now();
    let year = chrono::TimeDelta::days(365);
    let purge = async |before, max| {
        let purged = installation.store.purge_audit_log(before, max);
        purged.await.unwrap()
    };
    assert_eq!(purge(now - year, 1_000).await, 0);
    assert!(purge(now, 1_000).await >= 2);
    assert!(entries(&installation, &org.key, "").await.is_empty());
}

#[tokio::test]
async fn oldest_entries_beyond_the_maximum_of_an_organisation_are_deleted() {
    let installation = Installation::start().await;
    let (org, other) = (
        installation.new_org("own").await,
        installation.new_org("other").await,
    );
    for _ in 0..3 {
        let key = Some(json!({"name": "Backend"}));
        let (status, answer) = installation
            .send(Method::POST, "/v1/api-keys", Some(&org.key), key)
            .await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }
    let all = entries(&installation, &org.key, "").await;
    let others = entries(&installation, &other.key, "").await;
    let max = all.len() - 2;
    assert!(others.len() <= max, "{others:?}");
    let year_ago = chrono::Utc::now() - chrono::TimeDelta::days(365);
    let purge = async || {
        let purged = installation.store.purge_audit_log(year_ago, max as i64);
        purged.await.unwrap()
    };
    assert_eq!(purge().await, 2);
    assert_eq!(entries(&installation, &org.key, "").await, all[2..]);
    assert_eq!(entries(&installation, &other.key, "").await, others);
    assert_eq!(purge().await, 0);
}
