//! PostgreSQL is killed in the middle of writes: what was answered is there, the rest is whole or absent, and a key makes
//! everything once.

mod books;
mod things;

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
use tokio::task::JoinSet;

use crate::{
    data_folder::{Folder, processes_in},
    eventually::eventually,
    program::Program,
};
use books::Book;
use things::{KINDS, Kind};

/// How long PostgreSQL may take to come back, and everything else that is waited for.
const LONG: Duration = Duration::from_secs(60);
/// How often it is killed at least.
const KILLS: usize = 3;
/// How many of each kind are made before it is killed.
const MADE: usize = 4;
/// How many writes must have been refused or cut off in the end, so that the kills were in the middle of them.
const CUT: usize = 5;

/// A running `up`, and who writes to it.
struct World {
    http: reqwest::Client,
    url: String,
    key: String,
    /// The template that remembers.
    template: String,
}

/// An answer with a JSON body.
struct Answer {
    status: StatusCode,
    replayed: bool,
    body: Value,
}

/// How many writes were answered with what was wanted, of each kind, and how many were not.
#[derive(Default)]
struct Tally {
    made: [AtomicUsize; KINDS.len() + 1],
    cut: AtomicUsize,
    over: AtomicBool,
}

impl World {
    async fn of(up: &Program) -> Self {
        let mut world = Self {
            http: reqwest::Client::new(),
            url: up.address("http_url"),
            key: up.address("api_key"),
            template: String::new(),
        };
        let template = json!({"name": "who remembers"}).to_string().into_bytes();
        let made = world.ask((Method::POST, "/v1/templates"), None, template);
        let made = made.await.unwrap().body;
        world.template = made["id"].as_str().unwrap().to_owned();
        world
    }

    /// The answer; none when the connection broke.
    async fn ask(
        &self,
        (method, path): (Method, &str),
        key: Option<&str>,
        body: Vec<u8>,
    ) -> Option<Answer> {
        let request = self.http.request(method, format!("{}{path}", self.url));
        let request = request.bearer_auth(&self.key).timeout(LONG);
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

    /// Waits until settings can be read.
    async fn settings_are_back(&self) {
        let status = async || {
            let asked = (Method::GET, "/v1/templates?limit=1");
            let answer = self.ask(asked, None, Vec::new()).await;
            answer.map(|answer| answer.status)
        };
        eventually(LONG, status, |status| *status == Some(StatusCode::OK)).await;
    }
}

impl Answer {
    /// None unless it was done.
    fn done(self) -> Option<Self> {
        self.status.is_success().then_some(self)
    }
}

impl Tally {
    fn count(&self, kind: usize, done: bool) {
        let counter = if done { &self.made[kind] } else { &self.cut };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn made(&self) -> Vec<usize> {
        let made = self.made.iter();
        made.map(|made| made.load(Ordering::Relaxed)).collect()
    }

    fn cut(&self) -> usize {
        self.cut.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// What one writer asked for.
enum Written {
    Things(&'static Kind, Vec<(String, Option<Value>)>),
    Books(Vec<Book>),
}

/// Makes one thing after the other, each under a key of its own.
async fn write_things(world: Arc<World>, kind: usize, tally: Arc<Tally>) -> Written {
    let mut written = Vec::new();
    while !tally.is_over() {
        let mark = format!("{}-{}", KINDS[kind].name, written.len());
        let made = KINDS[kind].make(&world, &mark).await.and_then(Answer::done);
        let done = made.is_some();
        written.push((mark, made.map(|made| made.body)));
        tally.count(kind, done);
        if !done {
            world.settings_are_back().await;
        }
    }
    Written::Things(&KINDS[kind], written)
}

async fn write_books(world: Arc<World>, tally: Arc<Tally>) -> Written {
    let mut written = Vec::new();
    while !tally.is_over() {
        let mut book = Book::new(written.len());
        let done = book.send(&world).await;
        written.push(book);
        tally.count(KINDS.len(), done);
        if !done {
            world.settings_are_back().await;
        }
    }
    Written::Books(written)
}

/// SIGKILL for PostgreSQL: all of its processes, so that none finishes what it was doing.
fn kill_postgres(cluster: &Path) {
    for process in processes_in(cluster) {
        let process = Pid::from_raw(process.parse().unwrap());
        // One that ended by itself meanwhile is as dead as the others.
        let _ = signal::kill(process, signal::Signal::SIGKILL);
    }
}

/// What is answered is on the disk, not on its way there; and no token, which nothing lists, is there twice.
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
async fn i6_what_was_answered_outlives_a_killed_postgres_and_keys_make_the_rest_once() {
    let folder = Folder::new();
    let up = folder.up();
    is_durable(&folder.cluster()).await;
    let world = Arc::new(World::of(&up).await);
    let tally = Arc::new(Tally::default());
    let mut writers = JoinSet::new();
    for kind in 0..KINDS.len() {
        writers.spawn(write_things(Arc::clone(&world), kind, Arc::clone(&tally)));
    }
    writers.spawn(write_books(Arc::clone(&world), Arc::clone(&tally)));
    let mut kills = 0;
    while kills < KILLS || tally.cut() < CUT {
        let before = tally.made();
        let enough = |made: &Vec<usize>| {
            let mut both = made.iter().zip(&before);
            both.all(|(made, before)| *made >= before + MADE)
        };
        eventually(LONG, async || tally.made(), enough).await;
        kill_postgres(&folder.cluster());
        kills += 1;
        assert!(kills < 50, "no write is ever cut off: {}", tally.cut());
    }
    world.settings_are_back().await;
    tally.over.store(true, Ordering::Relaxed);
    let written = writers.join_all().await;
    eprintln!(
        "{kills} kills; made {:?}, cut off {}",
        tally.made(),
        tally.cut()
    );
    for written in &written {
        if let Written::Things(kind, things) = written {
            kind.check(&world, things).await;
        }
    }
    for written in written {
        if let Written::Books(books) = written {
            books::check(&world, books).await;
        }
    }
    is_durable(&folder.cluster()).await;
}
