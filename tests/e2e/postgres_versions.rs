//! The supported versions of PostgreSQL, at both ends of the range, and a server that is too old.

use std::{
    path::PathBuf,
    process::{Command, Output},
    time::Duration,
};

use serde_json::{Value, json};
use switchboard_store::{MAX_TESTED_POSTGRES_VERSION, MIN_POSTGRES_VERSION};
use switchboard_test_support::{
    data_folder::DataFolder,
    postgres_server::PostgresServer,
    switchboard::{Program, executable},
};

use crate::{clients::installed, device::Device};

/// Upper bound for a program to fail.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Accepts that the server programs of a version are not installed.
const WITHOUT_VERSIONS: &str = "SWITCHBOARD_TESTS_WITHOUT_POSTGRES_VERSIONS";
/// The packages with server programs, by version and architecture.
const PACKAGES: &str = include_str!("../clients/postgres/package.json");

/// The server programs of this version. `None`, with a message, if no package has them for this machine,
/// or if [`WITHOUT_VERSIONS`] is set.
fn programs(major: u32) -> Option<PathBuf> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    let name = format!("postgres-{major}-{architecture}");
    let packages: Value = serde_json::from_str(PACKAGES).unwrap();
    if packages["optionalDependencies"].get(&name).is_none() {
        eprintln!("NOT TESTED: PostgreSQL {major} is not packaged for this machine");
        return None;
    }
    let package = format!("node_modules/{name}/native/bin");
    let programs = installed("postgres").join(package);
    if programs.join("postgres").exists() {
        return Some(programs);
    }
    let missing = format!("npm has not fetched {name} to {}", programs.display());
    assert!(
        std::env::var_os(WITHOUT_VERSIONS).is_some(),
        "{missing}: delete that installation and run `cargo xtask clients` again, or leave the version out \
         with {WITHOUT_VERSIONS}=1"
    );
    eprintln!("NOT TESTED: {missing}");
    None
}

