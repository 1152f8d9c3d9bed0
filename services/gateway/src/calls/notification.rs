//! What a device sends about a call in flight: its progress and its log messages.
#![expect(
    deprecated,
    reason = "logging left the newest revision of MCP, and clients of the older ones still use it"
)]

use rmcp::model::LoggingLevel;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The progress of a call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) progress: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}

/// A log message about a call.
#[derive(Debug, Deserialize)]
pub(crate) struct Log {
    level: Option<String>,
    #[serde(default)]
    pub(crate) message: Option<Value>,
}

impl Log {
    /// The level that the device names. Unknown levels are `info`.
    pub(crate) fn level(&self) -> LoggingLevel {
        match self.level.as_deref() {
            Some("debug" | "trace") => LoggingLevel::Debug,
            Some("notice") => LoggingLevel::Notice,
            Some("warning" | "warn") => LoggingLevel::Warning,
            Some("error") => LoggingLevel::Error,
            Some("critical") => LoggingLevel::Critical,
            Some("alert") => LoggingLevel::Alert,
            Some("emergency") => LoggingLevel::Emergency,
            _ => LoggingLevel::Info,
        }
    }
}
