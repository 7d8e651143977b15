//! Periodic evaluations in the background of a running proxy.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use tokengauge_core::background::{self, BackgroundWork};

/// A periodic evaluation. Dropping this value ends the evaluation.
pub struct Periodic {
    changed: SyncSender<()>,
}

impl Periodic {
    /// Runs `evaluate` on a thread of lower priority than traffic: first after `first`, then every `every`. If it
    /// panics, the next evaluation still runs.
    pub(crate) fn start(
        name: &'static str,
        first: Duration,
        every: Duration,
        evaluate: impl Fn() + Send + 'static,
    ) -> Periodic {
        let (changed, changes) = sync_channel(1);
        let run = move || {
            let mut pause = first;
            while changes.recv_timeout(pause) != Err(RecvTimeoutError::Disconnected) {
                if catch_unwind(AssertUnwindSafe(&evaluate)).is_err() {
                    tracing::error!(
                        name,
                        "a periodic evaluation panicked; the next one runs as scheduled"
                    );
                }
                pause = every;
            }
        };
        if let Err(error) = background::spawn(name, BackgroundWork::Steady, run) {
            tracing::error!(%error, name, "cannot start a thread; this periodic evaluation does not run");
        }
        Periodic { changed }
    }

    /// Evaluates again soon, because the configuration has changed.
    pub(crate) fn look_again(&self) {
        // If the queue is full, an evaluation is already pending.
        let _ = self.changed.try_send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    // The test waits without a limit, because a busy machine may delay a thread of low priority. Nextest ends a test
    // that hangs.
    #[test]
    fn it_is_evaluated_after_a_panic_and_a_change_until_it_is_dropped() {
        let (done, evaluated) = channel();
        let evaluate = move || {
            done.send(()).expect("somebody listens");
            panic!("of a test");
        };
        let periodic = Periodic::start("test", Duration::ZERO, Duration::MAX, evaluate);
        evaluated.recv().expect("at once");
        for _ in 0..2 {
            periodic.look_again();
            evaluated.recv().expect("after a change");
        }
        drop(periodic);
        let ended = evaluated.recv();
        assert!(ended.is_err(), "it was evaluated after its end");
    }
}
