//! The windows of alerts, from the SRE workbook's multiwindow, multi-burn-rate alerts, scaled to
//! the period of the budget.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// Budgets with shorter periods have shorter windows, in proportion to 30 days.
const FULL: u64 = 28 * DAY;
const MONTH: u64 = 30 * DAY;
/// The shortest useful windows: several minutes, and several scrapes.
const MIN_LONG: u64 = 5 * MINUTE;
const MIN_SHORT: u64 = MINUTE;
/// Tiers with a lower factor are left out.
const MIN_FACTOR: f64 = 0.9;
/// A tier that could never fire instead fires at this share of the objective's highest possible
/// burn rate.
const NEAR_MAX: f64 = 0.9;

/// The severity of an alert.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Pages the on-call engineer.
    Page,
    /// Opens a ticket for working hours.
    Ticket,
}

impl Severity {
    /// The value of the `severity` label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A pair of windows. The alert fires while the burn rate is above `factor` in both.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Tier {
    /// The severity of the alert.
    pub severity: Severity,
    /// The long window, which shows that the burn is significant.
    #[serde(serialize_with = "as_label")]
    #[schemars(with = "String")]
    pub long: Duration,
    /// The short window, which shows that the burn continues.
    #[serde(serialize_with = "as_label")]
    #[schemars(with = "String")]
    pub short: Duration,
    /// The burn rate above which the alert fires.
    pub factor: f64,
    /// The intended factor if the objective could never reach it. Then `factor` is 0.9 of the
    /// highest possible burn rate.
    pub unreachable: Option<f64>,
}

impl Tier {
    /// Whether the tier is a ticket over a day or more. Such a slow burn cannot be detected within
    /// minutes; urgent burns page.
    pub fn is_slow_ticket(&self) -> bool {
        self.severity == Severity::Ticket && self.long >= Duration::from_secs(DAY)
    }
}

/// Severity, long window, short window for 30 days, and share of the budget.
const TABLE: [(Severity, u64, u64, f64); 4] = [
    (Severity::Page, HOUR, 5 * MINUTE, 0.02),
    (Severity::Page, 6 * HOUR, 30 * MINUTE, 0.05),
    (Severity::Ticket, DAY, 2 * HOUR, 0.1),
    (Severity::Ticket, 3 * DAY, 6 * HOUR, 0.1),
];

/// The tiers of an objective with a budget for `period`. The factor is the share of the budget ×
/// period ÷ long window. From 28 days on the windows are those in the table (1h/5m at 14.4 for 30
/// days, 6h/30m at 6, 1d/2h at 3, 3d/6h at 1). For shorter periods they shrink in proportion, to
/// whole minutes. `objective` limits factors that could never be reached (see
/// [`Tier::unreachable`]).
pub fn tiers(period: Duration, objective: f64) -> Vec<Tier> {
    let period = period.as_secs();
    let max_burn = 1.0 / (1.0 - objective);
    let mut tiers: Vec<Tier> = Vec::new();
    for (severity, long, short, share) in TABLE {
        let long = scaled(long, period).max(MIN_LONG);
        let short = scaled(short, period).max(MIN_SHORT);
        let meant = share * period as f64 / long as f64;
        let reachable = meant * (1.0 - objective) < 1.0;
        let tier = Tier {
            severity,
            long: Duration::from_secs(long),
            short: Duration::from_secs(short),
            factor: if reachable {
                meant
            } else {
                NEAR_MAX * max_burn
            },
            unreachable: (!reachable).then_some(meant),
        };
        let again = tiers.iter().any(|other| {
            (other.severity, other.long, other.short) == (severity, tier.long, tier.short)
        });
        if meant >= MIN_FACTOR && !again {
            tiers.push(tier);
        }
    }
    tiers
}

fn scaled(window: u64, period: u64) -> u64 {
    if period >= FULL {
        return window;
    }
    let exact = window as f64 * period as f64 / MONTH as f64;
    (exact / MINUTE as f64).round() as u64 * MINUTE
}

fn as_label<S: Serializer>(window: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&label(*window))
}

/// A window in Prometheus' syntax: `5m`, `6h`, `30d`, `90m`.
pub fn label(window: Duration) -> String {
    let seconds = window.as_secs();
    let units = [(DAY, "d"), (HOUR, "h"), (MINUTE, "m")];
    let whole = units
        .iter()
        .find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit));
    match whole {
        Some((unit, name)) => format!("{}{name}", seconds / unit),
        None => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(period: u64, objective: f64) -> Vec<(Severity, String, String, f64)> {
        let tiers = tiers(Duration::from_secs(period), objective);
        let described = tiers.iter().map(|tier| {
            let factor = (tier.factor * 100.0).round() / 100.0;
            (tier.severity, label(tier.long), label(tier.short), factor)
        });
        described.collect()
    }

    fn tier(
        severity: Severity,
        long: &str,
        short: &str,
        factor: f64,
    ) -> (Severity, String, String, f64) {
        (severity, long.into(), short.into(), factor)
    }

    #[test]
    fn thirty_days_have_the_windows_of_the_workbook() {
        use Severity::{Page, Ticket};
        let expected = [
            tier(Page, "1h", "5m", 14.4),
            tier(Page, "6h", "30m", 6.0),
            tier(Ticket, "1d", "2h", 3.0),
            tier(Ticket, "3d", "6h", 1.0),
        ];
        assert_eq!(described(30 * DAY, 0.99), expected);
    }

    #[test]
    fn the_factor_follows_the_period_and_short_periods_shrink_the_windows() {
        use Severity::{Page, Ticket};
        let four_weeks = described(28 * DAY, 0.99);
        assert_eq!(four_weeks[0], tier(Page, "1h", "5m", 13.44));
        assert_eq!(described(90 * DAY, 0.999)[0], tier(Page, "1h", "5m", 43.2));
        let week = [
            tier(Page, "14m", "1m", 14.4),
            tier(Page, "84m", "7m", 6.0),
            tier(Ticket, "336m", "28m", 3.0),
            tier(Ticket, "1008m", "84m", 1.0),
        ];
        assert_eq!(described(7 * DAY, 0.99), week);
        for hours in 1..=24 * 400 {
            for tier in tiers(Duration::from_secs(hours * HOUR), 0.99) {
                assert!(
                    tier.short < tier.long && tier.factor >= MIN_FACTOR,
                    "{hours}h: {tier:?}"
                );
                assert!(tier.long.as_secs() <= hours * HOUR, "{hours}h: {tier:?}");
            }
        }
    }

    #[test]
    fn every_period_of_an_hour_or_more_has_a_tier() {
        for hours in 1..=24 * 400 {
            assert!(
                !tiers(Duration::from_secs(hours * HOUR), 0.9).is_empty(),
                "{hours}h"
            );
        }
    }

    #[test]
    fn a_factor_that_can_never_be_reached_is_replaced_and_says_so() {
        let tiers = tiers(Duration::from_secs(30 * DAY), 0.5);
        let factors: Vec<_> = tiers
            .iter()
            .map(|tier| (tier.factor, tier.unreachable))
            .collect();
        let replaced = |meant| (1.8, Some(meant));
        assert_eq!(factors[..3], [replaced(14.4), replaced(6.0), replaced(3.0)]);
        assert_eq!(factors[3].1, None, "1 is below the largest burn rate, 2");
    }

    #[test]
    fn an_objective_of_one_has_no_largest_burn_rate() {
        let tiers = tiers(Duration::from_secs(30 * DAY), 1.0);
        assert!(tiers.iter().all(|tier| tier.unreachable.is_none()));
    }
}
