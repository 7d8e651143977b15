//! Finds out in the background why objectives are missed, while their budgets burn.

use super::causes::{Burning, Found};
use super::engine::Slos;
use super::samples::phases;
use super::tracker::Tracker;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokengauge_cause::{Call, Cause, Minute, Phases, find, find_throughput};

/// The search covers the long window of the fastest alert this many times, to include calls from before it.
const WINDOWS: f64 = 2.0;
/// The search covers at least this many seconds.
const LEAST_SECONDS: f64 = 1_800.0;

/// The calls in which a cause is looked for, the oldest first.
struct Evidence {
    /// The phases that matter to the objective, if it judges calls.
    phases: Option<Phases>,
    calls: Vec<Call>,
    /// The minutes of a throughput objective.
    minutes: Vec<Minute>,
}

impl Evidence {
    fn cause(&self, wall: SystemTime) -> Cause {
        match self.phases {
            Some(phases) => find(&self.calls, phases, wall),
            None => find_throughput(&self.minutes, &self.calls, wall),
        }
    }
}

impl Slos {
    /// Finds the causes of all objectives whose budgets burn, unless they are current, and forgets
    /// the causes of the other objectives. Blocks while it computes, so it must not run on the
    /// threads of traffic.
    pub fn look_for_causes(&self, now: Instant, wall: SystemTime) {
        let _only_one = self.causes.looking.lock();
        let burning = self.burning(now);
        let mut found = self.causes.found.lock();
        found.retain(|objective, _| burning.iter().any(|one| one.objective == *objective));
        drop(found);
        for one in burning {
            if self.causes.is_current(&one, now) {
                continue;
            }
            let Some(evidence) = self.evidence(&one.objective, now) else {
                continue;
            };
            let found = Found {
                at: now,
                firing: one.firing,
                cause: Arc::new(evidence.cause(wall)),
            };
            self.causes.found.lock().insert(one.objective, found);
        }
    }

    /// Objectives with a firing alert, or with a burn rate above 1 in the shortest window.
    fn burning(&self, now: Instant) -> Vec<Burning> {
        let state = self.state();
        let seconds = state.calendar.seconds(now);
        let burning = state.trackers.iter().filter_map(|tracker| {
            let short = tracker.windows().first().copied().unwrap_or_default();
            let firing = tracker.alerts(seconds).iter().any(|alert| alert.firing);
            (firing || tracker.burn(seconds, short) > 1.0).then(|| Burning {
                objective: Arc::clone(&tracker.objective.name),
                firing,
            })
        });
        burning.collect()
    }

    fn evidence(&self, objective: &Arc<str>, now: Instant) -> Option<Evidence> {
        let state = self.state();
        let is = |tracker: &Tracker| tracker.objective.name == *objective;
        let at = state.trackers.iter().position(is)?;
        let tracker = state.trackers.get(at)?;
        let seconds = state.calendar.seconds(now);
        let alerts = tracker.alerts(seconds);
        let firing = alerts.iter().find(|alert| alert.firing);
        let long = firing.or(alerts.first()).map(|alert| alert.tier.long);
        let back = WINDOWS * long.unwrap_or_default().as_secs_f64();
        let from = seconds - back.max(LEAST_SECONDS);
        let minutes = tracker.minutes.as_ref();
        Some(Evidence {
            phases: phases(tracker.objective.judgement.sli),
            calls: state.samples.judged(at, from),
            minutes: minutes.map_or(Vec::new(), |minutes| minutes.judged(from)),
        })
    }
}
