//! Assesses one series: its signals, change points, and the reason of a change.

use crate::report::{DriftState, Entry, Series, SignalDrift, WindowTimes};
use crate::settings::Settings;
use crate::signal::{Cell, SignalName};
use crate::windows::{Hours, Windows, before};
use crate::{change, compare, mix, sentence, why};
use std::time::{Duration, SystemTime};
use tokengauge_core::time::Timestamp;
use tokengauge_store::query::DistributionSeries;

/// The span of hours that a comparison at `now` reads, up to the end of the current hour.
pub fn span(settings: &Settings, now: SystemTime) -> (SystemTime, SystemTime) {
    let until = end_of_hour(now);
    let since = before(before(until, settings.current), settings.reference);
    (since, until)
}

fn end_of_hour(now: SystemTime) -> SystemTime {
    let hour = crate::windows::hour_of(now) + 1;
    SystemTime::UNIX_EPOCH + Duration::from_secs(hour * 3_600)
}

/// Compares the hours of one series within [`span`]. Hours may be absent. The current hour belongs to the current window,
/// however much of it has passed.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tokengauge_drift::{Settings, DriftState, assess};
/// use tokengauge_store::query::{DistributionSeries, Distributions};
///
/// let nothing = std::collections::BTreeMap::<SystemTime, Distributions>::new();
/// let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_763_600_000);
/// let series = assess(&DistributionSeries::default(), &nothing, &Settings::new("all"), now);
/// assert_eq!(series.state, DriftState::Learning);
/// ```
pub fn assess(
    series: &DistributionSeries,
    hours: &Hours,
    settings: &Settings,
    now: SystemTime,
) -> Series {
    let windows = Windows::of(hours, settings, end_of_hour(now));
    let signals = signals(&windows, settings);
    let (change_points, change_points_learning) = match change::points(hours, settings) {
        Ok(points) => (points, None),
        Err(missing) => (Vec::new(), Some(missing)),
    };
    let decomposed = [SignalName::Ttft, SignalName::Tps];
    let mut answer = Series {
        model: series.model.clone(),
        route: series.route.clone(),
        workload: series.workload.clone(),
        state: worst(signals.iter().map(|one| one.state)),
        sentence: String::new(),
        replaced: None,
        signals,
        change_points,
        change_points_learning,
        why: decomposed
            .into_iter()
            .filter_map(|signal| why::why(&windows, signal, settings))
            .collect(),
    };
    answer.sentence = sentence::sentence(&answer, settings.thresholds.min_change);
    answer
}

fn worst(states: impl Iterator<Item = DriftState>) -> DriftState {
    states.max().unwrap_or(DriftState::Learning)
}

pub(crate) fn signals(windows: &Windows<'_>, settings: &Settings) -> Vec<SignalDrift> {
    let mut found = Vec::new();
    for signal in SignalName::ALL {
        if signal.is_mix() {
            found.extend(mix::compare(windows, signal, settings));
            continue;
        }
        let whole = Cell::all_of(signal);
        let classes = signal.places().map(|place| Cell {
            place: Some(place),
            ..whole
        });
        let cells = std::iter::once(whole).chain(classes);
        found.extend(cells.filter_map(|cell| compare::compare(windows, cell, settings)));
    }
    found
}

impl Entry {
    pub fn of(
        settings: &Settings,
        now: SystemTime,
        series: Vec<Series>,
        series_left_out: usize,
    ) -> Entry {
        let (since, until) = span(settings, now);
        Entry {
            name: settings.name.to_string(),
            state: worst(series.iter().map(|one| one.state)),
            windows: WindowTimes {
                reference_since: Timestamp::seconds(since),
                current_since: Timestamp::seconds(before(until, settings.current)),
                current_until: Timestamp::seconds(now.min(until)),
                season: settings.season,
            },
            series,
            series_left_out,
        }
    }
}
