//! An embeddings endpoint that knows some words which mean the same, and can be killed, slow, busy, or another model.

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
/// A text with this word is refused.
pub(crate) const UNFIT: &str = "unfit";
/// At a text with this word the endpoint fails, as some do at one that is too long.
pub(crate) const HEAVY: &str = "heavy";
/// A text with this word means nothing at all.
pub(crate) const VOID: &str = "void";
/// Each line means one thing.
const ALIKE: [&[&str]; 4] = [
    &["car", "automobile", "vehicle", "汽车"],
    &["dog", "hound", "puppy", "собака"],
    &["eat", "devour", "lunch"],
    &["boat", "vessel", "ship"],
];

/// How it behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    /// Too much to do, for so many seconds, once.
    Busy(u64),
    /// No answer ever comes.
    Silent,
    /// It fails, whatever it is asked.
    Broken,
}

pub(crate) struct Words {
    pub(crate) mood: Mutex<Mood>,
    pub(crate) dimensions: AtomicUsize,
    /// When requests came.
    pub(crate) asked: Mutex<Vec<Instant>>,
    /// Texts that were embedded, in all requests.
    pub(crate) embedded: AtomicUsize,
}

pub(crate) struct Endpoint {
    address: SocketAddr,
    pub(crate) words: Arc<Words>,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Endpoint {
    pub(crate) fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let words = Arc::new(Words {
            mood: Mutex::new(Mood::Well),
            dimensions: AtomicUsize::new(32),
            asked: Mutex::default(),
            embedded: AtomicUsize::new(0),
        });
        let mut endpoint = Self {
            address,
            words,
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

    /// Every connection breaks, and nobody listens.
    pub(crate) fn kill(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            thread.join().unwrap();
        }
    }

    /// A runtime of its own: with it go all of its connections.
    pub(crate) fn revive(&mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let routes = Router::new()
            .route("/v1/embeddings", post(embed))
            .with_state(Arc::clone(&self.words));
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
    State(words): State<Arc<Words>>,
    headers: HeaderMap,
    Json(asked): Json<Value>,
) -> Response {
    words.asked.lock().push(Instant::now());
    if headers[header::AUTHORIZATION] != format!("Bearer {KEY}") || asked["model"] != MODEL {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let mood = *words.mood.lock();
    match mood {
        Mood::Well => {}
        Mood::Busy(seconds) => {
            *words.mood.lock() = Mood::Well;
            let after = [(header::RETRY_AFTER, seconds.to_string())];
            return (StatusCode::TOO_MANY_REQUESTS, after).into_response();
        }
        Mood::Silent => {
            std::future::pending::<()>().await;
        }
        Mood::Broken => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
    let texts = asked["input"].as_array().unwrap().iter();
    let texts: Vec<_> = texts
        .map(|text| text.as_str().unwrap().to_lowercase())
        .collect();
    if texts.iter().any(|text| text.contains(UNFIT)) {
        return (StatusCode::BAD_REQUEST, "one of them is unfit").into_response();
    }
    if texts.iter().any(|text| text.contains(HEAVY)) {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let dimensions = words.dimensions.load(Ordering::SeqCst);
    words.embedded.fetch_add(texts.len(), Ordering::SeqCst);
    // Backwards: `index` says which is which.
    let data = texts
        .iter()
        .enumerate()
        .rev()
        .map(|(index, text)| json!({"index": index, "embedding": vector(text, dimensions)}));
    axum::Json(json!({"object": "list", "data": data.collect::<Vec<_>>()})).into_response()
}

/// A number for each thing that is spoken of; other words share the places that are left.
fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    if text.contains(VOID) {
        return vec![0.0; dimensions];
    }
    let mut vector = vec![0.001; dimensions];
    for word in text.split(|letter: char| !letter.is_alphanumeric()) {
        let meant = ALIKE.iter().position(|line| line.contains(&word));
        let place = meant.unwrap_or_else(|| {
            let mut hasher = DefaultHasher::new();
            word.hash(&mut hasher);
            let others = u64::try_from(dimensions - ALIKE.len()).unwrap();
            ALIKE.len() + usize::try_from(hasher.finish() % others).unwrap()
        });
        // What things it speaks of counts more than how.
        vector[place] += if meant.is_some() { 10.0 } else { 0.1 };
    }
    vector
}
