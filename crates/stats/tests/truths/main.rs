//! Simulations with a known truth: coverage of intervals, error rates of tests and detection of changes. All seeds are
//! fixed.

mod change;
mod clustered;
mod comparisons;
mod intervals;
mod sequence;
mod steady;

use rand::RngExt;
use tokengauge_stats::Generator;

struct Draw(Generator);

impl Draw {
    fn seeded(seed: u64) -> Self {
        Self(tokengauge_stats::seeded(seed))
    }

    /// A uniform number above 0, up to and including 1.
    fn uniform(&mut self) -> f64 {
        1.0 - self.0.random::<f64>()
    }

    fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.uniform(), self.uniform());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    /// A lognormal number with a mean of 1, like times that are often short and sometimes long.
    fn lognormal(&mut self, deviation: f64) -> f64 {
        (deviation * self.normal() - deviation * deviation / 2.0).exp()
    }

    /// A stationary series with a variance of 1 and this correlation of neighbours.
    fn autoregression(&mut self, correlation: f64, length: usize) -> Vec<f64> {
        let mut value = self.normal();
        let fresh = (1.0 - correlation * correlation).sqrt();
        let mut next = || {
            value = correlation * value + fresh * self.normal();
            value
        };
        (0..length).map(|_| next()).collect()
    }
}

/// Asserts that `count` of `runs` is within four standard deviations of a probability.
#[track_caller]
fn about(count: usize, runs: usize, probability: f64) {
    let (count, runs) = (count as f64, runs as f64);
    let deviation = (runs * probability * (1.0 - probability)).sqrt();
    let expected = runs * probability;
    assert!(
        (count - expected).abs() <= 4.0 * deviation,
        "{count} of {runs}, not about {expected}"
    );
}
