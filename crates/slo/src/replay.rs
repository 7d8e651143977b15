use super::budget;
use super::objective::{Judgement, Objective, Sli, Weight};
use super::reason::CallVerdict;
use super::tracker::{CallRef, Tracker};
use super::verdict::{Finished, judge};
use super::windows::Severity;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::call::CallRecord;
use tokengauge_core::selector::Selector;
use tokengauge_core::time::since_1970;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub good: u64,
    pub bad: u64,
    pub excluded: BTreeMap<&'static str, u64>,
    /// The remaining share of the budget if all calls are in one window.
    pub remaining: f64,
    pub ratio: Option<f64>,
    pub pages: u32,
    pub tickets: u32,
}

/// Judges `calls` by `objective` in the order in which they ended, at their recorded times. With
/// `weight = "token"` a stream is one segment, because records have no segments.
pub fn replay(objective: &Arc<Objective>, calls: &[CallRecord]) -> Outcome {
    let mut ended: Vec<(f64, &CallRecord)> =
        calls.iter().map(|call| (ended_at(call), call)).collect();
    ended.sort_by(|one, other| one.0.total_cmp(&other.0));
    let begin = ended.first().map_or(0.0, |first| first.0);
    let mut tracker = Tracker::new(objective, begin as u64);
    let mut outcome = Outcome::default();
    let mut alarms = Alarms::default();
    for (at, call) in ended {
        alarms.until(at, &mut tracker, &mut outcome);
        let finished = Finished::of_record(call);
        if !objective.judgement.select.matches(&finished.names()) {
            continue;
        }
        let call_ref = CallRef {
            call: &call.id,
            trace_id: call.trace_id.as_deref(),
        };
        for events in judge(&objective.judgement, &finished) {
            tracker.count(at as u64, &events, call_ref);
        }
    }
    let last = alarms.next;
    alarms.until(last + 60.0, &mut tracker, &mut outcome);
    if let Some(slice) = objective.judgement.slice {
        tracker.close_slices((last + slice.every.as_secs_f64()) as u64);
    }
    for ((verdict, reason), count) in tracker.totals() {
        match verdict {
            CallVerdict::Good => outcome.good += count,
            CallVerdict::Bad => outcome.bad += count,
            CallVerdict::Excluded if *count > 0 => {
                outcome.excluded.insert(reason.as_str(), *count);
            }
            CallVerdict::Excluded => {}
        }
    }
    let sum = super::Sum {
        good: outcome.good as f64,
        bad: outcome.bad as f64,
    };
    outcome.ratio = budget::ratio(sum);
    outcome.remaining = budget::remaining(sum, objective.objective);
    outcome
}

#[derive(Default)]
struct Alarms {
    next: f64,
    firing: BTreeMap<Severity, f64>,
}

impl Alarms {
    /// After this many quiet seconds, an alert that fires counts as a new alert.
    const APART: f64 = 300.0;

    fn until(&mut self, at: f64, tracker: &mut Tracker, outcome: &mut Outcome) {
        if self.next == 0.0 {
            self.next = at;
        }
        // No alert begins to fire without calls, which makes it safe to skip long gaps.
        let quiet = at - 3600.0;
        if self.next < quiet {
            self.next = quiet;
        }
        while self.next < at {
            tracker.close_slices(self.next as u64);
            for alert in tracker
                .alerts(self.next)
                .iter()
                .filter(|alert| alert.firing)
            {
                let severity = alert.tier.severity;
                let last = self.firing.insert(severity, self.next);
                if last.is_none_or(|last| self.next - last > Alarms::APART) {
                    match severity {
                        Severity::Page => outcome.pages += 1,
                        Severity::Ticket => outcome.tickets += 1,
                    }
                }
            }
            self.next += 60.0;
        }
    }
}

/// When a recorded call ended, in seconds since 1970.
pub fn ended_at(call: &CallRecord) -> f64 {
    since_1970(call.started_at.time()) + call.seconds.duration.unwrap_or(0.0)
}

/// Objectives that these calls would have met: for each workload, otherwise for each route, the
/// strictest round threshold that the given share of calls meets.
pub fn suggest(
    calls_of_log: &[CallRecord],
    objective: f64,
    window: Duration,
) -> Vec<Arc<Objective>> {
    let mut groups: BTreeMap<(bool, &str), Vec<&CallRecord>> = BTreeMap::new();
    for call in calls_of_log {
        let group = match call.workload.as_deref() {
            Some(workload) => (true, workload),
            None => (false, call.route.as_str()),
        };
        groups.entry(group).or_default().push(call);
    }
    let mut all = Vec::new();
    for ((of_workload, name), calls) in groups {
        let select = Selector {
            workload: of_workload.then(|| name.to_owned()),
            route: (!of_workload).then(|| name.to_owned()),
            ..Selector::default()
        };
        for sli in [
            Sli::Availability,
            Sli::Ttft(0.0),
            Sli::OutputTps(0.0),
            Sli::Duration(0.0),
        ] {
            if let Some(sli) = kept_by(&calls, sli, objective) {
                let candidate = Objective {
                    name: format!("{name}-{}", sli.as_str().replace('_', "-")).into(),
                    objective,
                    window,
                    calendar_month: false,
                    judgement: Judgement {
                        sli,
                        select: select.clone(),
                        weight: Weight::Request,
                        min_output_tokens: 0,
                        min_streams: 0,
                        warm_up: true,
                        slice: None,
                    },
                    min_events: 10,
                    description: None,
                    runbook_url: None,
                    dashboard_url: None,
                };
                all.extend(met(candidate, calls_of_log).map(Arc::new));
            }
        }
    }
    all
}

