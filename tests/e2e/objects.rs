//! Pictures and skills books in a bucket: stored, read by every process, and reported as
//! unavailable during an outage.

use std::process::Command;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use switchboard_test_support::{
    eventually::eventually,
    s3_server::{BUCKET, S3Server},
    switchboard::Program,
};

use crate::cluster::TestCluster;

/// Number of files below this folder; 0 if it does not exist, since the server removes empty
/// folders.
fn files(folder: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries
        .map(|entry| entry.unwrap().path())
        .map(|path| if path.is_dir() { files(&path) } else { 1 })
        .sum()
}

/// A system with a bucket.
struct BucketFixture {
    server: S3Server,
    cluster: TestCluster,
}

impl BucketFixture {
    async fn open() -> Self {
        let server = S3Server::start();
        let url = format!("s3://{BUCKET}/objects");
        let mut settings = server.variables();
        settings.push(("SWITCHBOARD_OBJECTS", url));
        let settings: Vec<_> = settings
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let cluster = TestCluster::start_with(0, &settings).await;
        Self { server, cluster }
    }

    async fn ask(&self, method: Method, path: &str, body: Vec<u8>) -> (StatusCode, Vec<u8>) {
        let url = format!("{}{path}", self.cluster.control.address("http_url"));
        let request = self.cluster.http.request(method, url);
        let request = request.bearer_auth(&self.cluster.org.key).body(body);
        let answer = request.send().await.unwrap();
        (answer.status(), answer.bytes().await.unwrap().to_vec())
    }

    /// The environment of another process with this bucket, with some changes.
    fn environment(&self, other: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        let mut environment = self.cluster.environment();
        environment.extend(self.server.variables());
        environment.push(("SWITCHBOARD_OBJECTS", format!("s3://{BUCKET}/objects")));
        environment.extend(
            other
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned())),
        );
        environment
    }

    fn run(&self, arguments: &[&str], other: &[(&'static str, &str)]) -> (Option<i32>, String) {
        let data = tempfile::tempdir().unwrap();
        let system = match arguments {
            ["doctor", ..] => &self.cluster.gateway,
            _ => &self.cluster.control,
        };
        let output = Command::new(env!("CARGO_BIN_EXE_switchboard"))
            .args(arguments)
            .envs(self.environment(other))
            .env("SWITCHBOARD_DATA_DIR", data.path())
            .env("SWITCHBOARD_URL", system.address("http_url"))
            .env("SWITCHBOARD_API_KEY", &self.cluster.org.key)
            .output()
            .unwrap();
        let mut printed = String::from_utf8(output.stdout).unwrap();
        printed.push_str(&String::from_utf8(output.stderr).unwrap());
        (output.status.code(), printed)
    }
}

async fn readiness(cluster: &TestCluster, program: &Program) -> Value {
    let url = format!("{}/readyz", program.address("admin_url"));
    let answer = cluster.http.get(url).send().await.unwrap();
    answer.json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_and_skills_books_are_stored_in_bucket() {
    let mut fixture = BucketFixture::open().await;
    let pixel: &[u8] = include_bytes!("objects/pixel.png");
    let (status, picture) = fixture
        .ask(Method::POST, "/v1/pictures", pixel.to_vec())
        .await;
    assert_eq!(status, StatusCode::CREATED);
    let picture: Value = serde_json::from_slice(&picture).unwrap();
    let path = format!("/v1/pictures/{}", picture["id"].as_str().unwrap());
    let content = format!("{path}/content");
    let read = fixture.ask(Method::GET, &content, Vec::new()).await;
    assert_eq!(read, (StatusCode::OK, pixel.to_vec()));
    assert_eq!(files(&fixture.server.bucket().join("objects/pictures")), 1);

    let folder = tempfile::tempdir().unwrap();
    let manual = folder.path().join("manual.md");
    std::fs::write(&manual, "# Care\n\nReplace the battery once a year.").unwrap();
    let (code, book) = fixture.run(&["skills", "upload", manual.to_str().unwrap()], &[]);
    let book: Value = serde_json::from_str(&book).unwrap();
    assert_eq!((code, &book["state"]), (Some(0), &json!("ready")), "{book}");
    let kept = fixture.server.bucket().join("objects/skills-books");
    assert_eq!(files(&kept), 1);
    let (code, printed) = fixture.run(&["skills", "delete", book["id"].as_str().unwrap()], &[]);
    assert_eq!((code, files(&kept)), (Some(0), 0), "{printed}");

    fixture.server.kill();
    let (status, problem) = fixture.ask(Method::GET, &content, Vec::new()).await;
    let problem: Value = serde_json::from_slice(&problem).unwrap();
    assert_eq!(
        (status, &problem["type"]),
        (
            StatusCode::SERVICE_UNAVAILABLE,
            &json!("/problems/objects_unavailable")
        )
    );
    let (status, _) = fixture.ask(Method::GET, &path, Vec::new()).await;
    assert_eq!(status, StatusCode::OK, "what the database knows is shown");
    fixture.server.restart();
    let (status, _) = fixture.ask(Method::DELETE, &path, Vec::new()).await;
    let left = files(&fixture.server.bucket());
    assert_eq!((status, left), (StatusCode::NO_CONTENT, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn bucket_errors_are_reported() {
    let fixture = BucketFixture::open().await;
    let no_bucket = ("SWITCHBOARD_OBJECTS", "s3://no-such-bucket");
    let no_entry = ("AWS_SECRET_ACCESS_KEY", "hunter2");
    let nobody = ("AWS_ENDPOINT_URL", "http://127.0.0.1:1");
    let no_tls = ("AWS_ALLOW_HTTP", "false");
    for (other, code, wanted) in [
        (None, Some(0), "ok    objects: the bucket is reachable"),
        (Some(no_bucket), Some(1), "create the bucket"),
        (Some(no_entry), Some(1), "correct AWS_ACCESS_KEY_ID"),
        (Some(nobody), Some(1), "correct AWS_ENDPOINT_URL"),
        (Some(no_tls), Some(1), "AWS_ALLOW_HTTP"),
    ] {
        let other: Vec<_> = other.into_iter().collect();
        let (ended, printed) = fixture.run(&["doctor"], &other);
        assert_eq!((ended, printed.contains(wanted)), (code, true), "{printed}");
        assert!(!printed.contains("hunter2"), "{printed}");
    }
    let well = |report: &Value| report["dependencies"]["objects"]["ready"] == true;
    let control = &fixture.cluster.control;
    let ask = async || readiness(&fixture.cluster, control).await;
    eventually(std::time::Duration::from_secs(10), ask, well).await;
    let environment = fixture.environment(&[no_bucket]);
    let lost = Program::start(&["control", "--http-listen", "127.0.0.1:0"], &environment);
    let detail = |report: &Value| report["dependencies"]["objects"]["detail"].clone();
    let ask = async || readiness(&fixture.cluster, &lost).await;
    let named = |report: &Value| detail(report).to_string().contains("bucket");
    let report = eventually(std::time::Duration::from_secs(10), ask, named).await;
    assert_eq!(report["ready"], true, "all else goes on: {report}");
}
