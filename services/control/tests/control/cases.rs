//! One good request for every operation of the document, so that what holds for all of them is tested on all of them.

use axum::{body::Body, response::Response};
use http::{Method, Request, header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::installation::{Installation, OPERATOR_KEY, Org, body};

/// A request that does what its operation is for.
pub(crate) struct Case {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) content: Content,
    pub(crate) if_match: bool,
}

/// What is sent.
pub(crate) enum Content {
    Nothing,
    Json(Value),
    Bytes(Vec<u8>),
}

/// An operation of the document.
pub(crate) struct Operation {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) id: String,
    /// What a credential must allow; none when an organisation cannot do it.
    pub(crate) scope: Option<String>,
    pub(crate) by_operator: bool,
    pub(crate) keyed: bool,
}

/// All of them.
pub(crate) fn operations() -> Vec<Operation> {
    let document = switchboard_control::document();
    let mut found = Vec::new();
    for (path, item) in document.as_json()["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let security = operation["security"].as_array().unwrap();
            let scope = security
                .iter()
                .find_map(|scheme| scheme["credential"][0].as_str());
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            found.push(Operation {
                method: method.to_uppercase().parse().unwrap(),
                path: path.clone(),
                id: operation["operationId"].as_str().unwrap().to_owned(),
                scope: scope.map(str::to_owned),
                by_operator: security.iter().any(|scheme| scheme["operator"].is_array()),
                keyed: parameters.into_iter().any(|parameter| {
                    parameter["$ref"]
                        .as_str()
                        .is_some_and(|name| name.ends_with("/IdempotencyKey"))
                }),
            });
        }
    }
    found
}

/// A skills book of one part.
const BOOK: &[u8] = b"Replace the battery once a year.";

/// What declares a skills book.
pub(crate) fn begun(document: &[u8]) -> Value {
    json!({"name": "Manual", "mime_type": "text/plain", "size_bytes": document.len(), "sha256": sha256(document)})
}

/// In hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes);
    digits.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A picture of these many pixels: no two widths are the same bytes.
pub(crate) fn png(width: u32) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    png.extend(width.to_be_bytes());
    png.extend(b"\0\0\0\x01\x08\x06\0\0\0");
    png
}

impl Installation {
    /// Makes what the operation needs, and the request for it. An operation that has none here fails the test.
    pub(crate) async fn case(&self, operation: &Operation, org: &Org) -> Case {
        let (needed, content) = match operation.id.as_str() {
            "createOrg" => ("", Content::Json(json!({"name": "Toys"}))),
            "createApiKey" => ("", Content::Json(json!({"name": "backend"}))),
            "createToken" => (
                "",
                Content::Json(json!({"subject": "device:toy-1", "scopes": ["device"]})),
            ),
            "createTemplate" => ("", Content::Json(json!({"name": "Bello"}))),
            "addPicture" => ("", Content::Bytes(png(3))),
            "listApiKeys" | "getKeySet" | "listTemplates" | "listPictures" | "listNpcs"
            | "listSkillsBooks" => ("", Content::Nothing),
            "createNpc" => ("", Content::Json(json!({"overrides": {"name": "Rex"}}))),
            "getNpc" | "removeNpc" | "listNpcMemories" => ("/v1/npcs", Content::Nothing),
            "changeNpc" => ("/v1/npcs", Content::Json(json!({"device_ids": ["toy-1"]}))),
            "addNpcMemories" => ("/v1/npcs", Content::Json(json!({"text": "Rex barks."}))),
            "revokeApiKey" => ("/v1/api-keys", Content::Nothing),
            "revokeToken" => ("/v1/tokens", Content::Nothing),
            "getTemplate" | "removeTemplate" | "listMemories" => {
                ("/v1/templates", Content::Nothing)
            }
            "changeTemplate" => ("/v1/templates", Content::Json(json!({"tags": ["dog"]}))),
            "addMemories" => (
                "/v1/templates",
                Content::Json(json!({"text": "Bello is three."})),
            ),
            "removeMemory" => ("/memories", Content::Nothing),
            "getPicture" | "getPictureContent" | "removePicture" => {
                ("/v1/pictures", Content::Nothing)
            }
            "createSkillsBook" => ("", Content::Json(begun(BOOK))),
            "getSkillsBook" | "removeSkillsBook" | "cancelSkillsBook" | "searchSkillsBook" => {
                ("/v1/skills-books", Content::Nothing)
            }
            "writeSkillsBookPart" => ("/v1/skills-books", Content::Bytes(BOOK.to_vec())),
            "finishSkillsBook" => ("/parts", Content::Nothing),
            other => panic!(
                "{other} has no case: every operation must show that it keeps what holds for all"
            ),
        };
        let id = self.needed(needed, org).await;
        let path = operation.path.replace("{id}", &id);
        let query = match operation.id.as_str() {
            "searchSkillsBook" => "?q=battery",
            _ => "",
        };
        Case {
            method: operation.method.clone(),
            path: path.replace("{number}", "1") + query,
            content,
            if_match: matches!(
                operation.id.as_str(),
                "changeTemplate" | "removeTemplate" | "changeNpc" | "removeNpc"
            ),
        }
    }

