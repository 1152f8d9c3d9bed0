//! PostgreSQL is killed during writes. Acknowledged writes persist, all others are complete or
//! absent,
//! and a repeated idempotency key creates nothing twice.

mod books;
mod changes;
mod objects;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use nix::{sys::signal, unistd::Pid};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use switchboard_store::testing;
use switchboard_test_support::{
    data_folder::{DataFolder, processes_in},
    eventually::eventually,
    switchboard::Program,
};
use tokio::task::JoinSet;

use books::Book;
use changes::{CHANGED, Changes};
use objects::{KINDS, Kind};

/// Upper bound for the restart of PostgreSQL, and for every other wait.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Minimum number of kills.
const KILLS: usize = 3;
/// Number of writes of each kind before a kill.
const MIN_CREATED: usize = 4;
/// Minimum number of writes that failed at the end, which proves that the kills hit writes.
const CUT: usize = 5;

/// A running `up`, and the writer's client.
struct Writer {
    http: reqwest::Client,
    url: String,
    key: String,
    /// The template with memories.
    template: String,
}

/// An answer with a JSON body.
struct Answer {
    status: StatusCode,
    replayed: bool,
    body: Value,
}

/// Number of acknowledged writes of each kind (objects, books, updates and deletions of each kind
/// that has them), and number of failed writes.
#[derive(Default)]
struct WriteCounts {
    created: [AtomicUsize; KINDS.len() + 1 + 2 * CHANGED.len()],
    cut: AtomicUsize,
    over: AtomicBool,
}

impl Writer {
    async fn of(up: &Program) -> Self {
        let mut writer = Self {
            http: reqwest::Client::new(),
            url: up.address("http_url"),
            key: up.address("api_key"),
            template: String::new(),
        };
        let template = json!({"name": "who remembers"}).to_string().into_bytes();
        let created = writer.ask((Method::POST, "/v1/templates"), None, template);
        let created = created.await.unwrap().body;
        writer.template = created["id"].as_str().unwrap().to_owned();
        writer
    }

    /// The response, or `None` if the connection broke.
    async fn ask(
        &self,
        (method, path): (Method, &str),
        key: Option<&str>,
        body: Vec<u8>,
    ) -> Option<Answer> {
        let request = self.http.request(method, format!("{}{path}", self.url));
        let request = request.bearer_auth(&self.key).timeout(WAIT_TIMEOUT);
        let request = request.header("Content-Type", "application/json");
        let request = match key {
            Some(key) => request.header("Idempotency-Key", key),
            None => request,
        };
        let answer = request.body(body).send().await.ok()?;
        Some(Answer {
            status: answer.status(),
            replayed: answer.headers().contains_key("idempotency-replayed"),
            body: answer.json().await.ok()?,
        })
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.ask((Method::GET, path), None, Vec::new()).await;
        let answer = answer.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
        answer.body
    }

    /// All elements of a list.
    async fn all(&self, path: &str, member: &str) -> Vec<Value> {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let mut page = self.get(&format!("{path}?limit=200{cursor}")).await;
            found.append(page[member].as_array_mut().unwrap());
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return found,
            }
        }
    }

    /// Waits until settings are readable.
    async fn settings_are_back(&self) {
        let status = async || {
            let asked = (Method::GET, "/v1/templates?limit=1");
            let answer = self.ask(asked, None, Vec::new()).await;
            answer.map(|answer| answer.status)
        };
        eventually(WAIT_TIMEOUT, status, |status| {
            *status == Some(StatusCode::OK)
        })
        .await;
    }
}

impl Answer {
    /// `None` unless the request succeeded.
    fn done(self) -> Option<Self> {
        self.status.is_success().then_some(self)
    }
}

