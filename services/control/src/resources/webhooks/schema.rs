//! Request and response schemas of webhooks.
//!
//! Invariant: no member that the store sets is taken from a request. Only [`CreatedWebhook`] has a
//! secret.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchboard_protocol::id::{OrgId, WebhookId};
use switchboard_runtime::problem::Problem;
use switchboard_store::{Webhook, WebhookEvent, WebhookSettings};
use utoipa::ToSchema;

use crate::{
    http::{
        documents::{self, invalid},
        limits::{
            Limit::{Items, Line, Text},
            Rule, rule,
        },
        merge,
    },
    workers::webhooks::{Destination, MAX_URL_BYTES, Networks},
};

/// The limits, documented in docs/webhooks.md.
pub(crate) const RULES: &[Rule] = &[
    rule("/url", Line(MAX_URL_BYTES)),
    rule("/events", Items(1, WebhookEvent::ALL.len())),
    rule("/description", Text(500)),
];

/// A webhook to create.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = NewWebhook)]
pub(crate) struct WebhookDocument {
    /// An `https` URL with a public address. The operator can allow other networks.
    #[schema(example = "https://example.com/switchboard")]
    url: String,
    /// The types of events to deliver, without duplicates.
    #[schema(example = json!(["call.finished"]))]
    events: Vec<WebhookEvent>,
    /// Description for people.
    #[serde(default)]
    #[schema(example = "the shop's backend")]
    description: Option<String>,
    /// Whether events are delivered. Events while it is disabled are not delivered
    /// later. Default: true.
    #[serde(default = "enabled")]
    #[schema(example = true)]
    enabled: bool,
}

const fn enabled() -> bool {
    true
}

/// A webhook.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Webhook)]
pub(crate) struct WebhookView {
    #[serde(flatten)]
    document: WebhookDocument,
    #[serde(flatten)]
    status: WebhookStatus,
}

/// The members of a webhook that its owner cannot set.
#[derive(Debug, Serialize, ToSchema)]
struct WebhookStatus {
    /// Unique identifier.
    id: WebhookId,
    /// The organisation that owns it.
    org_id: OrgId,
    /// Why the webhook was disabled automatically: `gone` after a response with status 410,
    /// `failing` after three days without a successful delivery.
    #[schema(max_length = 32, example = json!(null))]
    disabled_reason: Option<String>,
    /// Time since which all deliveries failed (RFC 3339); null if the last one succeeded.
    #[schema(example = json!(null))]
    failing_since: Option<DateTime<Utc>>,
    /// Number of events that were dropped because too many were pending.
    #[schema(minimum = 0, example = 0)]
    dropped: i64,
    /// Time until which the previous secret remains valid (RFC 3339); null if there is none.
    #[schema(example = json!(null))]
    former_secret_until: Option<DateTime<Utc>>,
    /// Version, starting at 1 and incremented by each change.
    #[schema(minimum = 1, example = 1)]
    version: i64,
    /// Time of creation (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// Time of the last change (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    updated_at: DateTime<Utc>,
}

/// A webhook with a new secret. No other response has the secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CreatedWebhook {
    /// The secret that signs deliveries.
    #[schema(
        pattern = "^whsec_[A-Za-z0-9+/]{43}=$",
        example = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlBQkNERUY="
    )]
    secret: String,
    #[serde(flatten)]
    document: WebhookDocument,
    #[serde(flatten)]
    status: WebhookStatus,
}

impl CreatedWebhook {
    pub(super) fn new(secret: String, webhook: Webhook) -> Self {
        let WebhookView { document, status } = webhook.into();
        Self {
            secret,
            document,
            status,
        }
    }
}

/// Members of the view that clients cannot change.
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

impl From<Webhook> for WebhookView {
    fn from(webhook: Webhook) -> Self {
        let settings = webhook.settings;
        Self {
            document: WebhookDocument {
                url: settings.url,
                events: settings.events,
                description: settings.description,
                enabled: settings.enabled,
            },
            status: WebhookStatus {
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

/// The settings of a webhook to create.
pub(super) fn parse_new(document: &Value, networks: &Networks) -> Result<WebhookSettings, Problem> {
    let settings = into_settings(documents::parse(document, "", RULES)?)?;
    check_url(&settings, networks)?;
    Ok(settings)
}

/// The settings after a merge patch of the view.
pub(super) fn apply_patch(
    current: &Webhook,
    patch: Value,
    networks: &Networks,
) -> Result<WebhookSettings, Problem> {
    let after = merge::apply(&WebhookView::from(current.clone()), patch, &READ_ONLY)?;
    let settings = into_settings(documents::parse(&after, "", RULES)?)?;
    // A webhook in a network that is no longer allowed can still be disabled.
    if settings.url != current.settings.url || settings.enabled {
        check_url(&settings, networks)?;
    }
    Ok(settings)
}

fn into_settings(document: WebhookDocument) -> Result<WebhookSettings, Problem> {
    let events = document.events;
    for (index, event) in events.iter().enumerate() {
        if events.iter().take(index).any(|other| other == event) {
            let pointer = format!("/events/{index}");
            let detail = format!("`{pointer}` is a duplicate.");
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
    match Destination::parse(&settings.url, networks) {
        Ok(_) => Ok(()),
        Err(reason) => Err(invalid("/url", format!("`/url` {reason}."))),
    }
}
