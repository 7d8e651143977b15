//! A permutation test of two results whose trials are in strata: whether a figure shifted at any load.

use rand::seq::SliceRandom;
use tokengauge_stats::{Generator, seeded};

/// Random assignments of trials to the two results.
const ASSIGNMENTS: u32 = 9_999;
/// The seed of the assignments, so that the same results have the same p values.
const SEED: u64 = 1;
/// Sums of the same trials differ by the order of additions.
const ROUNDING: f64 = 1e-9;

/// The trials of one load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stratum<'a> {
    pub(crate) old: &'a [f64],
    pub(crate) new: &'a [f64],
}

/// One-sided p values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tested {
    /// Of the hypothesis that the figure rose at no load.
    pub(crate) rose: f64,
    /// Of the hypothesis that the figure fell at no load.
    pub(crate) fell: f64,
}

/// Tests for a shift in each direction. The statistic is the sum over strata of the squared relative shift in that direction,
/// so a shift at one load is not cancelled by an opposite one at another load.
///
/// Source: Phipson and Smyth, "Permutation p-values should never be zero", Statistical Applications in Genetics and Molecular
/// Biology 9 (2010).
pub(crate) fn test(strata: &[Stratum<'_>]) -> Tested {
    let mut pooled: Vec<_> = strata.iter().map(Pooled::of).collect();
    let statistic = |shifts: &mut dyn Iterator<Item = f64>| {
        shifts.fold((0.0, 0.0), |(rose, fell): (f64, f64), shift: f64| {
            (
                rose + shift.max(0.0).powi(2),
                fell + (-shift).max(0.0).powi(2),
            )
        })
    };
    let of_results = strata.iter().zip(&pooled);
    let observed =
        statistic(&mut of_results.map(|(stratum, pooled)| pooled.shift(stratum.new.iter().sum())));
    let mut random = seeded(SEED);
    let (mut rose, mut fell) = (1, 1);
    for _ in 0..ASSIGNMENTS {
        let found = statistic(&mut pooled.iter_mut().map(|it| it.reassigned(&mut random)));
        rose += u32::from(found.0 >= observed.0 * (1.0 - ROUNDING));
        fell += u32::from(found.1 >= observed.1 * (1.0 - ROUNDING));
    }
    let p = |count: u32| f64::from(count) / f64::from(ASSIGNMENTS + 1);
    Tested {
        rose: p(rose),
        fell: p(fell),
    }
}

/// The least p value that trials of these numbers (old, new) in each stratum can have: 1 ÷ the number of assignments.
pub(crate) fn least_p(sizes: &[(usize, usize)]) -> f64 {
    let of = |(old, new): &(usize, usize)| -> f64 {
        (1..=*new)
            .map(|place| place as f64 / (old + place) as f64)
            .product()
    };
    let all: f64 = sizes.iter().map(of).product();
    all.max(1.0 / f64::from(ASSIGNMENTS + 1))
}

/// The trials of one load, both results together.
struct Pooled {
    trials: Vec<f64>,
    sum: f64,
    /// The number of new trials.
    news: usize,
}

impl Pooled {
    fn of(stratum: &Stratum<'_>) -> Pooled {
        let trials = [stratum.old, stratum.new].concat();
        Pooled {
            sum: trials.iter().sum(),
            trials,
            news: stratum.new.len(),
        }
    }

    /// The shift of the mean, as a share of the mean of all, if the new trials have this sum.
    fn shift(&self, new: f64) -> f64 {
        let (all, news) = (self.trials.len() as f64, self.news as f64);
        (new / news - (self.sum - new) / (all - news)) / (self.sum / all)
    }

    fn reassigned(&mut self, random: &mut Generator) -> f64 {
        let (chosen, _) = self.trials.partial_shuffle(random, self.news);
        let new = chosen.iter().sum();
        self.shift(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: [f64; 5] = [95.0, 95.2, 94.8, 95.1, 94.9];
    const HIGH: [f64; 5] = [100.0, 100.2, 99.8, 100.1, 99.9];

    /// One of the C(10, 5) = 252 assignments is as extreme.
    #[test]
    fn the_p_value_is_the_share_of_assignments() {
        let (old, new) = (&HIGH[..], &LOW[..]);
        let found = test(&[Stratum { old, new }]);
        assert!((found.fell - 1.0 / 252.0).abs() < 0.002, "{found:?}");
        assert_eq!(found.rose, 1.0);
        assert!((least_p(&[(5, 5)]) - 1.0 / 252.0).abs() < 1e-12);
        assert!((least_p(&[(2, 2), (2, 2)]) - 1.0 / 36.0).abs() < 1e-12);
    }

    #[test]
    fn opposite_shifts_at_two_loads_are_both_found() {
        let fell = Stratum {
            old: &HIGH,
            new: &LOW,
        };
        let rose = Stratum {
            old: &LOW,
            new: &HIGH,
        };
        let found = test(&[fell, rose]);
        assert!(found.fell < 0.01 && found.rose < 0.01, "{found:?}");
    }
}
