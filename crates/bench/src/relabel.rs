//! A stratified permutation test of two results: whether figures shifted at any load.

use rand::seq::SliceRandom;
use tokengauge_stats::{Generator, seeded};

const ASSIGNMENTS: usize = 9_999;
/// A fixed seed makes the p values reproducible.
const SEED: u64 = 1;
/// The tolerance for sums of the same numbers in a different order.
const ROUNDING: f64 = 1e-9;

/// The figures of a trial, in the order of the tests; `None` if the trial does not have the figure.
pub(crate) type Figures = Vec<Option<f64>>;

#[derive(Clone, Debug)]
pub(crate) struct Stratum {
    pub(crate) old: Vec<Figures>,
    pub(crate) new: Vec<Figures>,
}

/// One-sided p values of a figure, adjusted for all figures and both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tested {
    /// The p value of the hypothesis that the figure rose at no load.
    pub(crate) rose: f64,
    /// The p value of the hypothesis that the figure fell at no load.
    pub(crate) fell: f64,
}

/// Tests each figure for a shift in each direction.
///
/// If nothing changed, every assignment of the trials of a load to the two results is equally likely. The statistic is
/// the sum over loads of the squared relative shift in one direction, in units of its standard deviation over all
/// assignments, so that opposite shifts at two loads do not cancel. An adjusted p value is the share of assignments in
/// which any statistic is that large (maxT), so dependent figures are not counted several times.
///
/// Sources: Westfall and Young, "Resampling-based multiple testing" (1993), 2.3; Phipson and Smyth, "Permutation p-values
/// should never be zero", Statistical Applications in Genetics and Molecular Biology 9 (2010).
pub(crate) fn test(strata: &[Stratum], figures: usize) -> Vec<Tested> {
    let mut random = seeded(SEED);
    let mut pooled: Vec<_> = strata.iter().map(Pooled::of).collect();
    // One list for each figure and direction: the statistic of the results, then of each assignment.
    let mut statistics = vec![Vec::with_capacity(ASSIGNMENTS + 1); 2 * figures];
    for number in 0..=ASSIGNMENTS {
        for figure in 0..figures {
            let shifts = pooled.iter().map(|stratum| stratum.shift(figure));
            let (rose, fell) = shifts.fold((0.0, 0.0), |(rose, fell), shift| {
                let (up, down) = (shift.max(0.0), (-shift).max(0.0));
                (rose + up * up, fell + down * down)
            });
            statistics[2 * figure].push(rose);
            statistics[2 * figure + 1].push(fell);
        }
        if number < ASSIGNMENTS {
            for stratum in &mut pooled {
                stratum.reassign(&mut random);
            }
        }
    }
    statistics.iter_mut().for_each(|all| standardize(all));
    let largest = |number: usize| statistics.iter().map(|all| all[number]).fold(0.0, f64::max);
    let largest: Vec<_> = (0..=ASSIGNMENTS).map(largest).collect();
    let adjusted = |test: usize| {
        let observed = statistics[test][0] * (1.0 - ROUNDING);
        let as_large = largest.iter().filter(|largest| **largest >= observed);
        as_large.count() as f64 / largest.len() as f64
    };
    let tested = |figure| Tested {
        rose: adjusted(2 * figure),
        fell: adjusted(2 * figure + 1),
    };
    (0..figures).map(tested).collect()
}

fn standardize(values: &mut [f64]) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / values.len() as f64).sqrt();
    if deviation > 0.0 {
        values.iter_mut().for_each(|value| *value /= deviation);
    }
}

/// Returns the smallest adjusted p value that these numbers of trials (old, new) of each load can have. At least two
/// assignments are equally extreme: the results and their mirror image.
pub(crate) fn least_p(sizes: &[(usize, usize)]) -> f64 {
    let of = |(old, new): &(usize, usize)| -> f64 {
        (1..=*new)
            .map(|place| place as f64 / (old + place) as f64)
            .product()
    };
    let all: f64 = sizes.iter().map(of).product();
    2.0 * all.max(1.0 / (ASSIGNMENTS + 1) as f64)
}

struct Pooled {
    trials: Vec<Figures>,
    /// The number of trials that are assigned to the new result: the last ones, as `partial_shuffle` chooses them.
    news: usize,
}

impl Pooled {
    fn of(stratum: &Stratum) -> Pooled {
        Pooled {
            trials: [&stratum.old[..], &stratum.new].concat(),
            news: stratum.new.len(),
        }
    }

    fn reassign(&mut self, random: &mut Generator) {
        let (_chosen, _others) = self.trials.partial_shuffle(random, self.news);
    }

    /// Returns the shift of the mean of a figure as a share of the mean of all trials; 0 if a result does not have the
    /// figure.
    fn shift(&self, figure: usize) -> f64 {
        let sum = |trials: &[Figures]| {
            let values = trials.iter().filter_map(|figures| figures[figure]);
            values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0))
        };
        let (old, new) = self.trials.split_at(self.trials.len() - self.news);
        let (old, new) = (sum(old), sum(new));
        if old.1 > 0.0 && new.1 > 0.0 {
            (new.0 / new.1 - old.0 / old.1) / ((old.0 + new.0) / (old.1 + new.1))
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: [f64; 5] = [95.0, 95.2, 94.8, 95.1, 94.9];
    const HIGH: [f64; 5] = [100.0, 100.2, 99.8, 100.1, 99.9];

    fn stratum(old: &[f64], new: &[f64]) -> Stratum {
        let trials = |of: &[f64]| of.iter().map(|value| vec![Some(*value)]).collect();
        Stratum {
            old: trials(old),
            new: trials(new),
        }
    }

    /// C(10, 5) = 252 assignments exist. One assignment and its mirror image are the most extreme.
    #[test]
    fn the_p_value_is_the_share_of_assignments() {
        let found = test(&[stratum(&HIGH, &LOW)], 1)[0];
        assert!((found.fell - 2.0 / 252.0).abs() < 0.003, "{found:?}");
        assert_eq!(found.rose, 1.0);
        assert!((least_p(&[(5, 5)]) - 2.0 / 252.0).abs() < 1e-12);
        assert!((least_p(&[(2, 2), (2, 2)]) - 2.0 / 36.0).abs() < 1e-12);
    }

    #[test]
    fn opposite_shifts_at_two_loads_are_both_found() {
        let found = test(&[stratum(&HIGH, &LOW), stratum(&LOW, &HIGH)], 1)[0];
        assert!(found.fell < 0.02 && found.rose < 0.02, "{found:?}");
    }

    #[test]
    fn figures_that_follow_from_each_other_cost_nothing() {
        let one = stratum(&HIGH, &LOW);
        let mut two = one.clone();
        for figures in two.old.iter_mut().chain(&mut two.new) {
            let twice = figures[0].map(|value| 2.0 * value);
            figures.push(twice);
        }
        let found = test(&[two], 2);
        assert_eq!(found[0], found[1]);
        assert_eq!(found[0].fell, test(&[one], 1)[0].fell);
    }
}