/// Shares that are tried if a higher share was not met.
const SHARES: [f64; 8] = [0.999, 0.995, 0.99, 0.98, 0.95, 0.9, 0.8, 0.5];

/// The objective with the highest share, up to its current share, that `calls` met; `None` if there
/// is none. Failed calls count as bad. Availability has no threshold to choose.
fn met(objective: Objective, calls: &[CallRecord]) -> Option<Objective> {
    let lower = SHARES
        .into_iter()
        .filter(|share| *share < objective.objective);
    std::iter::once(objective.objective)
        .chain(lower)
        .map(|share| Objective {
            objective: share,
            ..objective.clone()
        })
        .find(|candidate| {
            let outcome = replay(&Arc::new(candidate.clone()), calls);
            outcome.ratio.is_some() && outcome.remaining >= 0.0
        })
}

/// The indicator with the strictest round threshold that `share` of the calls meets.
fn kept_by(calls: &[&CallRecord], sli: Sli, share: f64) -> Option<Sli> {
    if sli == Sli::Availability {
        return Some(sli);
    }
    let value = |call: &&CallRecord| match sli {
        Sli::Ttft(_) => call.seconds.ttft,
        Sli::OutputTps(_) => call.tps.output,
        _ => call
            .seconds
            .duration
            .filter(|_| call.outcome == tokengauge_core::call::Outcome::Complete),
    };
    let mut values: Vec<f64> = calls.iter().filter_map(value).collect();
    values.sort_by(f64::total_cmp);
    if sli.at_least() {
        values.reverse();
    }
    // At least share × n of n values must meet the threshold.
    let needed = (values.len() as f64 * share).ceil() as usize;
    let edge = *values.get(needed.checked_sub(1)?)?;
    let threshold = round(edge, sli.at_least());
    (threshold > 0.0).then(|| sli.with_threshold(threshold))
}

/// The next round value on the side that is still met.
fn round(value: f64, down: bool) -> f64 {
    const STEPS: [f64; 10] = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0];
    if value <= 0.0 {
        return 0.0;
    }
    let scale = 10f64.powf(value.log10().floor());
    let mut steps = STEPS.iter().chain(&[10.0]).map(|step| {
        // Formatting makes 3 × 0.1 equal to 0.3.
        format!("{:.9}", step * scale)
            .parse()
            .unwrap_or(step * scale)
    });
    if down {
        steps.rfind(|step| *step <= value).unwrap_or(scale)
    } else {
        steps.find(|step| *step >= value).unwrap_or(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_core::time::rfc3339_millis;

    fn call(number: u64, outcome: &str) -> CallRecord {
        let at = std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + number);
        serde_json::from_value(serde_json::json!({
            "id": format!("c-{number}"),
            "started_at": rfc3339_millis(at).to_string(),
            "route": "r", "upstream": "u", "dialect": "openai_chat", "operation": "chat",
            "operation_class": "generation", "outcome": outcome, "status": 200,
            "streamed": true, "warm_up": false, "finish_reasons": [],
            "tokens": {"normalised": {"output": 50}, "reported": {}},
            "seconds": {"ttft": (outcome == "complete").then_some(0.3), "duration": 2.0},
            "tps": {"output": (outcome == "complete").then_some(40.0)},
            "frames": 50, "stalls": 0, "segments": [], "bytes": {"request": 1, "response": 1},
        }))
        .expect("a call")
    }

    #[test]
    fn what_is_suggested_was_met() {
        let outcomes = |number| {
            if number % 4 == 0 {
                "timeout"
            } else {
                "complete"
            }
        };
        let calls: Vec<_> = (0..200)
            .map(|number| call(number, outcomes(number)))
            .collect();
        let suggested = suggest(&calls, 0.99, Duration::from_secs(30 * 86_400));
        assert!(suggested.len() >= 3, "{suggested:?}");
        for objective in &suggested {
            let outcome = replay(objective, &calls);
            assert!(outcome.remaining >= 0.0, "{}: {outcome:?}", objective.name);
        }
        let availability = suggested
            .iter()
            .find(|one| one.judgement.sli == Sli::Availability);
        assert_eq!(availability.expect("availability").objective, 0.5);
    }

    #[test]
    fn thresholds_are_rounded_to_the_side_that_is_met() {
        for (value, up, down) in [
            (0.43, 0.5, 0.4),
            (31.0, 40.0, 30.0),
            (9.3, 10.0, 8.0),
            (0.3, 0.3, 0.3),
            (1.0, 1.0, 1.0),
            (0.0123, 0.015, 0.012),
        ] {
            assert_eq!(
                (round(value, false), round(value, true)),
                (up, down),
                "{value}"
            );
        }
    }
}
