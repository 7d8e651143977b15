//! The spending of one period by session, agent or other name, in bounded memory.
//!
//! When the table is full, the names that spent least are forgotten. From then on an unknown name
//! counts as having spent as much as the largest forgotten name. So no name gets new money by being
//! forgotten. The method is from Metwally et al., Efficient Computation of Frequent and Top-k
//! Elements in Data Streams, ICDT 2005.

use std::collections::HashMap;

pub(super) const MAX_NAMES: usize = 10_000;
const MAX_PERIODS: usize = 3;
/// If two readings of the clock differ by more seconds, the clock may have been set. Periods are
/// kept then.
const MAX_TICK: u64 = 5;

#[derive(Clone, Debug, Default)]
pub(super) struct Spending {
    /// Start and end, in seconds since 1970.
    pub(super) period: (u64, u64),
    by: HashMap<Box<str>, f64>,
    /// The highest spending of a name that was forgotten in this period.
    pub(super) floor: f64,
    /// Includes the spending of forgotten names.
    pub(super) total: f64,
    pub(super) forgotten: u64,
}

/// The spending of the current period, and of periods that the wall clock may return to.
#[derive(Clone, Debug, Default)]
pub(super) struct Periods {
    /// Sorted by last use, newest first.
    pub(super) all: Vec<Spending>,
    /// The last reading of the clock, in seconds since 1970.
    clock: u64,
}

impl Periods {
    /// Makes `period`, which contains `now`, the current period. Its spending begins at 0, with two
    /// exceptions: If the clock returns to a known period, the spending of that period continues.
    /// If the clock is set back to a period before all known ones, the spending of the current one
    /// is copied, so that nobody gets new money.
    pub(super) fn at(&mut self, period: (u64, u64), now: u64) -> &mut Spending {
        let stepped = now.abs_diff(std::mem::replace(&mut self.clock, now)) > MAX_TICK;
        let forgotten = self.all.first().map_or(0, |current| current.forgotten);
        match self.all.iter().position(|known| known.period == period) {
            Some(at) => self.all[..=at].rotate_right(1),
            None => {
                let back = self.all.first().filter(|newest| newest.period.0 > period.0);
                let mut new = back.cloned().unwrap_or_default();
                new.period = period;
                // A period that ended by the passing of time cannot return.
                if !stepped && back.is_none() && !self.all.is_empty() {
                    self.all.remove(0);
                }
                self.all.insert(0, new);
                self.all.truncate(MAX_PERIODS);
            }
        }
        self.all[0].forgotten = forgotten;
        &mut self.all[0]
    }

    /// The spending of the `period` in which a call ended. If the clock was set during the call,
    /// that period may never have been current.
    pub(super) fn of_call(&mut self, period: (u64, u64), now: u64) -> &mut Spending {
        let known = self.all.iter().position(|known| known.period == period);
        let mut newest = self.all.first().into_iter();
        let is_late = newest.any(|newest| newest.period.0 > period.0);
        match known.or(is_late.then_some(0)) {
            Some(at) => &mut self.all[at],
            None => self.at(period, now),
        }
    }

    /// The spending of `period`, without making it current; `None` if there are too many others.
    pub(super) fn known(&mut self, period: (u64, u64)) -> Option<&mut Spending> {
        let at = self.all.iter().position(|known| known.period == period);
        let at = at.unwrap_or(self.all.len());
        if at == self.all.len() && at < MAX_PERIODS {
            self.all.push(Spending {
                period,
                ..Spending::default()
            });
        }
        self.all.get_mut(at)
    }
}

impl Spending {
    /// Adds `usd` to the spending of `name`. Returns the spending before and after.
    pub(super) fn add(&mut self, name: &str, usd: f64) -> (f64, f64) {
        self.total += usd;
        if let Some(spent) = self.by.get_mut(name) {
            let before = *spent;
            *spent += usd;
            return (before, *spent);
        }
        if self.by.len() >= MAX_NAMES {
            self.make_room();
        }
        let before = self.floor;
        self.by.insert(name.into(), before + usd);
        (before, before + usd)
    }

    /// Raises the spending of `name` to `usd`, the spending of all processes. Returns the spending
    /// before and after.
    pub(super) fn raise(&mut self, name: &str, usd: f64) -> (f64, f64) {
        let before = self.of(name);
        // Sums of rounded amounts differ in their last digits.
        if usd > before + 1e-9 {
            self.add(name, usd - before)
        } else {
            (before, before)
        }
    }

