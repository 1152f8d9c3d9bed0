//! SIGTERM and SIGINT: the first asks for a drain, the second for the end.
//! Never: an exit of its own; the process ends when its work has ended.

use std::{io, time::Duration};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::shutdown::Shutdown;

/// Leaves and then drains on the first signal, and stops on the second or when `grace` has run out since the drain.
///
/// `leave` is what is done while everything is still served: saying so, and waiting until others have heard of it. Also counts `grace` when the drain was asked for elsewhere. Returns once stopping; await it beside
/// the work and drop it when the work is done.
///
/// # Errors
/// When the signals cannot be listened to.
pub async fn watch(
    shutdown: &Shutdown,
    leave: impl Future<Output = ()>,
    grace: Duration,
) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        name = first(&mut terminate, &mut interrupt) => {
            tracing::info!(signal = name, grace_s = grace.as_secs_f64(), "draining on a signal");
            tokio::select! {
                () = leave => {}
                _ = first(&mut terminate, &mut interrupt) => {}
            }
        }
        () = shutdown.draining() => {}
    }
    shutdown.drain();
    tokio::select! {
        name = first(&mut terminate, &mut interrupt) => {
            tracing::warn!(signal = name, "stopping at once on a second signal");
        }
        () = tokio::time::sleep(grace) => {
            tracing::warn!(tasks = shutdown.tasks(), "stopping: the time to drain has run out");
        }
        () = shutdown.stopping() => {}
    }
    shutdown.stop();
    Ok(())
}

async fn first(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_grace_counts_from_any_drain() {
        let shutdown = Shutdown::new();
        shutdown.drain();
        let leave = std::future::pending();
        watch(&shutdown, leave, Duration::from_millis(1))
            .await
            .unwrap();
        assert!(shutdown.is_stopping());
    }

    #[tokio::test]
    async fn a_stop_elsewhere_ends_the_watch() {
        let shutdown = Shutdown::new();
        shutdown.stop();
        watch(&shutdown, async {}, Duration::from_secs(3600))
            .await
            .unwrap();
    }
}
