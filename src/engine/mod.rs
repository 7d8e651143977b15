//! What upstreams tell of themselves: queue, batch, KV cache, restarts. Their own
//! metrics are read now and then, beside the traffic, and shown under one set of names.

mod client;
mod text;
mod view;

use crate::config::Scrape;
use crate::export::names::{self, Metric};
use crate::export::prometheus::Prometheus;
use crate::export::registry::Registry;
use crate::meter::Meter;
use crate::proxy::tls::Invalid;
use client::{Client, Failure};
use std::sync::Arc;
use tokio::time::MissedTickBehavior;
pub use view::{Spent, View};

/// What is known only as long as an upstream tells it.
const TOLD: [&Metric; 5] = [
    &names::UPSTREAM_QUEUE_DEPTH,
    &names::UPSTREAM_RUNNING,
    &names::UPSTREAM_KV_CACHE,
    &names::UPSTREAM_QUEUE_SECONDS,
    &names::UPSTREAM_PREFILL_SECONDS,
];

/// Reads one upstream's metrics.
pub struct Watcher {
    client: Client,
    scrape: Scrape,
    prometheus: Arc<Prometheus>,
    meter: Arc<Meter>,
    state: State,
}

impl Watcher {
    /// Of what `scrape` names. Its series exist from now on.
    ///
    /// # Errors
    /// When a file that TLS needs cannot be read.
    pub fn new(
        scrape: &Scrape,
        prometheus: &Arc<Prometheus>,
        meter: &Arc<Meter>,
    ) -> Result<Watcher, Invalid> {
        let registry = prometheus.registry();
        registry.gauge(&names::UPSTREAM_UP, &[&scrape.upstream]);
        for reason in Failure::WORDS {
            registry.counter(
                &names::UPSTREAM_SCRAPE_FAILURES,
                &[&scrape.upstream, reason],
            );
        }
        Ok(Watcher {
            client: Client::new(scrape.clone())?,
            scrape: scrape.clone(),
            prometheus: Arc::clone(prometheus),
            meter: Arc::clone(meter),
            state: State::default(),
        })
    }

    /// Reads them until it is dropped.
    pub async fn run(mut self) {
        let mut ticks = tokio::time::interval(self.scrape.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let read = self.client.fetch().await.map(|text| View::read(&text));
            let upstream = &self.scrape.upstream;
            self.state.tell(upstream, &read);
            show(self.prometheus.registry(), upstream, &read, &self.state);
            if self.state.take(&read) {
                self.meter.upstream_restarted(upstream);
            }
        }
    }
}

/// Nobody reads the metrics of `upstream` any more: nothing of them is shown.
pub fn forget(registry: &Registry, upstream: &str) {
    for metric in TOLD {
        registry.forget(metric, &[upstream]);
    }
    registry.forget(&names::UPSTREAM_UP, &[upstream]);
}

/// What was read before.
#[derive(Default)]
struct State {
    /// The last reading that worked.
    last: Option<View>,
    up: Option<bool>,
    strange: bool,
}

impl State {
    /// Keeps what was read. Says whether the upstream has started anew: it says so, or
    /// it was there and cannot be reached now.
    fn take(&mut self, read: &Result<View, Failure>) -> bool {
        let was_up = self.up.replace(read.is_ok()) == Some(true);
        match read {
            Err(failure) => {
                self.last = self
                    .last
                    .filter(|_| !matches!(failure, Failure::Unreachable(_)));
                was_up && matches!(failure, Failure::Unreachable(_))
            }
            Ok(view) => {
                let before = self.last.replace(*view).and_then(|last| last.started);
                before
                    .zip(view.started)
                    .is_some_and(|(one, other)| one != other)
            }
        }
    }

    /// Logs what changed, and nothing else.
    fn tell(&mut self, upstream: &str, read: &Result<View, Failure>) {
        match read {
            Err(failure) if self.up != Some(false) => {
                tracing::warn!(upstream, %failure, "the metrics of an upstream cannot be read; traffic goes on");
            }
            Ok(_) if self.up == Some(false) => {
                tracing::info!(upstream, "the metrics of an upstream can be read again");
            }
            _ => {}
        }
        let strange = read.as_ref().is_ok_and(|view| !view.is_known());
        if strange && !self.strange {
            tracing::warn!(
                upstream,
                "`metrics_url` answers, but with no figures of an engine that is known here"
            );
        }
        self.strange = strange;
    }
}

/// Shows what was read, in the light of what was read before; what is not known any more
/// is not shown any more.
fn show(registry: &Registry, upstream: &str, read: &Result<View, Failure>, state: &State) {
    let up = registry.gauge(&names::UPSTREAM_UP, &[upstream]);
    up.set(f64::from(u8::from(read.is_ok())));
    let view = match read {
        Ok(view) => *view,
        Err(failure) => {
            let place = [upstream, failure.word()];
            registry
                .counter(&names::UPSTREAM_SCRAPE_FAILURES, &place)
                .increment(1);
            View::default()
        }
    };
    let last = state.last.unwrap_or_default();
    let mean = |now: Option<view::Spent>, before| now?.mean_since(before?);
    let values = [
        view.queue_depth,
        view.running,
        view.kv_cache,
        mean(view.queue, last.queue),
        mean(view.prefill, last.prefill),
    ];
    for (metric, value) in TOLD.into_iter().zip(values) {
        match value {
            Some(value) => registry.gauge(metric, &[upstream]).set(value),
            None => registry.forget(metric, &[upstream]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(started: Option<f64>) -> Result<View, Failure> {
        Ok(View {
            started,
            queue_depth: Some(1.0),
            ..View::default()
        })
    }

    fn unreachable() -> Result<View, Failure> {
        Err(Failure::Unreachable("refused".to_owned()))
    }

    #[test]
    fn a_new_start_time_or_a_refused_connection_is_a_restart() {
        let mut state = State::default();
        assert!(!state.take(&unreachable()), "it was never there");
        assert!(!state.take(&view(Some(1.0))));
        assert!(!state.take(&view(Some(1.0))));
        assert!(state.take(&view(Some(2.0))));
        assert!(!state.take(&Err(Failure::TooLarge)));
        assert!(!state.take(&view(Some(2.0))));
        assert!(state.take(&unreachable()));
        assert!(!state.take(&unreachable()), "it is told once");
        assert!(!state.take(&view(Some(3.0))), "it was told already");
        assert!(!state.take(&view(None)));
    }

    #[test]
    fn what_is_not_told_any_more_is_not_shown_any_more() {
        let registry = Registry::new(&[]);
        let mut state = State::default();
        let shown = |metric: &Metric| {
            let text = crate::export::text::render(&registry, crate::export::text::Format::Classic);
            text.contains(&format!("\n{}{{", metric.name))
        };
        show(&registry, "u", &view(None), &state);
        state.take(&view(None));
        assert!(shown(&names::UPSTREAM_QUEUE_DEPTH) && !shown(&names::UPSTREAM_KV_CACHE));
        show(&registry, "u", &unreachable(), &state);
        assert!(!shown(&names::UPSTREAM_QUEUE_DEPTH) && shown(&names::UPSTREAM_UP));
        let failures = registry.counter(&names::UPSTREAM_SCRAPE_FAILURES, &["u", "unreachable"]);
        assert_eq!(failures.value(), 1);
    }
}
