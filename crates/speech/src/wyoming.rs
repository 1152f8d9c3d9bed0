//! Servers of the Wyoming protocol: events over TCP, each a line of JSON, with data and audio behind it.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::timeout,
};

use crate::{
    RATE,
    failure::{CONNECT_TIMEOUT, Failure},
    pcm::PcmReader,
    recognition::exchange,
    synthesis::{ChunkSender, SpokenStyle},
    utterance::Utterance,
};

/// Maximum bytes of the line and of the data of an event, and of its audio.
const MAX_HEADER_BYTES: u64 = 64 * 1024;
const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;
/// Events of other types before the awaited one.
const MAX_OTHER_EVENTS: usize = 1_000;
const WIDTH: u32 = 2;

/// A server.
pub(crate) struct Wyoming {
    address: String,
}

struct Receiver(BufReader<OwnedReadHalf>);

struct Sender(OwnedWriteHalf);

#[derive(Deserialize)]
struct Header {
    r#type: String,
    #[serde(default)]
    data: Map<String, Value>,
    #[serde(default)]
    data_length: usize,
    #[serde(default)]
    payload_length: usize,
}

struct Event {
    kind: String,
    data: Map<String, Value>,
    payload: Vec<u8>,
}

impl Wyoming {
    pub(crate) fn new(endpoint: &str) -> Result<Self, String> {
        let address = endpoint.strip_prefix("tcp://").unwrap_or(endpoint);
        let port = address
            .rsplit_once(':')
            .map(|(_, port)| port.parse::<u16>());
        match port {
            Some(Ok(_)) => Ok(Self {
                address: address.to_owned(),
            }),
            _ => Err(format!("`{endpoint}` is not HOST:PORT")),
        }
    }

    async fn connect(&self) -> Result<(Receiver, Sender), Failure> {
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.address));
        let stream = stream.await.map_err(|_| Failure::TimedOut)??;
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        Ok((Receiver(BufReader::new(read)), Sender(write)))
    }

    /// Connects to the server, and sends nothing.
    pub(crate) async fn contact(&self) -> (String, Result<String, Failure>) {
        let connected = self.connect().await;
        let attempt = format!("TCP connection to {}", self.address);
        (
            attempt,
            connected.map(|_| "it accepts connections".to_owned()),
        )
    }

    /// Recognises an utterance, which is sent while it is being spoken.
    pub(crate) async fn transcribe(&self, utterance: &Utterance) -> Result<String, Failure> {
        let (mut receiver, mut sender) = self.connect().await?;
        let format = json!({"rate": RATE, "width": WIDTH, "channels": 1});
        let send = async {
            let language = json!({"language": utterance.language()});
            sender.send("transcribe", &language, &[]).await?;
            sender.send("audio-start", &format, &[]).await?;
            let mut sent = 0;
            while let Some(samples) = utterance.after(sent).await {
                sent += samples.len();
                let payload: Vec<u8> = samples.into_iter().flat_map(i16::to_le_bytes).collect();
                sender.send("audio-chunk", &format, &payload).await?;
            }
            sender.send("audio-stop", &json!({}), &[]).await
        };
        let receive = async {
            let mut words = String::new();
            loop {
                let event = receiver
                    .receive(&["transcript-chunk", "transcript"])
                    .await?;
                let text = event.data.get("text").and_then(Value::as_str);
                let no_text = || Failure::Invalid("a transcript has no text".to_owned());
                let text = text.ok_or_else(no_text)?;
                if event.kind == "transcript" {
                    return Ok::<_, Failure>(text.to_owned());
                }
                words.push_str(text);
                utterance.report(&words)?;
            }
        };
        exchange(receive, send).await
    }

    /// Speaks a sentence.
    pub(crate) async fn speak(
        &self,
        text: &str,
        style: &SpokenStyle,
        chunks: &ChunkSender,
    ) -> Result<(), Failure> {
        let (mut receiver, mut sender) = self.connect().await?;
        let mut request = json!({"text": text});
        let voice = json!({"name": style.voice, "language": style.language});
        if style.voice.is_some() || style.language.is_some() {
            request["voice"] = voice;
        }
        sender.send("synthesize", &request, &[]).await?;
        let awaited = ["audio-start", "audio-chunk", "audio-stop"];
        let mut reader = None;
        loop {
            let event = receiver.receive(&awaited).await?;
            match event.kind.as_str() {
                "audio-start" => reader = Some(event.reader()?),
                "audio-chunk" => {
                    let reader = match &mut reader {
                        Some(reader) => reader,
                        none => none.insert(event.reader()?),
                    };
                    let samples = reader.read(&event.payload)?;
                    chunks.send(samples, reader.rate()).await?;
                }
                _ => return Ok(()),
            }
        }
    }
}

impl Sender {
    async fn send(&mut self, kind: &str, data: &Value, payload: &[u8]) -> Result<(), Failure> {
        let header = json!({"type": kind, "data": data, "payload_length": payload.len()});
        let mut bytes = header.to_string().into_bytes();
        bytes.push(b'\n');
        bytes.extend_from_slice(payload);
        self.0.write_all(&bytes).await?;
        Ok(())
    }
}

impl Receiver {
    /// Receives the next event of one of these types.
    async fn receive(&mut self, awaited: &[&str]) -> Result<Event, Failure> {
        for _ in 0..MAX_OTHER_EVENTS {
            let event = self.receive_any().await?;
            if event.kind == "error" {
                let text = event.data.get("text").and_then(Value::as_str);
                return Err(Failure::Rejected(text.unwrap_or("no reason").to_owned()));
            }
            if awaited.contains(&event.kind.as_str()) {
                return Ok(event);
            }
        }
        Err(Failure::Invalid(format!("none of the events {awaited:?}")))
    }

    async fn receive_any(&mut self) -> Result<Event, Failure> {
        let mut line = Vec::new();
        let mut limited = (&mut self.0).take(MAX_HEADER_BYTES);
        limited.read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            let detail = "it closed the connection before its answer".to_owned();
            return Err(Failure::Unavailable(detail));
        }
        let invalid = |error: serde_json::Error| Failure::Invalid(format!("no event: {error}"));
        let header: Header = serde_json::from_slice(&line).map_err(invalid)?;
        if header.data_length as u64 > MAX_HEADER_BYTES || header.payload_length > MAX_PAYLOAD_BYTES
        {
            return Err(Failure::Invalid("an event is too large".to_owned()));
        }
        let mut data = vec![0; header.data_length];
        self.0.read_exact(&mut data).await?;
        let mut payload = vec![0; header.payload_length];
        self.0.read_exact(&mut payload).await?;
        let mut members = header.data;
        if !data.is_empty() {
            let more: Map<String, Value> = serde_json::from_slice(&data).map_err(invalid)?;
            members.extend(more);
        }
        Ok(Event {
            kind: header.r#type,
            data: members,
            payload,
        })
    }
}

impl Event {
    /// A reader of the audio that this event describes.
    fn reader(&self) -> Result<PcmReader, Failure> {
        let number = |name| self.data.get(name).and_then(Value::as_u64);
        let (rate, width) = (number("rate"), number("width"));
        let channels = number("channels").unwrap_or(1);
        match (
            rate.and_then(|rate| u32::try_from(rate).ok()),
            width,
            channels,
        ) {
            (Some(rate @ 4_000..=192_000), Some(2) | None, 1..=8) => {
                Ok(PcmReader::new(rate, channels as usize))
            }
            _ => Err(Failure::Invalid(
                "its audio has no samples of 16 bits, or an impossible rate".to_owned(),
            )),
        }
    }
}
