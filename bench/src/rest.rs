//! Calls over the REST interface of the gateway, with API keys and device tokens as in production.
//! The CPU of the HTTP client is not counted.

use super::{
    environment::BenchEnv, installation::Installation, report::Report, subject::run_rounds,
};

/// Numbers of requests in flight, one row each.
const IN_FLIGHT: [u32; 2] = [1, 64];

/// Measures the REST interface, without and with an idempotency key.
pub(crate) async fn measure(bench: &BenchEnv<'_>, report: &mut Report) -> anyhow::Result<()> {
    let installation = Installation::start(bench).await?;
    let mut subjects = [
        installation
            .subject(bench, "Switchboard, REST", &["rest-caller"])
            .await?,
        installation
            .subject(
                bench,
                "the same with a key, so on record",
                &["rest-caller", "--keyed"],
            )
            .await?,
    ];
    for in_flight in IN_FLIGHT {
        report
            .rest
            .extend(run_rounds(&mut subjects, in_flight, bench.options).await?);
    }
    Ok(())
}
