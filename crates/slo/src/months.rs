//! Counts of events by calendar month in UTC.

use super::budget;
use super::reason::CallVerdict;
use super::ring::Sum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokengauge_core::time::rfc3339_seconds;

/// Number of months that are kept, including the current one.
const KEPT: usize = 14;
const NAME: usize = 7;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Counts {
    good: u64,
    bad: u64,
    excluded: u64,
}

/// The months of one objective, by name such as `2026-10`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Months(BTreeMap<String, Counts>);

/// The attainment of an objective in a calendar month.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Attainment {
    /// The month, such as `2026-10`, in UTC.
    pub month: String,
    /// Whether the month has ended. Otherwise the figures cover the month so far.
    pub over: bool,
    /// Number of good events.
    pub good: u64,
    /// Number of bad events.
    pub bad: u64,
    /// Number of events that are neither good nor bad.
    pub excluded: u64,
    /// Good events divided by good and bad events.
    pub ratio: Option<f64>,
    /// Whether the ratio reaches the objective; `null` without events.
    pub attained: Option<bool>,
}

impl Months {
    /// Counts events at `now`, in seconds since 1970.
    pub fn add(&mut self, now: u64, verdict: CallVerdict, count: u64) {
        let month = self.0.entry(name(now)).or_default();
        let counted = match verdict {
            CallVerdict::Good => &mut month.good,
            CallVerdict::Bad => &mut month.bad,
            CallVerdict::Excluded => &mut month.excluded,
        };
        *counted = counted.saturating_add(count);
        while self.0.len() > KEPT {
            self.0.pop_first();
        }
    }

    /// The counts of the current month so far.
    pub fn current(&self, now: f64) -> Sum {
        let counts = self.0.get(&name(now as u64)).copied().unwrap_or_default();
        counts.sum()
    }

    pub fn attained(&self, now: f64, objective: f64) -> Vec<Attainment> {
        let current = name(now as u64);
        let all = self.0.iter().map(|(month, counts)| {
            let ratio = budget::ratio(counts.sum());
            Attainment {
                month: month.clone(),
                over: *month < current,
                good: counts.good,
                bad: counts.bad,
                excluded: counts.excluded,
                ratio,
                attained: ratio.map(|ratio| ratio >= objective),
            }
        });
        all.collect()
    }
}

impl Counts {
    fn sum(self) -> Sum {
        Sum {
            good: self.good as f64,
            bad: self.bad as f64,
        }
    }
}

/// The name of the month of `now`, in seconds since 1970.
fn name(now: u64) -> String {
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(now));
    // humantime cannot format years after 9999.
    let at = at.filter(|_| now < 253_402_300_800);
    let at = at.unwrap_or(SystemTime::UNIX_EPOCH);
    let mut name = rfc3339_seconds(at).to_string();
    name.truncate(NAME);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> u64 {
        let at = humantime::parse_rfc3339(text).expect("a time");
        let since = at.duration_since(SystemTime::UNIX_EPOCH);
        since.expect("after 1970").as_secs()
    }

    #[test]
    fn a_month_begins_and_ends_at_midnight_in_utc() {
        let mut months = Months::default();
        months.add(at("2026-10-31T23:59:59Z"), CallVerdict::Good, 9);
        months.add(at("2026-10-31T23:59:59Z"), CallVerdict::Bad, 1);
        months.add(at("2026-11-01T00:00:00Z"), CallVerdict::Good, 5);
        months.add(at("2026-11-01T00:00:00Z"), CallVerdict::Excluded, 2);
        let now = at("2026-11-20T00:00:00Z") as f64;
        let attained = months.attained(now, 0.95);
        let lines: Vec<_> = attained
            .iter()
            .map(|one| {
                (
                    one.month.as_str(),
                    one.over,
                    one.good,
                    one.bad,
                    one.excluded,
                    one.attained,
                )
            })
            .collect();
        let expected = [
            ("2026-10", true, 9, 1, 0, Some(false)),
            ("2026-11", false, 5, 0, 2, Some(true)),
        ];
        assert_eq!(lines, expected);
        assert_eq!(months.current(now).good, 5.0);
        assert_eq!(months.current(at("2026-12-01T00:00:00Z") as f64).all(), 0.0);
    }

    #[test]
    fn thirteen_months_that_are_over_are_kept() {
        let mut months = Months::default();
        for month in 0..40 {
            months.add(month * 31 * 86_400, CallVerdict::Good, 1);
        }
        assert_eq!(months.0.len(), KEPT);
        months.add(u64::MAX, CallVerdict::Good, 1);
    }
}
