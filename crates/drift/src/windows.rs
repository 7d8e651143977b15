//! The hours of the reference and of the current window, by their slot in the season.

use crate::settings::{Season, Settings};
use crate::signal::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};
use tokengauge_stats::drift::Point;
use tokengauge_store::query::{Distribution, Distributions};

pub type Hours = BTreeMap<SystemTime, Distributions>;

/// At least this share of the current calls must be in hours that have a reference.
const LEAST_COVERED: f64 = 0.5;
/// The number of neighbouring hours on either side that count if a slot has too few calls. Quiet nights have hours without
/// a call, and the hours around them are similar.
const NEIGHBOURS: u64 = 3;

pub(crate) struct Windows<'h> {
    pub(crate) season: Season,
    /// The hours of the reference in ascending order, counted since 1970.
    pub(crate) reference: Vec<(u64, &'h Distributions)>,
    /// The current calls by slot, and the reference of each slot. `None` if a slot has no reference.
    current: BTreeMap<u64, (Distributions, Option<Distributions>)>,
    all: Distributions,
    /// The first hour of the current window. Its `length` is in hours.
    pub(crate) begins: u64,
    pub(crate) length: u64,
}

pub(crate) enum Missing {
    Signal,
    Current,
    Reference,
}

/// One cell in both windows. The reference is standardised: each of its hours has the weight of the same hour now, so that
/// current mornings are not compared with nights.
pub(crate) struct Pair {
    pub(crate) reference: Weighted,
    pub(crate) current: Weighted,
}

#[derive(Default)]
pub(crate) struct Weighted {
    pub(crate) points: Vec<Point>,
    weight: f64,
    squares: f64,
    total: f64,
    /// Σ w² ÷ sessions over the hours.
    squares_by_session: f64,
}

impl Weighted {
    fn add(&mut self, cell: &Distribution, factor: f64, all: &Distributions) {
        let calls = cell.calls() as f64;
        if calls == 0.0 {
            return;
        }
        self.weight += factor * calls;
        self.squares += factor * factor * calls;
        self.squares_by_session += (factor * calls).powi(2) / sessions_of(all, calls);
        self.total += factor * calls * cell.mean().unwrap_or_default();
        let points = cell.points().map(|(value, times)| Point {
            value,
            weight: factor * times as f64,
        });
        self.points.extend(points);
    }

    /// Kish's effective number of calls: (Σ w)² ÷ Σ w².
    pub(crate) fn calls(&self) -> f64 {
        effective(self.weight, self.squares)
    }

    /// The effective number of sessions, all of equal weight.
    pub(crate) fn sessions(&self) -> f64 {
        effective(self.weight, self.squares_by_session)
    }

    pub(crate) fn weight(&self) -> f64 {
        self.weight
    }

    pub(crate) fn mean(&self) -> f64 {
        if self.weight > 0.0 {
            self.total / self.weight
        } else {
            0.0
        }
    }
}

/// The share of the sessions that corresponds to `calls`. All calls of a class may come from few sessions.
pub(crate) fn sessions_of(all: &Distributions, calls: f64) -> f64 {
    match all.calls() {
        0 => calls,
        of => calls * (all.sessions() / of as f64).min(1.0),
    }
}

fn effective(weight: f64, squares: f64) -> f64 {
    if squares > 0.0 {
        weight * weight / squares
    } else {
        0.0
    }
}

