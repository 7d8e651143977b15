//! Whether a model replaced another one on its route, while the new model has no reference yet.

use crate::report::{DriftState, Replaced, Series};
use crate::settings::Settings;
use crate::windows::{Hours, hour_of};
use std::time::{Duration, SystemTime};
use tokengauge_core::time::Timestamp;
use tokengauge_store::query::{DistributionSeries, Distributions};

const DAY: Duration = Duration::from_secs(86_400);

/// Sets the model that a learning series replaced: one of `others` on its route and workload that had the calls before and
/// has none since. On the first day a replacement is a drift. `until` is the end of the hours.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::time::{Duration, SystemTime};
/// use tokengauge_drift::{Settings, DriftState, assess, replace};
/// use tokengauge_store::query::{DistributionSeries, Distributions, Signal};
///
/// let hours = |from: u64, to: u64| -> BTreeMap<SystemTime, Distributions> {
///     let hour = |hour: u64| {
///         let mut calls = Distributions::default();
///         (0..20).for_each(|call| {
///             calls.observe(Signal::Outcome, 0, None);
///             calls.observe_session(20 * hour + call);
///         });
///         (SystemTime::UNIX_EPOCH + Duration::from_secs(3_600 * (490_000 + hour)), calls)
///     };
///     (from..to).map(hour).collect()
/// };
/// let named = |model: &str| DistributionSeries { model: Some(model.to_owned()), ..DistributionSeries::default() };
/// let (settings, now) = (Settings::new("all"), SystemTime::UNIX_EPOCH + Duration::from_secs(3_600 * 490_102));
/// let mut series = assess(&named("m-2"), &hours(100, 103), &settings, now);
/// assert_eq!(series.state, DriftState::Learning);
/// replace(&mut series, &hours(100, 103), &[(named("m-1"), hours(0, 100))], &settings, now);
/// assert_eq!(series.state, DriftState::Drifted);
/// assert!(series.sentence.starts_with("Model replaced: m-2 answers instead of m-1 since "), "{}", series.sentence);
/// ```
pub fn replace(
    series: &mut Series,
    hours: &Hours,
    others: &[(DistributionSeries, Hours)],
    settings: &Settings,
    until: SystemTime,
) {
    let Some((first, _)) = hours.first_key_value() else {
        return;
    };
    let least = settings.thresholds.min_sessions as f64;
    let took = |(other, earlier): &(DistributionSeries, Hours)| {
        let ends = earlier.keys().next_back().copied()?;
        // The old model must have been absent for longer than it took to have enough sessions.
        let away = until.duration_since(ends).ok()?;
        let before = sessions(
            earlier,
            ends.checked_sub(away)?,
            ends + Duration::from_secs(1),
        );
        let since = sessions(hours, ends + Duration::from_secs(1), until);
        let here = other.model.is_some()
            && other.model != series.model
            && earlier.keys().next() < Some(first)
            && ends <= *first + DAY
            && *first <= ends + DAY
            && before >= least
            && since >= least;
        let calls: u64 = earlier.values().map(Distributions::calls).sum();
        here.then_some((calls, other.model.clone()?, ends))
    };
    if series.state != DriftState::Learning {
        return;
    }
    let found = others.iter().filter_map(took).max();
    let Some((_, model, ends)) = found else {
        return;
    };
    if hour_of(until).saturating_sub(hour_of(*first)) <= DAY.as_secs() / 3_600 {
        series.state = DriftState::Drifted;
    }
    series.replaced = Some(Replaced {
        model,
        last_hour: Timestamp::seconds(ends),
        since: Timestamp::seconds(*first),
    });
    series.sentence = crate::sentence::sentence(series, settings.thresholds.min_change);
}

fn sessions(hours: &Hours, from: SystemTime, to: SystemTime) -> f64 {
    let mut all = Distributions::default();
    for (_, calls) in hours.range(from..to) {
        all.merge(calls);
    }
    all.sessions()
}
