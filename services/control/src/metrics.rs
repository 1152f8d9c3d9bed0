//! The metrics of the control plane.
//!
//! Invariant: the number of label values does not depend on organisations or devices.

use prometheus::{Gauge, Histogram, IntCounter, IntGauge, IntGaugeVec, Opts, Registry};
use switchboard_runtime::{
    labels,
    metrics::{Counters, Group},
    quota::Quota,
};

const BATCH_SIZES: [f64; 9] = [
    1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0,
];

/// Metrics of requests.
#[derive(Debug, Clone)]
pub(crate) struct RequestMetrics {
    pub(crate) requests_limited: IntCounter,
    pub(crate) tokens_issued: IntCounter,
    pub(crate) tokens_revoked: IntCounter,
}

/// Metrics of background work.
#[derive(Debug, Clone)]
pub(crate) struct BackgroundMetrics {
    pub(crate) events_written: IntCounter,
    pub(crate) events_skipped: IntCounter,
    pub(crate) events_batch_size: Histogram,
    pub(crate) events_lag_seconds: Gauge,
    pub(crate) keys_published: IntGauge,
    pub(crate) tokens_purged: IntCounter,
    pub(crate) calls_purged: IntCounter,
    pub(crate) responses_purged: IntCounter,
}

labels! {
    /// The result of an attempt to deliver an event.
    pub(crate) enum AttemptResult {
        Delivered => "delivered",
        /// Another attempt follows.
        Failed => "failed",
        GivenUp => "given_up",
    }
}

/// Metrics of deliveries to webhooks.
#[derive(Debug, Clone)]
pub(crate) struct WebhookMetrics {
    pub(crate) attempts: Counters<AttemptResult>,
    pub(crate) pending: IntGauge,
    pub(crate) dropped: IntGauge,
}

impl WebhookMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When the registry already has metrics of these names.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let group = group(registry);
        let attempts = "Attempts to deliver events to webhooks, by result";
        let gauge = |name: &str, help| group.gauge(&format!("webhook_{name}"), help);
        Ok(Self {
            attempts: group.counters("webhook_attempts_total", attempts, "result")?,
            pending: gauge("deliveries_pending", "Pending deliveries to webhooks")?,
            dropped: gauge(
                "events_dropped",
                "Events dropped because a webhook had too many pending deliveries, of all existing webhooks",
            )?,
        })
    }
}

/// Metrics of quotas.
#[derive(Debug, Clone)]
pub(crate) struct QuotaMetrics(IntGaugeVec);

impl QuotaMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When the registry already has metrics of these names.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = Opts::new(
            "switchboard_control_quota_warned_orgs",
            "Organisations that use more than 80 % of a quota, by quota",
        );
        let warned = IntGaugeVec::new(opts, &["quota"])?;
        registry.register(Box::new(warned.clone()))?;
        let metrics = Self(warned);
        for quota in Quota::ALL {
            metrics.set_warned_orgs(quota, 0);
        }
        Ok(metrics)
    }

    pub(crate) fn set_warned_orgs(&self, quota: Quota, orgs: i64) {
        self.0.with_label_values(&[quota.as_str()]).set(orgs);
    }
}

/// Metrics of skills books.
#[derive(Debug, Clone)]
pub(crate) struct IngestionMetrics {
    pub(crate) skills_books_ready: IntCounter,
    pub(crate) skills_books_failed: IntCounter,
}

impl IngestionMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When the registry already has metrics of these names.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let ready = "Skills books that were parsed and indexed";
        let failed = "Skills books that could not be parsed";
        Ok(Self {
            skills_books_ready: counter(registry, "skills_books_ready_total", ready)?,
            skills_books_failed: counter(registry, "skills_books_failed_total", failed)?,
        })
    }
}

/// Metrics of embeddings.
#[derive(Debug, Clone)]
pub(crate) struct EmbeddingMetrics {
    pub(crate) texts_embedded: IntCounter,
    pub(crate) texts_refused: IntCounter,
}

impl EmbeddingMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When the registry already has metrics of these names.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let embedded = "Texts of memories and skills books that were embedded";
        let refused = "Texts that the embeddings endpoint rejected";
        Ok(Self {
            texts_embedded: counter(registry, "texts_embedded_total", embedded)?,
            texts_refused: counter(registry, "texts_refused_total", refused)?,
        })
    }
}

/// Metrics of voices.
#[derive(Debug, Clone)]
pub(crate) struct VoiceMetrics {
    pub(crate) voices_ready: IntCounter,
    pub(crate) voices_failed: IntCounter,
    pub(crate) voices_expired: IntCounter,
}

impl VoiceMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When the registry already has metrics of these names.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let ready = "Voices whose training succeeded";
        let failed = "Voices whose training failed";
        let expired = "Voices that expired";
        Ok(Self {
            voices_ready: counter(registry, "voices_ready_total", ready)?,
            voices_failed: counter(registry, "voices_failed_total", failed)?,
            voices_expired: counter(registry, "voices_expired_total", expired)?,
        })
    }
}

impl RequestMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When the registry already has metrics of these names.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            requests_limited: counter(
                registry,
                "rate_limited_total",
                "Requests that were refused because their organisation exceeds its rate",
            )?,
            tokens_issued: counter(registry, "tokens_issued_total", "Issued access tokens")?,
            tokens_revoked: counter(
                registry,
                "tokens_revoked_total",
                "Requests that revoked an access token",
            )?,
        })
    }
}

impl BackgroundMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When the registry already has metrics of these names.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let written = "Device events that were written";
        let skipped = "Device events that were skipped because the database cannot store them";
        let size = "Device events written in one transaction";
        let lag = "Age of the oldest device event in the last written batch";
        let published =
            "1 if the last publication of token keys and revocations to all nodes succeeded";
        let group = group(registry);
        Ok(Self {
            events_written: counter(registry, "facts_written_total", written)?,
            events_skipped: counter(registry, "facts_skipped_total", skipped)?,
            events_batch_size: group.histogram("facts_batch_size", size, &BATCH_SIZES)?,
            events_lag_seconds: group.float_gauge("facts_lag_seconds", lag)?,
            keys_published: group.gauge("trust_published", published)?,
            tokens_purged: counter(
                registry,
                "tokens_purged_total",
                "Expired tokens that were deleted",
            )?,
            calls_purged: counter(
                registry,
                "calls_purged_total",
                "Idempotent calls that were deleted after their retention of one day",
            )?,
            responses_purged: counter(
                registry,
                "answers_purged_total",
                "Stored responses to other idempotent requests that were deleted after their retention",
            )?,
        })
    }
}

fn counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
    group(registry).counter(name, help)
}

const fn group(registry: &Registry) -> Group<'_> {
    Group::new(registry, "switchboard_control")
}
