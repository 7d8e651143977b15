//! Calls in flight in time series. Among the calls that began recently only the fast ones have ended, so recent percentiles
//! look too good. Each point contains the number of calls that have not ended.

use crate::Services;
use crate::live_view::CallInFlight;
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};
use tokengauge_core::pod::PodName;
use tokengauge_core::time::whole_seconds_since_1970;
use tokengauge_store::history::MAX_POINTS;
use tokengauge_store::query::Dimension;
use tokengauge_store::query::{Filter, Point, Timeseries};

/// Counts the calls in flight that `filter` selects at the points at which they began. Adds points up to the newest call.
pub(super) fn add_in_flight(services: &Services, filter: &Filter, timeseries: &mut Timeseries) {
    let (now, wall) = ((services.clock)(), (services.wall)());
    let step = timeseries.step.max(1);
    let mut begun: BTreeMap<u64, u64> = BTreeMap::new();
    services.live.visit_in_flight(now, wall, &mut |call| {
        if is_meant(filter, call) {
            *begun
                .entry(whole_seconds_since_1970(call.started) / step)
                .or_default() += 1;
        }
    });
    add(timeseries, begun);
}

impl<'a> CallInFlight<'a> {
    /// The call's value of a dimension. `None` if the value is not known before the call ends.
    fn of(&self, by: Dimension) -> Option<Option<&'a str>> {
        let [team, cost_center, tenant] = self.payer;
        let of_pod =
            |part: fn(&PodName) -> &Option<String>| self.pod.and_then(|pod| part(pod).as_deref());
        Some(match by {
            Dimension::Model => self.model,
            Dimension::Workload => self.workload,
            Dimension::Route => Some(self.route),
            Dimension::Upstream => Some(self.upstream),
            Dimension::Agent => self.agent,
            Dimension::Team => team,
            Dimension::CostCenter => cost_center,
            Dimension::Tenant => tenant,
            Dimension::Cluster => of_pod(|pod| &pod.cluster),
            Dimension::Namespace => of_pod(|pod| &pod.namespace),
            Dimension::Pod => of_pod(|pod| &pod.name),
            _ => return None,
        })
    }
}

fn is_meant(filter: &Filter, call: &CallInFlight<'_>) -> bool {
    let is = |(by, wanted): (Dimension, &str)| {
        let value = call.of(by);
        value.is_some_and(|value| by.selects(wanted, value))
    };
    // The outcome is not known before the call ends.
    filter.outcomes.is_empty()
        && !filter.by_reason()
        && filter.since.is_none_or(|since| call.started >= since)
        && filter.until.is_none_or(|until| call.started < until)
        && filter.has_class(call.class)
        && (filter.session.is_none() || filter.session.as_deref() == call.session)
        && filter.names.iter().all(is)
}

fn add(timeseries: &mut Timeseries, begun: BTreeMap<u64, u64>) {
    let step = timeseries.step.max(1);
    let Some(newest) = begun.keys().next_back().copied() else {
        return;
    };
    let number = |point: &Point| whole_seconds_since_1970(point.at.time()) / step;
    let last = timeseries.points.last().map(number);
    let first = last.map_or(newest, |last| last + 1);
    for missing in first.max(newest.saturating_sub(MAX_POINTS as u64))..=newest {
        timeseries.points.push(empty(missing * step));
    }
    for point in &mut timeseries.points {
        point.in_flight = begun.get(&number(point)).copied().unwrap_or(0);
        point.requests_per_second = (point.calls + point.in_flight) as f64 / step as f64;
    }
    let excess = timeseries.points.len().saturating_sub(MAX_POINTS);
    timeseries.points.drain(..excess);
}

fn empty(at: u64) -> Point {
    Point {
        at: (UNIX_EPOCH + Duration::from_secs(at)).into(),
        ..Point::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_under_way_are_counted_where_they_began() {
        let ended = Point {
            calls: 3,
            p10: Some(70.0),
            ..empty(600)
        };
        let mut series = Timeseries {
            step: 60,
            points: vec![ended],
            ..Timeseries::default()
        };
        add(&mut series, BTreeMap::from([(10, 1), (12, 4)]));
        let is: Vec<_> = series
            .points
            .iter()
            .map(|point| (point.calls, point.in_flight, point.p10))
            .collect();
        assert_eq!(is, [(3, 1, Some(70.0)), (0, 0, None), (0, 4, None)]);
        assert_eq!(series.points[2].at.to_string(), "1970-01-01T00:12:00.000Z");
        assert_eq!(series.points[0].requests_per_second, 4.0 / 60.0);
    }

    #[test]
    fn calls_under_way_are_all_there_is_of_a_series_without_an_ended_one() {
        let mut series = Timeseries {
            step: 60,
            ..Timeseries::default()
        };
        add(&mut series, BTreeMap::new());
        assert_eq!(series.points.len(), 0);
        add(&mut series, BTreeMap::from([(5, 2)]));
        assert_eq!(series.points.len(), 1);
        assert_eq!(series.points[0].in_flight, 2);
    }
}
