//! Calls over HTTP: the whole way a backend's call takes, with keys and tokens as in production.
//! Never: the client's CPU; it stands for anybody's.

use super::{bed::Bed, installation::Installation, report::Report, subject::rounds};

/// Requests in flight, one row each.
const IN_FLIGHT: [u32; 2] = [1, 64];

/// Measures the REST interface by itself.
pub(crate) async fn measure(bed: &Bed<'_>, report: &mut Report) -> anyhow::Result<()> {
    let installation = Installation::start(bed).await?;
    let mut subjects = [
        installation
            .called_by(bed, "Switchboard, REST", &["rest-caller"])
            .await?,
        installation
            .called_by(
                bed,
                "the same with a key, so on record",
                &["rest-caller", "--keyed"],
            )
            .await?,
    ];
    for in_flight in IN_FLIGHT {
        report
            .rest
            .extend(rounds(&mut subjects, in_flight, bed.options).await?);
    }
    Ok(())
}
