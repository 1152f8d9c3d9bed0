//! HTTP clients that people use, against the server. A client that is not installed is skipped, except
//! on CI.

use std::process::{Output, Stdio};

use tokio::process::Command;

use super::*;

/// Larger than what the kernels buffer, so that the client is still sending when it is refused.
const BODY_BYTES: usize = 16 * 1024 * 1024;
const DETAIL: &str = "The body has 16777216 bytes; at most 100 bytes are accepted.";

const NODE: &str = "
    const [url, bytes] = process.argv.slice(1);
    const headers = { 'content-type': 'application/json' };
    const body = 'x'.repeat(Number(bytes));
    const response = await fetch(url, { method: 'POST', headers, body });
    console.log(response.status, await response.text());
";

const PYTHON: &str = "
import sys, urllib.error, urllib.request
url, size = sys.argv[1:]
headers = {'content-type': 'application/json'}
request = urllib.request.Request(url, b'x' * int(size), headers)
try:
    response = urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    response = error
print(response.status, response.read().decode())
";

fn limited() -> TestServer {
    open(HttpLimits {
        body_bytes: 100,
        ..HttpLimits::default()
    })
}

/// What a program prints; `None` if it is not installed.
async fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(LONG_TIMEOUT * 3, command.output()).await.unwrap();
    let Output {
        status,
        stdout,
        stderr,
    } = match output {
        Ok(output) => output,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{program}: {error}");
            println!("skipped: {program} is not installed");
            return None;
        }
    };
    let (stdout, stderr) = (String::from_utf8(stdout), String::from_utf8(stderr));
    let stderr = stderr.unwrap();
    assert!(status.success(), "{program}: {status}: {stderr}");
    Some(stdout.unwrap())
}

/// Uploads a body over the limit.
async fn upload(program: &str, arguments: &[&str]) {
    let server = limited();
    let (url, bytes) = (
        format!("http://{}/echo", server.addr),
        BODY_BYTES.to_string(),
    );
    // Timing decides how much is sent before the response is read.
    for _ in 0..5 {
        let arguments = [arguments, &[&url, &bytes]].concat();
        let Some(printed) = run(program, &arguments).await else {
            return;
        };
        assert!(printed.starts_with("413 "), "{printed}");
        assert!(printed.contains(DETAIL), "{printed}");
    }
}

#[tokio::test]
async fn fetch_of_node_receives_413() {
    upload("node", &["--input-type=module", "--eval", NODE]).await;
}

#[tokio::test]
async fn urllib_of_python_receives_413() {
    upload("python3", &["-c", PYTHON]).await;
}

#[tokio::test]
async fn curl_receives_413_with_and_without_expect() {
    let server = limited();
    let url = format!("http://{}/echo", server.addr);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    std::fs::write(&file, vec![b'x'; BODY_BYTES]).unwrap();
    let body = format!("@{}", file.display());
    // Over HTTP/2, curl 7.88 takes the reset of a stream after its response as an error.
    for (version, expect) in [
        ("--http1.1", "Expect: 100-continue"),
        ("--http1.1", "Expect:"),
    ] {
        let arguments = [
            &["--silent", "--show-error", version, "--header", expect][..],
            &["--header", "Content-Type: application/json"],
            &["--write-out", " %{http_version} %{http_code}"],
            &["--data-binary", &body, &url],
        ]
        .concat();
        let Some(printed) = run("curl", &arguments).await else {
            return;
        };
        assert!(printed.ends_with("1.1 413"), "{printed}");
        assert!(printed.contains(DETAIL), "{printed}");
    }
}

#[tokio::test]
async fn curl_with_prior_knowledge_uses_http2() {
    let server = limited();
    let url = format!("http://{}/none", server.addr);
    let arguments = [
        "--silent",
        "--http2-prior-knowledge",
        "--write-out",
        "\n%{http_version} %{http_code}",
        &url,
    ];
    let Some(printed) = run("curl", &arguments).await else {
        return;
    };
    assert!(printed.ends_with("\n2 404"), "{printed}");
}
