//! What an experiment is, and the rules by which it is judged.

use std::time::Duration;
use tokengauge_store::query::{Threshold, UnitKind};

#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Its name, as call records have it.
    pub name: String,
    /// The arms that traffic is split into, the baseline first. None where agents name their variants themselves; the
    /// baseline is then the first by name.
    pub arms: Vec<Arm>,
    pub unit: UnitKind,
    pub rules: Rules,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Its name: the variant of its calls.
    pub name: String,
    /// Its part of the units, relative to the other weights; above 0.
    pub weight: f64,
}

/// How an experiment is judged. All of it is fixed before the first unit: intervals hold at every look only then.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The probability, over all looks and all metrics together, that a difference is found where there is none.
    pub alpha: f64,
    /// Calls that wait longer for the first token are slow to start; in seconds.
    pub ttft_above: Option<Threshold>,
    /// Calls that decode no faster are slow; in tokens per second.
    pub tps_below: Option<Threshold>,
    /// Units of each arm before anything is said; at least 2.
    pub min_units: u64,
    /// A unit counts once its last call is over for so long, since each is added when it is complete.
    pub settled_after: Duration,
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
        }
    }
}
