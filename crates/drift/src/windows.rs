//! The hours of the reference and of the current window, by their place in the season.

use crate::settings::{Season, Settings};
use crate::signal::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokengauge_stats::drift::Point;
use tokengauge_store::query::{Distribution, Distributions};

/// The hours of one series, by their beginning.
pub type Hours = BTreeMap<SystemTime, Distributions>;

/// The least share of the current calls whose hours have a reference.
const LEAST_COVERED: f64 = 0.5;

/// Both windows, each by the place of its hours in the season.
pub(crate) struct Windows {
    season: Season,
    reference: BTreeMap<u64, Slot>,
    current: BTreeMap<u64, Slot>,
}

#[derive(Default)]
struct Slot {
    hours: usize,
    calls: Distributions,
}

/// Why two windows cannot be compared in a cell.
pub(crate) enum Missing {
    /// Neither has calls with that signal.
    Signal,
    /// The current window has no calls with it.
    Current,
    /// Too few of its hours have a reference.
    Reference,
}

/// One cell in both windows, the reference standardised: each of its hours weighs as much as the same hour weighs now, so
/// that a current window of morning hours is not compared with nights.
pub(crate) struct Pair {
    pub(crate) reference: Weighted,
    pub(crate) current: Weighted,
}

/// A weighted distribution.
#[derive(Default)]
pub(crate) struct Weighted {
    pub(crate) points: Vec<Point>,
    weight: f64,
    squares: f64,
    total: f64,
}

impl Weighted {
    fn add(&mut self, cell: &Distribution, factor: f64) {
        let calls = cell.calls() as f64;
        self.weight += factor * calls;
        self.squares += factor * factor * calls;
        self.total += factor * calls * cell.mean().unwrap_or_default();
        let points = cell.points().map(|(value, times)| Point {
            value,
            weight: factor * times as f64,
        });
        self.points.extend(points);
    }

    /// Kish's effective number of calls: (Σ w)² ÷ Σ w².
    pub(crate) fn calls(&self) -> f64 {
        match self.squares > 0.0 {
            true => self.weight * self.weight / self.squares,
            false => 0.0,
        }
    }

    pub(crate) fn weight(&self) -> f64 {
        self.weight
    }

    /// The mean; 0 without calls.
    pub(crate) fn mean(&self) -> f64 {
        match self.weight > 0.0 {
            true => self.total / self.weight,
            false => 0.0,
        }
    }
}

impl Windows {
    /// Sorts the hours of a series into both windows, of which the current one ends at `until`.
    pub(crate) fn of(hours: &Hours, settings: &Settings, until: SystemTime) -> Windows {
        let current_since = before(until, settings.current);
        let mut windows = Windows {
            season: settings.season,
            reference: BTreeMap::new(),
            current: BTreeMap::new(),
        };
        for (at, calls) in hours.range(before(current_since, settings.reference)..until) {
            let slots = match *at < current_since {
                true => &mut windows.reference,
                false => &mut windows.current,
            };
            let slot = slots.entry(settings.season.slot(hour_of(*at))).or_default();
            slot.hours += 1;
            slot.calls.merge(calls);
        }
        windows
    }

    /// One cell in both windows.
    pub(crate) fn pair(&self, cell: Cell) -> Result<Pair, Missing> {
        self.weighed_by(cell, cell)
    }

    /// One cell in both windows, where hours weigh by the calls in another: classes by those of all classes together, so
    /// that their shares are of the same whole.
    pub(crate) fn weighed_by(&self, cell: Cell, whole: Cell) -> Result<Pair, Missing> {
        let (mut reference, mut current) = (Weighted::default(), Weighted::default());
        let (mut all, mut covered) = (0.0, 0.0);
        for (slot, now) in &self.current {
            let now_whole = whole.of(&now.calls).calls() as f64;
            all += now_whole;
            let then = self.reference.get(slot);
            let then = then.filter(|then| then.hours >= self.season.min_hours());
            let Some(then) = then else { continue };
            let then_whole = whole.of(&then.calls).calls() as f64;
            if now_whole == 0.0 || then_whole == 0.0 {
                continue;
            }
            covered += now_whole;
            reference.add(&cell.of(&then.calls), now_whole / then_whole);
            current.add(&cell.of(&now.calls), 1.0);
        }
        if all == 0.0 {
            let has = |slot: &Slot| whole.of(&slot.calls).calls() > 0;
            return Err(match self.reference.values().any(has) {
                true => Missing::Current,
                false => Missing::Signal,
            });
        }
        match covered >= LEAST_COVERED * all {
            true => Ok(Pair { reference, current }),
            false => Err(Missing::Reference),
        }
    }
}

/// An instant so long before; 1970 where there is none.
pub(crate) fn before(at: SystemTime, span: Duration) -> SystemTime {
    at.checked_sub(span)
        .unwrap_or(SystemTime::UNIX_EPOCH)
        .max(SystemTime::UNIX_EPOCH)
}

/// The hour that an instant is in, counted since 1970.
pub(crate) fn hour_of(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs() / 3_600
}
