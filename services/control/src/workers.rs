//! The background work of the control plane.

mod device_events;
mod embeddings;
pub(crate) mod ingestion;
mod keys;
mod lease;
mod orphans;
mod quotas;
mod row_purge;
pub(crate) mod voices;
pub(crate) mod webhooks;

use switchboard_bus::Bus;
use switchboard_embeddings::Endpoint;
use switchboard_runtime::{budget::Kind, shutdown::Shutdown};

use crate::{
    Config, Deps,
    metrics::{
        BackgroundMetrics, EmbeddingMetrics, IngestionMetrics, QuotaMetrics, VoiceMetrics,
        WebhookMetrics,
    },
};
use ingestion::Ingestion;
use lease::LeasedWorker;
use row_purge::RowPurge;

/// Starts the background work of [`run`](crate::run), without its routes, on `shutdown`:
/// - device events from the bus are written to the store,
/// - token keys, revocations and quotas are published to all nodes,
/// - organisations are warned of their quotas,
/// - expired rows are deleted,
/// - skills books are parsed, voices are created, and texts are embedded,
/// - objects without a row are deleted,
/// - events are delivered to webhooks.
///
/// PostgreSQL and the bus may still be unavailable. When `shutdown` drains, the device events that
/// are already on the bus are still written.
///
/// # Errors
/// When `deps.registry` already has metrics of these names. Nothing is started then.
pub fn start_workers(
    config: &Config,
    deps: &Deps,
    shutdown: &Shutdown,
) -> Result<(), prometheus::Error> {
    let (store, bus, registry) = (&deps.store, &deps.bus, &deps.registry);
    let budgets = &deps.budgets;
    // All metrics are registered, whatever is configured: dashboards find the same
    // names everywhere.
    let background = BackgroundMetrics::new(registry)?;
    let ingestion = IngestionMetrics::new(registry)?;
    let voices = VoiceMetrics::new(registry)?;
    let webhooks = WebhookMetrics::new(registry)?;
    let embeddings = EmbeddingMetrics::new(registry)?;
    let publisher = keys::KeyPublisher::new(config, deps, background.clone());
    shutdown.spawn(publisher.run(shutdown.clone()));
    let purge = RowPurge::new(store.clone(), background.clone());
    shutdown.spawn(purge.run(shutdown.clone()));
    let checker = quotas::QuotaChecker::new(config, deps, QuotaMetrics::new(registry)?);
    shutdown.spawn(checker.run(shutdown.clone()));
    if store.objects().is_some() {
        let readers = usize::from(config.skills_readers);
        let budget = budgets.slots("ingestion_jobs", readers, Kind::quarter_of(readers));
        for _ in 0..readers {
            let job = Ingestion::new(store.clone(), bus.clone(), ingestion.clone());
            shutdown.spawn(LeasedWorker::new(job, budget.clone()).run(shutdown.clone()));
        }
        let providers = voices::Providers::new(config);
        // An owner may have one job at each provider.
        let count = providers.names().len();
        let budget = budgets.slots("voice_jobs", count, Kind::Held { share: count });
        // One worker for each provider: a provider that does not respond delays only
        // its own voices.
        for provider in providers.names() {
            let metrics = voices.clone();
            let shared = (store.clone(), bus.clone());
            let job = voices::VoiceTraining::new(shared, providers.clone(), provider, metrics);
            shutdown.spawn(LeasedWorker::new(job, budget.clone()).run(shutdown.clone()));
        }
        shutdown.spawn(orphans::run(store.clone(), shutdown.clone()));
    }
    if config.webhooks_senders > 0 {
        let worker = webhooks::Worker::new(config, (store.clone(), bus.clone()), webhooks, budgets);
        shutdown.spawn(worker.run(shutdown.clone()));
    }
    if let Some(endpoint) = Endpoint::from_config(&config.embeddings) {
        let worker = embeddings::Worker::new(store.clone(), endpoint, embeddings);
        shutdown.spawn(worker.run(shutdown.clone()));
    }
    budgets.reserve("device_events", Bus::EVENT_BYTES);
    let (batch, store) = (config.facts_batch, store.clone());
    let writer = device_events::EventWriter::new(store, bus.clone(), batch, background);
    shutdown.spawn(writer.run(shutdown.clone()));
    Ok(())
}
