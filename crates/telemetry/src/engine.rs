//! Metrics that upstreams export: queue, batch, KV cache, restarts. Each upstream has its own
//! scrape task, and the figures of all engines get common names.

mod client;
mod text;
mod view;

use crate::export::labels::{Upstream, UpstreamReason};
use crate::export::names::{self, Family};
use crate::export::prometheus::Prometheus;
use crate::export::registry::{Gauge, Registry, Sum};
use client::{Client, Failure};
use std::sync::Arc;
use std::time::Duration;
use tokengauge_meter::Meter;
use tokengauge_net::client::NoClient;
use tokengauge_net::endpoint::Endpoint;
use tokengauge_net::tls::ClientTls;
use tokio::time::MissedTickBehavior;
pub use view::{Spent, View};

#[derive(Clone, Debug, PartialEq)]
pub struct Scrape {
    pub upstream: Arc<str>,
    /// The URL of the metrics; its base path is the whole path.
    pub endpoint: Endpoint,
    pub interval: Duration,
    /// TLS settings, used if the endpoint is `https`.
    pub tls: ClientTls,
}

/// Gauges that exist only while the upstream reports them.
const REPORTED: [&Family<Gauge, Upstream<'static>>; 3] = [
    &names::UPSTREAM_QUEUE_DEPTH,
    &names::UPSTREAM_RUNNING,
    &names::UPSTREAM_KV_CACHE,
];

