//! The metrics of spoken conversations.

use prometheus::{Histogram, IntCounter, IntGauge, Registry};
use switchboard_runtime::{
    labels,
    metrics::{Counters, Group},
};

labels! {
    /// How an utterance ended.
    pub(crate) enum Utterance {
        Silence => "silence",
        Device => "device",
        Longest => "longest",
        /// Too little speech, or no words.
        Nothing => "nothing",
        /// Its audio or its recognition failed.
        Failed => "failed",
    }
}

labels! {
    /// What came of speech during an answer.
    pub(crate) enum BargeIn {
        Cancelled => "cancelled",
        Resumed => "resumed",
    }
}

/// From the end of speech to the first audio of the answer.
const RESPONSE_SECONDS: [f64; 10] = [0.3, 0.6, 0.8, 1.0, 1.3, 1.7, 2.5, 4.0, 7.0, 15.0];

/// All metrics of spoken conversations.
#[derive(Debug)]
pub(crate) struct VoiceMetrics {
    pub(crate) sessions: IntGauge,
    pub(crate) utterances: Counters<Utterance>,
    pub(crate) barge_ins: Counters<BargeIn>,
    pub(crate) response_seconds: Histogram,
    /// Audio of devices that there was no room for.
    pub(crate) dropped: IntCounter,
    /// Audio of answers that a device did not read in time.
    pub(crate) late: IntCounter,
}

impl VoiceMetrics {
    /// Creates and registers the metrics.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let group = Group::new(registry, "switchboard_voice");
        let response = "Time from the last speech of a message to the first audio of its answer";
        Ok(Self {
            sessions: group.gauge("sessions", "Spoken conversations in progress")?,
            utterances: group.counters("utterances_total", "Utterances of users", "end")?,
            barge_ins: group.counters("barge_ins_total", "Interruptions of answers", "outcome")?,
            response_seconds: group.histogram("response_seconds", response, &RESPONSE_SECONDS)?,
            dropped: group.counter(
                "input_dropped_total",
                "Pieces of audio of devices that there was no room for",
            )?,
            late: group.counter(
                "answers_late_total",
                "Answers whose rest was dropped because the device did not read its audio",
            )?,
        })
    }
}
