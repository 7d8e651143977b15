//! The parts of a running proxy that a reload changes.

use crate::ProcessError;
use crate::block_key;
use crate::marks;
use crate::notify::Receivers;
use crate::objectives;
use crate::operators::Watchers;
use crate::output;
use crate::periodic::Periodic;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;
use tokengauge_accounting::cost::Prices;
use tokengauge_admin::{ProcessServices, Services};
use tokengauge_config::Config;
use tokengauge_config::reload::needs_restart;
use tokengauge_meter::RecentCalls;
use tokengauge_proxy::{ActiveListeners, Forwarder};
use tokengauge_sessions::CachePrice;
use tokengauge_slo::StateFolder;
use tokengauge_store::query::{MarkKind, MarkSubject};
use tokengauge_telemetry::export;
use tokengauge_telemetry::export::cost;
use tokengauge_telemetry::export::slo;

pub(crate) struct RunningProxy {
    pub(crate) config: Arc<ArcSwap<Config>>,
    pub(crate) forwarder: Arc<Forwarder>,
    pub(crate) listening: Arc<ActiveListeners>,
    pub(crate) threads: usize,
    pub(crate) services: Services,
    pub(crate) process: Arc<ProcessServices>,
    pub(crate) recent: Arc<RecentCalls>,
    pub(crate) state_folder: Option<Arc<Mutex<StateFolder>>>,
    pub(crate) receivers: Receivers,
    pub(crate) watchers: Watchers,
    pub(crate) evaluations: Arc<Vec<Periodic>>,
}

impl RunningProxy {
    /// Applies the configuration `next` completely, or none of it if an error occurs. Calls in flight end under the old
    /// configuration. Needs a runtime and reads files.
    pub(crate) fn change(&mut self, mut next: Config) -> Result<(), ProcessError> {
        let now = self.config.load_full();
        let fixed = needs_restart(&now, &next);
        if !fixed.is_empty() {
            return Err(ProcessError::Configuration(format!(
                "{}: `{}` cannot change while the process runs; restart the process or revert the change",
                next.origin,
                fixed.join("`, `")
            )));
        }
        let fd_limits = crate::fd_limit::raise(next.limits.connections, self.threads);
        fd_limits.apply(&mut next.limits);
        let next = Arc::new(next);
        let wrong =
            |reason: String| ProcessError::Configuration(format!("{}: {reason}", next.origin));
        let routing = self.forwarder.prepare(next.forwarding());
        let routing = routing.map_err(|error| wrong(error.to_string()))?;
        let receivers = self.receivers.prepare(&next.receivers)?;
        let watchers = self.watchers.prepare(&next.scrapes)?;
        let listeners = self.listening.prepare(&next.listeners, &next.limits);
        let listeners = listeners.map_err(|error| wrong(error.to_string()))?;
        // Nothing can fail after this line, so `next` is applied completely.
        self.forwarder.limit_descriptors(fd_limits.upstreams);
        self.measure_by(&now, &next);
        self.receivers.change(receivers);
        self.watchers.change(watchers);
        self.forwarder.change(routing);
        for address in self.listening.change(listeners) {
            output::note(&format!("listening on {address}"));
        }
        let about = self.services.about.load();
        let about = about.under(&next, &self.listening.addresses());
        self.services.about.store(Arc::new(about));
        self.services
            .experiments
            .store(Arc::new(next.experiments.clone()));
        self.services
            .verdicts
            .gates
            .store(Arc::new(crate::evaluations::gates::configured(&next)));
        self.config.store(Arc::clone(&next));
        self.evaluations.iter().for_each(Periodic::look_again);
        self.forget(&now, &next);
        self.mark(&now, &next);
        Ok(())
    }

    fn mark(&self, now: &Config, next: &Config) {
        let add = |kind, text| marks::now(&self.services.marks, kind, text, MarkSubject::default());
        add(
            MarkKind::Reload,
            format!("configuration {} is in use", next.digest),
        );
        if now.prices != next.prices {
            add(MarkKind::Prices, "the price list has changed".to_owned());
        }
    }

    /// Applies the measurement settings before the new routes receive a request.
    fn measure_by(&self, now: &Config, next: &Config) {
        self.services
            .prometheus
            .add_routes(&next.routes, &next.measure);
        if let Some(state_folder) = &self.state_folder {
            objectives::audit(state_folder, &self.process.slos, next);
        }
        let anew = self
            .process
            .slos
            .change(&next.slos, &next.measure, Instant::now());
        slo::forget(self.services.prometheus.registry(), &next.slos, &anew);
        let accounting = self.process.meter.accounting();
        let accounting = accounting.reload(&next.prices, &next.budgets, &next.quotas);
        let price = cache_price(&accounting.prices);
        self.process.session_watch.change(&next.runaway, price);
        let measure = block_key::measure(next);
        self.process.meter.change(measure, accounting);
        // Runs after the meter has the new accounting. Otherwise a scrape in between would add the series again.
        cost::forget(
            self.services.prometheus.registry(),
            &now.labelled(),
            &next.labelled(),
        );
        export::quota::forget(
            self.services.prometheus.registry(),
            &now.quotas,
            &next.quotas,
        );
        self.recent.resize(next.measure.recent_calls);
    }

    /// Removes the series of routes and upstreams that are in neither configuration.
    fn forget(&self, now: &Config, next: &Config) {
        let routes = || now.routes.iter().chain(&next.routes);
        let known = |route: Option<&str>, upstream: &str| {
            upstream == Forwarder::NO_ROUTE
                || routes().any(|known| {
                    known.upstreams().any(|known| *known.name == *upstream)
                        && route.is_none_or(|route| *known.name == *route)
                })
        };
        self.process
            .meter
            .forget(|route, upstream| known(Some(route), upstream));
        self.services.prometheus.forget(known);
    }
}

/// The price function for sessions: returns the price of a call in US dollars if a given number of its input tokens
/// came from a cache.
pub(crate) fn cache_price(prices: &Arc<Prices>) -> CachePrice {
    let prices = Arc::clone(prices);
    Arc::new(move |record, cached| prices.cost_if_cached(record, cached))
}
