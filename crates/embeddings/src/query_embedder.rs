//! Embeds search queries. While the endpoint fails, queries are not embedded.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use switchboard_runtime::budget::Owner;

use crate::{EmbedError, Endpoint};

/// How long a search waits for the embedding of its query.
const EMBED_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after a failure: of the owner after a timeout, which its text may have caused, else of all.
const FAILURE_BACKOFF: Duration = Duration::from_secs(5);

/// Embeds search queries. Clones share the backoff.
#[derive(Debug, Clone)]
pub struct QueryEmbedder {
    endpoint: Endpoint,
    backoffs: Arc<Mutex<Backoffs>>,
}

/// Until when no request is sent.
#[derive(Debug, Default)]
struct Backoffs {
    of_all: Option<Instant>,
    /// Those of single owners. Expired ones are removed when one is added.
    of_owners: HashMap<Owner, Instant>,
}

impl Backoffs {
    fn blocks(&self, owner: Owner, now: Instant) -> bool {
        let of_owner = self.of_owners.get(&owner);
        self.of_all.iter().chain(of_owner).any(|until| now < *until)
    }

    fn add(&mut self, owner: Option<Owner>, now: Instant, backoff: Duration) {
        let until = now.checked_add(backoff);
        match owner {
            None => self.of_all = until,
            Some(owner) => {
                self.of_owners.retain(|_, until| now < *until);
                self.of_owners.extend(until.map(|until| (owner, until)));
            }
        }
    }
}

impl QueryEmbedder {
    /// An embedder with this endpoint.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            backoffs: Arc::default(),
        }
    }

    /// The name of the model.
    #[must_use]
    pub fn model(&self) -> &str {
        self.endpoint.model()
    }

    /// The embedding of a query of `owner`; `None` when the endpoint fails or does not respond within
    /// a second, and for at least five seconds after that. A query that takes longer than a second
    /// delays the next ones of its owner only.
    pub async fn embed(&self, owner: Owner, query: &str) -> Option<Vec<f32>> {
        if self.backoffs.lock().blocks(owner, Instant::now()) {
            return None;
        }
        let error = match self.endpoint.embed(&[query], EMBED_TIMEOUT).await {
            Ok(vectors) => return vectors.into_iter().next(),
            Err(error) => error,
        };
        let backoff = match error {
            // The next query may be accepted.
            EmbedError::Rejected(_) => None,
            EmbedError::TimedOut(_) => Some((Some(owner), FAILURE_BACKOFF)),
            EmbedError::Busy { after } => Some((None, after.max(FAILURE_BACKOFF))),
            EmbedError::Unreachable(_) | EmbedError::Invalid(_) => Some((None, FAILURE_BACKOFF)),
        };
        tracing::warn!(%error, "cannot embed a query; searching by words only");
        if let Some((owner, backoff)) = backoff {
            self.backoffs.lock().add(owner, Instant::now(), backoff);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpStream},
    };
    use uuid::Uuid;

    use super::*;
    use crate::Config;

    /// Answers requests whose text is not `slow`, and keeps the others open.
    async fn serve(listener: TcpListener) {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            if read(&mut stream).await.contains("slow") {
                open.push(stream);
                continue;
            }
            let body = r#"{"data":[{"index":0,"embedding":[1.0]}]}"#;
            let head = "HTTP/1.1 200 OK\r\nconnection: close";
            let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    async fn read(stream: &mut TcpStream) -> String {
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
        }
        String::from_utf8(request).unwrap()
    }

    #[tokio::test]
    async fn slow_query_of_one_owner_does_not_stop_those_of_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/v1", listener.local_addr().unwrap());
        let config = Config {
            embeddings_endpoint: Some(endpoint.parse().unwrap()),
            embeddings_model: Some("model".to_owned()),
            embeddings_key: None,
        };
        let embedder = QueryEmbedder::new(Endpoint::from_config(&config).unwrap());
        let [one, other] = [1, 2].map(|id| Owner::Org(Uuid::from_u128(id)));
        let queries = async {
            assert_eq!(embedder.embed(one, "slow").await, None);
            assert_eq!(embedder.embed(one, "bear").await, None);
            assert_eq!(embedder.embed(other, "bear").await, Some(vec![1.0]));
        };
        tokio::select! {
            () = serve(listener) => {}
            () = queries => {}
        }
    }
}