impl<'h> Windows<'h> {
    pub(crate) fn of(hours: &'h Hours, settings: &Settings, until: SystemTime) -> Windows<'h> {
        let season = settings.season;
        let current_since = before(until, settings.current);
        let since = before(current_since, settings.reference);
        let reference = hours.range(since..current_since);
        let reference: Vec<_> = reference.map(|(at, calls)| (hour_of(*at), calls)).collect();
        let mut current: BTreeMap<u64, Distributions> = BTreeMap::new();
        let mut all = Distributions::default();
        for (at, calls) in hours.range(current_since..until) {
            current
                .entry(season.slot(hour_of(*at)))
                .or_default()
                .merge(calls);
            all.merge(calls);
        }
        let begins = hour_of(current_since);
        let compared = current.into_iter().map(|(slot, calls)| {
            let comparable = comparable(&reference, season, slot, begins);
            (slot, (calls, comparable))
        });
        Windows {
            season,
            current: compared.collect(),
            all,
            reference,
            begins,
            length: settings.current.as_secs() / 3_600,
        }
    }

    pub(crate) fn pair(&self, cell: Cell) -> Result<Pair, Missing> {
        self.weighed_by(cell, cell)
    }

    /// One cell in both windows, with hours weighted by the calls in `whole`. The shares of classes then refer to the same
    /// total.
    pub(crate) fn weighed_by(&self, cell: Cell, whole: Cell) -> Result<Pair, Missing> {
        let mut reference = Weighted::default();
        let mut current = Distribution::default();
        let (mut all, mut covered) = (0.0, 0.0);
        for (now, then) in self.current.values() {
            let now_whole = whole.of(now).calls() as f64;
            all += now_whole;
            let Some(then) = then else { continue };
            let then_whole = whole.of(then).calls() as f64;
            if now_whole == 0.0 || then_whole == 0.0 {
                continue;
            }
            covered += now_whole;
            reference.add(&cell.of(then), now_whole / then_whole, then);
            current.merge(&cell.of(now));
        }
        if all == 0.0 {
            let has = |(_, calls): &(u64, &Distributions)| whole.of(calls).calls() > 0;
            return Err(if self.reference.iter().any(has) {
                Missing::Current
            } else {
                Missing::Signal
            });
        }
        if covered < LEAST_COVERED * all {
            return Err(Missing::Reference);
        }
        let mut weighted = Weighted::default();
        weighted.add(&current, 1.0, &self.all);
        Ok(Pair {
            reference,
            current: weighted,
        })
    }

    /// The current calls of each slot that has a reference, with that reference.
    pub(crate) fn compared(&self) -> impl Iterator<Item = (&Distributions, &Distributions)> {
        let current = self.current.values();
        current.filter_map(|(now, then)| Some((now, then.as_ref()?)))
    }
}

/// The reference calls of a slot: calls in the same slot of earlier periods. If too few periods have calls, the hours
/// around the slot also count. Hours just before the current window belong to the current period and do not count.
fn comparable(
    reference: &[(u64, &Distributions)],
    season: Season,
    slot: u64,
    begins: u64,
) -> Option<Distributions> {
    let Some(period) = season.hours() else {
        return merged(reference.iter());
    };
    // A night includes hours of two days, which count as one period.
    let number = |hour: u64| (hour + period / 2 - slot) / period;
    let hour = begins + (slot + period - begins % period) % period;
    let now = number(hour);
    // Neighbouring hours help only slots that were quiet, not slots with too little history.
    let (oldest, _) = reference.first()?;
    let reach = if oldest + MIN_PERIODS as u64 * period <= hour {
        NEIGHBOURS
    } else {
        0
    };
    (0..=reach).find_map(|reach| {
        let near = reference.iter().filter(|(hour, _)| {
            let apart = (hour % period).abs_diff(slot);
            apart.min(period - apart) <= reach && number(*hour) < now
        });
        let periods: BTreeSet<u64> = near.clone().map(|(hour, _)| number(*hour)).collect();
        (periods.len() >= MIN_PERIODS).then(|| merged(near))?
    })
}

/// The number of earlier periods that a comparison needs, since a single one may have been an exception.
const MIN_PERIODS: usize = 2;

fn merged<'a>(hours: impl Iterator<Item = &'a (u64, &'a Distributions)>) -> Option<Distributions> {
    let mut all = None;
    for (_, calls) in hours {
        all.get_or_insert_with(Distributions::default).merge(calls);
    }
    all
}

/// `span` before an instant, but not before 1970.
pub(crate) fn before(at: SystemTime, span: Duration) -> SystemTime {
    at.checked_sub(span)
        .unwrap_or(SystemTime::UNIX_EPOCH)
        .max(SystemTime::UNIX_EPOCH)
}

pub(crate) fn hour_of(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs() / 3_600
}
