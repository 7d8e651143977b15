//! A sequential multinomial test of whether traffic is split as configured.

use crate::check;
use crate::error::{Result, StatsError};
use statrs::function::gamma::ln_gamma;

/// The strength of the prior at the configured shares, in units; the default of Optimizely's ssrm-test. A larger value
/// detects small deviations later and large ones faster.
pub const CONCENTRATION: f64 = 10_000.0;

/// A sequential test of the hypothesis that units fall into arms with the configured shares. It is valid after every
/// unit: while the hypothesis is true, the probability that the p value is ever at or below a level is at most that
/// level.
///
/// The p value is the smallest 1 / Bayes factor of all looks. The alternative has a Dirichlet prior around the
/// configured shares. Count units that are assigned independently, such as sessions; calls are not.
///
/// Source: Lindon and Malek, "Anytime-valid inference for multinomial count data", arXiv 2011.03567.
///
/// ```
/// use tokengauge_stats::split::{CONCENTRATION, Split};
///
/// let mut split = Split::new(&[1.0, 1.0], CONCENTRATION).unwrap();
/// assert_eq!(split.observe(&[503, 497]), Ok(1.0));
/// assert!(split.observe(&[5_600, 4_400]).unwrap() < 1e-6);
/// assert_eq!(split.counts(), [6_103, 4_897]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// The configured shares, normalized to sum to 1.
    shares: Vec<f64>,
    concentration: f64,
    counts: Vec<u64>,
    p: f64,
}

impl Split {
    /// Creates a test for weights such as `[90.0, 10.0]`, which need not sum to 1.
    ///
    /// # Errors
    ///
    /// Returns an error for fewer than two arms, and for a weight or a concentration that is not above 0.
    pub fn new(weights: &[f64], concentration: f64) -> Result<Self> {
        check::at_least(2, weights.len())?;
        for weight in weights {
            check::positive("a weight", *weight)?;
        }
        let sum = check::answer(weights.iter().sum())?;
        Ok(Self {
            shares: weights.iter().map(|weight| weight / sum).collect(),
            concentration: check::positive("concentration", concentration)?,
            counts: vec![0; weights.len()],
            p: 1.0,
        })
    }

    /// Adds the units of each arm since the last look and returns the current p value.
    ///
    /// # Errors
    ///
    /// Returns an error if there is not one number for each arm. Nothing is added then.
    pub fn observe(&mut self, units: &[u64]) -> Result<f64> {
        if units.len() != self.counts.len() {
            return Err(StatsError::LengthsDiffer {
                wanted: self.counts.len(),
                got: units.len(),
            });
        }
        for (count, more) in self.counts.iter_mut().zip(units) {
            *count = count.saturating_add(*more);
        }
        self.p = self.p.min((-self.log_bayes_factor()?).exp());
        Ok(self.p)
    }

    /// Returns the p value of the last look, or 1 before the first look.
    #[must_use]
    pub fn p_value(&self) -> f64 {
        self.p
    }

    /// Returns the number of units of each arm.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the logarithm of the Bayes factor of other shares against the configured ones. The multinomial
    /// coefficient cancels, because both hypotheses have it.
    fn log_bayes_factor(&self) -> Result<f64> {
        let arms = self.shares.iter().zip(&self.counts);
        let of_arms = arms.map(|(share, count)| {
            rise(share * self.concentration, *count) - *count as f64 * share.ln()
        });
        let all: f64 = self.counts.iter().map(|count| *count as f64).sum();
        let of_all = ln_gamma(self.concentration + all) - ln_gamma(self.concentration);
        check::answer(of_arms.sum::<f64>() - of_all)
    }
}

/// ln Γ(start + count) − ln Γ(start).
fn rise(start: f64, count: u64) -> f64 {
    ln_gamma(start + count as f64) - ln_gamma(start)
}
