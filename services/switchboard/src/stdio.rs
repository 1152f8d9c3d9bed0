//! MCP server on stdin and stdout, revision 2025-11-25, which forwards requests to a gateway.
//! Stdout carries MCP messages only.

mod gateway;
mod lines;
mod listener;
mod message;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use switchboard_runtime::shutdown::Shutdown;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    sync::{mpsc, watch},
    task::{self, AbortHandle, JoinError, JoinSet},
    time::timeout,
};

use crate::http_client::HttpError;
pub(crate) use gateway::Gateway;
use gateway::REVISION;
use lines::{Line, Lines};
use message::{Code, Id, Message, Request, refusal, refusal_with, success};

/// Capacity of the output queue; a client that does not read blocks the session.
const OUTPUT_QUEUE_CAPACITY: usize = 256;
/// Maximum number of requests in flight, equal to the limit of a device. Protects the gateway and
/// the devices.
const MAX_IN_FLIGHT: usize = 64;
/// Time for requests in flight after the end of input, and then for the output to be read.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// State of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SessionState {
    New,
    /// `initialize` was answered.
    Initialized,
    /// `notifications/initialized` was received.
    Ready,
}

/// An MCP session.
struct Session {
    gateway: Arc<Gateway>,
    out: mpsc::Sender<String>,
    state: SessionState,
    /// Requests forwarded to the gateway.
    tasks: JoinSet<String>,
    /// Their tasks, by id of the request.
    in_flight: HashMap<Id, AbortHandle>,
    /// Aborts the requests in flight.
    aborting: Shutdown,
    /// Whether the gateway sends list changes, or is known not to. Lists returned before that may
    /// change unnoticed.
    subscribed: watch::Sender<bool>,
}

/// Serves one client until its input has ended and every request has a response. After a grace
/// period, the remaining requests fail.
///
/// # Errors
/// When stdin or stdout fails.
pub(crate) async fn serve<I, O>(gateway: Gateway, input: I, output: O) -> anyhow::Result<()>
where
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin,
{
    serve_with_grace(gateway, input, output, SHUTDOWN_GRACE).await
}

async fn serve_with_grace<I, O>(
    gateway: Gateway,
    input: I,
    output: O,
    grace: Duration,
) -> anyhow::Result<()>
where
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin,
{
    let (out, lines_out) = mpsc::channel(OUTPUT_QUEUE_CAPACITY);
    let mut session = Session::new(gateway, out);
    let mut writer = std::pin::pin!(write(lines_out, output));
    tokio::select! {
        read = session.read_requests(Lines::new(input)) => read?,
        written = &mut writer => return written,
    }
    // The output queue must drain, too.
    let ending = async { tokio::try_join!(session.finish(grace), writer) };
    match timeout(2 * grace, ending).await {
        Ok(ended) => ended.map(|_| ()),
        Err(_) => Err(anyhow!("the client does not read stdout")),
    }
}

async fn write(
    mut lines_out: mpsc::Receiver<String>,
    mut output: impl AsyncWrite + Unpin,
) -> anyhow::Result<()> {
    let written = async {
        while let Some(mut line) = lines_out.recv().await {
            line.push('\n');
            output.write_all(line.as_bytes()).await?;
            output.flush().await?;
        }
        std::io::Result::Ok(())
    };
    written.await.context("cannot write to stdout")
}

impl Session {
    fn new(gateway: Gateway, out: mpsc::Sender<String>) -> Self {
        Self {
            gateway: Arc::new(gateway),
            out,
            state: SessionState::New,
            tasks: JoinSet::new(),
            in_flight: HashMap::new(),
            aborting: Shutdown::new(),
            subscribed: watch::Sender::new(false),
        }
    }

    /// Handles messages until the end of input.
    async fn read_requests(
        &mut self,
        mut lines: Lines<impl AsyncRead + Unpin>,
    ) -> anyhow::Result<()> {
        let mut listeners = JoinSet::new();
        loop {
            let line = tokio::select! {
                // Completed requests first: they free capacity and their id.
                biased;
                Some(ended) = self.tasks.join_next_with_id() => {
                    self.complete(ended).await;
                    continue;
                }
                line = lines.next() => line.context("cannot read stdin")?,
            };
            match line {
                None => return Ok(()),
                Some(Line::TooLong) => {
                    let detail = format!(
                        "Parse error: a line is limited to {} bytes",
                        lines::MAX_LINE_BYTES
                    );
                    self.send(refusal(None, Code::ParseError, &detail)).await;
                }
                Some(Line::Whole(line)) if line.trim_ascii().is_empty() => {}
                Some(Line::Whole(line)) => match message::read(&line) {
                    Ok(message) => self.handle(message, &mut listeners).await,
                    Err(refusal) => self.send(refusal).await,
                },
            }
        }
    }

    /// Completes the requests in flight; after the grace period they fail.
    async fn finish(mut self, grace: Duration) -> anyhow::Result<()> {
        if timeout(grace, self.complete_all()).await.is_err() {
            tracing::warn!(
                requests = self.in_flight.len(),
                "stdin ended; aborting requests that exceed the grace period"
            );
            self.aborting.stop();
            self.complete_all().await;
        }
        Ok(())
    }

