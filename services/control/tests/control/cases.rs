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
    /// Whether it gives a list page by page.
    pub(crate) paged: bool,
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
            let paged = parameters
                .clone()
                .any(|parameter| parameter["name"] == "cursor");
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
                paged,
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

/// A webhook where nobody answers.
fn webhook() -> Value {
    json!({"url": "http://127.0.0.1:9/hook", "events": ["device.online"]})
}

/// Where a voice is sent, and what has to be said of it.
pub(crate) const VOICES: &str = "/v1/voices?name=Anna&consent_by=Anna&consent_statement=Yes.";

/// Silence of so many milliseconds: 8 000 times a second 16 bits.
pub(crate) fn wav(milliseconds: u32) -> Vec<u8> {
    let bytes = milliseconds * 16;
    let mut wav = b"RIFF".to_vec();
    wav.extend((36 + bytes).to_le_bytes());
    wav.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data");
    wav.extend(bytes.to_le_bytes());
    wav.resize(wav.len() + bytes as usize, 0);
    wav
}

/// What the operation needs to be there, and what is sent.
fn request_of(operation: &str) -> (&'static str, Content) {
    match operation {
        "createOrg" => ("", Content::Json(json!({"name": "Toys"}))),
        "changeOrg" => ("", Content::Json(json!({"name": "Games"}))),
        "createApiKey" => ("", Content::Json(json!({"name": "backend"}))),
        "createToken" => (
            "",
            Content::Json(json!({"subject": "device:toy-1", "scopes": ["device"]})),
        ),
        "createTemplate" => ("", Content::Json(json!({"name": "Bello"}))),
        "importTemplate" => ("", Content::Json(crate::cards::card("Bello"))),
        "addPicture" => ("", Content::Bytes(png(3))),
        "listApiKeys" | "getKeySet" | "listTemplates" | "listPictures" | "listNpcs"
        | "listSkillsBooks" | "listVoices" | "listWebhooks" | "listAuditLog" | "getUsage"
        | "getOrg" => ("", Content::Nothing),
        "createWebhook" => ("", Content::Json(webhook())),
        "getWebhook"
        | "removeWebhook"
        | "listDeliveries"
        | "testWebhook"
        | "rotateWebhookSecret" => ("/v1/webhooks", Content::Nothing),
        "changeWebhook" => ("/v1/webhooks", Content::Json(json!({"description": "x"}))),
        "getDelivery" | "redeliver" => ("/deliveries", Content::Nothing),
        "createNpc" => ("", Content::Json(json!({"overrides": {"name": "Rex"}}))),
        "getNpc" | "removeNpc" | "listNpcMemories" => ("/v1/npcs", Content::Nothing),
        "changeNpc" => ("/v1/npcs", Content::Json(json!({"device_ids": ["toy-1"]}))),
        "addNpcMemories" => ("/v1/npcs", Content::Json(json!({"text": "Rex barks."}))),
        "revokeApiKey" => ("/v1/api-keys", Content::Nothing),
        "revokeToken" => ("/v1/tokens", Content::Nothing),
        "getTemplate" | "removeTemplate" | "exportTemplate" | "listMemories" => {
            ("/v1/templates", Content::Nothing)
        }
        "changeTemplate" => ("/v1/templates", Content::Json(json!({"tags": ["dog"]}))),
        "addMemories" => (
            "/v1/templates",
            Content::Json(json!({"text": "Bello is three."})),
        ),
        "removeMemory" => ("/memories", Content::Nothing),
        "getPicture" | "getPictureContent" | "removePicture" => ("/v1/pictures", Content::Nothing),
        "createSkillsBook" => ("", Content::Json(begun(BOOK))),
        "getSkillsBook" | "removeSkillsBook" | "cancelSkillsBook" | "searchSkillsBook" => {
            ("/v1/skills-books", Content::Nothing)
        }
        "writeSkillsBookPart" => ("/v1/skills-books", Content::Bytes(BOOK.to_vec())),
        "finishSkillsBook" => ("/parts", Content::Nothing),
        "addVoice" => ("", Content::Bytes(wav(1_300))),
        "getVoice" | "playVoice" | "trainVoice" | "removeVoice" => (VOICES, Content::Nothing),
        "changeVoice" => (VOICES, Content::Json(json!({"labels": ["warm"]}))),
        other => panic!(
            "{other} has no case: every operation must show that it keeps what holds for all"
        ),
    }
}

