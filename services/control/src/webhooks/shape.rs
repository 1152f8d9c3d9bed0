//! Webhooks as documents: how they are shown, and how they are read from what people send.
//! Never: a field that the store writes taken from a request, or a secret shown a second time.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchboard_protocol::id::{OrgId, WebhookId};
use switchboard_runtime::problem::Problem;
use switchboard_store::{Webhook, WebhookEvent, WebhookSettings};
use utoipa::ToSchema;

use super::{
    destination::{Destination, LONGEST},
    networks::Networks,
};
use crate::{
    document::{self, invalid},
    limits::{
        Limit::{Items, Line, Text},
        Rule, rule,
    },
    patch,
};

/// The limits; docs/webhooks.md repeats them.
pub(crate) const RULES: &[Rule] = &[
    rule("/url", Line(LONGEST)),
    rule("/events", Items(1, WebhookEvent::ALL.len())),
    rule("/description", Text(500)),
];

/// A webhook as it is sent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = NewWebhook)]
pub(crate) struct Document {
    /// Where it is: an `https` URL that leads to a public address, unless the operator allows others.
    #[schema(example = "https://example.com/switchboard")]
    url: String,
    /// What it is told, each once.
    #[schema(example = json!(["call.finished"]))]
    events: Vec<WebhookEvent>,
    /// What it is for.
    #[serde(default)]
    #[schema(example = "the shop's backend")]
    description: Option<String>,
    /// Whether it is told anything; true when not given. What happens meanwhile is not told later.
    #[serde(default = "enabled")]
    #[schema(example = true)]
    enabled: bool,
}

const fn enabled() -> bool {
    true
}

/// A webhook as it is shown.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Webhook)]
pub(crate) struct ShownWebhook {
    #[serde(flatten)]
    document: Document,
    #[serde(flatten)]
    standing: Standing,
}

/// What of a webhook is not set by its owner: what it is known by, and how it fares.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookStanding)]
struct Standing {
    /// Its id.
    id: WebhookId,
    /// Whose it is.
    org_id: OrgId,
    /// Why nothing is told any more, when nobody of the organisation asked for that: `gone` when it answered 410,
    /// `failing` when nothing arrived for three days.
    #[schema(max_length = 32, example = json!(null))]
    disabled_reason: Option<String>,
    /// Since when nothing has arrived; null when the last delivery has.
    #[schema(example = json!(null))]
    failing_since: Option<DateTime<Utc>>,
    /// How many events were dropped because too many waited.
    #[schema(minimum = 0, example = 0)]
    dropped: i64,
    /// How long the secret before this one signs as well; null when it does not.
    #[schema(example = json!(null))]
    former_secret_until: Option<DateTime<Utc>>,
    /// 1 at first, one more with each change.
    #[schema(minimum = 1, example = 1)]
    version: i64,
    /// When it was made.
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// When it was changed last.
    #[schema(example = "2026-01-02T03:04:05Z")]
    updated_at: DateTime<Utc>,
}

/// A webhook with a new secret, which is shown this once.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CreatedWebhook {
    /// What deliveries are signed with.
    #[schema(
        pattern = "^whsec_[A-Za-z0-9+/]{43}=$",
        example = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlBQkNERUY="
    )]
    secret: String,
    #[serde(flatten)]
    document: Document,
    #[serde(flatten)]
    standing: Standing,
}

impl CreatedWebhook {
    pub(super) fn new(secret: String, webhook: Webhook) -> Self {
        let ShownWebhook { document, standing } = webhook.into();
        Self {
            secret,
            document,
            standing,
        }
    }
}

/// What is shown and not set.
const READ_ONLY: [&str; 9] = [
    "id",
    "org_id",
    "disabled_reason",
    "failing_since",
    "dropped",
    "former_secret_until",
    "version",
    "created_at",
    "updated_at",
];

impl From<Webhook> for ShownWebhook {
    fn from(webhook: Webhook) -> Self {
        let settings = webhook.settings;
        Self {
            document: Document {
                url: settings.url,
                events: settings.events,
                description: settings.description,
                enabled: settings.enabled,
            },
            standing: Standing {
                id: webhook.id,
                org_id: webhook.org,
                disabled_reason: webhook.disabled_reason,
                failing_since: webhook.failing_since,
                dropped: webhook.dropped,
                former_secret_until: webhook.former_secret_until,
                version: webhook.version,
                created_at: webhook.created_at,
                updated_at: webhook.updated_at,
            },
        }
    }
}

/// The settings of a webhook that is sent.
pub(super) fn created(document: &Value, networks: &Networks) -> Result<WebhookSettings, Problem> {
    let settings = settings(document::read(document, "", RULES)?)?;
    check_url(&settings, networks)?;
    Ok(settings)
}

/// The settings after a merge patch of the webhook as it is shown.
pub(super) fn patched(
    current: &Webhook,
    sent: Value,
    networks: &Networks,
) -> Result<WebhookSettings, Problem> {
    let after = patch::merged(&ShownWebhook::from(current.clone()), sent, &READ_ONLY)?;
    let settings = settings(document::read(&after, "", RULES)?)?;
    // What the operator has closed since can still be disabled.
    if settings.url != current.settings.url || settings.enabled {
        check_url(&settings, networks)?;
    }
    Ok(settings)
}

fn settings(document: Document) -> Result<WebhookSettings, Problem> {
    let events = document.events;
    for (index, event) in events.iter().enumerate() {
        if events.iter().take(index).any(|other| other == event) {
            let pointer = format!("/events/{index}");
            let detail = format!("`{pointer}` stands in the list already.");
            return Err(invalid(&pointer, detail));
        }
    }
    Ok(WebhookSettings {
        url: document.url,
        description: document.description,
        events,
        enabled: document.enabled,
    })
}

fn check_url(settings: &WebhookSettings, networks: &Networks) -> Result<(), Problem> {
    match Destination::read(&settings.url, networks) {
        Ok(_) => Ok(()),
        Err(reason) => Err(invalid("/url", format!("`/url` {reason}."))),
    }
}