    async fn complete_all(&mut self) {
        while let Some(ended) = self.tasks.join_next_with_id().await {
            self.complete(ended).await;
        }
    }

    async fn handle(&mut self, message: Message, listeners: &mut JoinSet<()>) {
        match message {
            Message::Response => {}
            Message::Request(request) => self.respond(request).await,
            Message::Notification { method, params } => match method.as_str() {
                "notifications/initialized" if self.state == SessionState::Initialized => {
                    self.state = SessionState::Ready;
                    listeners.spawn(listener::relay_changes(
                        Arc::clone(&self.gateway),
                        self.out.clone(),
                        self.subscribed.clone(),
                    ));
                }
                "notifications/cancelled" => self.cancel(params.as_deref()),
                _ => tracing::debug!(method, "ignoring an unknown notification"),
            },
        }
    }

    async fn respond(&mut self, request: Request) {
        let id = &request.id;
        let response = match (request.method.as_str(), self.state) {
            ("ping", _) => success(id, &json!({})),
            ("initialize", SessionState::New) => self.initialize(&request),
            ("initialize", _) => refusal(
                Some(id),
                Code::InvalidRequest,
                "Invalid Request: the session is already initialized",
            ),
            ("tools/list" | "tools/call", SessionState::Ready) => {
                return self.forward(request).await;
            }
            ("tools/list" | "tools/call", _) => {
                let detail =
                    "Invalid Request: `initialize` and `notifications/initialized` must come first";
                refusal(Some(id), Code::InvalidRequest, detail)
            }
            (method, _) => {
                let detail = format!(
                    "Method not found: {method:?}; supported are initialize, ping, tools/list and tools/call"
                );
                refusal(Some(id), Code::MethodNotFound, &detail)
            }
        };
        self.send(response).await;
    }

    /// Returns the response to `initialize`. A client of another revision is offered this one.
    fn initialize(&mut self, request: &Request) -> String {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct InitializeParams {
            #[serde(rename = "protocolVersion")]
            _protocol_version: String,
        }
        let params = request.params.as_deref().map_or("{}", RawValue::get);
        if let Err(error) = serde_json::from_str::<InitializeParams>(params) {
            let detail = format!("Invalid params: {error}");
            return refusal(Some(&request.id), Code::InvalidParams, &detail);
        }
        self.state = SessionState::Initialized;
        let result = json!({
            "protocolVersion": REVISION,
            "serverInfo": {"name": "switchboard", "version": env!("CARGO_PKG_VERSION")},
            "capabilities": {"tools": {"listChanged": true}},
        });
        success(&request.id, &result)
    }

    /// Forwards a request to the gateway in a task of its own.
    async fn forward(&mut self, request: Request) {
        let id = request.id.clone();
        if self.in_flight.contains_key(&id) {
            let detail = "Invalid Request: a request with this `id` is in progress";
            let refused = refusal(Some(&id), Code::InvalidRequest, detail);
            return self.send(refused).await;
        }
        if self.in_flight.len() >= MAX_IN_FLIGHT {
            let detail = format!("Overloaded: {MAX_IN_FLIGHT} requests are in progress");
            let data = json!({"delivered": "no"});
            let refused = refusal_with(Some(&id), Code::Overloaded, &detail, Some(data));
            return self.send(refused).await;
        }
        let (gateway, out) = (Arc::clone(&self.gateway), self.out.clone());
        let aborting = self.aborting.clone();
        let mut subscribed = self.subscribed.subscribe();
        let task = self.tasks.spawn(async move {
            let forwarded = async {
                if request.method == "tools/list" {
                    let open = subscribed.wait_for(|is_open| *is_open);
                    // After the timeout the list is returned; changes are notified later.
                    let _ = timeout(listener::SUBSCRIBE_TIMEOUT, open).await;
                }
                gateway.forward(&request, &out).await
            };
            tokio::select! {
                response = forwarded => response,
                () = aborting.stopping() => {
                    let detail = anyhow!("stdin ended before the response arrived");
                    gateway::failure_response(&request, &HttpError::Broken(detail))
                }
            }
        });
        self.in_flight.insert(id, task);
    }

    /// Cancels a request. Dropping its task closes the connection, which cancels it at the gateway.
    fn cancel(&mut self, params: Option<&RawValue>) {
        let task = Id::cancelled(params).and_then(|id| self.in_flight.remove(&id));
        if let Some(task) = task {
            task.abort();
        }
    }

    /// Sends the response of a finished task, unless it was cancelled, and frees its id.
    async fn complete(&mut self, ended: Result<(task::Id, String), JoinError>) {
        let task_id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let mut finished = self.in_flight.extract_if(|_, task| task.id() == task_id);
        let Some((id, _)) = finished.next() else {
            return;
        };
        drop(finished);
        let response = ended.map_or_else(
            |error| {
                tracing::error!(%error, "a request task failed");
                refusal(Some(&id), Code::InternalError, "Internal error")
            },
            |(_, response)| response,
        );
        self.send(response).await;
    }

    async fn send(&self, line: String) {
        // Fails if the output has closed; then reading stops as well.
        let _ = self.out.send(line).await;
    }
}
