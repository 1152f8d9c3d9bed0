//! Tool calls over MCP to a device, compared with calls over REST, and with a server of the same MCP
//! library without devices, which receives the same requests.

use super::{
    calls,
    environment::BenchEnv,
    installation::{Installation, http_caller},
    report::Report,
    rest,
    server::free_address,
    subject::{Subject, run_rounds},
};

/// Numbers of requests in flight, one row per subject. The calls without HTTP are the lower bound
/// for any HTTP endpoint.
const IN_FLIGHT: [u32; 3] = [1, 16, 64];

/// Row names in the report.
pub(crate) const OURS: &str = "Switchboard, MCP";
pub(crate) const RMCP: &str = "rmcp alone, no device";
const WITHOUT_HTTP: &str = "Switchboard, without HTTP";

/// Measures all subjects in turn.
pub(crate) async fn measure(bench: &BenchEnv<'_>, report: &mut Report) -> anyhow::Result<()> {
    let installation = Installation::start(bench).await?;
    let api_key = installation.plane.api_key.clone();
    let ours = installation.subject(bench, OURS, &["mcp-caller"]).await?;
    let rest = installation.subject(bench, rest::OURS, &[rest::CALLER]);
    let mut subjects = [
        ours,
        rest.await?,
        rmcp_alone(bench, &api_key).await?,
        calls::switchboard(bench, WITHOUT_HTTP).await?,
    ];
    for in_flight in IN_FLIGHT {
        let measured = run_rounds(&mut subjects, in_flight, bench.options).await?;
        report.mcp.extend(measured);
    }
    Ok(())
}

/// An MCP server without devices. The server responds itself, so its CPU counts. It ignores the
/// API key, which is sent only to keep the requests identical.
async fn rmcp_alone(bench: &BenchEnv<'_>, api_key: &str) -> anyhow::Result<Subject> {
    let address = free_address()?;
    let listen = address.to_string();
    let devices = bench.worker(&["mcp-server", "--listen", &listen]).await?;
    Ok(Subject {
        name: RMCP,
        caller: http_caller(bench, &["mcp-caller"], address, api_key).await?,
        devices: Some(devices),
        servers: Vec::new(),
        counts_caller: false,
        counts_devices: true,
    })
}
