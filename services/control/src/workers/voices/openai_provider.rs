//! The voice provider with an API like OpenAI's, such as OpenAI itself or vLLM-Omni.
//!
//! - `POST /audio/voices`, a form with `name`, `consent` and `audio_sample`, creates a voice. It is
//!   ready at once, and is known by its id, or by its name if it has no id.
//! - `GET /audio/voices` lists voices.
//! - `DELETE /audio/voices/{id}` deletes one.
//!
//! The API has no idempotency keys. The name of a voice contains the key of its training, and a
//! voice is only created when none with this name is listed.

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use serde::Deserialize;
use switchboard_runtime::outbound::Form;
use switchboard_store::{VoiceJob, VoiceStatus};
use tokio::time::timeout;

use super::{
    client::{self, MAX_RESPONSE_BYTES, ProviderClient, REQUEST_TIMEOUT, encoded, unavailable},
    provider::{Provider, ProviderError, ProviderFuture, READY_CHECK_INTERVAL},
};
use crate::Config;

const PATH: &str = "/audio/voices";
/// The voices that one page may have; the maximum of OpenAI.
const PAGE_VOICES: usize = 100;
/// The maximum size of a page. vLLM-Omni has one page with up to 1,000 voices and their texts.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;
/// The maximum number of pages that are read.
const MAX_PAGES: usize = 100;

/// A provider with an API like OpenAI's.
pub(super) struct OpenAiProvider {
    client: ProviderClient,
    consent: Option<String>,
}

/// A voice of the provider.
#[derive(Deserialize)]
struct NamedVoice {
    id: Option<String>,
    name: Option<String>,
}

/// The response to a creation. vLLM-Omni has the voice one level deeper than OpenAI.
#[derive(Deserialize)]
struct CreatedVoice {
    #[serde(flatten)]
    plain: NamedVoice,
    voice: Option<NamedVoice>,
}

/// A page of voices. The alias is the name that vLLM-Omni uses.
#[derive(Deserialize)]
struct Page {
    #[serde(alias = "uploaded_voices")]
    data: Vec<NamedVoice>,
    #[serde(default)]
    has_more: bool,
}

/// A rejection: the message of OpenAI, or a text.
#[derive(Deserialize)]
struct Rejection {
    #[serde(alias = "detail")]
    error: Message,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Message {
    Object { message: String },
    Text(String),
}

/// The result of a search for a voice.
enum Search {
    Found(String),
    Absent,
    /// The provider does not list voices.
    Unlisted,
}

impl NamedVoice {
    /// What the provider knows the voice by.
    fn made_as(&self) -> Option<&str> {
        self.id.as_deref().or(self.name.as_deref())
    }
}

impl OpenAiProvider {
    /// The configured provider, if any.
    pub(super) fn new(config: &Config) -> Option<Self> {
        let endpoint = config.voices_openai_endpoint.as_deref();
        let client = ProviderClient::new(endpoint, config.voices_openai_key.as_ref())?;
        Some(Self {
            client,
            consent: config.voices_openai_consent.clone(),
        })
    }

    /// The first listed voice that is wanted. A search takes at most as long as a request.
    async fn search(
        &self,
        is_wanted: impl Fn(&NamedVoice) -> bool + Send,
    ) -> Result<Search, ProviderError> {
        let search = timeout(REQUEST_TIMEOUT, self.search_pages(is_wanted)).await;
        search.map_err(|_| unavailable("the list of voices timed out"))?
    }

    async fn search_pages(
        &self,
        is_wanted: impl Fn(&NamedVoice) -> bool + Send,
    ) -> Result<Search, ProviderError> {
        let mut after = String::new();
        for _ in 0..MAX_PAGES {
            let below = format!("{PATH}?limit={PAGE_VOICES}{after}");
            let request = self.client.request(Method::GET, &below);
            let response = self.client.send(request, Bytes::new(), MAX_PAGE_BYTES);
            let response = response.await?;
            match response.status() {
                status if status.is_success() => {}
                StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
                    return Ok(Search::Unlisted);
                }
                // Whatever the status is, it is no list without the voice.
                status => {
                    let reason = format!("status {status} instead of a list of voices");
                    return Err(unavailable(&reason));
                }
            }
            let page: Page = self.client.parse(&response)?;
            if let Some(voice) = page.data.iter().find(|voice| is_wanted(voice)) {
                return Ok(Search::Found(checked_made_as(voice)?));
            }
            if !page.has_more {
                return Ok(Search::Absent);
            }
            let last = page.data.last().and_then(NamedVoice::made_as);
            let last = last.ok_or_else(|| unavailable("an empty page of voices"))?;
            after = format!("&after={}", encoded(last));
        }
        Err(unavailable("the list of voices is too long"))
    }

