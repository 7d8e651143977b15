//! Ratios of figures of the same round, with the confidence interval of their mean.
//!
//! The load of the machine differs between rounds, so figures are compared within a round. Ratios are averaged as
//! logarithms, so that 2 and 0.5 cancel out.

use statrs::distribution::{ContinuousCDF, StudentsT};

const CONFIDENCE: f64 = 0.95;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
    pub rounds: usize,
}

/// The geometric mean of positive values and its interval, by Student's t on their logarithms. The interval of a single
/// value is unbounded. Returns `None` without values or if one is not positive.
pub fn interval(values: &[f64]) -> Option<Interval> {
    if values.is_empty()
        || values
            .iter()
            .any(|value| !(value.is_finite() && *value > 0.0))
    {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let half_width = half_width(&logs, mean);
    Some(Interval {
        estimate: mean.exp(),
        low: (mean - half_width).exp(),
        high: (mean + half_width).exp(),
        rounds: logs.len(),
    })
}

/// Student's t times the standard error of the mean.
fn half_width(values: &[f64], mean: f64) -> f64 {
    let freedom = values.len() as f64 - 1.0;
    let Ok(students_t) = StudentsT::new(0.0, 1.0, freedom) else {
        return f64::INFINITY;
    };
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let standard_error = (squares / freedom / values.len() as f64).sqrt();
    students_t.inverse_cdf(0.5 + CONFIDENCE / 2.0) * standard_error
}

/// The median; NaN without values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Number of rounds that a goal must have to be met.
pub const ROUNDS_TO_MEET: usize = 15;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval is on the right side of the bound, over enough rounds.
    Met,
    Missed,
    /// The bound is in the interval, or there were too few rounds.
    Undecided {
        rounds: usize,
    },
}

impl Bound {
    pub fn judge(self, interval: &Interval) -> Verdict {
        let (holds, fails) = match self {
            Bound::AtMost(limit) => (interval.high <= limit, interval.low > limit),
            Bound::AtLeast(limit) => (interval.low >= limit, interval.high < limit),
        };
        match (holds && interval.rounds >= ROUNDS_TO_MEET, fails) {
            (true, _) => Verdict::Met,
            (_, true) => Verdict::Missed,
            _ => Verdict::Undecided {
                rounds: interval.rounds,
            },
        }
    }
}

impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Interval {
            estimate,
            low,
            high,
            rounds,
        } = self;
        match rounds {
            1 => write!(f, "{estimate:.2}"),
            _ => write!(f, "{estimate:.2} [{low:.2}, {high:.2}]"),
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bound::AtMost(limit) => write!(f, "≤ {limit}"),
            Bound::AtLeast(limit) => write!(f, "≥ {limit}"),
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::Met => f.pad("met"),
            Verdict::Missed => f.pad("MISSED"),
            Verdict::Undecided { rounds } => f.pad(&format!("undecided ({rounds} rounds)")),
        }
    }
}
