//! The spending of one period by session, agent or other name. Bounded: when it is full, the
//! names that spent least are forgotten, and unknown names count from then on as having spent
//! as much as the largest of those. So no name gets new money by being forgotten: after Metwally
//! et al., Efficient Computation of Frequent and Top-k Elements in Data Streams, ICDT 2005.

use std::collections::HashMap;

/// The most names that one budget tracks.
pub(super) const MAX_NAMES: usize = 10_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Spending {
    /// The period, in seconds since 1970.
    pub(super) period: (u64, u64),
    by: HashMap<Box<str>, f64>,
    /// The most that any name had spent that was forgotten in this period.
    pub(super) floor: f64,
    /// All spending of the period, that of forgotten names included.
    pub(super) total: f64,
    /// Names that were forgotten because there were too many.
    pub(super) forgotten: u64,
}

impl Spending {
    /// Starts again at 0 if the period is a new one.
    pub(super) fn roll_over(&mut self, period: (u64, u64)) {
        if self.period.0 < period.0 {
            self.period = period;
            self.by.clear();
            (self.total, self.floor) = (0.0, 0.0);
        }
    }

    /// Adds `usd` to the spending of `name`; returns what it had spent before and after.
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

    /// Raises the spending of `name` to `usd`, which is what all processes have spent; returns what it was before and
    /// after.
    pub(super) fn raise(&mut self, name: &str, usd: f64) -> (f64, f64) {
        let before = self.of(name);
        // Sums of amounts that were rounded differ in their last digits.
        match usd > before + 1e-9 {
            true => self.add(name, usd - before),
            false => (before, before),
        }
    }

    /// Forgets the tenth of the names that spent least.
    fn make_room(&mut self) {
        let mut all: Vec<f64> = self.by.values().copied().collect();
        let tenth = all.len() / 10;
        let (_, limit, _) = all.select_nth_unstable_by(tenth, f64::total_cmp);
        let limit = *limit;
        // Of the names exactly at the limit only as many as are missing to a tenth.
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

    /// What `name` is tracked with; 0 where it is not.
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
        spent.roll_over((0, 60));
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
        spent.roll_over((0, 60));
        spent.add("poor", 4.9);
        for number in 0..2 * MAX_NAMES {
            spent.add(&format!("rich-{number}"), 5.0);
        }
        assert!(!spent.by.contains_key("poor"), "it was the poorest");
        assert!(spent.of("poor") >= 4.9);
        assert!(spent.add("poor", 0.1).1 >= 5.0);
        spent.roll_over((60, 120));
        assert_eq!(spent.of("poor"), 0.0);
    }

    #[test]
    fn a_new_period_begins_with_nothing_spent_and_an_old_one_changes_nothing() {
        let mut spent = Spending::default();
        spent.roll_over((60, 120));
        assert_eq!(spent.add("a", 1.0), (0.0, 1.0));
        assert_eq!(spent.add("a", 0.5), (1.0, 1.5));
        spent.roll_over((0, 60));
        assert_eq!(spent.of("a"), 1.5, "a call that ended late");
        spent.roll_over((120, 180));
        assert_eq!((spent.of("a"), spent.total), (0.0, 0.0));
    }
}
