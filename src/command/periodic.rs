//! What is evaluated again and again in the background of a running proxy.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// An evaluation in the background.
pub(super) struct Periodic {
    changed: Arc<Notify>,
}

impl Periodic {
    /// Runs `evaluate` on a blocking thread of the runtime: first after `first`, then every so often. Needs a runtime.
    pub(super) fn start(
        first: Duration,
        every: Duration,
        evaluate: impl Fn() + Send + Sync + 'static,
    ) -> Periodic {
        let changed = Arc::new(Notify::new());
        let (evaluate, notified) = (Arc::new(evaluate), Arc::clone(&changed));
        tokio::spawn(async move {
            let mut pause = first;
            loop {
                let _ = tokio::time::timeout(pause, notified.notified()).await;
                let evaluate = Arc::clone(&evaluate);
                // A panic has been logged already.
                let _ = tokio::task::spawn_blocking(move || evaluate()).await;
                pause = every;
            }
        });
        Periodic { changed }
    }

    /// Evaluates again soon, since the configuration has changed.
    pub(super) fn look_again(&self) {
        self.changed.notify_one();
    }
}
