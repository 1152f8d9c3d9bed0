//! The metrics of spoken conversations.

use prometheus::{Counter, Histogram, IntCounter, IntGauge, Registry};
use switchboard_runtime::{
    labels,
    metrics::{Counters, Group, Histograms},
};
use tokio::time::Instant;

labels! {
    /// How an utterance ended.
    pub(crate) enum UtteranceEnd {
        Silence => "silence",
        Device => "device",
        Longest => "longest",
        /// Too little speech, or no words.
        Nothing => "nothing",
        /// Its audio or its recognition failed.
        Failed => "failed",
    }
}

impl From<switchboard_voice::UtteranceEnd> for UtteranceEnd {
    fn from(end: switchboard_voice::UtteranceEnd) -> Self {
        match end {
            switchboard_voice::UtteranceEnd::Silence => Self::Silence,
            switchboard_voice::UtteranceEnd::Longest => Self::Longest,
            switchboard_voice::UtteranceEnd::Device => Self::Device,
        }
    }
}

labels! {
    /// What came of speech during an answer.
    pub(crate) enum BargeIn {
        Cancelled => "cancelled",
        Resumed => "resumed",
    }
}

labels! {
    /// The parts of the time from the last speech of a message to the first audio of its answer. Each
    /// begins where the one before it ends.
    pub(crate) enum Stage {
        /// The silence that ends the utterance.
        Silence => "silence",
        /// Until the words are recognised.
        Recognition => "recognition",
        /// Until the first text of the reply.
        Reply => "reply",
        /// Until the first audio is sent.
        Synthesis => "synthesis",
    }
}

labels! {
    /// What a piece of a device's audio was: an Opus packet, or PCM of one frame.
    pub(crate) enum Packet {
        Good => "good",
        /// Silence stands for it.
        Bad => "bad",
        /// There was no room, or the device was too fast.
        Dropped => "dropped",
    }
}

/// From the end of speech to the first audio of the answer.
const RESPONSE_SECONDS: [f64; 10] = [0.3, 0.6, 0.8, 1.0, 1.3, 1.7, 2.5, 4.0, 7.0, 15.0];

/// Of one stage.
const STAGE_SECONDS: [f64; 9] = [0.01, 0.05, 0.2, 0.5, 0.8, 1.3, 2.5, 5.0, 15.0];

/// How late audio is sent, and an answer is stopped.
const LAG_SECONDS: [f64; 7] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.06, 0.3];

/// Measures the stages of one answer.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    /// The present stage, and when it began.
    present: Option<(Stage, Instant)>,
}

impl Stages {
    /// The last speech of a message ended at this time, and now its silence is over.
    pub(crate) fn begin(&mut self, metrics: &VoiceMetrics, speech_ended: Instant) {
        self.present = Some((Stage::Silence, speech_ended));
        self.end(metrics, Stage::Silence);
    }

    /// A stage is over, and the next one begins. Does nothing in another stage.
    pub(crate) fn end(&mut self, metrics: &VoiceMetrics, stage: Stage) {
        let Some((_, began)) = self.present.filter(|(present, _)| *present == stage) else {
            return;
        };
        let now = Instant::now();
        metrics.stage_seconds.observe(stage, now - began);
        self.present = match stage {
            Stage::Silence => Some((Stage::Recognition, now)),
            Stage::Recognition => Some((Stage::Reply, now)),
            Stage::Reply => Some((Stage::Synthesis, now)),
            Stage::Synthesis => None,
        };
    }
}

/// All metrics of spoken conversations.
#[derive(Debug)]
pub(crate) struct VoiceMetrics {
    pub(crate) sessions: IntGauge,
    pub(crate) utterances: Counters<UtteranceEnd>,
    pub(crate) barge_ins: Counters<BargeIn>,
    pub(crate) response_seconds: Histogram,
    pub(crate) stage_seconds: Histograms<Stage>,
    /// Audio of devices.
    pub(crate) packets: Counters<Packet>,
    pub(crate) heard_seconds: Counter,
    pub(crate) spoken_seconds: Counter,
    pub(crate) pace_lag_seconds: Histogram,
    pub(crate) stop_seconds: Histogram,
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
            packets: group.counters("packets_total", "Pieces of audio of devices", "outcome")?,
            heard_seconds: group.float_counter("heard_seconds_total", "Audio of devices")?,
            spoken_seconds: group.float_counter("spoken_seconds_total", "Audio of answers")?,
            pace_lag_seconds: group.histogram(
                "pace_lag_seconds",
                "Time from when audio of an answer is due until it is queued for the socket",
                &LAG_SECONDS,
            )?,
            stop_seconds: group.histogram(
                "stop_seconds",
                "Time from the decision to stop an answer until its CANCEL is written",
                &LAG_SECONDS,
            )?,
            stage_seconds: group.histograms(
                "stage_seconds",
                "Parts of the time from the last speech of a message to the first audio of its answer",
                "stage",
                &STAGE_SECONDS,
            )?,
            late: group.counter(
                "answers_late_total",
                "Answers whose rest was dropped because the device did not read its audio",
            )?,
        })
    }
}
