//! Fake providers, and requests to them.

use std::{io::Write as _, time::Duration};

use serde_json::{Value, json};
use switchboard_completions::{CompletionError, Config, Message, Providers, Reply, Request};
use tokio::time::{Instant, timeout};

use crate::fake_provider::{FakeProvider, Step};

/// Deadline of completions that are expected to succeed.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// Providers `a`, `b` and so on, in this order.
pub struct Fixture {
    pub providers: Providers,
    pub fakes: Vec<FakeProvider>,
}

/// The result of a completion.
pub struct Outcome {
    pub reply: Result<Reply, CompletionError>,
    pub texts: Vec<String>,
}

impl Outcome {
    #[track_caller]
    pub fn reply(self) -> Reply {
        self.reply.unwrap()
    }
}

/// An entry of the list of providers.
pub fn entry(name: &str, address: std::net::SocketAddr) -> Value {
    json!({"name": name, "endpoint": format!("http://{address}/v1"), "model": format!("model-{name}")})
}

/// The providers of this list.
pub fn providers_from(list: &Value) -> Providers {
    providers_with(list, Config::default())
}

fn providers_with(list: &Value, mut config: Config) -> Providers {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(list.to_string().as_bytes()).unwrap();
    config.completions_file = Some(file.path().to_owned());
    Providers::from_config(&config).unwrap().unwrap()
}

impl Fixture {
    /// Starts providers with these scripts.
    pub async fn start(scripts: Vec<Vec<Vec<Step>>>) -> Self {
        Self::start_with(scripts, Config::default()).await
    }

    /// Starts providers, with an idle timeout.
    pub async fn with_idle_timeout(pause: Duration, scripts: Vec<Vec<Vec<Step>>>) -> Self {
        let config = Config {
            completions_pause_ms: pause.as_millis().try_into().unwrap(),
            ..Config::default()
        };
        Self::start_with(scripts, config).await
    }

    async fn start_with(scripts: Vec<Vec<Vec<Step>>>, config: Config) -> Self {
        let mut fakes = Vec::new();
        for script in scripts {
            fakes.push(FakeProvider::start(script).await);
        }
        let entries = fakes
            .iter()
            .zip('a'..)
            .map(|(provider, name)| entry(&name.to_string(), provider.address));
        Self {
            providers: providers_with(&entries.collect(), config),
            fakes,
        }
    }

    pub async fn complete(&self) -> Outcome {
        self.complete_with(&request(), REPLY_TIMEOUT).await
    }

    pub async fn complete_within(&self, within: Duration) -> Outcome {
        self.complete_with(&request(), within).await
    }

    pub async fn complete_with(&self, request: &Request, within: Duration) -> Outcome {
        let mut texts = Vec::new();
        let mut sink = |text: &str| texts.push(text.to_owned());
        let deadline = Instant::now() + within;
        let reply = self.providers.complete(request, deadline, &mut sink);
        let reply = timeout(REPLY_TIMEOUT * 2, reply).await.expect("an end");
        Outcome { reply, texts }
    }

    pub fn request_counts(&self) -> Vec<usize> {
        self.fakes
            .iter()
            .map(FakeProvider::request_counts)
            .collect()
    }
}

/// A minimal request.
pub fn request() -> Request {
    Request {
        messages: vec![Message::User("hello".to_owned())],
        ..Request::default()
    }
}

/// A completion by one provider with these steps.
pub async fn request_from(steps: Vec<Step>) -> Outcome {
    Fixture::start(vec![vec![steps]]).await.complete().await
}