impl WriteCounts {
    fn count(&self, kind: usize, done: bool) {
        let counter = if done { &self.created[kind] } else { &self.cut };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn created(&self) -> Vec<usize> {
        let created = self.created.iter();
        created
            .map(|created| created.load(Ordering::Relaxed))
            .collect()
    }

    fn cut(&self) -> usize {
        self.cut.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// The requests of one writer.
enum Written {
    Objects(&'static Kind, Vec<(String, Option<Value>)>),
    Books(Vec<Book>),
    Changes(Changes),
}

/// Creates objects one after the other, each with its own idempotency key.
async fn write_objects(writer: Arc<Writer>, kind: usize, tally: Arc<WriteCounts>) -> Written {
    let mut written = Vec::new();
    while !tally.is_over() {
        let mark = format!("{}-{}", KINDS[kind].name, written.len());
        let created = KINDS[kind]
            .make(&writer, &mark)
            .await
            .and_then(Answer::done);
        let done = created.is_some();
        written.push((mark, created.map(|created| created.body)));
        tally.count(kind, done);
        if !done {
            writer.settings_are_back().await;
        }
    }
    Written::Objects(&KINDS[kind], written)
}

async fn write_books(writer: Arc<Writer>, tally: Arc<WriteCounts>) -> Written {
    let mut written = Vec::new();
    while !tally.is_over() {
        let mut book = Book::new(written.len());
        let done = book.send(&writer).await;
        written.push(book);
        tally.count(KINDS.len(), done);
        if !done {
            writer.settings_are_back().await;
        }
    }
    Written::Books(written)
}

/// Sends SIGKILL to all PostgreSQL processes, so that none completes its work.
fn kill_postgres(cluster: &Path) {
    for process in processes_in(cluster) {
        let process = Pid::from_raw(process.parse().unwrap());
        // A process may have exited before the signal.
        let _ = signal::kill(process, signal::Signal::SIGKILL);
    }
}

/// Checks that acknowledged writes are synced to disk, and that no token, which is not listed,
/// exists twice.
async fn is_durable(cluster: &Path) {
    let status = std::fs::read_to_string(cluster.join("postmaster.pid")).unwrap();
    let socket = status.lines().nth(4).unwrap().replace('/', "%2F");
    let url = format!("postgres://switchboard@localhost/postgres?host={socket}&sslmode=disable");
    let durable = "DO $$ BEGIN ASSERT current_setting('fsync') = 'on' \
                   AND current_setting('synchronous_commit') = 'on' \
                   AND current_setting('full_page_writes') = 'on'; END $$";
    let once = "DO $$ BEGIN ASSERT (SELECT count(*) = count(DISTINCT subject) FROM tokens); END $$";
    for statement in [durable, once] {
        let url = url.clone().into();
        testing::execute(&url, statement).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i6_acknowledged_writes_survive_killed_postgres() {
    let folder = DataFolder::new();
    let up = folder.up();
    is_durable(&folder.cluster()).await;
    let writer = Arc::new(Writer::of(&up).await);
    let tally = Arc::new(WriteCounts::default());
    let mut writers = JoinSet::new();
    for kind in 0..KINDS.len() {
        writers.spawn(write_objects(Arc::clone(&writer), kind, Arc::clone(&tally)));
    }
    writers.spawn(write_books(Arc::clone(&writer), Arc::clone(&tally)));
    for (number, kind) in CHANGED.iter().enumerate() {
        let (writer, tally) = (Arc::clone(&writer), Arc::clone(&tally));
        let counter = KINDS.len() + 1 + 2 * number;
        writers.spawn(async move {
            Written::Changes(Changes::make(kind, writer, tally, counter).await)
        });
    }
    let mut kills = 0;
    while kills < KILLS || tally.cut() < CUT {
        let before = tally.created();
        let enough = |created: &Vec<usize>| {
            let mut both = created.iter().zip(&before);
            both.all(|(created, before)| *created >= before + MIN_CREATED)
        };
        eventually(WAIT_TIMEOUT, async || tally.created(), enough).await;
        kill_postgres(&folder.cluster());
        kills += 1;
        assert!(kills < 50, "no write is ever cut off: {}", tally.cut());
    }
    writer.settings_are_back().await;
    tally.over.store(true, Ordering::Relaxed);
    let written = writers.join_all().await;
    eprintln!(
        "{kills} kills; made {:?}, cut off {}",
        tally.created(),
        tally.cut()
    );
    for written in &written {
        if let Written::Objects(kind, objects) = written {
            kind.check(&writer, objects).await;
        }
    }
    for written in written {
        match written {
            Written::Objects(..) => {}
            Written::Books(books) => books::check(&writer, books).await,
            Written::Changes(changes) => changes.check(&writer).await,
        }
    }
    is_durable(&folder.cluster()).await;
}