    /// Makes what an operation needs, and says its id.
    async fn needed(&self, needed: &str, org: &Org) -> String {
        match needed {
            "" => String::new(),
            "/v1/pictures" => {
                self.id_of(self.post(org, needed, Content::Bytes(png(3))).await)
                    .await
            }
            "/memories" => {
                let template = self
                    .post(
                        org,
                        "/v1/templates",
                        Content::Json(json!({"name": "Bello"})),
                    )
                    .await;
                let path = format!("/v1/templates/{}/memories", self.id_of(template).await);
                self.id_of(
                    self.post(org, &path, Content::Json(json!({"text": "x"})))
                        .await,
                )
                .await
            }
            "/parts" => {
                let book = Content::Json(begun(BOOK));
                let book = self.post(org, "/v1/skills-books", book).await;
                let id = self.id_of(book).await;
                let case = Case {
                    method: Method::PUT,
                    path: format!("/v1/skills-books/{id}/parts/1"),
                    content: Content::Bytes(BOOK.to_vec()),
                    if_match: false,
                };
                let written = self.send_case(&case, Some(&org.key), None).await;
                assert!(written.status().is_success(), "{}", written.status());
                id
            }
            _ => {
                let content = match needed {
                    "/v1/skills-books" => begun(BOOK),
                    "/v1/tokens" => json!({"subject": "device:toy-1", "scopes": ["device"]}),
                    "/v1/npcs" => json!({"overrides": {"name": "Rex"}}),
                    _ => json!({"name": "Bello"}),
                };
                self.id_of(self.post(org, needed, Content::Json(content)).await)
                    .await
            }
        }
    }

    async fn post(&self, org: &Org, path: &str, content: Content) -> Response {
        let case = Case {
            method: Method::POST,
            path: path.to_owned(),
            content,
            if_match: false,
        };
        self.send_case(&case, Some(&org.key), None).await
    }

    async fn id_of(&self, made: Response) -> String {
        let made = body(made).await;
        let id = ["api_key_id", "token_id", "id"]
            .iter()
            .find_map(|name| made[*name].as_str());
        id.unwrap_or_else(|| panic!("{made}")).to_owned()
    }

    pub(crate) async fn send_case(
        &self,
        case: &Case,
        credential: Option<&str>,
        key: Option<&str>,
    ) -> Response {
        let mut request = Request::builder()
            .method(case.method.clone())
            .uri(&case.path);
        if let Some(credential) = credential {
            request = request.header(header::AUTHORIZATION, format!("Bearer {credential}"));
        }
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if case.if_match {
            request = request.header(header::IF_MATCH, "\"1\"");
        }
        let content = match &case.content {
            Content::Nothing => Body::empty(),
            Content::Bytes(bytes) => Body::from(bytes.clone()),
            Content::Json(json) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(json.to_string())
            }
        };
        self.answer(request.body(content).unwrap()).await
    }

    /// Another key of the organisation.
    pub(crate) async fn key(&self, org: &Org, scopes: &[&str]) -> String {
        let request = json!({"name": "other", "scopes": scopes});
        let made = self.post(org, "/v1/api-keys", Content::Json(request)).await;
        body(made).await["api_key"].as_str().unwrap().to_owned()
    }
}

/// The credential with which an operation is done for an organisation.
pub(crate) fn credential<'a>(operation: &Operation, org: &'a Org) -> Option<&'a str> {
    match (&operation.scope, operation.by_operator) {
        (Some(_), _) => Some(&org.key),
        (None, true) => Some(OPERATOR_KEY),
        (None, false) => None,
    }
}
