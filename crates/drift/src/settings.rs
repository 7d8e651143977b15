//! Which periods are compared, and how large a difference is drift.

use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::pattern::Pattern;
use tokengauge_store::query::{DistributionSelector, DistributionSeries};

/// The largest number of series that a comparison evaluates: those with most calls.
pub const MAX_SERIES: usize = 20;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub name: Arc<str>,
    pub select: Select,
    pub reference: Duration,
    pub current: Duration,
    pub season: Season,
    pub thresholds: Thresholds,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Select {
    /// The model that answered. If that is unknown, the requested model.
    pub model: Option<Pattern>,
    pub route: Option<String>,
    pub workload: Option<String>,
}

/// The period in which traffic repeats. An hour is compared with the same slot of earlier periods, in UTC.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    strum::IntoStaticStr,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Season {
    /// The same hour of the week.
    #[default]
    Week,
    /// The same hour of the day.
    Day,
    /// Any hour is compared with any other.
    None,
}

/// Thresholds of drift. A signal has drifted if it reaches all thresholds that apply to it, beyond chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    pub min_sessions: u64,
    /// The Wasserstein-1 distance, in interquartile ranges of the reference.
    pub distance: f64,
    /// The population stability index over the deciles of the reference.
    pub stability_index: f64,
    /// The Wasserstein-1 distance as a share of the reference's mean. It is also the smallest change of a change point.
    pub min_change: f64,
    /// For outcomes and finish reasons, the share of calls that end differently than in the reference.
    pub outcome_share: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            min_sessions: 5,
            distance: 0.3,
            stability_index: 0.2,
            min_change: 0.1,
            outcome_share: 0.05,
        }
    }
}

impl Settings {
    pub const REFERENCE: Duration = Duration::from_secs(28 * 86_400);
    pub const CURRENT: Duration = Duration::from_secs(6 * 3_600);

    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            select: Select::default(),
            reference: Self::REFERENCE,
            current: Self::CURRENT,
            season: Season::default(),
            thresholds: Thresholds::default(),
        }
    }
}

impl Select {
    pub fn matches(&self, series: &DistributionSeries) -> bool {
        let is =
            |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        let model = self.model.as_ref().is_none_or(|wanted| {
            let found = series.model.as_deref();
            found.is_some_and(|found| wanted.matches(found))
        });
        model && is(&self.route, &series.route) && is(&self.workload, &series.workload)
    }

    pub fn in_store(&self) -> DistributionSelector {
        DistributionSelector {
            model: None,
            route: self.route.clone(),
            workload: self.workload.clone(),
        }
    }
}

impl Season {
    pub(crate) fn hours(self) -> Option<u64> {
        self.period()
            .map(|period| period.as_secs() / HOUR.as_secs())
    }

    /// The length of a period. `None` if any hour is compared with any other.
    pub fn period(self) -> Option<Duration> {
        match self {
            Season::Week => Some(7 * DAY),
            Season::Day => Some(DAY),
            Season::None => None,
        }
    }

    /// The slot of an hour (counted since 1970) in its period.
    pub(crate) fn slot(self, hour: u64) -> u64 {
        self.hours().map_or(0, |period| hour % period)
    }
}
