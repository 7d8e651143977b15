//! When the level of a signal jumped: change points of the hourly medians, less the seasonal median.

use crate::answer::ChangePoint;
use crate::settings::{Season, Settings};
use crate::signal::{Cell, SignalName};
use crate::windows::{Hours, hour_of};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokengauge_stats::change::{self, Options};
use tokengauge_store::query::Distributions;

/// Calls that an hour needs for its median to count.
pub const MIN_HOURLY_CALLS: u64 = 10;
/// The p value of the t test between both sides: stricter than the default of one in a thousand, since every hour of four weeks
/// and every signal is looked at.
const MAX_P: f64 = 1e-4;
/// The periods of the season that are needed before it can be taken out: of two hours the median lies between both, so that a
/// jump in one week would show in the other as well.
pub const MIN_CHANGE_PERIODS: usize = 3;

/// The level of a signal in an hour.
#[derive(Clone, Copy)]
struct Level {
    hour: u64,
    value: f64,
}

/// The change points of every signal, by time, or what is missing.
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
            found.sort_by(|one, other| one.at.cmp(&other.at));
            Ok(found)
        }
    }
}

fn too_few(hours: usize) -> String {
    let needed = 2 * Options::default().min_points;
    format!(
        "has {hours} of the {needed} hours with at least {MIN_HOURLY_CALLS} calls that are needed"
    )
}

/// The level of each hour that has enough calls.
fn levels(hours: &Hours, signal: SignalName) -> Vec<Level> {
    let level = |(at, calls): (&SystemTime, &Distributions)| {
        let cell = Cell::all_of(signal).of(calls);
        let enough = cell.calls() >= MIN_HOURLY_CALLS;
        let value = match signal {
            SignalName::Outcome => Some(complete(calls)),
            _ => cell.quantile(0.5),
        };
        Some(Level {
            hour: hour_of(*at),
            value: value.filter(|_| enough)?,
        })
    };
    hours.iter().filter_map(level).collect()
}

/// The share of calls that ended well.
fn complete(calls: &Distributions) -> f64 {
    let complete = calls
        .outcomes()
        .find(|(outcome, _)| *outcome == tokengauge_core::call::Outcome::Complete);
    complete.map_or(0.0, |(_, times)| times as f64 / calls.calls().max(1) as f64)
}

/// The change points of one signal; an error without a text where it has no calls at all.
fn of_signal(
    levels: &[Level],
    signal: SignalName,
    settings: &Settings,
) -> Result<Vec<ChangePoint>, Option<String>> {
    if levels.is_empty() {
        return Err(None);
    }
    let options = Options {
        min_change: settings.thresholds.min_change,
        level: Some(1.0), // residuals are shares of the usual value already
        max_p: MAX_P,
        ..Options::default()
    };
    if levels.len() < 2 * options.min_points {
        return Err(Some(too_few(levels.len())));
    }
    let level = median(levels.iter().map(|level| level.value).collect());
    let (levels, residuals) = less_season(levels, settings.season)?;
    if levels.len() < 2 * options.min_points {
        return Err(match levels.is_empty() {
            true => None, // usually 0, such as cached input without a cache
            false => Some(periods(settings.season)),
        });
    }
    let found = change::find(&residuals, &options).map_err(|error| Some(error.to_string()))?;
    let point = |point: change::ChangePoint| {
        let at = Duration::from_secs(levels[point.index].hour * 3_600);
        ChangePoint {
            signal,
            at: humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + at).to_string(),
            before: level * (1.0 + point.before.mean),
            after: level * (1.0 + point.after.mean),
            change: point.after.mean - point.before.mean,
            p: point.p,
            hours_before: point.before.points,
            hours_after: point.after.points,
        }
    };
    Ok(found.into_iter().map(point).collect())
}

/// The hours whose place in the season is known well enough, and their levels less the median of that place, as shares of it:
/// where nights have a tenth of the day's values, they have a tenth of its noise, too. A place with a median of 0 has no share.
fn less_season(levels: &[Level], season: Season) -> Result<(Vec<Level>, Vec<f64>), Option<String>> {
    let mut slots: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for level in levels {
        let slot = slots.entry(season.slot(level.hour)).or_default();
        slot.push(level.value);
    }
    let least = season.period().map_or(1, |_| MIN_CHANGE_PERIODS);
    slots.retain(|_, values| values.len() >= least);
    let medians: BTreeMap<u64, f64> = slots
        .into_iter()
        .map(|(slot, values)| (slot, median(values)))
        .collect();
    let known = levels.iter().filter_map(|level| {
        let usual = medians.get(&season.slot(level.hour))?;
        (*usual > 0.0).then(|| (*level, level.value / usual - 1.0))
    });
    let both: (Vec<_>, Vec<_>) = known.unzip();
    match medians.is_empty() {
        true => Err(Some(periods(season))),
        false => Ok(both),
    }
}

fn periods(season: Season) -> String {
    let unit = match season {
        Season::Day => "days",
        _ => "weeks",
    };
    format!("needs calls in the same hours of {MIN_CHANGE_PERIODS} {unit}")
}

/// The median of some values, the middle of two; 0 without any.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |place: usize| values.get(place).copied().unwrap_or_default();
    match values.len() {
        0 => 0.0,
        count => f64::midpoint(at((count - 1) / 2), at(count / 2)),
    }
}