/// Seconds and requests that the upstream counts for its queue and for prefill.
const SPENT: [[&Family<Sum, Upstream<'static>>; 2]; 2] = [
    [
        &names::UPSTREAM_QUEUE_SECONDS,
        &names::UPSTREAM_QUEUE_REQUESTS,
    ],
    [
        &names::UPSTREAM_PREFILL_SECONDS,
        &names::UPSTREAM_PREFILL_REQUESTS,
    ],
];

pub struct Watcher {
    client: Client,
    scrape: Scrape,
    prometheus: Arc<Prometheus>,
    meter: Arc<Meter>,
    restarted: RestartHook,
    state: ScrapeState,
}

/// Called with the name of an upstream that restarted; must not block.
pub type RestartHook = Arc<dyn Fn(&str) + Send + Sync>;

impl Watcher {
    /// A watcher for the upstream of `scrape`. Its series exist from now on.
    ///
    /// # Errors
    /// Returns an error if a TLS file cannot be read.
    pub fn new(
        scrape: &Scrape,
        prometheus: &Arc<Prometheus>,
        meter: &Arc<Meter>,
        restarted: RestartHook,
    ) -> Result<Watcher, NoClient> {
        let registry = prometheus.registry();
        let upstream = &*scrape.upstream;
        registry.series(&names::UPSTREAM_UP, &Upstream { upstream });
        for reason in Failure::WORDS {
            let labels = UpstreamReason { upstream, reason };
            registry.series(&names::UPSTREAM_SCRAPE_FAILURES, &labels);
        }
        Ok(Watcher {
            client: Client::new(scrape)?,
            scrape: scrape.clone(),
            prometheus: Arc::clone(prometheus),
            meter: Arc::clone(meter),
            restarted,
            state: ScrapeState::default(),
        })
    }

    /// Checks that [`Watcher::new`] could use the TLS files of `scrape`.
    ///
    /// # Errors
    /// Returns an error if a TLS file cannot be read.
    pub fn check(scrape: &Scrape) -> Result<(), NoClient> {
        Client::new(scrape).map(drop)
    }

    /// Scrapes the metrics until the future is dropped.
    pub async fn run(mut self) {
        let mut ticks = tokio::time::interval(self.scrape.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let read = self.client.fetch().await.map(|text| View::read(&text));
            let upstream = &self.scrape.upstream;
            let step = self.state.take(&read);
            self.state.tell(upstream, &read);
            show(self.prometheus.registry(), upstream, &read, &step);
            if step.restarted {
                self.meter.upstream_restarted(upstream);
                (self.restarted)(upstream);
            }
        }
    }
}

/// Removes the series of `upstream`, which is not scraped any more.
pub fn forget(registry: &Registry, upstream: &str) {
    let labels = Upstream { upstream };
    for gauge in REPORTED {
        registry.forget(gauge, &labels);
    }
    for sum in SPENT.into_iter().flatten() {
        registry.forget(sum, &labels);
    }
    registry.forget(&names::UPSTREAM_UP, &labels);
}

/// Consecutive failed scrapes before an upstream counts as down, because a busy upstream may be
/// slow to answer. A refused connection counts at once.
const MISSED: u32 = 3;

#[derive(Default)]
struct ScrapeState {
    last: Option<View>,
    missed: u32,
    up: Option<bool>,
    /// Whether the restart was already reported when the upstream could not be reached.
    restart_reported: bool,
    /// Whether the change of `up` must be logged.
    turned: bool,
    strange: bool,
}

#[derive(Debug, Default, PartialEq)]
struct Step {
    restarted: bool,
    up: bool,
    /// Time spent since the last scrape, or since a restart after it.
    spent: [Option<Spent>; 2],
}

impl ScrapeState {
    fn take(&mut self, read: &Result<View, Failure>) -> Step {
        let step = match read {
            Ok(view) => self.answered(view),
            Err(failure) => self.failed(matches!(failure, Failure::Unreachable(_))),
        };
        self.turned = self.up != Some(step.up);
        self.up = Some(step.up);
        step
    }

    fn answered(&mut self, view: &View) -> Step {
        self.missed = 0;
        let last = self.last.replace(*view);
        let restarted = last.is_some_and(|last| view.restarted_since(&last));
        let since = |now: Option<Spent>, before: fn(&View) -> Option<Spent>| {
            let start = restarted.then_some(Spent::NONE);
            // Time spent before the first scrape is not counted.
            let before = start.or_else(|| last.as_ref().and_then(before));
            Some(now?.since(before.unwrap_or(now?)))
        };
        Step {
            restarted: restarted && !std::mem::take(&mut self.restart_reported),
            up: true,
            spent: [
                since(view.queue, |view| view.queue),
                since(view.prefill, |view| view.prefill),
            ],
        }
    }

    fn failed(&mut self, unreachable: bool) -> Step {
        self.missed = self.missed.saturating_add(1);
        let was_up = self.up == Some(true);
        let restarted = was_up && unreachable;
        self.restart_reported |= restarted;
        Step {
            restarted,
            up: was_up && !unreachable && self.missed < MISSED,
            ..Step::default()
        }
    }

    fn tell(&mut self, upstream: &str, read: &Result<View, Failure>) {
        match read {
            Err(failure) if self.turned => {
                tracing::warn!(upstream, %failure, "the metrics of an upstream cannot be read; \
                    traffic continues");
            }
            Ok(_) if self.turned => {
                tracing::info!(upstream, "the metrics of an upstream can be read");
            }
            _ => {}
        }
        let strange = read.as_ref().is_ok_and(|view| !view.is_known());
        if strange && !self.strange {
            tracing::warn!(
                upstream,
                "`metrics_url` responds, but without metrics of a known engine"
            );
        }
        self.strange = strange;
    }
}

/// Updates the series. Unknown figures are removed: after some failed scrapes, or at once if the
/// upstream does not report them.
fn show(registry: &Registry, upstream: &str, read: &Result<View, Failure>, step: &Step) {
    let labels = Upstream { upstream };
    let up = registry.series(&names::UPSTREAM_UP, &labels);
    up.set(f64::from(u8::from(step.up)));
    let view = match read {
        Ok(view) => Some(*view),
        Err(failure) => {
            let reason = failure.word();
            let labels = UpstreamReason { upstream, reason };
            registry
                .series(&names::UPSTREAM_SCRAPE_FAILURES, &labels)
                .increment(1);
            // The series keep their values.
            (!step.up).then(View::default)
        }
    };
    if let Some(view) = view {
        let values = [view.queue_depth, view.running, view.kv_cache];
        for (metric, value) in REPORTED.into_iter().zip(values) {
            match value {
                Some(value) => registry.series(metric, &labels).set(value),
                None => registry.forget(metric, &labels),
            }
        }
    }
    for ([seconds, requests], spent) in SPENT.into_iter().zip(step.spent) {
        if let Some(spent) = spent {
            registry.series(seconds, &labels).add(spent.seconds);
            registry.series(requests, &labels).add(spent.times);
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
        let mut state = ScrapeState::default();
        let mut restarted = |read| state.take(&read).restarted;
        assert!(!restarted(unreachable()), "it was never there");
        assert!(!restarted(view(Some(1.0))));
        assert!(!restarted(view(Some(1.0))));
        assert!(restarted(view(Some(2.0))));
        assert!(!restarted(Err(Failure::TooLarge)));
        assert!(!restarted(view(Some(2.0))));
        assert!(restarted(unreachable()));
        assert!(!restarted(unreachable()), "it is reported once");
        assert!(!restarted(view(Some(3.0))), "it was reported already");
        assert!(restarted(view(Some(4.0))));
        assert!(!restarted(view(None)));
    }

    fn counted(tokens: f64, seconds: f64, times: f64) -> Result<View, Failure> {
        Ok(View {
            output_tokens: Some(tokens),
            queue: Some(Spent { seconds, times }),
            ..View::default()
        })
    }

    #[test]
    fn counters_that_fall_are_a_restart_and_what_was_spent_is_what_came_since() {
        let mut state = ScrapeState::default();
        let first = state.take(&counted(100.0, 5.0, 10.0));
        assert_eq!(first.spent[0], Some(Spent::NONE), "before our time");
        let next = state.take(&counted(150.0, 6.0, 12.0));
        let spent = |seconds, times| Some(Spent { seconds, times });
        assert_eq!((next.restarted, next.spent[0]), (false, spent(1.0, 2.0)));
        let anew = state.take(&counted(20.0, 9.0, 30.0));
        assert!(anew.restarted, "fewer tokens than before");
        assert_eq!(anew.spent[0], spent(9.0, 30.0), "all of it is new");
        let same = state.take(&counted(20.0, 9.0, 30.0));
        assert_eq!((same.restarted, same.spent[0]), (false, spent(0.0, 0.0)));
        // The upstream was unreachable, but the process is the same.
        assert!(state.take(&unreachable()).restarted);
        let back = state.take(&counted(25.0, 10.0, 31.0));
        assert_eq!((back.restarted, back.spent[0]), (false, spent(1.0, 1.0)));
    }

    #[test]
    fn figures_age_out_after_three_readings_that_fail() {
        let registry = Registry::new(&[]);
        let mut state = ScrapeState::default();
        let mut read = |read: Result<View, Failure>| {
            let step = state.take(&read);
            show(&registry, "u", &read, &step);
            let format = crate::export::text::Format::Classic;
            let text = crate::export::text::render(&registry, format, true);
            let value = |metric: &Family<Gauge, _>| {
                let start = format!("{}{{upstream=\"u\"}} ", metric.name);
                let line = text.lines().find_map(|line| line.strip_prefix(&start));
                line.map(str::to_owned)
            };
            let depth = value(&names::UPSTREAM_QUEUE_DEPTH);
            (value(&names::UPSTREAM_UP).expect("always"), depth)
        };
        let slow = || Err(Failure::Timeout(std::time::Duration::from_secs(1)));
        let there = ("1".to_owned(), Some("1".to_owned()));
        let gone = ("0".to_owned(), None);
        assert_eq!(read(slow()), gone, "nothing was ever read");
        for _ in 0..2 {
            assert_eq!(read(view(None)), there);
            assert_eq!(read(slow()), there);
            assert_eq!(read(slow()), there);
        }
        assert_eq!(read(slow()), gone);
        assert_eq!(read(view(None)), there);
        assert_eq!(read(unreachable()), gone, "nobody listens");
        let failures = registry.series(
            &names::UPSTREAM_SCRAPE_FAILURES,
            &UpstreamReason {
                upstream: "u",
                reason: "timeout",
            },
        );
        assert_eq!(failures.value(), 6);
    }
}
