//! Evaluates and limits calls: objectives, budgets, quotas, runaway sessions, and the receivers of their alerts.

use crate::ProcessError;
use crate::notify::{self, Receivers};
use crate::objectives::{self, Objectives};
use crate::page_link::PageLink;
use crate::quota_store::SharedLimits;
use crate::running_proxy::cache_price;
use crate::spending::Spending;
use parking_lot::Mutex;
use std::sync::Arc;
use tokengauge_config::Config;
use tokengauge_meter::{Meter, Subscriber};
use tokengauge_sessions::SessionWatch;
use tokengauge_slo::{Slos, StateFolder};
use tokengauge_telemetry::export::lines::Lines;
use tokengauge_telemetry::export::prometheus::Prometheus;

pub(crate) struct Oversight {
    pub(crate) slos: Arc<Slos>,
    pub(crate) state_folder: Option<Arc<Mutex<StateFolder>>>,
    pub(crate) spending: Spending,
    pub(crate) shared_limits: SharedLimits,
    pub(crate) session_watch: Arc<SessionWatch>,
    pub(crate) receivers: Receivers,
}

impl Oversight {
    /// Loads what the last process saved. Adds subscribers that count finished calls to `subscribers`.
    pub(crate) fn open(
        config: &Config,
        prometheus: &Arc<Prometheus>,
        subscribers: &mut Vec<Arc<dyn Subscriber>>,
    ) -> Result<Oversight, ProcessError> {
        let (slos, state_folder) = objectives::open(config)?;
        subscribers.push(slos.clone());
        subscribers.push(Arc::new(Lines));
        let spending = Spending::open(config)?;
        subscribers.push(spending.accounting.budgets.clone());
        let shared_limits = SharedLimits::start(config, &spending.accounting)?;
        let session_watch = SessionWatch::new();
        session_watch.change(&config.runaway, cache_price(&spending.accounting.prices));
        subscribers.push(session_watch.clone());
        let failures = Arc::clone(prometheus);
        let mut receivers = Receivers::new(
            &slos,
            &spending.accounting.budgets,
            &session_watch,
            notify::delivery_state(config)?,
            PageLink::new(&config.admin, |name| std::env::var(name).ok()),
            move |kind| failures.export_failures("notify", kind),
            shared_limits.quota_store.clone(),
        );
        receivers.change(receivers.prepare(&config.receivers)?);
        Ok(Oversight {
            state_folder: state_folder.map(|folder| Arc::new(Mutex::new(folder))),
            slos,
            spending,
            shared_limits,
            session_watch,
            receivers,
        })
    }

    pub(crate) fn start_objectives(&self, meter: &Arc<Meter>) -> Objectives {
        Objectives::start(
            &self.slos,
            self.state_folder.as_ref(),
            meter,
            &self.session_watch,
        )
    }
}