fn switchboard(arguments: &[&str], url: &str) -> Output {
    let mut command = Command::new(executable());
    command.args(arguments).env("DATABASE_URL", url);
    command.env_remove("REDIS_URL").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What uses most of the SQL: settings, search in Chinese, a device, calls of all modes.
async fn smoke(up: &Program) {
    let http = reqwest::Client::new();
    let key = up.address("api_key");
    let request = async |method: reqwest::Method, path: &str, body: &Value| {
        let url = format!("{}{path}", up.address("http_url"));
        let request = http.request(method, url).bearer_auth(&key);
        let request = if body.is_null() {
            request
        } else {
            request.json(body)
        };
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json().await.unwrap_or(Value::Null))
    };
    let post = reqwest::Method::POST;
    let get = reqwest::Method::GET;
    let template = json!({"name": "小白", "persona": {"role": "a dog"}});
    let (status, template) = request(post.clone(), "/v1/templates", &template).await;
    assert_eq!(status, 201, "{template}");
    let npc = json!({"template_id": template["id"], "overrides": {"name": "Bello"}});
    let (status, npc) = request(post.clone(), "/v1/npcs", &npc).await;
    assert_eq!(status, 201, "{npc}");
    let memories = format!("/v1/npcs/{}/memories", npc["id"].as_str().unwrap());
    let memory = json!({"text": "妈妈喜欢喝绿茶"});
    let (status, stored) = request(post.clone(), &memories, &memory).await;
    assert!((200..300).contains(&status), "{stored}");
    let (_, found) = request(get.clone(), &format!("{memories}?q=绿茶"), &Value::Null).await;
    assert!(found.to_string().contains("绿茶"), "{found}");

    let token = json!({"subject": "device:toy-1", "scopes": ["device"]});
    let (_, token) = request(post.clone(), "/v1/tokens", &token).await;
    let token = token["access_token"].as_str().unwrap();
    let mut device = Device::connect(&up.address("device_addr"), token).await;
    device.register(r#"{"echo":{}}"#).await;
    let _served = device.serve();
    for mode in ["sync", "async", "queued"] {
        let call = json!({"service": "echo", "mode": mode, "params": {"a": 1}});
        let (status, call) = request(post.clone(), "/v1/devices/toy-1/calls", &call).await;
        let call = match status {
            202 => {
                let id = call["call_id"].as_str().unwrap();
                let path = format!("/v1/calls/{id}?wait_ms=20000");
                request(get.clone(), &path, &Value::Null).await.1
            }
            _ => call,
        };
        assert_eq!(call["outcome"], "succeeded", "{mode}: {call}");
    }
    let (status, audit) = request(get, "/v1/audit-log", &Value::Null).await;
    assert_eq!(status, 200, "{audit}");
    assert!(audit.to_string().contains("template"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_ends_of_the_supported_range_serve() {
    for major in [MIN_POSTGRES_VERSION, MAX_TESTED_POSTGRES_VERSION] {
        let Some(programs) = programs(major) else {
            continue;
        };
        // A private server.
        let folder = DataFolder::new();
        let arguments = ["--postgres-bin-dir", programs.to_str().unwrap()];
        let up = Program::start(&folder.up_arguments(&arguments), &[]);
        smoke(&up).await;
        drop(up);
        // A server from outside.
        let server = PostgresServer::start(&programs);
        let migrated = switchboard(&["migrate"], &server.url());
        assert!(migrated.status.success(), "{}", text(&migrated.stderr));
        let checked = switchboard(&["doctor"], &server.url());
        let line = format!("PostgreSQL {major}, at version");
        let printed = text(&checked.stdout) + &text(&checked.stderr);
        assert!(
            printed.contains(&line) && !printed.contains("are tested"),
            "{printed}"
        );
        let folder = DataFolder::new();
        let url = [("DATABASE_URL", server.url())];
        let up = Program::start(&folder.up_arguments(&[]), &url);
        smoke(&up).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn older_server_is_refused_with_both_versions() {
    let old = MIN_POSTGRES_VERSION - 1;
    let Some(programs) = programs(old) else {
        return;
    };
    let server = PostgresServer::start(&programs);
    let names_both = |output: &str| {
        let found = format!("the server is PostgreSQL {old}");
        let wanted = format!("PostgreSQL {MIN_POSTGRES_VERSION} or newer is required");
        assert!(
            output.contains(&found) && output.contains(&wanted),
            "{output}"
        );
    };
    let migrated = switchboard(&["migrate"], &server.url());
    assert_eq!(migrated.status.code(), Some(1));
    names_both(&text(&migrated.stderr));
    let checked = switchboard(&["doctor"], &server.url());
    names_both(&(text(&checked.stdout) + &text(&checked.stderr)));

    let folder = DataFolder::new();
    let up = folder.up_arguments(&[]);
    let [gateway, control, chat] = ["gateway", "control", "chat"].map(|service| {
        vec![
            service,
            "--http-listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
        ]
    });
    for arguments in [up, gateway, control, chat] {
        let environment = [
            ("DATABASE_URL", server.url()),
            ("REDIS_URL", "redis://127.0.0.1:1/0".to_owned()),
        ];
        let mut program = Program::launch(&arguments, &environment);
        assert_eq!(
            program.exit_code(EXIT_TIMEOUT).await,
            Some(1),
            "{arguments:?}"
        );
        names_both(&program.logged());
    }
    // Nor is it used as the private server.
    let only = ["--postgres-bin-dir", programs.to_str().unwrap()];
    let mut program = Program::launch(&folder.up_arguments(&only), &[]);
    assert_eq!(program.exit_code(EXIT_TIMEOUT).await, Some(69));
    let wanted = format!("({MIN_POSTGRES_VERSION} or newer) was found");
    assert!(program.logged().contains(&wanted), "{}", program.logged());
}
