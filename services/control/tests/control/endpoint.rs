//! A fake embeddings endpoint with a few synonyms, which can fail in several ways.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash as _, Hasher as _},
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Instant,
};

use axum::{
    Json, Router,
    extract::State,
    response::{IntoResponse as _, Response},
    routing::post,
};
use http::{HeaderMap, StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Value, json};
use switchboard_embeddings::Config;
use tokio::sync::oneshot;

const MODEL: &str = "a model of words";
const KEY: &str = "the endpoint's key";
/// A text with this word is rejected.
pub(crate) const UNFIT: &str = "unfit";
/// A text with this word makes the endpoint fail.
pub(crate) const HEAVY: &str = "heavy";
/// A request with this word has no response.
pub(crate) const ENDLESS: &str = "endless";
/// A text with this word has a zero vector.
pub(crate) const VOID: &str = "void";
/// The synonyms of each line share a dimension.
const SYNONYMS: [&[&str]; 4] = [
    &["car", "automobile", "vehicle", "汽车"],
    &["dog", "hound", "puppy", "собака"],
    &["eat", "devour", "lunch"],
    &["boat", "vessel", "ship"],
];

/// The behaviour of the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    Well,
    /// Busy once, with this `Retry-After` in seconds.
    Busy(u64),
    /// Does not respond.
    Silent,
    /// Every request fails.
    Broken,
}

pub(crate) struct EndpointState {
    pub(crate) behaviour: Mutex<Behaviour>,
    pub(crate) dimensions: AtomicUsize,
    /// The times of the requests.
    pub(crate) requests: Mutex<Vec<Instant>>,
    /// The number of embedded texts.
    pub(crate) embedded: AtomicUsize,
}

pub(crate) struct Endpoint {
    address: SocketAddr,
    pub(crate) state: Arc<EndpointState>,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Endpoint {
    pub(crate) fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let state = Arc::new(EndpointState {
            behaviour: Mutex::new(Behaviour::Well),
            dimensions: AtomicUsize::new(32),
            requests: Mutex::default(),
            embedded: AtomicUsize::new(0),
        });
        let mut endpoint = Self {
            address,
            state,
            running: None,
        };
        endpoint.revive();
        endpoint
    }

    pub(crate) fn config(&self) -> Config {
        Config {
            embeddings_endpoint: Some(format!("http://{}/v1", self.address).parse().unwrap()),
            embeddings_model: Some(MODEL.to_owned()),
            embeddings_key: Some(KEY.into()),
        }
    }

    /// Closes all connections and the listener.
    pub(crate) fn kill(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            thread.join().unwrap();
        }
    }

    /// Starts it on its own runtime, whose shutdown closes all connections.
    pub(crate) fn revive(&mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let routes = Router::new()
            .route("/v1/embeddings", post(embed))
            .with_state(Arc::clone(&self.state));
        let listener = TcpListener::bind(self.address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    _ = axum::serve(listener, routes).into_future() => {}
                    _ = stopped => {}
                }
            });
        });
        self.running = Some((stop, thread));
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn embed(
    State(state): State<Arc<EndpointState>>,
    headers: HeaderMap,
    Json(request): Json<Value>,
) -> Response {
    state.requests.lock().push(Instant::now());
    if headers[header::AUTHORIZATION] != format!("Bearer {KEY}") || request["model"] != MODEL {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let behaviour = *state.behaviour.lock();
    match behaviour {
        Behaviour::Well => {}
        Behaviour::Busy(seconds) => {
            *state.behaviour.lock() = Behaviour::Well;
            let after = [(header::RETRY_AFTER, seconds.to_string())];
            return (StatusCode::TOO_MANY_REQUESTS, after).into_response();
        }
        Behaviour::Silent => {
            std::future::pending::<()>().await;
        }
        Behaviour::Broken => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
    let texts = request["input"].as_array().unwrap().iter();
    let texts: Vec<_> = texts
        .map(|text| text.as_str().unwrap().to_lowercase())
        .collect();
    if texts.iter().any(|text| text.contains(UNFIT)) {
        return (StatusCode::BAD_REQUEST, "one of them is unfit").into_response();
    }
    if texts.iter().any(|text| text.contains(ENDLESS)) {
        std::future::pending::<()>().await;
    }
    if texts.iter().any(|text| text.contains(HEAVY)) {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let dimensions = state.dimensions.load(Ordering::SeqCst);
    state.embedded.fetch_add(texts.len(), Ordering::SeqCst);
    // In reverse order: clients must use `index`.
    let data = texts
        .iter()
        .enumerate()
        .rev()
        .map(|(index, text)| json!({"index": index, "embedding": vector(text, dimensions)}));
    axum::Json(json!({"object": "list", "data": data.collect::<Vec<_>>()})).into_response()
}

/// A dimension for each group of synonyms; other words share the remaining dimensions.
fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    if text.contains(VOID) {
        return vec![0.0; dimensions];
    }
    let mut vector = vec![0.001; dimensions];
    for word in text.split(|letter: char| !letter.is_alphanumeric()) {
        let meant = SYNONYMS.iter().position(|line| line.contains(&word));
        let place = meant.unwrap_or_else(|| {
            let mut hasher = DefaultHasher::new();
            word.hash(&mut hasher);
            let others = u64::try_from(dimensions - SYNONYMS.len()).unwrap();
            SYNONYMS.len() + usize::try_from(hasher.finish() % others).unwrap()
        });
        // Synonyms have more weight than other words.
        vector[place] += if meant.is_some() { 10.0 } else { 0.1 };
    }
    vector
}
