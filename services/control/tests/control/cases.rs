//! One valid request for every operation of the OpenAPI document, for tests of all operations.

use axum::{body::Body, response::Response};
use http::{Method, Request, header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::installation::{Installation, OPERATOR_KEY, Org, body};

/// A valid request for an operation.
pub(crate) struct Case {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) content: Content,
    pub(crate) if_match: bool,
}

/// The body of a request.
pub(crate) enum Content {
    Nothing,
    Json(Value),
    Bytes(Vec<u8>),
}

/// An operation of the OpenAPI document.
pub(crate) struct Operation {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) id: String,
    /// The required scope; `None` if organisations cannot use the operation.
    pub(crate) scope: Option<String>,
    pub(crate) by_operator: bool,
    pub(crate) keyed: bool,
    /// Whether it returns a list in pages.
    pub(crate) paged: bool,
}

/// All operations of the control plane.
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

/// A skills book with one part.
const BOOK: &[u8] = b"Replace the battery once a year.";

/// The request body for a skills book with this document.
pub(crate) fn new_book(document: &[u8]) -> Value {
    json!({"name": "Manual", "mime_type": "text/plain", "size_bytes": document.len(), "sha256": sha256(document)})
}

/// The SHA-256 in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes);
    digits.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A picture of this width; different widths have different bytes.
pub(crate) fn png(width: u32) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    png.extend(width.to_be_bytes());
    png.extend(b"\0\0\0\x01\x08\x06\0\0\0");
    png
}

/// A webhook at a closed port.
fn webhook() -> Value {
    json!({"url": "http://127.0.0.1:9/hook", "events": ["device.online"]})
}

/// The path of an upload, with the required parameters.
pub(crate) const VOICES: &str = "/v1/voices?name=Anna&consent_by=Anna&consent_statement=Yes.";

/// A WAV of silence: 8 kHz, 16 bits.
pub(crate) fn wav(milliseconds: u32) -> Vec<u8> {
    let bytes = milliseconds * 16;
    let mut wav = b"RIFF".to_vec();
    wav.extend((36 + bytes).to_le_bytes());
    wav.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data");
    wav.extend(bytes.to_le_bytes());
    wav.resize(wav.len() + bytes as usize, 0);
    wav
}

/// The prerequisite of an operation, and its body.
fn request_of(operation: &str) -> (&'static str, Content) {
    match operation {
        "createOrg" => ("", Content::Json(json!({"name": "Toys"}))),
        "updateOrg" => ("", Content::Json(json!({"name": "Games"}))),
        // Without effect: the organisation is used again.
        "updateOrgAsOperator" => ("/v1/orgs", Content::Json(json!({"suspended": false}))),
        "createApiKey" => ("", Content::Json(json!({"name": "backend"}))),
        "createToken" => (
            "",
            Content::Json(json!({"subject": "device:toy-1", "scopes": ["device"]})),
        ),
        "createTemplate" => ("", Content::Json(json!({"name": "Bello"}))),
        "importTemplate" => ("", Content::Json(crate::cards::card("Bello"))),
        "createPicture" => ("", Content::Bytes(png(3))),
        "listApiKeys" | "getKeySet" | "listTemplates" | "listPictures" | "listNpcs"
        | "listSkillsBooks" | "listVoices" | "listWebhooks" | "listAuditEntries" | "getUsage"
        | "getUsageBy" | "listTokens" | "listNodes" | "getOrg" | "listOrgs" | "getSession"
        | "deleteSession" => ("", Content::Nothing),
        "createSession" => ("", Content::Json(json!({"api_key": OPERATOR_KEY}))),
        "createWebhook" => ("", Content::Json(webhook())),
        "getWebhook"
        | "deleteWebhook"
        | "listDeliveries"
        | "testWebhook"
        | "rotateWebhookSecret" => ("/v1/webhooks", Content::Nothing),
        "updateWebhook" => ("/v1/webhooks", Content::Json(json!({"description": "x"}))),
        "getDelivery" | "retryDelivery" => ("/deliveries", Content::Nothing),
        "createNpc" => ("", Content::Json(json!({"overrides": {"name": "Rex"}}))),
        "getNpc" | "deleteNpc" | "listNpcMemories" => ("/v1/npcs", Content::Nothing),
        "updateNpc" => ("/v1/npcs", Content::Json(json!({"device_ids": ["toy-1"]}))),
        "createNpcMemories" => ("/v1/npcs", Content::Json(json!({"text": "Rex barks."}))),
        "revokeApiKey" => ("/v1/api-keys", Content::Nothing),
        "revokeToken" => ("/v1/tokens", Content::Nothing),
        "getTemplate" | "deleteTemplate" | "exportTemplate" | "listMemories" => {
            ("/v1/templates", Content::Nothing)
        }
        "updateTemplate" => ("/v1/templates", Content::Json(json!({"tags": ["dog"]}))),
        "createMemories" => (
            "/v1/templates",
            Content::Json(json!({"text": "Bello is three."})),
        ),
        "deleteMemory" => ("/memories", Content::Nothing),
        "updateMemory" => ("/memories", Content::Json(json!({"text": "y"}))),
        "listRecordings" => ("", Content::Nothing),
        "getRecording" | "getRecordingContent" | "deleteRecording" | "deleteRecordings" => {
            ("/recordings", Content::Nothing)
        }
        "getPicture" | "getPictureContent" | "deletePicture" => ("/v1/pictures", Content::Nothing),
        "createSkillsBook" => ("", Content::Json(new_book(BOOK))),
        "getSkillsBook" | "deleteSkillsBook" | "cancelSkillsBook" | "searchSkillsBook" => {
            ("/v1/skills-books", Content::Nothing)
        }
        "uploadSkillsBookPart" => ("/v1/skills-books", Content::Bytes(BOOK.to_vec())),
        "finishSkillsBook" => ("/parts", Content::Nothing),
        "createVoice" => ("", Content::Bytes(wav(1_300))),
        "getVoice" | "previewVoice" | "trainVoice" | "deleteVoice" => (VOICES, Content::Nothing),
        "updateVoice" => (VOICES, Content::Json(json!({"labels": ["warm"]}))),
        other => panic!("{other} has no case in the tests of all operations"),
    }
}

