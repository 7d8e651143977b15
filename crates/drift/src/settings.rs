//! What is compared with what, and how large a difference is drift.

use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::pattern::Pattern;
use tokengauge_store::query::{DistributionSelector, DistributionSeries};

/// The most series of one entry that are evaluated: those with most calls.
pub const MAX_SERIES: usize = 20;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// One comparison of the present with the time before.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Its name, a label.
    pub name: Arc<str>,
    pub select: Select,
    /// The time before the current window that it is compared with; whole hours.
    pub reference: Duration,
    /// The time that has just passed; whole hours.
    pub current: Duration,
    /// Which hours are compared with each other.
    pub season: Season,
    pub thresholds: Thresholds,
}

/// Which series of model, route and workload. Absent parts match all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Select {
    /// The model that answered, else the one asked for.
    pub model: Option<Pattern>,
    pub route: Option<String>,
    pub workload: Option<String>,
}

/// The period in which traffic repeats itself. An hour is compared with those at the same place in earlier periods, in UTC.
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
    /// Any hour with any other.
    None,
}

/// How large a difference is drift. A series has drifted in a signal when it reaches all of those that apply, by more than
/// chance explains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Sessions in either window before anything is said.
    pub min_sessions: u64,
    /// The Wasserstein-1 distance, in interquartile ranges of the reference.
    pub distance: f64,
    /// The population stability index over the reference's deciles.
    pub stability_index: f64,
    /// The Wasserstein-1 distance as a share of the reference's mean; and the least change of a change point.
    pub min_change: f64,
    /// The share of calls that end in another way than in the reference, for outcomes and finish reasons.
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
    /// The default reference: four weeks.
    pub const REFERENCE: Duration = Duration::from_secs(28 * 86_400);
    pub const CURRENT: Duration = Duration::from_secs(6 * 3_600);

    /// A comparison of everything with all defaults.
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

    /// The part of it that the store can select by: a superset of what matches.
    pub fn in_store(&self) -> DistributionSelector {
        DistributionSelector {
            model: None,
            route: self.route.clone(),
            workload: self.workload.clone(),
        }
    }
}

impl Season {
    /// The hours of a period; `None` where any hour is compared with any other.
    pub(crate) fn hours(self) -> Option<u64> {
        self.period()
            .map(|period| period.as_secs() / HOUR.as_secs())
    }

    /// The period; `None` where any hour is compared with any other.
    pub fn period(self) -> Option<Duration> {
        match self {
            Season::Week => Some(7 * DAY),
            Season::Day => Some(DAY),
            Season::None => None,
        }
    }

    /// The place of an hour, counted since 1970, in its period.
    pub(crate) fn slot(self, hour: u64) -> u64 {
        self.hours().map_or(0, |period| hour % period)
    }
}
