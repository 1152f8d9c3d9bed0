//! What the control plane counts.
//! Never: a label that grows with organisations or devices.

use prometheus::{Gauge, Histogram, IntCounter, IntGauge, Registry};
use switchboard_runtime::{
    labels,
    metrics::{Counters, Group},
};

const BATCH_SIZES: [f64; 9] = [
    1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0,
];

/// What requests did.
#[derive(Debug, Clone)]
pub(crate) struct RequestMetrics {
    pub(crate) tokens_issued: IntCounter,
    pub(crate) tokens_revoked: IntCounter,
}

/// What happened without a request.
#[derive(Debug, Clone)]
pub(crate) struct BackgroundMetrics {
    pub(crate) facts_written: IntCounter,
    pub(crate) facts_skipped: IntCounter,
    pub(crate) facts_batch_size: Histogram,
    pub(crate) facts_lag_seconds: Gauge,
    pub(crate) trust_published: IntGauge,
    pub(crate) tokens_purged: IntCounter,
    pub(crate) calls_purged: IntCounter,
    pub(crate) answers_purged: IntCounter,
}

labels! {
    /// What came of an attempt at a delivery.
    pub(crate) enum Attempted {
        Delivered => "delivered",
        /// There is another one.
        Failed => "failed",
        GivenUp => "given_up",
    }
}

/// What became of deliveries to webhooks.
#[derive(Debug, Clone)]
pub(crate) struct WebhookMetrics {
    pub(crate) attempts: Counters<Attempted>,
    pub(crate) pending: IntGauge,
    pub(crate) dropped: IntGauge,
}

impl WebhookMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let group = group(registry);
        let attempts = "Attempts at deliveries to webhooks, by what came of them";
        let gauge = |name: &str, help| group.gauge(&format!("webhook_{name}"), help);
        Ok(Self {
            attempts: group.counters("webhook_attempts_total", attempts, "result")?,
            pending: gauge("deliveries_pending", "Deliveries to webhooks that wait")?,
            dropped: gauge(
                "events_dropped",
                "Events that found no room, of all webhooks that there are",
            )?,
        })
    }
}

/// What became of skills books.
#[derive(Debug, Clone)]
pub(crate) struct IngestionMetrics {
    pub(crate) skills_books_ready: IntCounter,
    pub(crate) skills_books_failed: IntCounter,
}

impl IngestionMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let ready = "Skills books that were read to their end";
        let failed = "Skills books that cannot be read";
        Ok(Self {
            skills_books_ready: counter(registry, "skills_books_ready_total", ready)?,
            skills_books_failed: counter(registry, "skills_books_failed_total", failed)?,
        })
    }
}

/// What became of texts that were to be embedded.
#[derive(Debug, Clone)]
pub(crate) struct EmbeddingMetrics {
    pub(crate) texts_embedded: IntCounter,
    pub(crate) texts_refused: IntCounter,
}

impl EmbeddingMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let embedded = "Texts of memories and skills books that were embedded";
        let refused = "Texts that the embeddings endpoint does not take";
        Ok(Self {
            texts_embedded: counter(registry, "texts_embedded_total", embedded)?,
            texts_refused: counter(registry, "texts_refused_total", refused)?,
        })
    }
}

/// What became of voices.
#[derive(Debug, Clone)]
pub(crate) struct VoiceMetrics {
    pub(crate) voices_ready: IntCounter,
    pub(crate) voices_failed: IntCounter,
    pub(crate) voices_expired: IntCounter,
}

impl VoiceMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let ready = "Voices that were made";
        let failed = "Voices that could not be made";
        let expired = "Voices that cannot be spoken with any more";
        Ok(Self {
            voices_ready: counter(registry, "voices_ready_total", ready)?,
            voices_failed: counter(registry, "voices_failed_total", failed)?,
            voices_expired: counter(registry, "voices_expired_total", expired)?,
        })
    }
}

impl RequestMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            tokens_issued: counter(
                registry,
                "tokens_issued_total",
                "Access tokens that were issued",
            )?,
            tokens_revoked: counter(
                registry,
                "tokens_revoked_total",
                "Requests that revoked an access token",
            )?,
        })
    }
}

impl BackgroundMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let written = "Facts about devices that were written";
        let skipped = "Facts about devices that the database will never take";
        let size = "Facts about devices that were written in one transaction";
        let lag = "Age of the oldest fact in the batch that was written last";
        let published = "Whether the last round told all nodes which tokens to trust";
        let group = group(registry);
        Ok(Self {
            facts_written: counter(registry, "facts_written_total", written)?,
            facts_skipped: counter(registry, "facts_skipped_total", skipped)?,
            facts_batch_size: group.histogram("facts_batch_size", size, &BATCH_SIZES)?,
            facts_lag_seconds: group.float_gauge("facts_lag_seconds", lag)?,
            trust_published: group.gauge("trust_published", published)?,
            tokens_purged: counter(
                registry,
                "tokens_purged_total",
                "Expired tokens that were forgotten",
            )?,
            calls_purged: counter(
                registry,
                "calls_purged_total",
                "Calls under idempotency keys that were forgotten after their day",
            )?,
            answers_purged: counter(
                registry,
                "answers_purged_total",
                "Answers to other requests under idempotency keys that were forgotten after their time",
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