impl Installation {
    /// Makes what the operation needs, and the request for it. An operation that has none here fails the test.
    pub(crate) async fn case(&self, operation: &Operation, org: &Org) -> Case {
        let (needed, content) = request_of(&operation.id);
        let id = self.needed(needed, org).await;
        let path = operation.path.replace("{id}", &id);
        let query = match operation.id.as_str() {
            "searchSkillsBook" => "?q=battery",
            _ => "",
        };
        Case {
            method: operation.method.clone(),
            path: match operation.id.as_str() {
                "addVoice" => VOICES.to_owned(),
                _ => path.replace("{number}", "1") + query,
            },
            content,
            if_match: matches!(
                operation.id.as_str(),
                "changeTemplate"
                    | "removeTemplate"
                    | "changeOrg"
                    | "changeNpc"
                    | "removeNpc"
                    | "changeWebhook"
                    | "removeWebhook"
                    | "changeVoice"
            ),
        }
    }

    /// Makes what an operation needs, and says its id.
    async fn needed(&self, needed: &str, org: &Org) -> String {
        match needed {
            "" => String::new(),
            VOICES => {
                self.id_of(self.post(org, needed, Content::Bytes(wav(1_300))).await)
                    .await
            }
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
            "/deliveries" => self.given_up(org).await,
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
                    "/v1/webhooks" => webhook(),
                    "/v1/tokens" => json!({"subject": "device:toy-1", "scopes": ["device"]}),
                    "/v1/npcs" => json!({"overrides": {"name": "Rex"}}),
                    _ => json!({"name": "Bello"}),
                };
                self.id_of(self.post(org, needed, Content::Json(content)).await)
                    .await
            }
        }
    }

    /// A delivery that was given up, to a webhook that is enabled.
    async fn given_up(&self, org: &Org) -> String {
        let made = self.post(org, "/v1/webhooks", Content::Json(webhook()));
        let path = format!("/v1/webhooks/{}", self.id_of(made.await).await);
        let test = format!("{path}/test");
        let test = self.post(org, &test, Content::Nothing).await;
        let delivery = self.id_of(test).await;
        for (version, enabled) in [("\"1\"", false), ("\"2\"", true)] {
            let request = Request::patch(&path)
                .header(header::AUTHORIZATION, format!("Bearer {}", org.key))
                .header(header::IF_MATCH, version)
                .header(header::CONTENT_TYPE, "application/json")
                .body(Body::from(json!({"enabled": enabled}).to_string()));
            let changed = self.answer(request.unwrap()).await;
            assert!(changed.status().is_success(), "{}", changed.status());
        }
        delivery
    }

    /// Makes two elements of the list at this path, so that it has more than one page of one.
    pub(crate) async fn fill(&self, list: &Operation, path: &str, org: &Org) {
        for number in 1..=2 {
            let (path, content) = match list.id.as_str() {
                // What was made before stands in it.
                "listAuditLog" => return,
                "listDeliveries" => (path.replace("/deliveries", "/test"), Content::Nothing),
                "listMemories" | "listNpcMemories" => {
                    (path.to_owned(), Content::Json(json!({"text": "x"})))
                }
                "listPictures" => (path.to_owned(), Content::Bytes(png(10 + number))),
                "listVoices" => (VOICES.to_owned(), Content::Bytes(wav(1_300 + number))),
                "listSkillsBooks" => (path.to_owned(), Content::Json(begun(BOOK))),
                "listWebhooks" => (path.to_owned(), Content::Json(webhook())),
                "listNpcs" => {
                    let npc = json!({"overrides": {"name": "Rex"}});
                    (path.to_owned(), Content::Json(npc))
                }
                _ => (path.to_owned(), Content::Json(json!({"name": "x"}))),
            };
            let made = self.post(org, &path, content).await.status();
            assert!(made.is_success(), "{}: {made}", list.id);
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
