//! Every operation is allowed for its own organisation only, and with the required scope only.

use http::{Method, StatusCode};
use serde_json::json;

use crate::{
    cases::{credential, operations},
    installation::{Installation, body},
};

#[tokio::test]
async fn operation_is_limited_to_its_organisation() {
    let installation = Installation::start().await;
    installation.trusted().await;
    let (own, foreign) = (
        installation.new_org("own").await,
        installation.new_org("foreign").await,
    );
    let operations = operations();
    assert!(operations.len() > 15, "{}", operations.len());
    for operation in &operations {
        // It has no credential, and every credential may ask who it is: see `session.rs`.
        if matches!(operation.id.as_str(), "createSession" | "getSession") {
            continue;
        }
        let case = installation.case(operation, &own).await;
        let status = async |credential: Option<&str>| {
            installation
                .send_case(&case, credential, None)
                .await
                .status()
        };
        if operation.scope.is_some() || operation.by_operator {
            assert_eq!(
                status(None).await,
                StatusCode::UNAUTHORIZED,
                "{}",
                operation.id
            );
        }
        if let Some(scope) = &operation.scope {
            let other = if scope == "read" { "admin" } else { "read" };
            let key = installation.key(&own, &[other, "call"]).await;
            assert_eq!(
                status(Some(&key)).await,
                StatusCode::FORBIDDEN,
                "{}",
                operation.id
            );
            if operation.path.contains("{id}") {
                assert_eq!(
                    status(Some(&foreign.key)).await,
                    StatusCode::NOT_FOUND,
                    "{}",
                    operation.id
                );
            }
        } else if operation.by_operator {
            assert_eq!(
                status(Some(&own.key)).await,
                StatusCode::FORBIDDEN,
                "{}",
                operation.id
            );
        }
        // Last, since it may delete the resource: the earlier requests had no effect.
        let done = status(credential(operation, &own)).await;
        assert!(done.is_success(), "{}: {done}", operation.id);
    }
}

#[tokio::test]
async fn list_has_no_resources_of_others() {
    let installation = Installation::start().await;
    let (own, foreign) = (
        installation.new_org("own").await,
        installation.new_org("foreign").await,
    );
    for operation in operations()
        .iter()
        .filter(|operation| operation.keyed && operation.scope.is_some())
    {
        let case = installation.case(operation, &own).await;
        let created = installation.send_case(&case, Some(&own.key), None).await;
        assert_eq!(created.status(), StatusCode::CREATED, "{}", operation.id);
    }
    for path in [
        "/v1/templates",
        "/v1/npcs",
        "/v1/pictures",
        "/v1/skills-books",
        "/v1/voices",
        "/v1/api-keys",
        "/v1/webhooks",
    ] {
        let (_, listed) = installation
            .send(Method::GET, path, Some(&own.key), None)
            .await;
        let (_, others) = installation
            .send(Method::GET, path, Some(&foreign.key), None)
            .await;
        let name = path.rsplit('/').next().unwrap().replace('-', "_");
        let (listed, others) = (&listed[&name], others[&name].as_array().unwrap());
        assert!(!listed.as_array().unwrap().is_empty(), "{listed}");
        for one in listed.as_array().unwrap() {
            assert!(!others.contains(one), "{one}");
        }
    }
}

#[tokio::test]
async fn cursor_of_another_list_is_rejected() {
    let installation = Installation::start().await;
    let (own, foreign) = (
        installation.new_org("own").await,
        installation.new_org("foreign").await,
    );
    let operations = operations();
    let lists = operations.iter();
    let lists: Vec<_> = lists
        .filter(|one| one.paged && one.scope.is_some())
        .collect();
    assert!(lists.len() >= 10, "{}", lists.len());
    // The lists of both organisations, and a cursor of the other one.
    let mut found = Vec::new();
    for list in lists {
        let path = installation.case(list, &own).await.path;
        let theirs = installation.case(list, &foreign).await.path;
        installation.add_two_elements(list, &theirs, &foreign).await;
        let first = format!("{theirs}?limit=1");
        let (status, page) = installation
            .send(Method::GET, &first, Some(&foreign.key), None)
            .await;
        assert_eq!(status, StatusCode::OK, "{first}: {page}");
        let cursor = page["next_cursor"].as_str();
        let cursor = cursor
            .unwrap_or_else(|| panic!("{first}: {page}"))
            .to_owned();
        found.push((path, theirs, cursor));
    }
    for (index, (path, theirs, cursor)) in found.iter().enumerate() {
        let next = format!("{theirs}?limit=1&cursor={cursor}");
        let (status, page) = installation
            .send(Method::GET, &next, Some(&foreign.key), None)
            .await;
        assert_eq!(status, StatusCode::OK, "{next}: {page}");
        let (_, _, of_another_list) = &found[(index + 1) % found.len()];
        for (path, key, cursor) in [
            (path, &own.key, cursor),
            (theirs, &foreign.key, of_another_list),
        ] {
            let target = format!("{path}?cursor={cursor}");
            let (status, problem) = installation
                .send(Method::GET, &target, Some(key), None)
                .await;
            assert_eq!(
                (status, &problem["type"]),
                (StatusCode::BAD_REQUEST, &json!("/problems/invalid_query")),
                "{target}: {problem}"
            );
            let detail = problem["detail"].as_str().unwrap();
            assert!(
                detail.starts_with("`cursor` does not belong to this list"),
                "{detail}"
            );
        }
    }
}

/// The problem for methods that a path does not support.
#[tokio::test]
async fn unsupported_method_is_a_problem() {
    let installation = Installation::start().await;
    let org = installation.new_org("own").await;
    let all = operations();
    for operation in &all {
        let path = operation.path.replace("{id}", "x").replace("{number}", "1");
        let taken: Vec<_> = all
            .iter()
            .filter(|other| other.path == operation.path)
            .map(|other| other.method.clone())
            .collect();
        for method in [
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
        ] {
            if taken.contains(&method) {
                continue;
            }
            let response = installation
                .request(method.clone(), &path, Some(&org.key), None)
                .await;
            assert_eq!(
                response.status(),
                StatusCode::METHOD_NOT_ALLOWED,
                "{method} {path}"
            );
            let allowed = response.headers()["allow"].to_str().unwrap().to_owned();
            for taken in &taken {
                assert!(
                    allowed.contains(taken.as_str()),
                    "{method} {path}: {allowed}"
                );
            }
            assert_eq!(body(response).await["type"], "/problems/method_not_allowed");
        }
    }
}
