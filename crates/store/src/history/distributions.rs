use super::timed_call::TimedCall;
use crate::figures::CallFigures;
use crate::query::{DistributionSelector, DistributionSeries, Distributions, hours};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokengauge_core::dimension::model_of;

/// The distributions by model, route and workload of calls that began in whole hours: from the hour
/// of `since` to the hour of `until`. The result equals the ledger's. Each call comes with the
/// number of streams in flight on its upstream when it began.
pub fn distributions<'a>(
    calls: impl Iterator<Item = (TimedCall<'a>, Option<u32>)>,
    selector: &DistributionSelector,
    since: Option<SystemTime>,
    until: Option<SystemTime>,
) -> BTreeMap<DistributionSeries, Distributions> {
    let mut found: BTreeMap<DistributionSeries, Distributions> = BTreeMap::new();
    visit(calls, selector, since, until, |series, _, figures| {
        found.entry(series).or_default().add(figures);
    });
    found
}

pub fn hourly_distributions<'a>(
    calls: impl Iterator<Item = (TimedCall<'a>, Option<u32>)>,
    selector: &DistributionSelector,
    since: Option<SystemTime>,
    until: Option<SystemTime>,
) -> BTreeMap<SystemTime, Distributions> {
    let mut found: BTreeMap<SystemTime, Distributions> = BTreeMap::new();
    visit(calls, selector, since, until, |_, hour, figures| {
        found.entry(hour).or_default().add(figures);
    });
    found
}

fn visit<'a>(
    calls: impl Iterator<Item = (TimedCall<'a>, Option<u32>)>,
    selector: &DistributionSelector,
    since: Option<SystemTime>,
    until: Option<SystemTime>,
    mut each: impl FnMut(DistributionSeries, SystemTime, &CallFigures),
) {
    let (from, to) = hours(since, until);
    for (call, concurrency) in calls {
        let figures = CallFigures::of(call.record, concurrency);
        let second = figures.started_us.div_euclid(1_000_000);
        let series = DistributionSeries {
            model: model_of(call.record).map(str::to_owned),
            route: Some(call.record.route.clone()),
            workload: call.record.workload.clone(),
        };
        if figures.counts() && (from..to).contains(&second) && selector.matches(&series) {
            let hour = u64::try_from(second - second.rem_euclid(3_600)).unwrap_or(0);
            each(
                series,
                SystemTime::UNIX_EPOCH + Duration::from_secs(hour),
                &figures,
            );
        }
    }
}
