//! SIGTERM and SIGINT: the first signal drains, the second ends the process at once.

use crate::SystemError;
use tokengauge_proxy::Shutdown;
use tokio::signal::unix::{SignalKind, signal};

/// Needs a runtime.
pub fn watch(shutdown: Shutdown) -> Result<(), SystemError> {
    let failed = |error| SystemError::Task("listen for signals", error);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if shutdown.is_draining() {
                tracing::warn!("received a second signal; terminating immediately");
                shutdown.now();
            } else {
                tracing::info!(
                    requests = shutdown.requests(),
                    "received a signal; draining calls in flight"
                );
                shutdown.begin();
            }
        }
    });
    Ok(())
}
