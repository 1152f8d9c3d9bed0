//! What a device says while it is at a call, as notifications of that call.
//! Never: a log that the client did not ask for, or progress without its token.
#![expect(
    deprecated,
    reason = "logging left the newest revision, and clients of the older ones still use it"
)]

use std::time::Duration;

use http::request::Parts;
use rmcp::{
    RoleServer,
    model::{
        LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken,
    },
    service::{Peer, RequestContext},
};
use serde::Deserialize;
use serde_json::Value;
use switchboard_bus::{Notice, NoticeKind};
use switchboard_protocol::id::DeviceId;
use switchboard_tools::text::{clean, clean_value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{encoding::Encoding, era::is_modern};

/// Notices that wait for a client that reads slowly. Protects memory; those beyond are dropped.
pub(super) const WAITING: usize = 64;
/// How long those that wait may keep an answer that is there. Within what a call may be late.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(100);

/// What one call's client wants to hear, and what it heard.
pub(super) struct Listener {
    peer: Peer<RoleServer>,
    logger: String,
    progress: Option<ProgressToken>,
    heard: f64,
    quietest: Option<LoggingLevel>,
}

#[derive(Deserialize)]
struct Progress {
    progress: f64,
    total: Option<f64>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct Log {
    level: Option<String>,
    message: Option<Value>,
}

impl Listener {
    /// What this request wants to hear; `None` when nothing, or when its client reads only the answer.
    pub(super) fn of(context: &RequestContext<RoleServer>, device: &DeviceId) -> Option<Self> {
        let parts = context.extensions.get::<Parts>();
        let encoding = parts.and_then(|parts| parts.extensions.get::<Encoding>());
        if encoding.is_some_and(|encoding| !encoding.can_stream()) {
            return None;
        }
        let progress = context.meta.get_progress_token();
        let quietest = if is_modern(context) {
            context.meta.log_level()
        } else {
            // Older clients are sent what the server sees fit until they set a level, and no session keeps one here.
            Some(LoggingLevel::Info)
        };
        (progress.is_some() || quietest.is_some()).then(|| Self {
            peer: context.peer.clone(),
            logger: device.to_string(),
            progress,
            heard: f64::NEG_INFINITY,
            quietest,
        })
    }

    /// Tells the client all that is said, until nothing more can come or it is enough.
    pub(super) async fn tell(
        mut self,
        mut said: mpsc::Receiver<Notice>,
        enough: &CancellationToken,
    ) {
        while let Some(Some(notice)) = enough.run_until_cancelled(said.recv()).await {
            self.pass_on(&notice).await;
        }
    }

    /// Tells the client, if it wants to know. A client that is gone is found out by the answer.
    async fn pass_on(&mut self, notice: &Notice) {
        match notice.kind {
            NoticeKind::Progress => self.progress(&notice.data).await,
            NoticeKind::Log => self.log(&notice.data).await,
        }
    }

    /// Progress only grows. (MCP, utilities/progress.)
    async fn progress(&mut self, data: &[u8]) {
        let Some(token) = self.progress.clone() else {
            return;
        };
        let Ok(said) = serde_json::from_slice::<Progress>(data) else {
            return;
        };
        if said.progress <= self.heard {
            return;
        }
        self.heard = said.progress;
        let mut param = ProgressNotificationParam::new(token, said.progress);
        param.total = said.total;
        param.message = said.message.map(|words| clean(&words).into_owned());
        if let Err(error) = self.peer.notify_progress(param).await {
            tracing::debug!(%error, "progress found nobody who listens");
        }
    }

    async fn log(&self, data: &[u8]) {
        let (Some(quietest), Ok(said)) = (self.quietest, serde_json::from_slice::<Log>(data))
        else {
            return;
        };
        let level = level(said.level.as_deref());
        if rank(level) < rank(quietest) {
            return;
        }
        let words = clean_value(said.message.unwrap_or_default());
        let param =
            LoggingMessageNotificationParam::new(level, words).with_logger(self.logger.clone());
        if let Err(error) = self.peer.notify_logging_message(param).await {
            tracing::debug!(%error, "a log found nobody who listens");
        }
    }
}

/// The level that a device names; what nobody knows is told as `info`.
fn level(name: Option<&str>) -> LoggingLevel {
    match name {
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

/// Syslog's order, the quietest first. (RFC 5424.)
const fn rank(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}
