//! When the level of a signal jumped: change points of medians minus the seasonal median.

use crate::report::ChangePoint;
use crate::settings::{Season, Settings};
use crate::signal::{Cell, SignalName};
use crate::windows::{Hours, hour_of};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokengauge_core::time::Timestamp;
use tokengauge_stats::change::{self, Options};
use tokengauge_store::query::Distributions;

/// The number of calls that an hour needs for its median to count.
pub const MIN_HOURLY_CALLS: u64 = 10;
/// The p value of the t test between both sides. It is stricter than the default of 0.001, since all hours of four weeks
/// and all signals are tested.
const MAX_P: f64 = 1e-4;
/// The number of periods needed to remove the season. The median of two hours lies between them, so a jump in one week
/// would also appear in the other.
pub const MIN_CHANGE_PERIODS: usize = 3;

const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy)]
pub(crate) struct Level {
    at: SystemTime,
    value: f64,
}

impl Level {
    pub(crate) fn new(at: SystemTime, value: f64) -> Level {
        Level { at, value }
    }

    fn slot(self, season: Season) -> u64 {
        season.slot(hour_of(self.at))
    }
}

pub(crate) fn points(hours: &Hours, settings: &Settings) -> Result<Vec<ChangePoint>, String> {
    let mut found = Vec::new();
    let mut missing = None;
    let mut judged = false;
    for signal in SignalName::ALL {
        if signal == SignalName::FinishReason {
            continue; // an answer with several choices has several, so that no one share is its level
        }
        match of_signal(&levels(hours, signal), signal, settings) {
            Ok(points) => {
                judged = true;
                found.extend(points);
            }
            Err(Some(reason)) => missing = missing.or(Some(reason)),
            Err(None) => {}
        }
    }
    match (judged, missing) {
        (false, Some(reason)) => Err(reason),
        (false, None) => Err(too_few(0)),
        (true, _) => {
            found.sort_by_key(|point| point.at);
            Ok(found)
        }
    }
}

fn too_few(hours: usize) -> String {
    let needed = 2 * Options::default().min_points;
    format!(
        "{needed} hours with at least {MIN_HOURLY_CALLS} calls are needed, but there are only {hours}"
    )
}

fn levels(hours: &Hours, signal: SignalName) -> Vec<Level> {
    let level = |(at, calls): (&SystemTime, &Distributions)| {
        let cell = Cell::all_of(signal).of(calls);
        let enough = cell.calls() >= MIN_HOURLY_CALLS;
        let value = match signal {
            SignalName::Outcome => Some(complete(calls)),
            _ => cell.quantile(0.5),
        };
        Some(Level::new(*at, value.filter(|_| enough)?))
    };
    hours.iter().filter_map(level).collect()
}

fn complete(calls: &Distributions) -> f64 {
    let complete = calls
        .outcomes()
        .find(|(outcome, _)| *outcome == tokengauge_core::call::Outcome::Complete);
    complete.map_or(0.0, |(_, times)| times as f64 / calls.calls().max(1) as f64)
}

fn of_signal(
    levels: &[Level],
    signal: SignalName,
    settings: &Settings,
) -> Result<Vec<ChangePoint>, Option<String>> {
    if levels.is_empty() {
        return Err(None);
    }
    let min_points = Options::default().min_points;
    if levels.len() < 2 * min_points {
        return Err(Some(too_few(levels.len())));
    }
    let usual = by_slot(levels, settings.season).map_err(Some)?;
    of_levels(signal, levels, &usual, settings, (HOUR, min_points))
}

pub(crate) type Usual = BTreeMap<u64, f64>;

pub(crate) fn usual(hours: &Hours, signal: SignalName, season: Season) -> Result<Usual, String> {
    by_slot(&levels(hours, signal), season)
}

/// The change points of levels. Each side of a change has at least the given number of steps.
pub(crate) fn of_levels(
    signal: SignalName,
    levels: &[Level],
    usual: &Usual,
    settings: &Settings,
    (step, min_points): (Duration, usize),
) -> Result<Vec<ChangePoint>, Option<String>> {
    let options = Options {
        min_points,
        min_change: settings.thresholds.min_change,
        level: Some(1.0), // residuals are shares of the usual value already
        max_p: MAX_P,
        ..Options::default()
    };
    let level = median(levels.iter().map(|level| level.value).collect());
    let (levels, residuals) = less_season(levels, usual, settings.season);
    if levels.len() < 2 * min_points {
        // Without a level the signal is usually 0, such as cached input without a cache.
        return Err((!levels.is_empty()).then(|| periods(settings.season)));
    }
    let found = change::find(&residuals, &options).map_err(|error| Some(error.to_string()))?;
    let point = |point: change::ChangePoint| ChangePoint {
        signal,
        at: Timestamp::seconds(levels[point.index].at),
        before: level * (1.0 + point.before.mean),
        after: level * (1.0 + point.after.mean),
        change: point.after.mean - point.before.mean,
        p: point.p,
        step_seconds: step.as_secs(),
        steps_before: point.before.points,
        steps_after: point.after.points,
    };
    Ok(found.into_iter().map(point).collect())
}

/// The median of each slot in the season that has enough values.
fn by_slot(levels: &[Level], season: Season) -> Result<Usual, String> {
    let mut slots: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for level in levels {
        let slot = slots.entry(level.slot(season)).or_default();
        slot.push(level.value);
    }
    let least = season.period().map_or(1, |_| MIN_CHANGE_PERIODS);
    slots.retain(|_, values| values.len() >= least);
    if slots.is_empty() {
        Err(periods(season))
    } else {
        Ok(slots
            .into_iter()
            .map(|(slot, values)| (slot, median(values)))
            .collect())
    }
}

/// The steps with a known slot, and their levels minus the slot's median, as shares of that median. Shares make the noise
/// comparable: if nights have a tenth of the day's values, they also have a tenth of its noise. A slot with a median of 0
/// has no share.
fn less_season(levels: &[Level], usual: &Usual, season: Season) -> (Vec<Level>, Vec<f64>) {
    let known = levels.iter().filter_map(|level| {
        let usual = usual.get(&level.slot(season))?;
        (*usual > 0.0).then(|| (*level, level.value / usual - 1.0))
    });
    known.unzip()
}

fn periods(season: Season) -> String {
    let unit = match season {
        Season::Day => "days",
        _ => "weeks",
    };
    format!("{MIN_CHANGE_PERIODS} {unit} must have calls in the same hours")
}

/// The median. For an even count it is the mean of the two middle values; without values it is 0.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |place: usize| values.get(place).copied().unwrap_or_default();
    match values.len() {
        0 => 0.0,
        count => f64::midpoint(at((count - 1) / 2), at(count / 2)),
    }
}
