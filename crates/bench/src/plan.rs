//! The plan of a run: backend, loads, phases and rules.

use crate::client::ClientSettings;
use crate::gauge::AskGauge;
use crate::load::{ArrivalPattern, Load, Phases};
use crate::objective::Objective;
use crate::steady::Criteria;
use crate::workload::Workload;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::fingerprint::MeasuredBy;

#[derive(Clone)]
pub struct Plan {
    pub client: ClientSettings,
    pub workload: Arc<Workload>,
    pub levels: Levels,
    pub trials: u32,
    pub phases: Phases,
    pub interval: Duration,
    pub criteria: Criteria,
    pub objectives: Vec<Objective>,
    /// The cost of the backend in US dollars per hour.
    pub usd_per_hour: Option<f64>,
    pub seed: u64,
    /// The name of the run, which is the session of its calls.
    pub name: String,
    pub measured_by: MeasuredBy,
    /// Asks the tokengauge proxy between the client and the backend.
    pub gauge: Option<AskGauge>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Levels {
    All(Vec<Load>),
    /// Searches by bisection for the highest load of the range that meets the objectives.
    Search(Range),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// Concurrent calls: from, to.
    Concurrency(u32, u32),
    /// Calls per second: from, to, and the step at which the search ends.
    RequestRate(f64, f64, f64, ArrivalPattern),
}

impl Range {
    pub(crate) fn ends(&self) -> (f64, f64) {
        match *self {
            Range::Concurrency(from, to) => (f64::from(from), f64::from(to)),
            Range::RequestRate(from, to, ..) => (from, to),
        }
    }

    pub(crate) fn load(&self, at: f64) -> Load {
        match *self {
            Range::Concurrency(..) => Load::Concurrency(at as u32),
            Range::RequestRate(.., pattern) => Load::RequestRate(at, pattern),
        }
    }

    /// Returns a load between two loads; `None` if they are one step apart.
    pub(crate) fn middle(&self, kept: f64, missed: f64) -> Option<f64> {
        match *self {
            Range::Concurrency(..) => {
                let middle = kept.midpoint(missed).floor();
                (middle > kept).then_some(middle)
            }
            Range::RequestRate(_, _, step, _) => {
                (missed - kept > step * 1.000_001).then_some(kept.midpoint(missed))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_ends_a_step_from_the_truth() {
        let range = Range::RequestRate(1.0, 33.0, 0.5, ArrivalPattern::Poisson);
        let (mut kept, mut missed) = range.ends();
        while let Some(middle) = range.middle(kept, missed) {
            if middle <= 12.3 {
                kept = middle;
            } else {
                missed = middle;
            }
        }
        assert!((11.8..=12.3).contains(&kept), "{kept}");
    }
}
