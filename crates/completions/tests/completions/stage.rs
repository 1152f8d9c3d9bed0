//! Providers and who asks them.
//! Never: a wait without a deadline.

use std::{io::Write as _, time::Duration};

use serde_json::{Value, json};
use switchboard_completions::{CompletionError, Config, Message, Providers, Reply, Request};
use tokio::time::{Instant, timeout};

use crate::provider::{Act, Provider};

/// The deadline of what is to succeed.
pub const LONG: Duration = Duration::from_secs(20);

/// Providers `a`, `b` and so on, in this order.
pub struct Stage {
    pub providers: Providers,
    pub each: Vec<Provider>,
}

/// What came of one request.
pub struct Outcome {
    pub reply: Result<Reply, CompletionError>,
    pub heard: Vec<String>,
}

impl Outcome {
    #[track_caller]
    pub fn reply(self) -> Reply {
        self.reply.unwrap()
    }
}

/// One entry of the list.
pub fn entry(name: &str, address: std::net::SocketAddr) -> Value {
    json!({"name": name, "endpoint": format!("http://{address}/v1"), "model": format!("model-{name}")})
}

/// What this list sets.
pub fn listed(list: &Value) -> Providers {
    listed_in(list, Config::default())
}

fn listed_in(list: &Value, mut config: Config) -> Providers {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(list.to_string().as_bytes()).unwrap();
    config.completions_file = Some(file.path().to_owned());
    Providers::from_config(&config).unwrap().unwrap()
}

impl Stage {
    /// Providers that answer by these scripts.
    pub async fn set(scripts: Vec<Vec<Vec<Act>>>) -> Self {
        Self::set_in(scripts, Config::default()).await
    }

    /// The same, but one may say nothing for so long only.
    pub async fn hurried(pause: Duration, scripts: Vec<Vec<Vec<Act>>>) -> Self {
        let config = Config {
            completions_pause_ms: pause.as_millis().try_into().unwrap(),
            ..Config::default()
        };
        Self::set_in(scripts, config).await
    }

    async fn set_in(scripts: Vec<Vec<Vec<Act>>>, config: Config) -> Self {
        let mut each = Vec::new();
        for script in scripts {
            each.push(Provider::start(script).await);
        }
        let entries = each
            .iter()
            .zip('a'..)
            .map(|(provider, name)| entry(&name.to_string(), provider.address));
        Self {
            providers: listed_in(&entries.collect(), config),
            each,
        }
    }

    pub async fn ask(&self) -> Outcome {
        self.ask_for(&hello(), LONG).await
    }

    pub async fn ask_within(&self, within: Duration) -> Outcome {
        self.ask_for(&hello(), within).await
    }

    pub async fn ask_for(&self, request: &Request, within: Duration) -> Outcome {
        let mut heard = Vec::new();
        let mut hear = |words: &str| heard.push(words.to_owned());
        let deadline = Instant::now() + within;
        let reply = self.providers.complete(request, deadline, &mut hear);
        let reply = timeout(LONG * 2, reply).await.expect("an end");
        Outcome { reply, heard }
    }

    pub fn times_asked(&self) -> Vec<usize> {
        self.each.iter().map(Provider::times_asked).collect()
    }
}

/// A request.
pub fn hello() -> Request {
    Request {
        messages: vec![Message::User("hello".to_owned())],
        ..Request::default()
    }
}

/// The reply of one provider that answers so.
pub async fn answered(acts: Vec<Act>) -> Outcome {
    Stage::set(vec![vec![acts]]).await.ask().await
}
