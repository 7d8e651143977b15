//! Whether two shares differ by more than chance.

/// The probability of a false positive, over all comparisons of one kind together.
pub(crate) const LEVEL: f64 = 0.001;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) with: usize,
    pub(crate) all: usize,
}

impl Tally {
    pub(crate) fn of<'a, T: 'a>(
        items: impl IntoIterator<Item = &'a T>,
        has: impl Fn(&T) -> bool,
    ) -> Tally {
        let mut tally = Tally::default();
        for item in items {
            tally.add(has(item));
        }
        tally
    }

    pub(crate) fn add(&mut self, with: bool) {
        self.all += 1;
        self.with += usize::from(with);
    }

    pub(crate) fn rate(self) -> f64 {
        self.with as f64 / (self.all as f64).max(1.0)
    }

    pub(crate) fn without(self, part: Tally) -> Tally {
        Tally {
            with: self.with - part.with,
            all: self.all - part.all,
        }
    }

    fn and(self, other: Tally) -> Tally {
        Tally {
            with: self.with + other.with,
            all: self.all + other.all,
        }
    }

    fn log_likelihood(self) -> f64 {
        let term = |part: usize| match part {
            0 => 0.0,
            part => part as f64 * (part as f64 / self.all as f64).ln(),
        };
        term(self.with) + term(self.all - self.with)
    }
}

/// The log-likelihood ratio of two separate rates to one common rate (half of G, Wilks 1938).
pub(crate) fn log_likelihood_ratio(one: Tally, other: Tally) -> f64 {
    let apart = one.log_likelihood() + other.log_likelihood();
    (apart - one.and(other).log_likelihood()).max(0.0)
}

/// Whether the largest `ratio` of `comparisons` is beyond chance. By Chernoff's bound, one comparison has a ratio of at
/// least r with probability at most 2·e^−r. Bonferroni's correction sums over the comparisons.
pub(crate) fn beyond_chance(ratio: f64, comparisons: usize) -> bool {
    beyond(LEVEL, ratio, comparisons)
}

/// Like [`beyond_chance`], with another probability of a false positive.
pub(crate) fn beyond(level: f64, ratio: f64, comparisons: usize) -> bool {
    ratio >= (2.0 * comparisons.max(1) as f64 / level).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_needs_calls_and_more_of_them_among_more_comparisons() {
        let tally = |with, all| Tally { with, all };
        let ratio = |one, other| log_likelihood_ratio(one, other);
        assert!(!beyond_chance(ratio(tally(2, 4), tally(1, 40)), 1));
        assert!(beyond_chance(ratio(tally(20, 40), tally(10, 400)), 100));
        let some = ratio(tally(9, 30), tally(3, 100));
        assert!(
            beyond_chance(some, 1) && !beyond_chance(some, 10_000),
            "{some}"
        );
        assert!(ratio(tally(5, 50), tally(10, 100)) < 1e-9);
        assert_eq!(ratio(tally(0, 0), tally(10, 100)), 0.0);
    }
}
