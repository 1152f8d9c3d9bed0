//! Embeds search queries. While the endpoint fails, queries are not embedded.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use switchboard_runtime::budget::{Budget, Budgets, Kind, Owner};

use crate::{EmbedError, Endpoint};

/// How long a search waits for the embedding of its query.
const EMBED_TIMEOUT: Duration = Duration::from_secs(1);
/// The shortest pause after a failure.
const FAILURE_BACKOFF: Duration = Duration::from_secs(5);
/// Queries in flight. Protects the endpoint, and memory.
const MAX_IN_FLIGHT: usize = 32;

/// Embeds search queries. Clones share the budget and the backoffs.
#[derive(Debug, Clone)]
pub struct QueryEmbedder {
    endpoint: Endpoint,
    in_flight: Budget,
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
    pub fn new(endpoint: Endpoint, budgets: &Budgets) -> Self {
        let kind = Kind::quarter_of(MAX_IN_FLIGHT);
        Self {
            endpoint,
            in_flight: budgets.slots("embedding_queries", MAX_IN_FLIGHT, kind),
            backoffs: Arc::default(),
        }
    }

    /// The name of the model.
    #[must_use]
    pub fn model(&self) -> &str {
        self.endpoint.model()
    }

    /// The embedding of a query of `owner`. `None` when too many queries are in flight, when the
    /// endpoint fails or does not respond within a second, and for at least five seconds after a
    /// failure: for all owners if the endpoint cannot be reached, otherwise for this owner, whose
    /// text or number of queries may be the reason.
    pub async fn embed(&self, owner: Owner, query: &str) -> Option<Vec<f32>> {
        if self.backoffs.lock().blocks(owner, Instant::now()) {
            return None;
        }
        let _permit = self.in_flight.try_acquire(owner, 1).ok()?;
        let error = match self.endpoint.embed(&[query], EMBED_TIMEOUT).await {
            Ok(vectors) => return vectors.into_iter().next(),
            Err(error) => error,
        };
        tracing::warn!(%error, "cannot embed a query; searching by words only");
        let (owner, backoff) = match error {
            // The next query may be accepted.
            EmbedError::Rejected(_) => return None,
            EmbedError::Busy { after } => (Some(owner), after.max(FAILURE_BACKOFF)),
            EmbedError::TimedOut(_) | EmbedError::Invalid(_) => (Some(owner), FAILURE_BACKOFF),
            EmbedError::Unreachable(_) => (None, FAILURE_BACKOFF),
        };
        self.backoffs.lock().add(owner, Instant::now(), backoff);
        None
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt as _, stream};
    use prometheus::Registry;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpStream},
    };
    use uuid::Uuid;

    use super::*;
    use crate::Config;

    /// Answers requests, keeps those whose text is `slow` open, and refuses those that are `busy`.
    async fn serve(listener: TcpListener) {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let request = read(&mut stream).await;
            if request.contains("slow") {
                open.push(stream);
                continue;
            }
            let (status, body) = match request.contains("busy") {
                true => ("429 Too Many Requests\r\nretry-after: 60", "{}"),
                false => ("200 OK", r#"{"data":[{"index":0,"embedding":[1.0]}]}"#),
            };
            let head = format!("HTTP/1.1 {status}\r\nconnection: close");
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

    fn owners() -> [Owner; 2] {
        [1, 2].map(|id| Owner::Org(Uuid::from_u128(id)))
    }

    /// Runs `queries` against an endpoint.
    async fn test<T: Future<Output = ()>>(queries: impl FnOnce(QueryEmbedder) -> T) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/v1", listener.local_addr().unwrap());
        let config = Config {
            embeddings_endpoint: Some(endpoint.parse().unwrap()),
            embeddings_model: Some("model".to_owned()),
            embeddings_key: None,
        };
        let budgets = Budgets::new(&Registry::new()).unwrap();
        let endpoint = Endpoint::from_config(&config).unwrap();
        tokio::select! {
            () = serve(listener) => {}
            () = queries(QueryEmbedder::new(endpoint, &budgets)) => {}
        }
    }

    #[tokio::test]
    async fn failed_query_of_one_owner_does_not_stop_those_of_others() {
        for text in ["slow", "busy"] {
            test(async |embedder| {
                let [one, other] = owners();
                assert_eq!(embedder.embed(one, text).await, None);
                assert_eq!(embedder.embed(one, "bear").await, None);
                assert_eq!(embedder.embed(other, "bear").await, Some(vec![1.0]));
            })
            .await;
        }
    }

    #[tokio::test]
    async fn queries_beyond_the_share_are_refused_at_once() {
        test(async |embedder| {
            let [one, other] = owners();
            let slow = (0..MAX_IN_FLIGHT / 4).map(|_| embedder.embed(one, "slow"));
            let mut in_flight = stream::iter(slow).buffer_unordered(MAX_IN_FLIGHT);
            let others = async {
                assert_eq!(embedder.embed(one, "bear").await, None);
                assert_eq!(embedder.embed(other, "bear").await, Some(vec![1.0]));
                assert_eq!(embedder.in_flight.used(), MAX_IN_FLIGHT / 4);
            };
            tokio::select! {
                biased;
                _ = in_flight.next() => panic!("the endpoint does not answer these"),
                () = others => {}
            }
        })
        .await;
    }
}
