//! The remaining error budget over its period, from the beginning until now.

use super::budget;
use super::engine::Slos;
use super::ring::Sum;
use super::tracker::Tracker;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokengauge_core::time::{Timestamp, rfc3339_seconds, since_1970};

const MAX_POINTS: usize = 200;
/// How far back counts are kept by the minute.
const BY_MINUTE: Duration = Duration::from_secs(72 * 3600);

/// How an error budget was spent over its period. It begins whole, and its last point is the
/// remaining budget now. The budget is computed from all events of the period so far.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct BurnDown {
    /// The name of the objective.
    pub name: String,
    /// The period, such as `30d` or `month`.
    pub window: String,
    /// The length of each point in seconds.
    pub step: u64,
    /// Points in the order of time, from the first event of the period on.
    pub points: Vec<BudgetPoint>,
}

/// One step of the period.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct BudgetPoint {
    /// When the step begins, RFC 3339 in UTC.
    pub at: Timestamp,
    /// Good events in the step.
    pub good: f64,
    /// Bad events in the step.
    pub bad: f64,
    /// The remaining budget at the end of the step: 1 untouched, 0 spent, below 0 overspent.
    pub budget_remaining: f64,
}

impl Slos {
    /// How the budget of the objective `name` was spent until `now`; `None` for an unknown
    /// objective.
    pub fn burn_down(&self, name: &str, now: Instant) -> Option<BurnDown> {
        let state = self.state();
        let seconds = state.calendar.seconds(now);
        let mut trackers = state.trackers.iter();
        let tracker = trackers.find(|tracker| &*tracker.objective.name == name)?;
        Some(burn_down(tracker, seconds))
    }
}

fn burn_down(tracker: &Tracker, now: f64) -> BurnDown {
    let objective = &tracker.objective;
    let window = if objective.calendar_month {
        Duration::from_secs_f64((now - month_begin(now)).max(60.0))
    } else {
        objective.window
    };
    let (mut bucket, mut buckets) = tracker.buckets(now, window);
    let mut begun = begin(&buckets);
    // Recent events have counts by the minute.
    let late = begun.is_some_and(|first| buckets[first].0 as f64 > now - BY_MINUTE.as_secs_f64());
    if late && window > BY_MINUTE {
        (bucket, buckets) = tracker.buckets(now, BY_MINUTE);
        begun = begin(&buckets);
    }
    let buckets = begun.map_or(&[][..], |first| &buckets[first..]);
    let joined = buckets.len().div_ceil(MAX_POINTS).max(1);
    let all: f64 = buckets.iter().map(|(_, sum)| sum.all()).sum();
    let mut spent = 0.0;
    let points = buckets.chunks(joined).map(|step| {
        let good = step.iter().map(|(_, sum)| sum.good).sum();
        let bad: f64 = step.iter().map(|(_, sum)| sum.bad).sum();
        spent += bad;
        let so_far = Sum {
            good: all - spent,
            bad: spent,
        };
        BudgetPoint {
            at: time(step[0].0),
            good,
            bad,
            budget_remaining: budget::remaining(so_far, objective.objective),
        }
    });
    BurnDown {
        name: objective.name.to_string(),
        window: objective.window_label(),
        points: points.collect(),
        step: bucket * joined as u64,
    }
}

fn begin(buckets: &[(u64, Sum)]) -> Option<usize> {
    buckets.iter().position(|(_, sum)| sum.all() > 0.0)
}

fn time(seconds: u64) -> Timestamp {
    Timestamp::seconds(UNIX_EPOCH + Duration::from_secs(seconds))
}

fn month_begin(now: f64) -> f64 {
    let at: SystemTime = UNIX_EPOCH + Duration::from_secs_f64(now.max(0.0));
    let written = rfc3339_seconds(at).to_string();
    let begin = written
        .get(..7)
        .map(|month| format!("{month}-01T00:00:00Z"))
        .and_then(|begin| humantime::parse_rfc3339(&begin).ok());
    begin.map_or(now, since_1970)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::{Judgement, Objective, Sli, Weight};
    use crate::reason::{CallVerdict, Reason};
    use crate::tracker::CallRef;
    use crate::verdict::Events;
    use std::sync::Arc;
    use tokengauge_core::selector::Selector;

    const HOUR: u64 = 3600;
    const START: u64 = 1_700_000_000 / HOUR * HOUR;

    fn tracker(days: u64, calendar_month: bool) -> Tracker {
        let objective = Objective {
            name: "o".into(),
            objective: 0.9,
            window: Duration::from_secs(days * 24 * HOUR),
            calendar_month,
            judgement: Judgement {
                sli: Sli::Availability,
                select: Selector::default(),
                weight: Weight::Request,
                min_output_tokens: 0,
                min_streams: 0,
                warm_up: true,
                slice: None,
            },
            min_events: 1,
            description: None,
            runbook_url: None,
            dashboard_url: None,
        };
        Tracker::new(&Arc::new(objective), START)
    }

    fn count(tracker: &mut Tracker, at: u64, verdict: CallVerdict, count: u64) {
        let reason = Reason::Met;
        let events = Events {
            verdict,
            reason,
            count,
            value: None,
        };
        tracker.count(at, &events, CallRef::default());
    }

    #[test]
    fn it_begins_whole_falls_where_events_are_bad_and_ends_at_what_is_left() {
        for (days, calendar_month, step) in [(1, false, 60), (30, false, 60), (30, true, 60)] {
            let mut tracker = tracker(days, calendar_month);
            count(&mut tracker, START, CallVerdict::Good, 95);
            count(&mut tracker, START + 4 * HOUR, CallVerdict::Bad, 5);
            let now = (START + 5 * HOUR) as f64;
            let told = burn_down(&tracker, now);
            assert_eq!(told.points[0].budget_remaining, 1.0);
            let last = told.points.last().expect("points");
            assert!((last.budget_remaining - 0.5).abs() < 1e-9, "{last:?}");
            assert!((last.budget_remaining - tracker.remaining(now)).abs() < 1e-9);
            assert!(
                told.points.len() <= MAX_POINTS && told.step.is_multiple_of(step),
                "{told:?}"
            );
            assert_eq!(told.points[0].at, time(START));
            let fell = told
                .points
                .iter()
                .position(|point| point.bad > 0.0)
                .expect("a fall");
            assert_eq!(fell as u64, 4 * HOUR / told.step);
        }
    }

    #[test]
    fn what_began_long_ago_is_told_by_the_hour() {
        let mut tracker = tracker(30, false);
        count(&mut tracker, START, CallVerdict::Bad, 1);
        count(&mut tracker, START + 400 * HOUR, CallVerdict::Good, 99);
        let told = burn_down(&tracker, (START + 400 * HOUR) as f64);
        assert!(
            told.step.is_multiple_of(HOUR) && told.points.len() <= MAX_POINTS,
            "{told:?}"
        );
        assert!(
            (told.points[0].budget_remaining - 0.9).abs() < 1e-9,
            "{told:?}"
        );
    }

    #[test]
    fn without_events_there_are_no_points() {
        assert_eq!(burn_down(&tracker(30, false), START as f64).points, []);
    }

    #[test]
    fn a_month_begins_with_its_first_day() {
        assert_eq!(
            time(month_begin(START as f64) as u64).to_string(),
            "2023-11-01T00:00:00Z"
        );
    }
}