    fn make_room(&mut self) {
        let mut all: Vec<f64> = self.by.values().copied().collect();
        let tenth = all.len() / 10;
        let (_, limit, _) = all.select_nth_unstable_by(tenth, f64::total_cmp);
        let limit = *limit;
        // If several names are exactly at the limit, only enough of them are forgotten to make up a
        // tenth.
        let below = self.by.values().filter(|spent| **spent < limit).count();
        let mut left = (tenth + 1).saturating_sub(below);
        self.by.retain(|_, spent| {
            let at_limit = spent.total_cmp(&limit).is_eq() && left > 0;
            left -= usize::from(at_limit);
            *spent >= limit && !at_limit
        });
        self.floor = self.floor.max(limit);
        self.forgotten += (tenth + 1) as u64;
    }

    pub(super) fn of(&self, name: &str) -> f64 {
        self.by.get(name).copied().unwrap_or(self.floor)
    }

    pub(super) fn tracked(&self, name: &str) -> f64 {
        self.by.get(name).copied().unwrap_or(0.0)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = (&str, f64)> {
        self.by.iter().map(|(name, spent)| (&**name, *spent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_spent_least_are_forgotten_and_counted_and_nobody_else() {
        let mut spent = Spending::default();
        spent.add("heavy", 100.0);
        for number in 0..3 * MAX_NAMES {
            spent.add(&format!("session-{number}"), 0.01);
            assert!(spent.by.len() <= MAX_NAMES);
        }
        assert_eq!(spent.of("heavy"), 100.0);
        assert!((0.01..0.05).contains(&spent.of("session-0")), "not new");
        assert_eq!(spent.forgotten as usize, 3 * MAX_NAMES + 1 - spent.by.len());
        let all = 100.0 + 0.01 * (3 * MAX_NAMES) as f64;
        assert!((spent.total - all).abs() < 1e-6, "money is not forgotten");
    }

    #[test]
    fn nobody_is_forgotten_out_of_what_they_had_spent() {
        let mut spent = Spending::default();
        spent.add("poor", 4.9);
        for number in 0..2 * MAX_NAMES {
            spent.add(&format!("rich-{number}"), 5.0);
        }
        assert!(!spent.by.contains_key("poor"), "it was the poorest");
        assert!(spent.of("poor") >= 4.9);
        assert!(spent.add("poor", 0.1).1 >= 5.0);
    }

    #[test]
    fn a_new_period_begins_with_nothing_spent_and_an_old_one_changes_nothing() {
        let mut spent = Periods::default();
        assert_eq!(spent.at((60, 120), 119).add("a", 1.0), (0.0, 1.0));
        assert_eq!(spent.at((60, 120), 119).add("a", 0.5), (1.0, 1.5));
        let late = spent.of_call((0, 60), 59);
        assert_eq!(late.add("a", 0.5), (1.5, 2.0), "a call that ended late");
        let next = spent.at((120, 180), 120);
        assert_eq!((next.of("a"), next.total), (0.0, 0.0));
        assert_eq!(spent.all.len(), 1, "time only passed");
    }

    #[test]
    fn a_name_that_was_forgotten_begins_a_new_period_with_nothing_spent() {
        let mut spent = Periods::default();
        for number in 0..2 * MAX_NAMES {
            spent.at((60, 120), 60).add(&format!("name-{number}"), 5.0);
        }
        assert!(spent.at((60, 120), 118).of("name-0") >= 5.0);
        assert_eq!(spent.at((120, 180), 120).of("name-0"), 0.0);
    }

    #[test]
    fn a_clock_that_steps_and_returns_finds_what_was_spent() {
        let period = |now: u64| (now / 60 * 60, now / 60 * 60 + 60);
        let mut spent = Periods::default();
        let mut of = |now: u64| spent.at(period(now), now).of("a");
        assert_eq!(of(70), 0.0);
        spent.at(period(70), 70).add("a", 1.0);
        let mut of = |now: u64| spent.at(period(now), now).of("a");
        // The clock steps ahead, passes the end of a wrong period, and steps further ahead.
        assert_eq!([1_000, 1_018, 1_021, 9_000].map(&mut of), [0.0; 4]);
        assert_eq!(of(75), 1.0);
        // A period before all known ones gives no new money.
        assert_eq!([5, 76].map(&mut of), [1.0; 2]);
        assert_eq!([119, 121].map(&mut of), [1.0, 0.0]);
        assert!(spent.all.len() <= MAX_PERIODS);
    }
}
