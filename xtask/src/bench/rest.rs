//! Calls over HTTP: the whole way a backend's call takes, with keys and tokens as in production.
//! Never: the client's CPU; it stands for anybody's.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;
use uuid::Uuid;

use super::{
    bed::Bed,
    calls::connect_the_rest,
    ours::{Service, edge, switchboard},
    postgres::Postgres,
    report::Report,
    server::redis,
    subject::{Subject, rounds},
};

/// Requests in flight, one row each.
const IN_FLIGHT: [u32; 2] = [1, 64];
const FIRST_DEVICE_WITHIN: Duration = Duration::from_secs(15);

/// Measures the REST interface by itself.
pub(crate) async fn measure(bed: &Bed<'_>, report: &mut Report) -> anyhow::Result<()> {
    let postgres = Postgres::start(bed.folder()).await?;
    let redis = redis(bed.folder()).await?;
    let operator_key = Uuid::new_v4().simple().to_string();
    let redis_url = redis.redis_url();
    let environment = [
        ("DATABASE_URL", postgres.url.as_str()),
        ("REDIS_URL", redis_url.as_str()),
        ("SWITCHBOARD_OPERATOR_KEY", operator_key.as_str()),
    ];
    migrate(bed, &environment).await?;
    let control = http_service(bed, "control", &environment).await?;
    let api_key = new_org(&control, &operator_key).await?;
    let edge = edge(bed, &redis).await?;
    let gateway = http_service(bed, "gateway", &environment).await?;

    let (address, count) = (edge.address.to_string(), bed.options.devices.to_string());
    let token_url = format!("http://{}/v1/tokens", control.address);
    let devices = [
        "wire-devices",
        "--address",
        &address,
        "--token-url",
        &token_url,
    ];
    let mut devices = bed
        .worker(&[&devices[..], &["--api-key", &api_key]].concat())
        .await?;
    devices.open_first(FIRST_DEVICE_WITHIN).await?;
    connect_the_rest(bed, &mut devices).await?;

    let address = gateway.address.to_string();
    let caller = [
        "rest-caller",
        "--address",
        &address,
        "--devices",
        &count,
        "--api-key",
        &api_key,
    ];
    let mut subjects = [Subject {
        name: "Switchboard, REST",
        caller: bed.worker(&caller).await?,
        devices,
        servers: vec![
            ("gateway", gateway.process),
            ("edge", edge.process),
            ("redis", redis.process),
        ],
        counts_caller: false,
        counts_devices: false,
    }];
    for in_flight in IN_FLIGHT {
        report
            .rest
            .extend(rounds(&mut subjects, in_flight, bed.options).await?);
    }
    Ok(())
}

async fn http_service(
    bed: &Bed<'_>,
    name: &str,
    environment: &[(&str, &str)],
) -> anyhow::Result<Service> {
    let arguments = [name, "--http-listen", "127.0.0.1:0"];
    Service::start(bed, &arguments, environment, "http_url").await
}

async fn migrate(bed: &Bed<'_>, environment: &[(&str, &str)]) -> anyhow::Result<()> {
    let mut command = switchboard(bed.switchboard()?, bed.folder(), environment);
    let output = command.arg("migrate").kill_on_drop(true).output().await?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "switchboard migrate failed: {why}");
    Ok(())
}

/// A new organisation's API key.
async fn new_org(control: &Service, operator_key: &str) -> anyhow::Result<String> {
    let url = format!("http://{}/v1/orgs", control.address);
    let request = reqwest::Client::new().post(url).bearer_auth(operator_key);
    let answer = request
        .json(&json!({ "name": "bench" }))
        .send()
        .await?
        .error_for_status()?;
    let org: serde_json::Value = answer.json().await?;
    let key = org["api_key"]
        .as_str()
        .context("an organisation without an API key")?;
    Ok(key.to_owned())
}
