//! The definition of an experiment and of the rules for its verdicts.

use std::time::Duration;
use tokengauge_store::query::{Threshold, UnitKind};

#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    pub name: String,
    /// The arms that traffic is split into, the baseline first. Empty if agents name their variants themselves; the
    /// baseline is then the first variant by name.
    pub arms: Vec<Arm>,
    pub unit: UnitKind,
    pub rules: Rules,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// The name of the arm, which is the variant of its calls.
    pub name: String,
    /// The weight of the arm relative to the other weights; above 0.
    pub weight: f64,
}

/// The rules for the verdicts of an experiment. Fix them before the first unit, because intervals are valid at every
/// look only then.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The probability, over all looks and all metrics together, of finding a difference that does not exist.
    pub alpha: f64,
    /// Calls with a longer time to first token count as slow to start; in seconds.
    pub ttft_above: Option<Threshold>,
    /// Calls with this decode speed or a lower one count as slow; in tokens per second.
    pub tps_below: Option<Threshold>,
    /// The minimum number of units of each arm before a verdict; at least 2.
    pub min_units: u64,
    /// The time without calls after which a unit is complete. Units are added once, when they are complete.
    pub settled_after: Duration,
    /// The names of the scores that are compared. A higher score is better.
    pub scores: Vec<String>,
}

pub const DEFAULT_ALPHA: f64 = 0.05;
pub const DEFAULT_MIN_UNITS: u64 = 100;
pub const DEFAULT_SETTLED_AFTER: Duration = Duration::from_secs(300);

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            alpha: DEFAULT_ALPHA,
            ttft_above: None,
            tps_below: None,
            min_units: DEFAULT_MIN_UNITS,
            settled_after: DEFAULT_SETTLED_AFTER,
            scores: Vec::new(),
        }
    }
}
