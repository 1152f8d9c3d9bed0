//! Every operation: done for its own organisation, not for others, not for strangers, not without the scope.

use http::{Method, StatusCode};
use serde_json::json;

use crate::{
    cases::{credential, operations},
    installation::{Installation, body},
};

#[tokio::test]
async fn every_operation_is_for_its_organisation_only() {
    let installation = Installation::start().await;
    let (own, foreign) = (
        installation.new_org("own").await,
        installation.new_org("foreign").await,
    );
    let operations = operations();
    assert!(operations.len() > 15, "{}", operations.len());
    for operation in &operations {
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
        // Last, since it may be gone then; so nobody before did it.
        let done = status(credential(operation, &own)).await;
        assert!(done.is_success(), "{}: {done}", operation.id);
    }
}

#[tokio::test]
async fn no_list_shows_what_is_anothers() {
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
        let made = installation.send_case(&case, Some(&own.key), None).await;
        assert_eq!(made.status(), StatusCode::CREATED, "{}", operation.id);
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
        let (_, shown) = installation
            .send(Method::GET, path, Some(&own.key), None)
            .await;
        let (_, others) = installation
            .send(Method::GET, path, Some(&foreign.key), None)
            .await;
        let name = path.rsplit('/').next().unwrap().replace('-', "_");
        let (shown, others) = (&shown[&name], others[&name].as_array().unwrap());
        assert!(!shown.as_array().unwrap().is_empty(), "{shown}");
        for one in shown.as_array().unwrap() {
            assert!(!others.contains(one), "{one}");
        }
    }
}

#[tokio::test]
async fn no_list_takes_a_cursor_of_anothers_or_of_another_list() {
    let installation = Installation::start().await;
    let (own, foreign) = (
        installation.new_org("own").await,
        installation.new_org("foreign").await,
    );
    let operations = operations();
    let lists: Vec<_> = operations.iter().filter(|one| one.paged).collect();
    assert!(lists.len() >= 10, "{}", lists.len());
    // The paths of one's own lists and of theirs, and a cursor of theirs.
    let mut found = Vec::new();
    for list in lists {
        let path = installation.case(list, &own).await.path;
        let theirs = installation.case(list, &foreign).await.path;
        installation.fill(list, &theirs, &foreign).await;
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
            let asked = format!("{path}?cursor={cursor}");
            let (status, problem) = installation
                .send(Method::GET, &asked, Some(key), None)
                .await;
            assert_eq!(
                (status, &problem["type"]),
                (StatusCode::BAD_REQUEST, &json!("/problems/invalid_query")),
                "{asked}: {problem}"
            );
            let detail = problem["detail"].as_str().unwrap();
            assert!(
                detail.starts_with("`cursor` is not one of this list"),
                "{detail}"
            );
        }
    }
}

/// What routers say of methods that a path does not take.
#[tokio::test]
async fn methods_that_a_path_does_not_take_are_told() {
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
