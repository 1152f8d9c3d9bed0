//! Calls over the REST interface of the gateway, with API keys and device tokens as in production,
//! compared with nginx in front of an HTTP server without devices. The CPU of the HTTP client is not
//! counted.

use std::sync::Arc;

use super::{
    environment::BenchEnv,
    installation::{Installation, http_caller},
    nginx::Nginx,
    report::Report,
    server::free_address,
    subject::{Subject, run_rounds},
};

/// Numbers of requests in flight, one row each.
const IN_FLIGHT: [u32; 2] = [1, 64];

/// The role that calls over REST.
pub(crate) const CALLER: &str = "rest-caller";

/// Row names in the report.
pub(crate) const OURS: &str = "Switchboard, REST";
pub(crate) const KEYED: &str = "the same with a key, so on record";
pub(crate) const PROXY: &str = "nginx and an HTTP echo, no device";

/// Measures the REST interface, without and with an idempotency key, and nginx if it is installed.
pub(crate) async fn measure(bench: &BenchEnv<'_>, report: &mut Report) -> anyhow::Result<()> {
    let installation = Installation::start(bench).await?;
    let proxied = proxied(bench, &installation.plane.api_key).await;
    let (_nginx, proxied) = report.or_skip(PROXY, proxied).unzip();
    let mut subjects = vec![
        installation.subject(bench, OURS, &[CALLER]).await?,
        installation
            .subject(bench, KEYED, &[CALLER, "--keyed"])
            .await?,
    ];
    subjects.extend(proxied);
    for in_flight in IN_FLIGHT {
        report
            .rest
            .extend(run_rounds(&mut subjects, in_flight, bench.options).await?);
    }
    Ok(())
}

/// nginx in front of a server that answers with what it receives, so the CPU of both counts. They
/// ignore the API key, which is sent only to keep the requests identical.
async fn proxied(bench: &BenchEnv<'_>, api_key: &str) -> anyhow::Result<(Nginx, Subject)> {
    let echo = free_address()?;
    let listen = echo.to_string();
    let devices = bench.worker(&["http-echo", "--listen", &listen]).await?;
    let nginx = Nginx::start(bench.folder(), echo).await?;
    let process = Arc::clone(&nginx.server.process);
    let subject = Subject {
        name: PROXY,
        caller: http_caller(bench, &[CALLER], nginx.server.address, api_key).await?,
        devices: Some(devices),
        servers: vec![("nginx", process)],
        counts_caller: false,
        counts_devices: true,
    };
    Ok((nginx, subject))
}
