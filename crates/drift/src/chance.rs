//! Whether a window differs more than earlier windows of the same length do without a change.
//!
//! The number of calls does not determine how far a window deviates by chance: calls of one session are alike, one user may
//! have most sessions, and days differ. So the deviation is measured: each earlier window is compared with the same hours
//! of the other periods, just like the current window.

use crate::signal::Cell;
use crate::windows::{Pair, Weighted, Windows, sessions_of};
use std::collections::BTreeMap;
use tokengauge_stats::Estimate;
use tokengauge_store::query::{Distributions, Signal};

/// The share of weeks in which a series without a change is reported as drifted.
pub(crate) const FALSE_WEEKS: f64 = 0.05;
/// Evaluations per week: one per hour. Evaluations within an hour see nearly the same calls.
const LOOKS: f64 = 168.0;
/// The number of scores over all signals and classes of a series.
const SCORES: f64 = 60.0;
/// The degrees of freedom at which Student's t distribution counts as normal.
const UNBOUNDED: f64 = 1e6;
pub(crate) const MIN_WINDOWS: usize = 8;
/// The indexes of kinds in the store; the range is wider than needed.
pub(crate) const PLACES: std::ops::Range<usize> = 0..16;
/// An ongoing change must appear in at least this share of the windows since it began.
const ONGOING: f64 = 2.0 / 3.0;

struct Window {
    back: u64,
    sums: Sums,
    sessions: f64,
}

impl Window {
    /// The mean score of the calls. Without a change it is 0.
    fn score(&self, at: usize) -> f64 {
        self.sums.scores[at] / self.sums.calls
    }
}

#[derive(Default)]
struct Sums {
    scores: Vec<f64>,
    calls: f64,
}

impl Sums {
    fn add(&mut self, more: &Sums) {
        self.calls += more.calls;
        self.scores.resize(more.scores.len(), 0.0);
        for (sum, score) in self.scores.iter_mut().zip(&more.scores) {
            *sum += score;
        }
    }
}

/// Whether the current window differs from its reference beyond chance. `None` with fewer than [`MIN_WINDOWS`] earlier
/// windows.
///
/// A value has two scores: its rank in the reference, from −½ to ½, and the distance of that rank from the middle. Both are
/// bounded, so that no single call decides. For kinds, such as outcomes, the scores are shares.
///
/// The variance of a score is its mean square over the earlier windows. It is larger if the current window has fewer
/// sessions, since a night varies more than a day. Windows since an ongoing change, and their hours, do not count.
///
/// `shares` contains the share of each kind before and now. It is empty for values.
pub(crate) fn beyond(
    windows: &Windows<'_>,
    cell: Cell,
    pair: &Pair,
    shares: &[(f64, f64)],
) -> Option<bool> {
    let now = current(windows, cell, &pair.current)?;
    let least = |at: usize| least_variance(shares.get(at), pair);
    let scores = 0..now.sums.scores.len();
    // A difference that independent calls explain needs no earlier windows.
    let unlikely = |at: &usize| is_beyond(now.score(*at), least(*at), UNBOUNDED);
    let unlikely: Vec<usize> = scores.filter(unlikely).collect();
    if unlikely.is_empty() {
        return Some(false);
    }
    let all = earlier(windows, cell, windows.begins);
    let mut known = true;
    let beyond = unlikely.into_iter().any(|at| {
        let before_it;
        let earlier = match ongoing(&all, &now, at) {
            0 => &all,
            since => {
                let begins = windows.begins.saturating_sub(since * windows.length);
                before_it = self::earlier(windows, cell, begins);
                &before_it
            }
        };
        known &= earlier.len() >= MIN_WINDOWS;
        earlier.len() >= MIN_WINDOWS
            && is_beyond(
                now.score(at),
                variance(earlier, &now, at).max(least(at)),
                earlier.len() as f64 - 1.0,
            )
    });
    (known || beyond).then_some(beyond)
}

fn is_beyond(score: f64, variance: f64, degrees_of_freedom: f64) -> bool {
    let estimate = Estimate {
        value: score,
        variance,
        units: 0,
        degrees_of_freedom,
    };
    let interval = estimate.interval(1.0 - FALSE_WEEKS / LOOKS / SCORES);
    interval.is_ok_and(|interval| !interval.contains(0.0))
}

fn variance(earlier: &[Window], now: &Window, at: usize) -> f64 {
    let squares = earlier
        .iter()
        .map(|one| one.sessions * one.score(at).powi(2));
    let of_sessions = squares.sum::<f64>() / earlier.len() as f64;
    let sessions = earlier.iter().map(|one| one.sessions).sum::<f64>() / earlier.len() as f64;
    of_sessions / sessions.min(now.sessions)
}

/// The variance if calls (for kinds: sessions) were independent. Earlier windows without a failure do not prove that
/// failures are impossible.
fn least_variance(shares: Option<&(f64, f64)>, pair: &Pair) -> f64 {
    let Some((was, is)) = shares else {
        return 1.0 / 12.0 / pair.current.calls();
    };
    let (before, now) = (pair.reference.sessions(), pair.current.sessions());
    let pooled = (was * before + is * now) / (before + now);
    pooled * (1.0 - pooled) * (1.0 / before + 1.0 / now)
}

