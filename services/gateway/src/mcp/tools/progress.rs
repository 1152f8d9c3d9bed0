//! Forwards the notifications that a device sends during a call to the client.
//!
//! Invariant: the client receives progress only with its token, and log messages only at its
//! level.
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
use switchboard_bus::{Notification, NotificationKind};
use switchboard_protocol::id::DeviceId;
use switchboard_tools::text::{clean, clean_value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    calls::notification::{Log, Progress},
    mcp::transport::{encoding::Encoding, protocol_version::is_stateless},
};

/// Notifications queued for a slow client; further ones are dropped. Protects memory.
pub(super) const QUEUE_LEN: usize = 64;
/// How long queued notifications may delay the answer. Less than the time by which a call may
/// overrun its deadline.
pub(super) const FLUSH_TIMEOUT: Duration = Duration::from_millis(100);

/// Forwards the notifications of one call.
pub(super) struct NotificationForwarder {
    peer: Peer<RoleServer>,
    logger: String,
    progress_token: Option<ProgressToken>,
    last_progress: f64,
    min_level: Option<LoggingLevel>,
}

impl NotificationForwarder {
    /// `None` if the client requested no notifications, or cannot read them.
    pub(super) fn new(context: &RequestContext<RoleServer>, device: &DeviceId) -> Option<Self> {
        let parts = context.extensions.get::<Parts>();
        let encoding = parts.and_then(|parts| parts.extensions.get::<Encoding>());
        if encoding.is_some_and(|encoding| !encoding.can_stream()) {
            return None;
        }
        let progress_token = context.meta.get_progress_token();
        let min_level = if is_stateless(context) {
            context.meta.log_level()
        } else {
            // The default until a client sets a level, and there is no session to store one.
            Some(LoggingLevel::Info)
        };
        (progress_token.is_some() || min_level.is_some()).then(|| Self {
            peer: context.peer.clone(),
            logger: device.to_string(),
            progress_token,
            last_progress: f64::NEG_INFINITY,
            min_level,
        })
    }

    /// Forwards notifications until the channel closes or `stop` is cancelled.
    pub(super) async fn run(
        mut self,
        mut notifications: mpsc::Receiver<Notification>,
        stop: &CancellationToken,
    ) {
        while let Some(Some(notification)) = stop.run_until_cancelled(notifications.recv()).await {
            match notification.kind {
                NotificationKind::Progress => self.progress(&notification.data).await,
                NotificationKind::Log => self.log(&notification.data).await,
            }
        }
    }

    /// Progress must increase with each notification. (MCP, utilities/progress.)
    async fn progress(&mut self, data: &[u8]) {
        let Some(token) = self.progress_token.clone() else {
            return;
        };
        let Ok(notification) = serde_json::from_slice::<Progress>(data) else {
            return;
        };
        if notification.progress <= self.last_progress {
            return;
        }
        self.last_progress = notification.progress;
        let mut param = ProgressNotificationParam::new(token, notification.progress);
        param.total = notification.total;
        param.message = notification.message.map(|text| clean(&text).into_owned());
        if let Err(error) = self.peer.notify_progress(param).await {
            tracing::debug!(%error, "progress not sent: the client disconnected");
        }
    }

    async fn log(&self, data: &[u8]) {
        let (Some(min_level), Ok(notification)) =
            (self.min_level, serde_json::from_slice::<Log>(data))
        else {
            return;
        };
        let level = notification.level();
        if severity(level) < severity(min_level) {
            return;
        }
        let message = clean_value(notification.message.unwrap_or_default());
        let param =
            LoggingMessageNotificationParam::new(level, message).with_logger(self.logger.clone());
        if let Err(error) = self.peer.notify_logging_message(param).await {
            tracing::debug!(%error, "log message not sent: the client disconnected");
        }
    }
}

/// The order of levels, the least severe first. (RFC 5424.)
const fn severity(level: LoggingLevel) -> u8 {
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
