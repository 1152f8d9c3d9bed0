//! APIs like OpenAI's: `POST /audio/transcriptions` and `POST /audio/speech`.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use switchboard_runtime::outbound::{self, Api, Client, Contact, Form};

use crate::{
    RATE,
    config::ProviderSettings,
    failure::{Failure, excerpt},
    pcm::{PcmReader, wav},
    synthesis::{ChunkSender, SpokenStyle},
    utterance::Utterance,
};

/// Maximum bytes of a transcript with what is around it, and of an error.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
/// Samples per second of the audio that is requested.
const SPEECH_RATE: u32 = 24_000;
/// The paths of requests below the base URL.
pub(crate) const TRANSCRIPTIONS: &str = "/audio/transcriptions";
pub(crate) const SPEECH: &str = "/audio/speech";
/// The host of OpenAI itself.
const OPENAI_HOST: &str = "api.openai.com";
/// The beginning of the ids of OpenAI's custom voices.
const CUSTOM_VOICE_PREFIX: &str = "voice_";

/// An endpoint with its model.
pub(crate) struct OpenAi {
    client: Client<Full<Bytes>>,
    base: String,
    model: Option<String>,
    key: Option<SecretString>,
    /// Whether it is OpenAI itself.
    is_openai: bool,
}

impl OpenAi {
    pub(crate) fn new(settings: &ProviderSettings) -> Result<Self, String> {
        let base = outbound::parse_base_url(&settings.endpoint)?;
        Ok(Self {
            client: outbound::client(true).map_err(|error| error.to_string())?,
            base: base.to_string().trim_end_matches('/').to_owned(),
            model: settings.model.clone(),
            key: settings.key.clone(),
            is_openai: base.host() == Some(OPENAI_HOST),
        })
    }

    /// Recognises an utterance.
    pub(crate) async fn transcribe(&self, utterance: &Utterance) -> Result<String, Failure> {
        #[derive(Deserialize)]
        struct Transcript {
            text: String,
        }
        let pcm = utterance.all().await;
        let mut form = Form::default()
            .field("model", self.model.as_deref().unwrap_or("whisper-1"))
            .field("response_format", "json");
        if let Some(language) = utterance.language() {
            form = form.field("language", language);
        }
        let form = form.file("file", "speech.wav", "audio/wav", &wav(&pcm, RATE));
        let (content_type, body) = form.finish();
        let response = self.post(TRANSCRIPTIONS, &content_type, body).await?;
        let bytes = read_limited(response.into_body()).await?;
        let transcript: Transcript = serde_json::from_slice(&bytes).map_err(|error| {
            Failure::Invalid(format!(
                "it is no transcript: {error}: {}",
                self.excerpt(&bytes)
            ))
        })?;
        Ok(transcript.text)
    }

    /// Speaks a sentence.
    pub(crate) async fn speak(
        &self,
        text: &str,
        style: &SpokenStyle,
        chunks: &ChunkSender,
    ) -> Result<(), Failure> {
        let mut body = json!({
            "model": self.model.as_deref().unwrap_or("tts-1"),
            "input": text,
            "voice": voice(self.is_openai, style.voice.as_deref().unwrap_or("alloy")),
            "response_format": "pcm",
        });
        if let (Some(rate), Some(body)) = (style.rate, body.as_object_mut()) {
            body.insert("speed".to_owned(), rate.into());
        }
        let body = body.to_string().into_bytes();
        let response = self.post(SPEECH, "application/json", body).await?;
        if let Some(media_type) = response.headers().get(header::CONTENT_TYPE) {
            let is_text = |media_type: &str| {
                media_type.starts_with("text/") || media_type.starts_with("application/json")
            };
            if media_type.to_str().is_ok_and(is_text) {
                let bytes = read_limited(response.into_body()).await?;
                let detail = format!("it is text instead of audio: {}", self.excerpt(&bytes));
                return Err(Failure::Invalid(detail));
            }
        }
        let mut reader = PcmReader::new(SPEECH_RATE, 1);
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Failure::Unavailable(error.to_string()))?;
            if let Ok(data) = frame.into_data() {
                let samples = reader.read(&data)?;
                chunks.send(samples, reader.rate()).await?;
            }
        }
        Ok(())
    }

    /// Contacts the provider without a request for words or audio.
    pub(crate) async fn contact(&self, name: &str, path: &str, limit: Duration) -> Contact {
        let headers = self.headers("application/json");
        let api = Api {
            client: &self.client,
            base: &self.base,
            path,
            authorization: headers.get(header::AUTHORIZATION),
        };
        api.contact(name, limit).await
    }

    fn excerpt(&self, bytes: &[u8]) -> String {
        excerpt(bytes, self.key.as_ref())
    }

    async fn post(
        &self,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, Failure> {
        let uri: Uri = format!("{}{path}", self.base)
            .parse()
            .map_err(|_| Failure::Rejected("its URL is invalid".to_owned()))?;
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers(content_type);
        let response = outbound::send(&self.client, request).await;
        let response = response.map_err(|error| Failure::Unavailable(error.to_string()))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let detail = read_limited(body).await.unwrap_or_default();
        let detail = self.excerpt(&detail);
        Err(Failure::from_status(head.status, &head.headers, &detail))
    }

    fn headers(&self, content_type: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Ok(content_type) = HeaderValue::try_from(content_type) {
            headers.insert(header::CONTENT_TYPE, content_type);
        }
        let key = self.key.as_ref().map(|key| key.expose_secret());
        // A key with a line break cannot be sent; the endpoint then reports a missing key.
        if let Some(Ok(bearer)) = key.map(outbound::bearer) {
            headers.insert(header::AUTHORIZATION, bearer);
        }
        headers
    }
}

/// A voice in a request: OpenAI takes a custom voice as an object, other servers take only names.
fn voice(is_openai: bool, name: &str) -> Value {
    if is_openai && name.starts_with(CUSTOM_VOICE_PREFIX) {
        return json!({ "id": name });
    }
    json!(name)
}

async fn read_limited(body: Incoming) -> Result<Bytes, Failure> {
    let limited = http_body_util::Limited::new(body, MAX_RESPONSE_BYTES);
    let body = limited.collect().await;
    let body = body.map_err(|error| Failure::Invalid(error.to_string()))?;
    Ok(body.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_openai_receives_custom_voices_as_objects() {
        for (is_openai, name, expected) in [
            (true, "voice_1234", json!({"id": "voice_1234"})),
            (true, "alloy", json!("alloy")),
            (false, "voice_1234", json!("voice_1234")),
        ] {
            assert_eq!(voice(is_openai, name), expected);
        }
    }
}