impl Installation {
    /// Creates the prerequisite of an operation, and its request. An operation without a case fails
    /// the test.
    pub(crate) async fn case(&self, operation: &Operation, org: &Org) -> Case {
        let (kind, content) = request_of(&operation.id);
        let id = self.prerequisite(kind, org).await;
        let path = operation.path.replace("{id}", &id);
        let query = match operation.id.as_str() {
            "searchSkillsBook" => "?q=battery",
            "getUsageBy" => "?dimension=device",
            _ => "",
        };
        Case {
            method: operation.method.clone(),
            path: match operation.id.as_str() {
                "createVoice" => VOICES.to_owned(),
                _ => path.replace("{number}", "1") + query,
            },
            content,
            if_match: matches!(
                operation.id.as_str(),
                "updateTemplate"
                    | "deleteTemplate"
                    | "updateOrg"
                    | "updateNpc"
                    | "deleteNpc"
                    | "updateWebhook"
                    | "deleteWebhook"
                    | "updateVoice"
            ),
        }
    }

    /// Creates the prerequisite of an operation. Returns its id.
    async fn prerequisite(&self, kind: &str, org: &Org) -> String {
        match kind {
            "" => String::new(),
            "/v1/orgs" => org.id.clone(),
            VOICES => {
                self.id_of(self.post(org, kind, Content::Bytes(wav(1_300))).await)
                    .await
            }
            "/v1/pictures" => {
                self.id_of(self.post(org, kind, Content::Bytes(png(3))).await)
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
            "/deliveries" => self.failed_delivery(org).await,
            "/recordings" => self.recording(org, "toy-1").await,
            "/parts" => {
                let book = Content::Json(new_book(BOOK));
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
                let content = match kind {
                    "/v1/skills-books" => new_book(BOOK),
                    "/v1/webhooks" => webhook(),
                    "/v1/tokens" => json!({"subject": "device:toy-1", "scopes": ["device"]}),
                    "/v1/npcs" => json!({"overrides": {"name": "Rex"}}),
                    _ => json!({"name": "Bello"}),
                };
                self.id_of(self.post(org, kind, Content::Json(content)).await)
                    .await
            }
        }
    }

    /// A failed delivery to an enabled webhook.
    async fn failed_delivery(&self, org: &Org) -> String {
        let created = self.post(org, "/v1/webhooks", Content::Json(webhook()));
        let path = format!("/v1/webhooks/{}", self.id_of(created.await).await);
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

    /// Adds two elements to the list at this path, so that it has several pages of one element.
    pub(crate) async fn add_two_elements(&self, list: &Operation, path: &str, org: &Org) {
        for number in 1..=2 {
            let (path, content) = match list.id.as_str() {
                // Earlier requests have created entries.
                "listAuditEntries" => return,
                "listRecordings" => {
                    self.recording(org, "toy-1").await;
                    continue;
                }
                "listDeliveries" => (path.replace("/deliveries", "/test"), Content::Nothing),
                "listMemories" | "listNpcMemories" => {
                    (path.to_owned(), Content::Json(json!({"text": "x"})))
                }
                "listPictures" => (path.to_owned(), Content::Bytes(png(10 + number))),
                "listVoices" => (VOICES.to_owned(), Content::Bytes(wav(1_300 + number))),
                "listSkillsBooks" => (path.to_owned(), Content::Json(new_book(BOOK))),
                "listTokens" => {
                    let token = json!({"subject": "device:toy-1", "scopes": ["device"]});
                    (path.to_owned(), Content::Json(token))
                }
                "listWebhooks" => (path.to_owned(), Content::Json(webhook())),
                "listNpcs" => {
                    let npc = json!({"overrides": {"name": "Rex"}});
                    (path.to_owned(), Content::Json(npc))
                }
                _ => (path.to_owned(), Content::Json(json!({"name": "x"}))),
            };
            let created = self.post(org, &path, content).await.status();
            assert!(created.is_success(), "{}: {created}", list.id);
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

    async fn id_of(&self, created: Response) -> String {
        let created = body(created).await;
        let id = ["api_key_id", "token_id", "id"]
            .iter()
            .find_map(|name| created[*name].as_str());
        id.unwrap_or_else(|| panic!("{created}")).to_owned()
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

    /// Creates another key of the organisation.
    pub(crate) async fn key(&self, org: &Org, scopes: &[&str]) -> String {
        let request = json!({"name": "other", "scopes": scopes});
        let created = self.post(org, "/v1/api-keys", Content::Json(request)).await;
        body(created).await["api_key"].as_str().unwrap().to_owned()
    }
}

/// The credential for an operation of this organisation.
pub(crate) fn credential<'a>(operation: &Operation, org: &'a Org) -> Option<&'a str> {
    match (&operation.scope, operation.by_operator) {
        (Some(_), _) => Some(&org.key),
        (None, true) => Some(OPERATOR_KEY),
        (None, false) => None,
    }
}
