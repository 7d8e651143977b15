//! When TTFT or TPS jumped, to five minutes: change points of the last day's medians minus the seasonal median of the
//! hours.

use crate::change::{Level, of_levels, usual};
use crate::report::{ChangePoint, Series};
use crate::settings::Settings;
use crate::signal::SignalName;
use crate::windows::{Hours, before};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokengauge_core::dimension::Dimension;
use tokengauge_store::ledger::QueryError;
use tokengauge_store::query::{Filter, SeriesMetric, Timeseries};
use tokengauge_store::stored_calls::StoredCalls;

/// The length of a step. The ledger has sums for five minutes.
pub const STEP: Duration = Duration::from_secs(300);
const SPAN: Duration = Duration::from_secs(86_400);
const MIN_STEP_CALLS: u64 = 10;
/// The number of steps on either side of a change: one hour.
const MIN_STEPS: usize = 12;
/// Change points of hours and of steps within this time are the same change.
const SAME: Duration = Duration::from_secs(2 * 3_600);

pub type Steps = BTreeMap<SignalName, BTreeMap<SystemTime, f64>>;

/// The medians of the last day of a series. Empty if its model, route or workload is unknown.
///
/// # Errors
/// See [`QueryError`].
pub fn steps(calls: &StoredCalls, series: &Series, now: SystemTime) -> Result<Steps, QueryError> {
    let names = [&series.model, &series.route, &series.workload];
    if names.iter().any(|name| name.is_none()) {
        return Ok(Steps::new());
    }
    let filter = Filter {
        since: Some(before(now, SPAN)),
        until: Some(now),
        names: [
            (Dimension::Model, series.model.clone()),
            (Dimension::Route, series.route.clone()),
            (Dimension::Workload, series.workload.clone()),
        ]
        .into(),
        ..Filter::default()
    };
    let metrics = [
        (SignalName::Ttft, SeriesMetric::Ttft),
        (SignalName::Tps, SeriesMetric::Tps),
    ];
    let medians = metrics.into_iter().map(|(signal, metric)| {
        let found = calls.timeseries(&filter, metric, STEP)?;
        Ok((signal, medians(&found)))
    });
    medians.collect()
}

/// The steps with enough calls, without the first and the last, which may be incomplete.
fn medians(found: &Timeseries) -> BTreeMap<SystemTime, f64> {
    let whole = found.points.len().saturating_sub(2);
    let points = found.points.iter().skip(1).take(whole);
    let enough = points.filter(|point| point.calls >= MIN_STEP_CALLS);
    let known = enough.filter_map(|point| Some((point.at.time(), point.p50?)));
    known.collect()
}

/// Refines the times of a series' change points to five minutes if possible, adds change points that the hours do not show
/// yet, and rewrites the series' sentence.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::time::{Duration, SystemTime};
/// use tokengauge_drift::{Settings, Steps, assess, refine};
/// use tokengauge_store::query::{DistributionSeries, Distributions};
///
/// let hours = BTreeMap::<SystemTime, Distributions>::new();
/// let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_763_600_000);
/// let settings = Settings::new("all");
/// let mut series = assess(&DistributionSeries::default(), &hours, &settings, now);
/// refine(&mut series, &hours, &Steps::new(), &settings);
/// assert!(series.change_points.is_empty());
/// ```
pub fn refine(series: &mut Series, hours: &Hours, steps: &Steps, settings: &Settings) {
    let points = steps.iter().flat_map(|(signal, medians)| {
        let levels = medians.iter();
        let levels: Vec<_> = levels.map(|(at, value)| Level::new(*at, *value)).collect();
        of_signal(*signal, &levels, hours, settings)
    });
    let points: Vec<ChangePoint> = points.collect();
    if points.is_empty() {
        return;
    }
    let all = &mut series.change_points;
    all.retain(|hourly| !points.iter().any(|point| same(hourly, point)));
    all.extend(points);
    all.sort_by_key(|point| point.at);
    series.sentence = crate::sentence::sentence(series, settings.thresholds.min_change);
}

fn of_signal(
    signal: SignalName,
    levels: &[Level],
    hours: &Hours,
    settings: &Settings,
) -> Vec<ChangePoint> {
    // Without a known season a morning would count as a change.
    let Ok(usual) = usual(hours, signal, settings.season) else {
        return Vec::new();
    };
    let found = of_levels(signal, levels, &usual, settings, (STEP, MIN_STEPS));
    found.unwrap_or_default()
}

fn same(one: &ChangePoint, other: &ChangePoint) -> bool {
    let (a, b) = (one.at.time(), other.at.time());
    let apart = a.max(b).duration_since(a.min(b)).unwrap_or_default();
    let direction = one.change.is_sign_positive() == other.change.is_sign_positive();
    one.signal == other.signal && direction && apart <= SAME
}
