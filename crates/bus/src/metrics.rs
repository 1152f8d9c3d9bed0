//! What the bus counts.
//! Never: a label that grows with devices, nodes or callers.

use prometheus::{IntCounter, IntGauge, Registry};

/// Counters of one node's bus.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) up: IntGauge,
    pub(crate) reconnects: IntCounter,
    pub(crate) packs: IntCounter,
    pub(crate) received: IntCounter,
    pub(crate) malformed: IntCounter,
    pub(crate) late: IntCounter,
    pub(crate) dropped: IntCounter,
    pub(crate) notices_dropped: IntCounter,
    pub(crate) facts_dropped: IntCounter,
}

impl Metrics {
    /// Registers them.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str| -> Result<IntCounter, prometheus::Error> {
            let counter = IntCounter::new(format!("switchboard_bus_{name}"), help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        let up = IntGauge::new(
            "switchboard_bus_up",
            "Whether this node's inbox is verified to be heard",
        )?;
        registry.register(Box::new(up.clone()))?;
        Ok(Self {
            up,
            reconnects: counter(
                "reconnects_total",
                "Connections to the bus that were built and verified",
            )?,
            packs: counter("packs_sent_total", "Packs published to other nodes")?,
            received: counter(
                "envelopes_received_total",
                "Envelopes that came to this node's inbox",
            )?,
            malformed: counter(
                "malformed_total",
                "Messages at this node's inbox that no node of this version wrote",
            )?,
            late: counter(
                "answers_late_total",
                "Answers to calls that had ended already",
            )?,
            dropped: counter(
                "envelopes_dropped_total",
                "Envelopes given up because their node was not listening or too much waited for it",
            )?,
            notices_dropped: counter(
                "notices_dropped_total",
                "Notices of running calls given up because their caller or the way to it had no room",
            )?,
            facts_dropped: counter(
                "facts_dropped_total",
                "Facts given up because the bus was away for too long",
            )?,
        })
    }
}