    /// The voice that was created with this key.
    async fn search_key(&self, key: &str) -> Result<Search, ProviderError> {
        let name = voice_name(key);
        self.search(|voice| voice.name.as_ref() == Some(&name))
            .await
    }

    async fn upload(
        &self,
        job: &VoiceJob,
        key: &str,
        sample: &[u8],
    ) -> Result<String, ProviderError> {
        // Without a recording of the consent, the id of the voice refers to the stored consent.
        let consent = self.consent.clone().unwrap_or_else(|| job.id.to_string());
        let (content_type, body) = Form::default()
            .field("name", &voice_name(key))
            .field("consent", &consent)
            .file(
                "audio_sample",
                file_name(&job.mime_type),
                &job.mime_type,
                sample,
            )
            .finish();
        let request = self.client.request(Method::POST, PATH);
        let request = request.header(header::CONTENT_TYPE, content_type);
        let sent = self.client.send(request, body.into(), MAX_RESPONSE_BYTES);
        let response = sent.await?;
        self.check_upload(&response)?;
        let created: CreatedVoice = self.client.parse(&response)?;
        checked_made_as(&created.voice.unwrap_or(created.plain))
    }

    /// Fails unless the status is a success; a rejection has the message of the provider.
    fn check_upload(&self, response: &Response<Bytes>) -> Result<(), ProviderError> {
        client::check_status(response.status()).map_err(|error| match error {
            ProviderError::Rejected(mut fault) => {
                if let Ok(rejection) = serde_json::from_slice::<Rejection>(response.body()) {
                    let (Message::Object { message } | Message::Text(message)) = rejection.error;
                    let reason = self.client.reason(&message);
                    fault.detail = client::detail(&format!("{} {reason}", fault.detail));
                }
                ProviderError::Rejected(fault)
            }
            temporary @ ProviderError::Unavailable(_) => temporary,
        })
    }
}

impl Provider for OpenAiProvider {
    fn create<'a>(
        &'a self,
        job: &'a VoiceJob,
        key: &'a str,
        sample: Bytes,
    ) -> ProviderFuture<'a, VoiceStatus> {
        Box::pin(async move {
            match self.search_key(key).await? {
                Search::Found(made_as) => Ok(ready(made_as)),
                Search::Absent | Search::Unlisted => {
                    Ok(ready(self.upload(job, key, &sample).await?))
                }
            }
        })
    }

    fn status<'a>(&'a self, made_as: &'a str) -> ProviderFuture<'a, VoiceStatus> {
        Box::pin(async move {
            let search = self.search(|voice| voice.made_as() == Some(made_as));
            match search.await? {
                Search::Found(_) | Search::Unlisted => Ok(ready(made_as.to_owned())),
                Search::Absent => Ok(client::lost()),
            }
        })
    }

    fn find<'a>(&'a self, key: &'a str) -> ProviderFuture<'a, Option<String>> {
        Box::pin(async move {
            match self.search_key(key).await? {
                Search::Found(made_as) => Ok(Some(made_as)),
                Search::Absent => Ok(None),
                Search::Unlisted => {
                    let name = voice_name(key);
                    tracing::warn!(
                        name,
                        "the voice provider does not list voices; if it has this voice, delete it there"
                    );
                    Ok(None)
                }
            }
        })
    }

    fn delete<'a>(&'a self, made_as: &'a str) -> ProviderFuture<'a, ()> {
        let below = format!("{PATH}/{}", encoded(made_as));
        Box::pin(async move { self.client.delete(&below).await })
    }
}

const fn ready(made_as: String) -> VoiceStatus {
    VoiceStatus::Ready {
        made_as: Some(made_as),
        next: Some(READY_CHECK_INTERVAL),
    }
}

fn checked_made_as(voice: &NamedVoice) -> Result<String, ProviderError> {
    client::checked_id(voice.made_as().unwrap_or_default().to_owned())
}

/// The name of the voice that is created with this key. A key has lowercase letters, digits, `_` and
/// `-`; vLLM-Omni does not distinguish names by case.
fn voice_name(key: &str) -> String {
    format!("switchboard-{key}")
}

/// The name of a sample as a file: servers look at its extension.
fn file_name(mime_type: &str) -> &'static str {
    match mime_type {
        "audio/mpeg" => "sample.mp3",
        "audio/flac" => "sample.flac",
        "audio/ogg" => "sample.ogg",
        _ => "sample.wav",
    }
}
