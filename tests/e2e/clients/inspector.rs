//! The command line of MCP Inspector. Each run connects, sends one request, prints the response and
//! exits. It cannot show a cancelled call or a changed list.

use super::*;

/// Output and exit code of one run.
#[derive(Debug)]
struct Run {
    printed: Value,
    complained: String,
    code: Option<i32>,
}

impl Run {
    /// The code of the error on stderr.
    fn complaint(&self) -> Value {
        let written: Value = serde_json::from_str(&self.complained).unwrap_or(Value::Null);
        written["error"]["code"].clone()
    }
}

/// Sends one request in this protocol era; `arguments` follow those for the endpoint.
async fn ask(cluster: &TestCluster, era: &str, arguments: &[&str]) -> Run {
    let home = tempfile::tempdir().unwrap();
    let inspector =
        "node/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let output = Command::new(installed("node/node_modules/node/bin/node"))
        .arg(installed(inspector))
        .args([
            "--cli",
            "--format",
            "json",
            "--quiet",
            "--transport",
            "http",
        ])
        .args(["--protocol-era", era, "--server-url"])
        .arg(cluster.url(&format!("/mcp/devices/{DEVICE}")))
        .arg("--header")
        .arg(format!("Authorization: Bearer {}", cluster.org.key))
        .args(arguments)
        // The inspector stores files in the home folder.
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(STEP_TIMEOUT, output).await.unwrap().unwrap();
    let complained = String::from_utf8(output.stderr).unwrap();
    Run {
        printed: serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
        complained,
        code: output.status.code(),
    }
}

/// Runs a tool call while the device answers.
async fn call(
    cluster: &TestCluster,
    device: &mut Device,
    era: &str,
    tool: &str,
    result: &Value,
) -> (Run, Value) {
    let arguments = json!({"text": CHINESE}).to_string();
    let request = [
        "--method",
        "tools/call",
        "--tool-name",
        tool,
        "--tool-args-json",
        &arguments,
    ];
    let answered = async {
        let (call, _, params) = device.next_call().await;
        device.answer(&call, result).await;
        params
    };
    tokio::join!(ask(cluster, era, &request), answered)
}

/// Lists tools, calls with Chinese text in both directions, and receives an image, a tool error and
/// a protocol error.
async fn talks(era: &str) {
    let (cluster, mut device) = fixture().await;

    let listed = ask(&cluster, era, &["--method", "tools/list"]).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let tools = listed.printed["result"]["tools"].as_array().unwrap();
    let titled = |wanted: &str| tools.iter().find(|tool| tool["title"] == wanted).unwrap();
    assert_eq!(tools.len(), 3, "{listed:?}");
    let dim = titled("调光")["name"].as_str().unwrap();

    let reply = format!("好的：{CHINESE}");
    let answer = json!({"success": true, "data": reply});
    let (run, params) = call(&cluster, &mut device, era, "say", &answer).await;
    assert_eq!((run.code, &params["text"]), (Some(0), &json!(CHINESE)));
    let result = &run.printed["result"];
    assert_eq!(result["content"][0], json!({"type": "text", "text": reply}));
    assert_eq!(result["structuredContent"]["data"], reply);

    let image = json!({"type": "image", "data": PNG, "mimeType": "image/png"});
    let answer = json!({"success": true, "content": [image]});
    let (run, _) = call(&cluster, &mut device, era, "draw", &answer).await;
    assert_eq!(run.printed["result"]["content"], json!([image]), "{run:?}");

    let answer = json!({"success": false, "error": "灯坏了"});
    let (run, _) = call(&cluster, &mut device, era, dim, &answer).await;
    assert_eq!(
        (run.code, run.complaint()),
        (Some(5), json!("tool_is_error"))
    );
    assert_eq!(run.printed["result"]["content"][0]["text"], "灯坏了");

    // The inspector looks the name up in the list before it calls, so no request is sent.
    let arguments = ["--method", "tools/call", "--tool-name", "no-such-tool"];
    let run = ask(&cluster, era, &arguments).await;
    assert_eq!(
        (run.code, run.complaint()),
        (Some(5), json!("tool_not_found"))
    );
}

#[tokio::test]
async fn legacy() {
    talks("legacy").await;
}

#[tokio::test]
async fn modern() {
    talks("modern").await;
}
