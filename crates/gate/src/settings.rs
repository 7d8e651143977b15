//! The settings of a gate.

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
    pub unit: UnitKind,
    /// Confidence, thresholds, the least number of units, and when a unit is complete.
    pub rules: Rules,
    pub margins: Margins,
    pub ceilings: Ceilings,
    /// How much lower the candidate's scores may be, by the name of the score: percentage points (0.02 is 2) if all
    /// values are 0 or 1, otherwise the unit of the score.
    pub scores: Vec<(String, f64)>,
    /// The objectives whose budget the candidate's calls may burn at most at the rate `max_burn`.
    pub objectives: Vec<Arc<Objective>>,
    /// The largest burn rate. A rate of 1 spends a budget exactly in its period.
    pub max_burn: f64,
    /// Without a given start, only calls within this time are observed.
    pub window: Duration,
    /// After this time without a verdict a person must decide. `None` means no limit.
    pub max_wait: Option<Duration>,
}

impl Gate {
    pub const MAX_BURN: f64 = 1.0;
    pub const MIN_UNITS: u64 = 50;
    pub const WINDOW: Duration = Duration::from_secs(24 * 3_600);
}

/// Selects calls that match all named fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "GateSelect")]
pub struct Select {
    /// The route.
    pub route: Option<String>,
    /// The upstream.
    pub upstream: Option<String>,
    /// The model that answered. If that is unknown, the requested model.
    pub model: Option<String>,
    /// The workload.
    pub workload: Option<String>,
    /// The experiment.
    pub experiment: Option<String>,
    /// The variant of the experiment.
    pub variant: Option<String>,
}

impl Select {
    /// The filter of the store, which cannot select variants.
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

    /// Whether a call that the store's filter selected also has the variant.
    pub(crate) fn has(&self, call: &CallRecord) -> bool {
        let wanted = self.variant.as_deref();
        wanted.is_none_or(|wanted| call.variant.as_deref() == Some(wanted))
    }

    /// The side of the comparison as a string, such as `upstream new, model m`.
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

/// How much worse the candidate may be: as a share of the baseline's value for TPS and cost, and as a difference of shares
/// of calls for all other metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Margins(pub Vec<(Metric, f64)>);

impl Margins {
    pub const TPS: f64 = 0.1;
    pub const SHARE: f64 = 0.03;
    /// The metrics that every gate checks in addition to speed. A truncated response also counts as a failure.
    pub const GUARDRAILS: [Metric; 4] = [
        Metric::Failures,
        Metric::Truncated,
        Metric::Refused,
        Metric::Empty,
    ];
}

/// Upper limits of the candidate's values, independent of the baseline.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ceilings {
    pub failures: Option<f64>,
    /// US dollars per unit.
    pub cost: Option<f64>,
}