/// The number of windows in which the present change is already visible: most windows since then show at least half of it.
/// At most half of all windows count, since most of the reference cannot be a change.
fn ongoing(earlier: &[Window], now: &Window, at: usize) -> u64 {
    let (mut seen, mut shown, mut since) = (0.0, 0.0, 0);
    for window in earlier.iter().take(earlier.len() / 2) {
        seen += 1.0;
        let (then, is) = (window.score(at), now.score(at));
        if then * is.signum() >= is.abs() / 2.0 {
            shown += 1.0;
        }
        if shown >= ONGOING * seen {
            since = window.back;
        }
    }
    since
}

fn current(windows: &Windows<'_>, cell: Cell, calls: &Weighted) -> Option<Window> {
    let mut sums = Sums::default();
    for (now, then) in windows.compared() {
        let [now, then] = [now, then].map(|calls| Part::of(cell, calls));
        if let Some(more) = now.scores(&then, false) {
            sums.add(&more);
        }
    }
    (sums.calls > 0.0).then(|| Window {
        back: 0,
        sums,
        sessions: calls.sessions(),
    })
}

/// The windows before `until` that have calls, the latest first.
fn earlier(windows: &Windows<'_>, cell: Cell, until: u64) -> Vec<Window> {
    let hours = windows.reference.iter();
    let hours: Vec<_> = hours.take_while(|(hour, _)| *hour < until).collect();
    let slot = |hour: u64| windows.season.slot(hour);
    let mut places: BTreeMap<u64, Distributions> = BTreeMap::new();
    for (hour, calls) in &hours {
        let place = places.entry(slot(*hour)).or_default();
        place.merge_signal(calls, cell.signal.stored(), cell.place);
    }
    let places: BTreeMap<u64, Part> = places
        .into_iter()
        .map(|(slot, calls)| (slot, Part::of(cell, &calls)))
        .collect();
    let mut found: BTreeMap<u64, (Sums, Distributions)> = BTreeMap::new();
    for (hour, calls) in hours {
        let Some(more) = Part::of(cell, calls).scores(&places[&slot(*hour)], true) else {
            continue;
        };
        let back = (windows.begins - 1 - hour) / windows.length + 1;
        let (sums, sessions) = found.entry(back).or_default();
        sums.add(&more);
        for signal in [Signal::Session, Signal::Outcome] {
            sessions.merge_signal(calls, signal, None);
        }
    }
    let window = |(back, (sums, sessions)): (u64, (Sums, Distributions))| {
        let sessions = sessions_of(&sessions, sums.calls);
        Window {
            back,
            sums,
            sessions,
        }
    };
    found.into_iter().map(window).collect()
}

/// The calls of one cell: their values in ascending order, or the count of each kind.
struct Part {
    calls: f64,
    values: Vec<(f64, f64)>,
    kinds: Vec<f64>,
}

impl Part {
    fn of(cell: Cell, calls: &Distributions) -> Part {
        let all = cell.of(calls);
        let times = |place| {
            let kind = calls.bucket(cell.signal.stored(), place);
            kind.map_or(0.0, |kind| kind.calls() as f64)
        };
        let kinds = PLACES.filter(|_| cell.signal.is_mix());
        let values = all.points().map(|(value, times)| (value, times as f64));
        Part {
            calls: all.calls() as f64,
            values: values.collect(),
            kinds: kinds.map(times).collect(),
        }
    }

    /// The sums of the calls' scores relative to `with`. If `with` includes the calls (`among`), they are not compared with
    /// themselves.
    fn scores(&self, with: &Part, among: bool) -> Option<Sums> {
        let calls = self.calls;
        let left = with.calls - if among { calls } else { 0.0 };
        if calls == 0.0 || left <= 0.0 {
            return None;
        }
        let kinds = self.kinds.iter().zip(&with.kinds).map(|(own, all)| {
            let others = all - if among { *own } else { 0.0 };
            own - calls * others / left
        });
        let scores = if self.kinds.is_empty() {
            ranks(&self.values, &with.values, among, left).to_vec()
        } else {
            kinds.collect()
        };
        Some(Sums { scores, calls })
    }
}

/// The two sums of scores of `own` values: their ranks among the `left` other values, and the distances of these ranks
/// from the middle minus the expected distances.
fn ranks(own: &[(f64, f64)], others: &[(f64, f64)], among: bool, left: f64) -> [f64; 2] {
    let mut own = own.iter().peekable();
    let mut others = others.iter().peekable();
    let (mut below, mut place, mut spread) = (0.0, 0.0, 0.0);
    let (mut expected, mut count) = (0.0, 0.0);
    loop {
        let value = match (own.peek(), others.peek()) {
            (None, None) => break,
            (Some((value, _)), None) | (None, Some((value, _))) => *value,
            (Some((one, _)), Some((other, _))) => one.min(*other),
        };
        let times = |next: Option<&(f64, f64)>| next.map_or(0.0, |(_, times)| *times);
        let mine = times(own.next_if(|(at, _)| *at <= value));
        let all = times(others.next_if(|(at, _)| *at <= value));
        let theirs = all - if among { mine } else { 0.0 };
        let at = (below + theirs / 2.0) / left;
        below += theirs;
        count += mine;
        place += mine * (at - 0.5);
        spread += mine * (2.0 * at - 1.0).abs();
        expected += theirs * (2.0 * at - 1.0).abs() / left;
    }
    [place, spread - count * expected]
}
