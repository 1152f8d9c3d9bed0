//! The Model Context Protocol on stdin and stdout, revision 2025-11-25: lines in, lines out, a gateway behind them.
//! Never: a request before the handshake, or anything on stdout that is no message.

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

use crate::site::AskError;
pub(crate) use gateway::Gateway;
use gateway::REVISION;
use lines::{Line, Lines};
use message::{Code, Id, Message, Request, refusal, refusal_with, success};

/// Lines that wait to be written; a client that does not read is waited for.
const UNWRITTEN: usize = 256;
/// Requests under way at a time. Protects the gateway and the devices; as many as a device takes.
const UNDER_WAY: usize = 64;
/// What is under way when the input ends has this long, and then what was said last to be read.
const LAST_WORDS: Duration = Duration::from_secs(10);

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
    asked: JoinSet<String>,
    /// Which of them are still to be answered.
    under_way: HashMap<Id, AbortHandle>,
    /// Says that nothing is waited for any more.
    leaving: Shutdown,
    /// Whether the gateway tells of changes, or cannot: what is listed before may change without a word.
    followed: watch::Sender<bool>,
}

/// Serves one client until its input ends and every request is answered; what then takes too long is answered with
/// that.
///
/// # Errors
/// When stdin or stdout fails.
pub(crate) async fn serve<I, O>(gateway: Gateway, input: I, output: O) -> anyhow::Result<()>
where
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin,
{
    converse(gateway, input, output, LAST_WORDS).await
}

async fn converse<I, O>(
    gateway: Gateway,
    input: I,
    output: O,
    last_words: Duration,
) -> anyhow::Result<()>
where
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin,
{
    let (out, said) = mpsc::channel(UNWRITTEN);
    let mut session = Session::new(gateway, out);
    let mut writing = std::pin::pin!(write(said, output));
    tokio::select! {
        heard = session.listen(Lines::of(input)) => heard?,
        written = &mut writing => return written,
    }
    // What is answered last has to be read, too.
    let ending = async { tokio::try_join!(session.finish(last_words), writing) };
    match timeout(2 * last_words, ending).await {
        Ok(ended) => ended.map(|_| ()),
        Err(_) => Err(anyhow!("stdout is not read")),
    }
}

async fn write(
    mut said: mpsc::Receiver<String>,
    mut output: impl AsyncWrite + Unpin,
) -> anyhow::Result<()> {
    let writing = async {
        while let Some(mut line) = said.recv().await {
            line.push('\n');
            output.write_all(line.as_bytes()).await?;
            output.flush().await?;
        }
        std::io::Result::Ok(())
    };
    writing.await.context("stdout cannot be written")
}

impl Session {
    fn new(gateway: Gateway, out: mpsc::Sender<String>) -> Self {
        Self {
            gateway: Arc::new(gateway),
            out,
            stage: Stage::Begun,
            asked: JoinSet::new(),
            under_way: HashMap::new(),
            leaving: Shutdown::new(),
            followed: watch::Sender::new(false),
        }
    }

    /// Takes what comes until the input ends.
    async fn listen(&mut self, mut lines: Lines<impl AsyncRead + Unpin>) -> anyhow::Result<()> {
        let mut following = JoinSet::new();
        loop {
            let line = tokio::select! {
                // An answered request makes room, and its id may be used again, before the next one is looked at.
                biased;
                Some(ended) = self.asked.join_next_with_id() => {
                    self.conclude(ended).await;
                    continue;
                }
                line = lines.next() => line.context("stdin cannot be read")?,
            };
            match line {
                None => return Ok(()),
                Some(Line::TooLong) => {
                    let detail = format!(
                        "Parse error: a line has at most {} bytes",
                        lines::LIMIT_BYTES
                    );
                    self.say(refusal(None, Code::ParseError, &detail)).await;
                }
                Some(Line::Whole(line)) if line.trim_ascii().is_empty() => {}
                Some(Line::Whole(line)) => match message::read(&line) {
                    Ok(message) => self.take(message, &mut following).await,
                    Err(refusal) => self.say(refusal).await,
                },
            }
        }
    }

    /// Answers what is under way: with what comes in time, then with that nothing came.
    async fn finish(mut self, last_words: Duration) -> anyhow::Result<()> {
        if timeout(last_words, self.conclude_all()).await.is_err() {
            tracing::warn!(
                requests = self.under_way.len(),
                "the input has ended; requests that take longer are given up"
            );
            self.leaving.stop();
            self.conclude_all().await;
        }
        Ok(())
    }

    async fn conclude_all(&mut self) {
        while let Some(ended) = self.asked.join_next_with_id().await {
            self.conclude(ended).await;
        }
    }

    async fn take(&mut self, message: Message, following: &mut JoinSet<()>) {
        match message {
            Message::Answer => {}
            Message::Request(request) => self.answer(request).await,
            Message::Notification { method, params } => match method.as_str() {
                "notifications/initialized" if self.stage == Stage::Greeted => {
                    self.stage = Stage::Ready;
                    following.spawn(listener::follow(
                        Arc::clone(&self.gateway),
                        self.out.clone(),
                        self.followed.clone(),
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
        let id = request.id.clone();
        if self.under_way.contains_key(&id) {
            let detail = "Invalid Request: a request with this `id` is under way";
            let refused = refusal(Some(&id), Code::InvalidRequest, detail);
            return self.say(refused).await;
        }
        if self.under_way.len() >= UNDER_WAY {
            let detail = format!("Too much at once: {UNDER_WAY} requests are under way");
            let data = json!({"delivered": "no"});
            let refused = refusal_with(Some(&id), Code::Overloaded, &detail, Some(data));
            return self.say(refused).await;
        }
        let (gateway, out) = (Arc::clone(&self.gateway), self.out.clone());
        let leaving = self.leaving.clone();
        let mut followed = self.followed.subscribe();
        let asking = self.asked.spawn(async move {
            let forwarded = async {
                if request.method == "tools/list" {
                    // Not for ever: what changes until then is told later.
                    let _ = timeout(listener::AT_ONCE, followed.wait_for(|is| *is)).await;
                }
                gateway.forward(&request, &out).await
            };
            tokio::select! {
                answer = forwarded => answer,
                () = leaving.stopping() => {
                    let late = AskError::Broken(anyhow!("stdin ended, and no answer came in time"));
                    gateway::unanswered(&request, &late)
                }
            }
        });
        self.under_way.insert(id, asking);
    }

    /// A request that is given up is not answered; dropping it is what cancels it at the gateway.
    fn cancel(&mut self, params: Option<&RawValue>) {
        let asking = Id::cancelled(params).and_then(|id| self.under_way.remove(&id));
        if let Some(asking) = asking {
            asking.abort();
        }
    }

    /// Answers a request that has ended, unless it was given up. Its id is free from then on.
    async fn conclude(&mut self, ended: Result<(task::Id, String), JoinError>) {
        let task = match &ended {
            Ok((task, _)) => *task,
            Err(error) => error.id(),
        };
        let mut its = self.under_way.extract_if(|_, asking| asking.id() == task);
        let Some((id, _)) = its.next() else {
            return;
        };
        drop(its);
        let answer = ended.map_or_else(
            |error| {
                tracing::error!(%error, "a request was not answered through a mistake of ours");
                refusal(Some(&id), Code::InternalError, "Internal error")
            },
            |(_, answer)| answer,
        );
        self.say(answer).await;
    }

    async fn say(&self, line: String) {
        // Nobody reads any more when this fails, and the loop that reads ends by itself.
        let _ = self.out.send(line).await;
    }
}
