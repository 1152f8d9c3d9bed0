//! Handling of SIGTERM and SIGINT: the first signal drains, the second stops.

use std::{io, time::Duration};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::shutdown::Shutdown;

/// Drains on the first signal; stops on the second one, or when `grace` has elapsed since draining
/// began.
///
/// `leave` runs after the first signal, while the process still serves. `grace` also applies if
/// draining was begun elsewhere. Returns once stopping has begun: run it beside the work and drop it
/// when the work is done.
///
/// # Errors
/// When the signal handlers cannot be installed.
pub async fn watch(
    shutdown: &Shutdown,
    leave: impl Future<Output = ()>,
    grace: Duration,
) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut second = None;
    tokio::select! {
        name = first(&mut terminate, &mut interrupt) => {
            tracing::info!(signal = name, grace_s = grace.as_secs_f64(), "signal received; draining");
            tokio::select! {
                () = leave => {}
                name = first(&mut terminate, &mut interrupt) => second = Some(name),
            }
        }
        () = shutdown.draining() => {}
    }
    shutdown.drain();
    let second = async {
        match second {
            Some(name) => name,
            None => first(&mut terminate, &mut interrupt).await,
        }
    };
    tokio::select! {
        name = second => {
            tracing::warn!(signal = name, "second signal received; stopping now");
        }
        () = tokio::time::sleep(grace) => {
            tracing::warn!(tasks = shutdown.tasks(), "drain timeout elapsed; stopping now");
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
    async fn grace_starts_with_any_drain() {
        let shutdown = Shutdown::new();
        shutdown.drain();
        let leave = std::future::pending();
        watch(&shutdown, leave, Duration::from_millis(1))
            .await
            .unwrap();
        assert!(shutdown.is_stopping());
    }

    #[tokio::test]
    async fn stop_ends_the_watch() {
        let shutdown = Shutdown::new();
        shutdown.stop();
        watch(&shutdown, async {}, Duration::from_secs(3600))
            .await
            .unwrap();
    }
}
