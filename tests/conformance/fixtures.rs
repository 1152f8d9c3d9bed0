//! The fixture prompts and resources of the conformance suite, created over the control plane's
//! HTTP
//! interface as an operator would create them.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use anyhow::{Context as _, bail};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::tools::PIXEL;

/// Creates fixtures with one organisation's key; cheap to clone.
#[derive(Clone)]
pub(super) struct Fixtures {
    http: reqwest::Client,
    control: String,
    key: String,
    added: Arc<AtomicU32>,
}

impl Fixtures {
    /// `control` is the control plane's URL, `key` an API key that may read and write.
    pub(super) fn new(http: reqwest::Client, control: String, key: String) -> Self {
        Self {
            http,
            control,
            key,
            added: Arc::default(),
        }
    }

    /// Creates everything that the suite requires.
    pub(super) async fn create(&self) -> anyhow::Result<()> {
        let picture = self.picture().await?;
        let mut first = None;
        for prompt in prompts(&picture) {
            let template = self.template(prompt).await?;
            first.get_or_insert(template);
        }
        let owner = first.context("a template to keep the memories")?;
        let path = format!("/v1/templates/{owner}/memories");
        self.post(&path, &json!({"memories": memories()})).await?;
        Ok(())
    }

    /// Adds one prompt.
    pub(super) async fn add_prompt(&self) -> anyhow::Result<()> {
        let number = self.added.fetch_add(1, Ordering::Relaxed);
        let prompt = spoken(
            &format!("test_added_prompt_{number}"),
            &json!([]),
            "This prompt came later.",
        );
        self.template(prompt).await?;
        Ok(())
    }

    async fn template(&self, prompt: Value) -> anyhow::Result<String> {
        let template = json!({"name": prompt["name"], "prompt": prompt});
        let created = self.post("/v1/templates", &template).await?;
        id_of(&created)
    }

    async fn picture(&self) -> anyhow::Result<String> {
        let path = "/v1/pictures?name=static-binary&uri=test%3A%2F%2Fstatic-binary";
        let request = self
            .http
            .post(format!("{}{path}", self.control))
            .header("content-type", "image/png")
            .body(BASE64_STANDARD.decode(PIXEL)?);
        id_of(&self.send(path, request).await?)
    }

    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.http.post(format!("{}{path}", self.control)).json(body);
        self.send(path, request).await
    }

    async fn send(&self, path: &str, request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
        let answer = request.bearer_auth(&self.key).send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        if !status.is_success() {
            bail!("POST {path} was answered with {status}: {text}");
        }
        serde_json::from_str(&text).with_context(|| format!("POST {path} answered {text}"))
    }
}

fn id_of(created: &Value) -> anyhow::Result<String> {
    let id = created["id"].as_str();
    Ok(id
        .with_context(|| format!("no id in {created}"))?
        .to_owned())
}

fn prompts(picture: &str) -> [Value; 5] {
    let required = |name: &str, description: &str| json!({"name": name, "description": description, "required": true});
    let mut with_context = spoken(
        "test_input_required_result_prompt",
        &json!([required("context", "What the prompt is about")]),
        "Use this context: {{context}}",
    );
    with_context["arguments"][0]["question"] = "What context should the prompt use?".into();
    [
        spoken(
            "test_simple_prompt",
            &json!([]),
            "This is a simple prompt for testing.",
        ),
        spoken(
            "test_prompt_with_arguments",
            &json!([
                {"name": "arg1", "description": "First test argument", "required": true, "values": ["test", "testing", "paris"]},
                required("arg2", "Second test argument"),
            ]),
            "Prompt with arguments: arg1='{{arg1}}', arg2='{{arg2}}'",
        ),
        prompt(
            "test_prompt_with_embedded_resource",
            &json!([required("resourceUri", "URI of the resource to embed")]),
            &[
                json!({"type": "resource", "uri": "{{resourceUri}}"}),
                user_message("Please process the embedded resource above."),
            ],
        ),
        prompt(
            "test_prompt_with_image",
            &json!([]),
            &[
                json!({"type": "image", "picture_id": picture}),
                user_message("Please analyze the image above."),
            ],
        ),
        with_context,
    ]
}

/// A prompt with one text.
fn spoken(name: &str, arguments: &Value, text: &str) -> Value {
    prompt(name, arguments, &[user_message(text)])
}

fn prompt(name: &str, arguments: &Value, contents: &[Value]) -> Value {
    let messages: Vec<_> = contents
        .iter()
        .map(|content| json!({"role": "user", "content": content}))
        .collect();
    json!({"name": name, "description": "A fixture", "arguments": arguments, "messages": messages})
}

fn user_message(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn memories() -> Value {
    let plain = |uri: &str, text: &str| json!({"uri": uri, "text": text});
    json!([
        plain(
            "test://static-text",
            "This is the content of the static text resource.",
        ),
        plain("test://watched-resource", "This may change one day."),
        plain(
            "test://example-resource",
            "Embedded resource content for testing.",
        ),
        {
            "uri": "test://template/{id}/data",
            "mime_type": "application/json",
            "text": r#"{"id":"{{id}}","templateTest":true,"data":"Data for ID: {{id}}"}"#,
        },
    ])
}
