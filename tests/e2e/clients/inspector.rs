//! The MCP Inspector on the command line: each run connects, asks one thing, prints what it got, and ends.
//! Never: a cancelled call or a changed list, which it cannot show.

use super::*;

/// What one run printed and how it ended.
#[derive(Debug)]
struct Run {
    printed: Value,
    complained: String,
    code: Option<i32>,
}

impl Run {
    /// The code of the error that it wrote to stderr.
    fn complaint(&self) -> Value {
        let written: Value = serde_json::from_str(&self.complained).unwrap_or(Value::Null);
        written["error"]["code"].clone()
    }
}

/// One request in this era; the arguments come after those that say where to.
async fn ask(plant: &Plant, era: &str, arguments: &[&str]) -> Run {
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
        .arg(plant.url(&format!("/mcp/devices/{DEVICE}")))
        .arg("--header")
        .arg(format!("Authorization: Bearer {}", plant.org.key))
        .args(arguments)
        // It keeps things at home.
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(PATIENCE, output).await.unwrap().unwrap();
    let complained = String::from_utf8(output.stderr).unwrap();
    Run {
        printed: serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
        complained,
        code: output.status.code(),
    }
}

/// A run that calls a tool, and meanwhile the device that answers.
async fn call(
    plant: &Plant,
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
    tokio::join!(ask(plant, era, &request), answered)
}

/// Lists, calls with Chinese both ways, gets an image, a tool's error and one of the protocol.
async fn talks(era: &str) {
    let (plant, mut device) = stage().await;

    let listed = ask(&plant, era, &["--method", "tools/list"]).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let tools = listed.printed["result"]["tools"].as_array().unwrap();
    let titled = |wanted: &str| tools.iter().find(|tool| tool["title"] == wanted).unwrap();
    assert_eq!(tools.len(), 3, "{listed:?}");
    let dim = titled("调光")["name"].as_str().unwrap();

    let said = format!("好的：{CHINESE}");
    let answer = json!({"success": true, "data": said});
    let (run, params) = call(&plant, &mut device, era, "say", &answer).await;
    assert_eq!((run.code, &params["text"]), (Some(0), &json!(CHINESE)));
    let result = &run.printed["result"];
    assert_eq!(result["content"][0], json!({"type": "text", "text": said}));
    assert_eq!(result["structuredContent"]["data"], said);

    let image = json!({"type": "image", "data": PNG, "mimeType": "image/png"});
    let answer = json!({"success": true, "content": [image]});
    let (run, _) = call(&plant, &mut device, era, "draw", &answer).await;
    assert_eq!(run.printed["result"]["content"], json!([image]), "{run:?}");

    let answer = json!({"success": false, "error": "灯坏了"});
    let (run, _) = call(&plant, &mut device, era, dim, &answer).await;
    assert_eq!(
        (run.code, run.complaint()),
        (Some(5), json!("tool_is_error"))
    );
    assert_eq!(run.printed["result"]["content"][0]["text"], "灯坏了");

    // It looks a name up in the list before it calls, so ours is not asked.
    let arguments = ["--method", "tools/call", "--tool-name", "no-such-tool"];
    let run = ask(&plant, era, &arguments).await;
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
