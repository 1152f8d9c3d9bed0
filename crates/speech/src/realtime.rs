//! Realtime transcription over a WebSocket: the interface of OpenAI, and that of vLLM. Both are events in
//! JSON; the first event of the server identifies the interface.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use futures_util::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use http::{HeaderValue, Request, Uri, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use switchboard_runtime::outbound;
use switchboard_voice::Resampler;
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    Connector, MaybeTlsStream, WebSocketStream, connect_async_tls_with_config,
    tungstenite::{
        Error, Message, client::IntoClientRequest as _, handshake::client::Request as Handshake,
        protocol::WebSocketConfig,
    },
};

use crate::{
    RATE,
    config::ProviderSettings,
    failure::{CONNECT_TIMEOUT, Failure, excerpt},
    recognition::exchange,
    utterance::Utterance,
};

/// Maximum bytes of an event.
const MAX_EVENT_BYTES: usize = 64 * 1024;
/// Events of other types before the transcript. A word has one, and a keep-alive.
const MAX_EVENTS: usize = 10_000;
/// Samples per second that OpenAI takes.
const OPENAI_RATE: u32 = 24_000;
/// The model of OpenAI, if none is configured.
const OPENAI_MODEL: &str = "gpt-4o-transcribe";

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// An endpoint with its model.
pub(crate) struct Realtime {
    endpoint: Uri,
    model: Option<String>,
    key: Option<SecretString>,
    tls: Arc<rustls::ClientConfig>,
}

/// The events of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    OpenAi,
    Vllm,
}

/// An event of a server, as far as it concerns a transcript.
enum Event {
    /// More words.
    Delta(String),
    /// All words.
    Done(String),
    Other,
}

struct Sender {
    socket: SplitSink<Socket, Message>,
    dialect: Dialect,
}

struct Receiver {
    socket: SplitStream<Socket>,
    /// The API key, which is not shown.
    key: Option<SecretString>,
}

impl Realtime {
    pub(crate) fn new(settings: &ProviderSettings) -> Result<Self, String> {
        let expected = || {
            let endpoint = &settings.endpoint;
            format!(
                "`{endpoint}` is not a WebSocket URL such as wss://host/v1/realtime?intent=transcription"
            )
        };
        let endpoint: Uri = settings.endpoint.parse().map_err(|_| expected())?;
        let is_valid = matches!(endpoint.scheme_str(), Some("ws" | "wss"))
            && endpoint
                .authority()
                .is_some_and(|host| !host.as_str().contains('@'));
        if !is_valid {
            return Err(expected());
        }
        let tls = outbound::tls_config(None).map_err(|error| error.to_string())?;
        Ok(Self {
            endpoint,
            model: settings.model.clone(),
            key: settings.key.clone(),
            tls: Arc::new(tls),
        })
    }

    /// Begins a session, and sends no audio.
    pub(crate) async fn contact(&self) -> (String, Result<String, Failure>) {
        let connected = timeout(CONNECT_TIMEOUT, self.connect()).await;
        let connected = connected.unwrap_or(Err(Failure::TimedOut));
        // A query may have a credential.
        let (host, path) = (
            self.endpoint.host().unwrap_or_default(),
            self.endpoint.path(),
        );
        let attempt = format!("WebSocket at {host}{path}");
        (attempt, connected.map(|_| "it begins a session".to_owned()))
    }

    /// Recognises an utterance, which is sent while it is being spoken.
    pub(crate) async fn transcribe(&self, utterance: &Utterance) -> Result<String, Failure> {
        let connected = timeout(CONNECT_TIMEOUT, self.connect()).await;
        let (mut sender, mut receiver) = connected.map_err(|_| Failure::TimedOut)??;
        let is_committed = AtomicBool::new(false);
        let send = async {
            sender
                .begin(self.model.as_deref(), utterance.language())
                .await?;
            sender.send_audio(utterance, &is_committed).await
        };
        let receive = receiver.transcript(utterance, &is_committed);
        exchange(receive, send).await
    }

    async fn connect(&self) -> Result<(Sender, Receiver), Failure> {
        let limits = WebSocketConfig::default().max_message_size(Some(MAX_EVENT_BYTES));
        let connected = connect_async_tls_with_config(
            self.handshake()?,
            Some(limits),
            true,
            Some(Connector::Rustls(Arc::clone(&self.tls))),
        );
        let connected = connected.await;
        let (socket, _) = connected.map_err(|error| refused(&error, self.key.as_ref()))?;
        let (sink, stream) = socket.split();
        let mut receiver = Receiver {
            socket: stream,
            key: self.key.clone(),
        };
        let first = receiver.next().await?;
        receiver.read(&first)?;
        if first.get("type").and_then(Value::as_str) != Some("session.created") {
            let detail = excerpt(first.to_string().as_bytes(), self.key.as_ref());
            let detail = format!("its first event is not session.created: {detail}");
            return Err(Failure::Invalid(detail));
        }
        // Only OpenAI's has the settings of the session.
        let dialect = if first.get("session").is_some() {
            Dialect::OpenAi
        } else {
            Dialect::Vllm
        };
        let sender = Sender {
            socket: sink,
            dialect,
        };
        Ok((sender, receiver))
    }

    fn handshake(&self) -> Result<Handshake, Failure> {
        let request: Result<Request<()>, _> = self.endpoint.clone().into_client_request();
        let mut request = request.map_err(|error| Failure::Rejected(error.to_string()))?;
        if let Some(key) = &self.key {
            let bearer: Result<HeaderValue, _> = outbound::bearer(key.expose_secret());
            let invalid =
                |_| Failure::Rejected("the API key has characters of no header".to_owned());
            let bearer = bearer.map_err(invalid)?;
            request.headers_mut().insert(header::AUTHORIZATION, bearer);
        }
        Ok(request)
    }
}

