//! The Model Context Protocol on stdin and stdout, revision 2025-11-25: lines in, lines out, a gateway behind them.
//! Never: a request before the handshake, or anything on stdout that is no message.

mod events;
mod gateway;
mod lines;
mod listener;
mod message;

use std::{collections::HashMap, sync::Arc};

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    task::{AbortHandle, JoinSet},
};

pub(crate) use gateway::Gateway;
use gateway::REVISION;
use lines::{Line, Lines};
use message::{Code, Id, Message, Request, refusal, success};

/// Lines that wait to be written; a client that does not read is waited for.
const UNWRITTEN: usize = 256;
/// Requests under way at a time.
const UNDER_WAY: usize = 64;

/// How far the handshake has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Begun,
    /// `initialize` was answered.
    Greeted,
    /// `notifications/initialized` came.
    Ready,
}

/// One conversation.
struct Session {
    gateway: Arc<Gateway>,
    out: mpsc::Sender<String>,
    stage: Stage,
    /// Requests that wait for the gateway.
    asked: JoinSet<Id>,
    by_id: HashMap<Id, AbortHandle>,
}

/// Serves one client until its input ends and every request is answered.
///
/// # Errors
/// When stdin or stdout fails.
pub(crate) async fn serve<I, O>(gateway: Gateway, input: I, mut output: O) -> anyhow::Result<()>
where
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin,
{
    let (out, mut lines) = mpsc::channel::<String>(UNWRITTEN);
    let writing = async move {
        while let Some(mut line) = lines.recv().await {
            line.push('\n');
            output.write_all(line.as_bytes()).await?;
            output.flush().await?;
        }
        std::io::Result::Ok(())
    };
    let session = Session {
        gateway: Arc::new(gateway),
        out,
        stage: Stage::Begun,
        asked: JoinSet::new(),
        by_id: HashMap::new(),
    };
    let mut writing = std::pin::pin!(writing);
    let mut talking = std::pin::pin!(session.run(input));
    tokio::select! {
        talked = &mut talking => talked?,
        written = &mut writing => return written.context("stdout cannot be written"),
    }
    // What was said last is still on its way.
    writing.await.context("stdout cannot be written")
}

impl Session {
    async fn run(mut self, input: impl AsyncRead + Unpin) -> anyhow::Result<()> {
        let mut lines = Lines::of(input);
        let mut listening = JoinSet::new();
        loop {
            let line = tokio::select! {
                line = lines.next(), if self.asked.len() < UNDER_WAY => line.context("stdin cannot be read")?,
                Some(ended) = self.asked.join_next() => {
                    self.forget(ended);
                    continue;
                }
            };
            match line {
                None => break,
                Some(Line::TooLong) => {
                    let detail = format!(
                        "Parse error: a line has at most {} bytes",
                        lines::LIMIT_BYTES
                    );
                    self.say(refusal(None, Code::ParseError, &detail)).await;
                }
                Some(Line::Whole(line)) if line.trim_ascii().is_empty() => {}
                Some(Line::Whole(line)) => match message::read(&line) {
                    Ok(message) => self.take(message, &mut listening).await,
                    Err(refusal) => self.say(refusal).await,
                },
            }
        }
        while let Some(ended) = self.asked.join_next().await {
            self.forget(ended);
        }
        Ok(())
    }

    async fn take(&mut self, message: Message, listening: &mut JoinSet<()>) {
        match message {
            Message::Answer => {}
            Message::Request(request) => self.answer(request).await,
            Message::Notification { method, params } => match method.as_str() {
                "notifications/initialized" if self.stage == Stage::Greeted => {
                    self.stage = Stage::Ready;
                    listening.spawn(listener::follow(
                        Arc::clone(&self.gateway),
                        self.out.clone(),
                    ));
                }
                "notifications/cancelled" => self.cancel(params.as_deref()),
                _ => tracing::debug!(method, "a notification that means nothing here"),
            },
        }
    }

    async fn answer(&mut self, request: Request) {
        let id = &request.id;
        let answer = match (request.method.as_str(), self.stage) {
            ("ping", _) => success(id, &json!({})),
            ("initialize", Stage::Begun) => self.greet(&request),
            ("initialize", _) => refusal(
                Some(id),
                Code::InvalidRequest,
                "Invalid Request: `initialize` came before",
            ),
            ("tools/list" | "tools/call", Stage::Ready) => return self.ask(request).await,
            ("tools/list" | "tools/call", _) => {
                let detail = "Invalid Request: first `initialize`, then `notifications/initialized`, then this";
                refusal(Some(id), Code::InvalidRequest, detail)
            }
            (method, _) => {
                let detail = format!(
                    "Method not found: {method:?} is none of initialize, ping, tools/list and tools/call"
                );
                refusal(Some(id), Code::MethodNotFound, &detail)
            }
        };
        self.say(answer).await;
    }

    /// The answer to `initialize`. A client of another revision is offered this one.
    fn greet(&mut self, request: &Request) -> String {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Hello {
            #[serde(rename = "protocolVersion")]
            _protocol_version: String,
        }
        let params = request.params.as_deref().map_or("{}", RawValue::get);
        if let Err(error) = serde_json::from_str::<Hello>(params) {
            let detail = format!("Invalid params: {error}");
            return refusal(Some(&request.id), Code::InvalidParams, &detail);
        }
        self.stage = Stage::Greeted;
        let result = json!({
            "protocolVersion": REVISION,
            "serverInfo": {"name": "switchboard", "version": env!("CARGO_PKG_VERSION")},
            "capabilities": {"tools": {"listChanged": true}},
        });
        success(&request.id, &result)
    }

    /// Puts the request to the gateway; others are answered meanwhile.
    async fn ask(&mut self, request: Request) {
        if self.by_id.contains_key(&request.id) {
            let detail = "Invalid Request: a request with this `id` is under way";
            return self
                .say(refusal(Some(&request.id), Code::InvalidRequest, detail))
                .await;
        }
        let (gateway, out) = (Arc::clone(&self.gateway), self.out.clone());
        let id = request.id.clone();
        let asking = self.asked.spawn(async move {
            let answer = gateway.forward(&request, &out).await;
            // Nobody reads any more when this fails, and the conversation ends by itself.
            let _ = out.send(answer).await;
            request.id
        });
        self.by_id.insert(id, asking);
    }

    /// A request that is given up is not answered; dropping it is what cancels it at the gateway.
    fn cancel(&mut self, params: Option<&RawValue>) {
        let asking = Id::cancelled(params).and_then(|id| self.by_id.remove(&id));
        if let Some(asking) = asking {
            asking.abort();
        }
    }

    fn forget(&mut self, ended: Result<Id, tokio::task::JoinError>) {
        match ended {
            Ok(id) => drop(self.by_id.remove(&id)),
            Err(error) if error.is_cancelled() => {}
            Err(error) => {
                tracing::error!(%error, "a request was not answered through a mistake of ours")
            }
        }
    }

    async fn say(&self, line: String) {
        // Nobody reads any more when this fails, and the loop that reads ends by itself.
        let _ = self.out.send(line).await;
    }
}
