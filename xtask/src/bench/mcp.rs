//! Tool calls over MCP: the whole way to a device, next to the same MCP library answering by itself.
//! Never: a request to the one that the other would not get as well.

use super::{
    bed::Bed,
    calls,
    installation::{Installation, http_caller},
    report::Report,
    server::free_address,
    subject::{Subject, rounds},
};

/// Requests in flight, one row of each subject. The call without HTTP shows what no endpoint in front of it can beat.
const IN_FLIGHT: [u32; 3] = [1, 16, 64];

/// Names as they stand in the table.
pub(crate) const OURS: &str = "Switchboard, MCP";
pub(crate) const RMCP: &str = "rmcp alone, no device";
const WITHOUT_HTTP: &str = "Switchboard, without HTTP";

/// Measures tool calls of both, in turn.
pub(crate) async fn measure(bed: &Bed<'_>, report: &mut Report) -> anyhow::Result<()> {
    let installation = Installation::start(bed).await?;
    let api_key = installation.plane.api_key.clone();
    let ours = installation.called_by(bed, OURS, &["mcp-caller"]).await?;
    let mut subjects = [
        ours,
        rmcp_alone(bed, &api_key).await?,
        calls::ours(bed, WITHOUT_HTTP).await?,
    ];
    for in_flight in IN_FLIGHT {
        let measured = rounds(&mut subjects, in_flight, bed.options).await?;
        report.mcp.extend(measured);
    }
    Ok(())
}

/// There is no device in it: the server is what answers, so its CPU counts. It does not look at the
/// key, which is there so that the requests are the same.
async fn rmcp_alone(bed: &Bed<'_>, api_key: &str) -> anyhow::Result<Subject> {
    let address = free_address()?;
    let listen = address.to_string();
    let devices = bed.worker(&["mcp-server", "--listen", &listen]).await?;
    Ok(Subject {
        name: RMCP,
        caller: http_caller(bed, &["mcp-caller"], address, api_key).await?,
        devices: Some(devices),
        servers: Vec::new(),
        counts_caller: false,
        counts_devices: true,
    })
}
