//! What a gate asks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::dimension::Dimension;
use tokengauge_experiments::{Metric, Rules};
use tokengauge_slo::Objective;
use tokengauge_store::query::{Filter, UnitKind};

#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    pub name: String,
    pub candidate: Select,
    pub baseline: Select,
    /// What is one unit: session, agent or user.
    pub unit: UnitKind,
    /// Confidence, thresholds, the least number of units, when a unit is complete.
    pub rules: Rules,
    /// By how much the candidate may be worse.
    pub margins: Margins,
    pub ceilings: Ceilings,
    /// The objectives whose budget the candidate's calls may not burn faster than `max_burn`.
    pub objectives: Vec<Arc<Objective>>,
    /// 1 spends a budget exactly in its period.
    pub max_burn: f64,
    /// Calls before this are not looked at, where nobody says since when.
    pub window: Duration,
    /// After how long somebody has to decide where the gate cannot; `None` is never.
    pub max_wait: Option<Duration>,
}

impl Gate {
    pub const MAX_BURN: f64 = 1.0;
    /// The default of the least number of units of each side.
    pub const MIN_UNITS: u64 = 50;
    pub const WINDOW: Duration = Duration::from_secs(24 * 3_600);
}

/// Which calls: those that match everything that is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "GateSelect")]
pub struct Select {
    /// The route.
    pub route: Option<String>,
    /// The upstream.
    pub upstream: Option<String>,
    /// The model that answered, else the one asked for.
    pub model: Option<String>,
    /// The workload.
    pub workload: Option<String>,
    /// The experiment.
    pub experiment: Option<String>,
    /// The variant of the experiment.
    pub variant: Option<String>,
}

impl Select {
    /// The filter of the store; it knows no variants.
    pub(crate) fn filter(&self, since: SystemTime, until: SystemTime) -> Filter {
        Filter {
            since: Some(since),
            until: Some(until),
            names: [
                (Dimension::Route, self.route.clone()),
                (Dimension::Upstream, self.upstream.clone()),
                (Dimension::Model, self.model.clone()),
                (Dimension::Workload, self.workload.clone()),
                (Dimension::Experiment, self.experiment.clone()),
            ]
            .into(),
            operation_classes: Filter::counted(),
            ..Filter::default()
        }
    }

    /// Whether a call that the filter has found is one of these.
    pub(crate) fn has(&self, call: &CallRecord) -> bool {
        let wanted = self.variant.as_deref();
        wanted.is_none_or(|wanted| call.variant.as_deref() == Some(wanted))
    }

    /// Such as `upstream new, model m`.
    pub fn in_words(&self) -> String {
        let parts = [
            ("route", &self.route),
            ("upstream", &self.upstream),
            ("model", &self.model),
            ("workload", &self.workload),
            ("experiment", &self.experiment),
            ("variant", &self.variant),
        ]
        .into_iter()
        .filter_map(|(kind, name)| Some(format!("{kind} {}", name.as_ref()?)));
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// By how much the candidate may be worse, each as a share: of the baseline's value for TPS and cost, of the calls for all
/// others.
#[derive(Clone, Debug, PartialEq)]
pub struct Margins(pub Vec<(Metric, f64)>);

impl Margins {
    /// By how much TPS may be lower.
    pub const TPS: f64 = 0.1;
    /// By how much any share of calls may be higher.
    pub const SHARE: f64 = 0.03;
    /// The metrics that every gate checks in addition to speed. An answer that was cut off is a failure as well.
    pub const GUARDRAILS: [Metric; 4] = [
        Metric::Failures,
        Metric::Truncated,
        Metric::Refused,
        Metric::Empty,
    ];
}

/// What the candidate may have at most, whatever the baseline has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ceilings {
    /// The share of calls that fail.
    pub failures: Option<f64>,
    /// US dollars per unit.
    pub cost: Option<f64>,
}
