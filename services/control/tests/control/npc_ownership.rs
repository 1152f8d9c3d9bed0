//! `/v1/npcs`: ownership, devices, and concurrent changes.

use http::{Method, StatusCode};
use serde_json::json;

use crate::{
    installation::{Installation, OPERATOR_KEY},
    npcs::{bello, is, problem},
};

#[tokio::test]
async fn npcs_of_others_are_not_accessible() {
    let installation = Installation::start().await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Games").await,
    );
    let public = installation
        .create(OPERATOR_KEY, "/v1/templates", bello())
        .await;
    let document = json!({"template_id": public.id(), "device_ids": ["toy-1"]});
    let npc = installation
        .create(&org.key, "/v1/npcs", document.clone())
        .await;
    for method in [Method::GET, Method::PATCH, Method::DELETE] {
        let patch = Some(json!({"device_ids": []}));
        let response = installation
            .conditional(method, &npc.path, &other.key, Some("*"), patch)
            .await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
    }
    for nonsense in ["npc_", "npc_1", "x", "%00", public.id()] {
        let path = format!("/v1/npcs/{nonsense}");
        let (status, _) = installation
            .send(Method::GET, &path, Some(&org.key), None)
            .await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{nonsense}");
    }
    // Neither the list nor the device filter reveals it.
    for query in [
        "".to_owned(),
        "?device_id=toy-1".to_owned(),
        format!("?template_id={}", public.id()),
    ] {
        let path = format!("/v1/npcs{query}");
        assert!(
            installation.ids(&other.key, &path).await.is_empty(),
            "{query}"
        );
    }
    installation.create(&other.key, "/v1/npcs", document).await;
    // NPCs belong to organisations, so the operator key has no access; a public template in use
    // cannot be deleted.
    let (status, _) = installation
        .send(Method::GET, "/v1/npcs", Some(OPERATOR_KEY), None)
        .await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let refused = installation
        .delete(OPERATOR_KEY, &public.path, &public.etag)
        .await;
    assert_eq!(problem(refused).await.1, "/problems/template_in_use");
}

#[tokio::test]
async fn device_has_one_npc() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let npc =
        |name: &str, devices: &[&str]| json!({"overrides": {"name": name}, "device_ids": devices});
    let one = installation
        .create(&org.key, "/v1/npcs", npc("A", &["toy-2", "toy-1"]))
        .await;
    assert_eq!(one.body["device_ids"], json!(["toy-1", "toy-2"]));
    let two = installation
        .create(&org.key, "/v1/npcs", npc("B", &["toy-3"]))
        .await;
    let taken = npc("C", &["toy-4", "toy-2"]);
    let (status, answer) = installation
        .send(Method::POST, "/v1/npcs", Some(&org.key), Some(taken))
        .await;
    assert_eq!(
        (
            status.as_u16(),
            (
                answer["type"].clone(),
                answer["errors"][0]["pointer"].clone()
            )
        ),
        (409, is("device_taken", "/device_ids/1"))
    );
    assert!(
        answer["detail"].as_str().unwrap().contains(one.id()),
        "{answer}"
    );
    let (status, slug, at) = installation
        .patch_rejected(&org.key, &two, json!({"device_ids": ["toy-1"]}))
        .await;
    assert_eq!(
        (status, (slug, at)),
        (409, is("device_taken", "/device_ids/0"))
    );
    assert_eq!(installation.fetch(&org.key, &two.path).await.body, two.body);

    let of = async |device: &str| {
        installation
            .ids(&org.key, &format!("/v1/npcs?device_id={device}"))
            .await
    };
    assert_eq!(of("toy-2").await, [one.id()]);
    assert!(
        of("toy-4").await.is_empty(),
        "of what was refused nothing is left"
    );
    let one = installation
        .patch_ok(&org.key, &one, json!({"device_ids": ["toy-1", "toy-5"]}))
        .await;
    assert_eq!(
        (of("toy-5").await, of("toy-2").await),
        (vec![one.id().to_owned()], vec![])
    );
    let two = installation
        .patch_ok(&org.key, &two, json!({"device_ids": ["toy-2", "toy-3"]}))
        .await;
    assert_eq!(of("toy-2").await, [two.id()]);
    installation.delete(&org.key, &two.path, &two.etag).await;
    assert!(of("toy-2").await.is_empty());

    let make = || {
        let document = Some(npc("D", &["toy-8", "toy-9"]));
        installation.request(Method::POST, "/v1/npcs", Some(&org.key), document)
    };
    let (a, b, c, d) = tokio::join!(make(), make(), make(), make());
    let mut statuses = [a, b, c, d].map(|response| response.status().as_u16());
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409, 409, 409]);
}

#[tokio::test]
async fn i7_one_of_concurrent_changes_succeeds() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let npc = installation
        .create(&org.key, "/v1/npcs", json!({"overrides": {"name": "A"}}))
        .await;
    let change = |name: &str| {
        let patch = Some(json!({"overrides": {"name": name}}));
        installation.conditional(Method::PATCH, &npc.path, &org.key, Some("\"1\""), patch)
    };
    let (one, two, three) = tokio::join!(change("B"), change("C"), change("D"));
    let mut statuses = [one, two, three].map(|response| response.status().as_u16());
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412, 412]);
}

#[tokio::test]
async fn list_has_pages_and_requires_scopes() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let mut expected = Vec::new();
    for index in 0..5 {
        let document = json!({"overrides": {"name": format!("N{index}")}});
        expected.push(
            installation
                .create(&org.key, "/v1/npcs", document)
                .await
                .id()
                .to_owned(),
        );
    }
    let (mut found, mut query) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/npcs?limit=2{query}");
        found.extend(installation.ids(&org.key, &path).await);
        let (_, page) = installation
            .send(Method::GET, &path, Some(&org.key), None)
            .await;
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        query = format!("&cursor={cursor}");
    }
    assert_eq!(found, expected);
    for query in [
        "limit=0",
        "cursor=x",
        "device_id=a%20b",
        "device_id=",
        "template_id=x",
        "page=2",
    ] {
        let path = format!("/v1/npcs?{query}");
        let (status, answer) = installation
            .send(Method::GET, &path, Some(&org.key), None)
            .await;
        assert_eq!(
            (status.as_u16(), &answer["type"]),
            (400, &json!("/problems/invalid_query")),
            "{query}"
        );
    }
    let request = Some(json!({"name": "reader", "scopes": ["read"]}));
    let (_, reader) = installation
        .send(Method::POST, "/v1/api-keys", Some(&org.key), request)
        .await;
    let reader = reader["api_key"].as_str();
    let path = format!("/v1/npcs/{}", expected[0]);
    for (method, path, status) in [
        (Method::GET, "/v1/npcs", 200),
        (Method::GET, &path, 200),
        (Method::POST, "/v1/npcs", 403),
        (Method::PATCH, &path, 403),
        (Method::DELETE, &path, 403),
    ] {
        let (got, _) = installation
            .send(method, path, reader, Some(json!({})))
            .await;
        assert_eq!(got.as_u16(), status, "{path}");
    }
}