impl Sender {
    /// Describes the audio. The end of an utterance is decided here and not by the server.
    async fn begin(&mut self, model: Option<&str>, language: Option<&str>) -> Result<(), Failure> {
        match self.dialect {
            Dialect::OpenAi => {
                let model = model.unwrap_or(OPENAI_MODEL);
                let mut transcription = json!({"model": model});
                if let Some(language) = language {
                    transcription["language"] = language.into();
                }
                let input = json!({
                    "format": {"type": "audio/pcm", "rate": OPENAI_RATE},
                    "transcription": transcription,
                    "turn_detection": null,
                });
                let session = json!({"type": "transcription", "audio": {"input": input}});
                self.send(&json!({"type": "session.update", "session": session}))
                    .await
            }
            Dialect::Vllm => {
                self.send(&json!({"type": "session.update", "model": model}))
                    .await?;
                self.send(&json!({"type": "input_audio_buffer.commit"}))
                    .await
            }
        }
    }

    async fn send_audio(
        &mut self,
        utterance: &Utterance,
        is_committed: &AtomicBool,
    ) -> Result<(), Failure> {
        let rate = match self.dialect {
            Dialect::OpenAi => OPENAI_RATE,
            Dialect::Vllm => RATE,
        };
        let mut resampler = Resampler::new(RATE, rate);
        let (mut sent, mut converted) = (0, Vec::new());
        while let Some(samples) = utterance.after(sent).await {
            sent += samples.len();
            resampler.convert(&samples, &mut converted);
            self.append(&mut converted).await?;
        }
        resampler.finish(&mut converted);
        self.append(&mut converted).await?;
        let mut commit = json!({"type": "input_audio_buffer.commit"});
        if self.dialect == Dialect::Vllm {
            commit["final"] = true.into();
        }
        is_committed.store(true, Ordering::Relaxed);
        self.send(&commit).await
    }

    async fn append(&mut self, samples: &mut Vec<i16>) -> Result<(), Failure> {
        if samples.is_empty() {
            return Ok(());
        }
        let bytes: Vec<u8> = samples.drain(..).flat_map(i16::to_le_bytes).collect();
        let audio = BASE64.encode(bytes);
        self.send(&json!({"type": "input_audio_buffer.append", "audio": audio}))
            .await
    }

    async fn send(&mut self, event: &Value) -> Result<(), Failure> {
        let sent = self.socket.send(Message::text(event.to_string())).await;
        sent.map_err(|error| Failure::Unavailable(error.to_string()))
    }
}

impl Receiver {
    /// Waits for the transcript, and reports its beginning. A server that finds pauses by itself has one
    /// for each part; the last one follows the end of the audio.
    async fn transcript(
        &mut self,
        utterance: &Utterance,
        is_committed: &AtomicBool,
    ) -> Result<String, Failure> {
        let (mut complete, mut part) = (String::new(), String::new());
        for _ in 0..MAX_EVENTS {
            let event = self.next().await?;
            match self.read(&event)? {
                Event::Delta(more) => part.push_str(&more),
                Event::Done(transcript) => {
                    part.clear();
                    complete.push_str(transcript.trim());
                    if is_committed.load(Ordering::Relaxed) {
                        return Ok(complete);
                    }
                    complete.push(' ');
                }
                Event::Other => continue,
            }
            utterance.report(&format!("{complete}{part}"))?;
        }
        Err(Failure::Invalid(format!(
            "no transcript within {MAX_EVENTS} events"
        )))
    }

    fn read(&self, event: &Value) -> Result<Event, Failure> {
        let text = |name: &str| {
            let text = event.get(name).and_then(Value::as_str);
            text.map(str::to_owned)
                .ok_or_else(|| Failure::Invalid(format!("an event has no `{name}`")))
        };
        let kind = event
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        match kind {
            "conversation.item.input_audio_transcription.delta" | "transcription.delta" => {
                text("delta").map(Event::Delta)
            }
            "conversation.item.input_audio_transcription.completed" => {
                text("transcript").map(Event::Done)
            }
            "transcription.done" => text("text").map(Event::Done),
            "conversation.item.input_audio_transcription.failed" | "error" => {
                let error = event.get("error").unwrap_or(event);
                let message = error.get("message").unwrap_or(error);
                let key = self.key.as_ref();
                Err(Failure::Rejected(match message.as_str() {
                    Some(message) => excerpt(message.as_bytes(), key),
                    None => excerpt(message.to_string().as_bytes(), key),
                }))
            }
            _ => Ok(Event::Other),
        }
    }

    /// The next event.
    async fn next(&mut self) -> Result<Value, Failure> {
        let closed = || Failure::Unavailable("it closed the connection early".to_owned());
        loop {
            let message = self.socket.next().await.ok_or_else(closed)?;
            let message = message.map_err(|error| Failure::Unavailable(error.to_string()))?;
            let event = match &message {
                Message::Text(text) => text.as_bytes(),
                Message::Binary(bytes) => bytes,
                Message::Close(_) => return Err(closed()),
                _ => continue,
            };
            return serde_json::from_slice(event).map_err(|error| {
                let shown = excerpt(event, self.key.as_ref());
                Failure::Invalid(format!("no event: {error}: {shown}"))
            });
        }
    }
}

/// Why there is no connection.
fn refused(error: &Error, key: Option<&SecretString>) -> Failure {
    match error {
        Error::Http(response) => {
            let detail = response.body().as_deref().unwrap_or_default();
            let detail = excerpt(detail, key);
            Failure::from_status(response.status(), response.headers(), &detail)
        }
        error => Failure::Unavailable(error.to_string()),
    }
}
