//! Error budgets and burn rates, computed from counts over windows. Averaged ratios are not used,
//! because they ignore the amount of traffic.

use super::ring::Sum;
use std::time::Duration;

/// The share of good events; `None` without events.
pub fn ratio(sum: Sum) -> Option<f64> {
    (sum.all() > 0.0).then(|| sum.good / sum.all())
}

/// The burn rate: the share of bad events divided by the allowed share. A rate of 1 spends the
/// budget exactly in its period. The rate is 0 without events. With an objective of 1, one bad
/// event makes the rate infinite.
pub fn burn_rate(sum: Sum, objective: f64) -> f64 {
    if sum.bad <= 0.0 {
        return 0.0;
    }
    sum.bad / sum.all() / (1.0 - objective)
}

/// The remaining share of the budget: 1 untouched, 0 spent, below 0 overspent. An objective of 1
/// has no budget: 1 without bad events, otherwise 0.
pub fn remaining(sum: Sum, objective: f64) -> f64 {
    if objective >= 1.0 {
        return if sum.bad > 0.0 { 0.0 } else { 1.0 };
    }
    1.0 - burn_rate(sum, objective)
}

/// The time until the budget of `period` is spent at `burn_rate`. `None` if nothing is burnt, zero
/// if nothing remains.
pub fn exhausted_in(remaining: f64, burn_rate: f64, period: Duration) -> Option<Duration> {
    if remaining <= 0.0 {
        return Some(Duration::ZERO);
    }
    let seconds = remaining * period.as_secs_f64() / burn_rate;
    let sensible = burn_rate > 0.0 && seconds < 1e10;
    sensible.then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MONTH: Duration = Duration::from_secs(30 * 86_400);

    fn sum(good: f64, bad: f64) -> Sum {
        Sum { good, bad }
    }

    #[test]
    fn without_traffic_nothing_is_known_and_nothing_spent() {
        let none = sum(0.0, 0.0);
        for objective in [0.5, 0.99, 1.0] {
            assert_eq!(ratio(none), None);
            assert_eq!(burn_rate(none, objective), 0.0);
            assert_eq!(remaining(none, objective), 1.0);
        }
        assert_eq!(exhausted_in(1.0, 0.0, MONTH), None);
    }

    #[test]
    fn all_bad_burns_as_fast_as_the_objective_can_show() {
        let bad = sum(0.0, 50.0);
        assert!((burn_rate(bad, 0.99) - 100.0).abs() < 1e-9);
        assert_eq!(burn_rate(bad, 0.5), 2.0);
        assert_eq!(remaining(bad, 0.5), -1.0);
        assert_eq!(exhausted_in(-1.0, 2.0, MONTH), Some(Duration::ZERO));
    }

    #[test]
    fn an_objective_of_one_has_no_budget() {
        assert_eq!(remaining(sum(1e6, 0.0), 1.0), 1.0);
        assert_eq!(remaining(sum(1e6, 1.0), 1.0), 0.0);
        assert_eq!(burn_rate(sum(1e6, 1.0), 1.0), f64::INFINITY);
        assert_eq!(
            exhausted_in(1.0, f64::INFINITY, MONTH),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn a_burn_rate_of_one_spends_the_budget_in_its_period() {
        let steady = sum(990.0, 10.0);
        assert!((burn_rate(steady, 0.99) - 1.0).abs() < 1e-9);
        let left = exhausted_in(0.25, 2.0, MONTH).expect("some time");
        assert_eq!(left, MONTH / 8);
        assert!(remaining(sum(995.0, 5.0), 0.99) - 0.5 < 1e-9);
    }
}
