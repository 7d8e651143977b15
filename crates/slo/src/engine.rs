//! The objectives of the process: counts finished calls, judges calls in progress once a second,
//! and reports the status.

use super::calendar::Calendar;
use super::causes::Causes;
use super::in_progress::{Bounds, JudgedCall, Partial, deadline, segment, watches};
use super::minutes::UnderWay;
use super::objective::{Objective, Sli};
use super::samples::{Samples, Verdicts};
use super::saved_state::{AHEAD, Doubted};
use super::tracker::{CallRef, SavedTracker, Tracker};
use super::verdict::{self, Finished};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::finished::FinishedCall;
use tokengauge_core::hash::FastMap;
use tokengauge_core::selector::Names;
use tokengauge_core::subscriber::Subscriber;
use tokengauge_core::throughput::{RateKey, Throughput};
use tokengauge_core::time::since_1970;
use tokengauge_meter::settings::Measure;
use tokengauge_meter::{Meter, Progress};
use uuid::Uuid;

/// Verdicts on calls in progress are forgotten after this time without a record.
const FORGET_AFTER: Duration = Duration::from_secs(300);
/// Maximum number of calls in progress whose verdicts are remembered.
const MAX_JUDGED: usize = 40_000;
/// Maximum number of removed objectives whose counts are kept.
const MAX_RETIRED: usize = 100;
/// The clock is trusted if it is not set back within this number of seconds after the start.
const TRUSTED_AFTER: i64 = 3_600;

#[derive(Debug)]
pub struct Slos {
    state: Mutex<EngineState>,
    pub(crate) causes: Causes,
}

#[derive(Debug)]
pub struct EngineState {
    pub trackers: Vec<Tracker>,
    pub calendar: Calendar,
    judged: FastMap<Uuid, JudgedCall>,
    pub samples: Samples,
    /// Counts of objectives that are not configured any more.
    pub retired: BTreeMap<String, SavedTracker>,
    /// The counts of the previous process, as long as their age is uncertain because of a wrong
    /// clock.
    pub doubted: Option<Doubted>,
    pub changed: bool,
    bounds: Bounds,
}

impl Slos {
    /// Creates the counts for `objectives`. `now` and `wall` are the same moment on two clocks.
    pub fn new(
        objectives: &[Arc<Objective>],
        measure: &Measure,
        now: Instant,
        wall: SystemTime,
    ) -> Arc<Slos> {
        let calendar = Calendar::new(now, wall);
        let seconds = calendar.seconds(now) as u64;
        let trackers = objectives.iter();
        Arc::new(Slos {
            state: Mutex::new(EngineState {
                trackers: trackers.map(|slo| Tracker::new(slo, seconds)).collect(),
                calendar,
                judged: FastMap::default(),
                samples: Samples::default(),
                retired: BTreeMap::new(),
                doubted: None,
                changed: false,
                bounds: Bounds::of(measure),
            }),
            causes: Causes::default(),
        })
    }

    /// Replaces the objectives at `now`. Counts under an unchanged judgement are kept. Counts of a
    /// removed objective are retained in case it comes back. Returns the names of objectives whose
    /// counts restarted.
    pub fn change(
        &self,
        objectives: &[Arc<Objective>],
        measure: &Measure,
        now: Instant,
    ) -> Vec<Arc<str>> {
        let mut state = self.state();
        let state = &mut *state;
        let seconds = state.calendar.seconds(now) as u64;
        let mut before: Vec<Option<Tracker>> = state.trackers.drain(..).map(Some).collect();
        let mut moved = vec![None; before.len()];
        let mut anew = Vec::new();
        for objective in objectives {
            let known = before.iter().position(|tracker| {
                let known = tracker.as_ref().map(|tracker| &tracker.objective.name);
                known == Some(&objective.name)
            });
            let known = known.and_then(|at| Some((at, before[at].take()?)));
            let tracker = match known {
                Some((at, known)) if known.objective.judgement == objective.judgement => {
                    moved[at] = Some(state.trackers.len());
                    known.under(objective, seconds)
                }
                other => {
                    let mut tracker = Tracker::new(objective, seconds);
                    match state.retired.remove(&*objective.name) {
                        Some(kept) if other.is_none() => tracker.restore(seconds, &kept),
                        _ => {}
                    }
                    anew.push(Arc::clone(&objective.name));
                    tracker
                }
            };
            state.trackers.push(tracker);
        }
        state.retire(before.into_iter().flatten(), seconds);
        for judged in state.judged.values_mut() {
            judged.by.retain_mut(|by| match moved[by.0] {
                Some(to) => {
                    by.0 = to;
                    true
                }
                None => false,
            });
        }
        state.samples.moved(&moved);
        state.bounds = Bounds::of(measure);
        state.changed = true;
        anew
    }

    pub fn is_empty(&self) -> bool {
        self.state().trackers.is_empty()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, EngineState> {
        self.state.lock()
    }

    /// Must be called once a second. Judges calls in progress, closes slices and follows the clock.
    pub fn tick(&self, now: Instant, wall: SystemTime, meter: &Meter) {
        let mut state = self.state();
        state.follow(now, wall);
        let seconds = state.calendar.seconds(now) as u64;
        state.trust_clock(seconds);
        for tracker in &mut state.trackers {
            tracker.close_slices(seconds);
        }
        if state
            .trackers
            .iter()
            .any(|tracker| watches(&tracker.objective))
        {
            // The lock is held, so that a record is counted either before this loop, when its call
            // is no longer in progress, or after it.
            let mut under_way = vec![UnderWay::default(); state.trackers.len()];
            meter.progress(|progress| self.look(&mut state, now, &progress, &mut under_way));
            state.close_minutes(now, &under_way, meter.throughput());
            let recent =
                |judged: &JudgedCall| now.saturating_duration_since(judged.seen) < FORGET_AFTER;
            state.judged.retain(|_, judged| recent(judged));
        }
    }

    /// Judges a call in progress, or counts it for objectives on throughput.
    fn look(
        &self,
        state: &mut EngineState,
        now: Instant,
        progress: &Progress,
        under_way: &mut [UnderWay],
    ) {
        if !progress.operation_class.counts() {
            return;
        }
        let names = Names {
            workload: progress.workload.as_deref(),
            route: &progress.route,
            upstream: &progress.upstream,
            model: progress.model.as_deref(),
            agent: progress.agent.as_deref(),
            team: progress.payer.team.as_deref(),
            cost_center: progress.payer.cost_center.as_deref(),
            tenant: progress.payer.tenant.as_deref(),
        };
        if let Some(judged) = state.judged.get_mut(&progress.id) {
            judged.seen = now;
        }
        let seconds = state.calendar.seconds(now) as u64;
        for (at, under_way) in under_way.iter_mut().enumerate() {
            let objective = Arc::clone(&state.trackers[at].objective);
            let judgement = &objective.judgement;
            let left_out = progress.warm_up && !judgement.warm_up;
            if left_out || !watches(&objective) || !judgement.select.matches(&names) {
                continue;
            }
            if matches!(judgement.sli, Sli::Throughput(_)) {
                under_way.streams += u32::from(progress.streamed == Some(true));
                under_way.calls += 1;
                continue;
            }
            let known = state.judged.get(&progress.id);
            let known = known.and_then(|judged| judged.by.iter().find(|by| by.0 == at));
            let partial = known.map_or(Partial::default(), |by| by.1);
            let found = match judgement.sli {
                Sli::OutputTps(_) => segment(&objective, state.bounds, progress, now, partial),
                sli if !partial.so_far.decided => deadline(sli, progress, now),
                _ => None,
            };
            if let Some((events, partial)) = found
                && state.remember(progress.id, now, (at, partial))
            {
                let id = progress.id.to_string();
                let call_ref = CallRef {
                    call: &id,
                    trace_id: progress.trace_id.as_deref(),
                };
                state.trackers[at].count(seconds, &events, call_ref);
                state.changed = true;
            }
        }
    }
}

impl EngineState {
    /// Judges the settled minutes of throughput objectives.
    fn close_minutes(&mut self, now: Instant, under_way: &[UnderWay], throughput: &Throughput) {
        let seconds = self.calendar.seconds(now) as u64;
        let second = throughput.second(now);
        if second == 0 {
            return;
        }
        for (tracker, under_way) in self.trackers.iter_mut().zip(under_way) {
            let judgement = &tracker.objective.judgement;
            let came = |seconds| {
                let matches = |key: &RateKey| {
                    judgement.select.matches(&Names {
                        workload: key.workload.as_deref(),
                        route: &key.route,
                        upstream: &key.upstream,
                        model: Some(&key.model),
                        agent: None,
                        team: None,
                        cost_center: None,
                        tenant: None,
                    })
                };
                throughput.sum(seconds, matches)
            };
            let minutes = tracker.minutes.as_mut();
            let events =
                minutes.and_then(|minutes| minutes.look(judgement, second, *under_way, came));
            if let Some(events) = events {
                tracker.count(seconds, &events, CallRef::default());
                self.changed = true;
            }
        }
    }

    pub(super) fn follow(&mut self, now: Instant, wall: SystemTime) {
        if let Some(jump) = self.calendar.follow(now, wall) {
            tracing::warn!(seconds = jump, "the clock was set; counts keep their age");
            let trackers = self.trackers.iter_mut();
            trackers.for_each(|tracker| tracker.redate(jump));
            self.samples.clear();
            self.follow_doubted(jump, since_1970(wall));
        }
    }

    /// Retains the counts of removed objectives for the length of their window.
    fn retire(&mut self, gone: impl Iterator<Item = Tracker>, now: u64) {
        self.retired
            .retain(|_, kept| kept.kept_at + kept.window.as_secs() > now);
        for gone in gone {
            if self.retired.len() < MAX_RETIRED {
                let name = gone.objective.name.to_string();
                self.retired.insert(name, gone.kept(now).retire());
            }
        }
    }

    pub(super) fn restore_retired(&mut self, slos: &BTreeMap<String, SavedTracker>, now: f64) {
        let configured = |name: &str| self.trackers.iter().any(|t| &*t.objective.name == name);
        let retired = slos.iter().filter(|(name, slo)| {
            let over = Duration::from_secs(slo.kept_at) + slo.window;
            !configured(name) && over.as_secs_f64() > now
        });
        self.retired = retired
            .take(MAX_RETIRED)
            .map(|(name, slo)| (name.clone(), slo.clone().retire()))
            .collect();
    }

    /// Handles a clock that was set by `jump` seconds to `now`. If it was set back, the state from
    /// before the start is restored.
    pub(super) fn follow_doubted(&mut self, jump: i64, now: f64) {
        let Some(mut doubted) = self.doubted.take() else {
            return;
        };
        doubted.since = doubted.since.saturating_add(jump);
        if jump >= 0 || doubted.state.saved_at > now + AHEAD {
            self.doubted = Some(doubted);
            return;
        }
        // The previous counts are at least a day older, and buckets move by whole hours.
        let since = doubted.since.saturating_sub(2 * 3_600).max(0) as u64;
        let kept = &doubted.state.slos;
        for tracker in &mut self.trackers {
            if let Some(kept) = kept.get(&*tracker.objective.name) {
                tracker.give_back(now as u64, since, kept);
            }
        }
        self.restore_retired(kept, now);
        self.changed = true;
        tracing::warn!("the clock was ahead at the start; the previous counts are restored");
    }

    /// Forgets the state from before the start when the clock has been right for long enough.
    fn trust_clock(&mut self, now: u64) {
        let since = self.doubted.as_ref().map(|doubted| doubted.since);
        if since.is_some_and(|since| now as i64 - since > TRUSTED_AFTER) {
            self.doubted = None;
            self.changed = true;
        }
    }

    /// Remembers a verdict. Returns `false` if there are too many calls; the call is then judged
    /// only when it ends.
    fn remember(&mut self, id: Uuid, seen: Instant, by: (usize, Partial)) -> bool {
        if self.judged.len() >= MAX_JUDGED && !self.judged.contains_key(&id) {
            return false;
        }
        let judged = self.judged.entry(id).or_insert(JudgedCall {
            seen,
            by: Vec::new(),
        });
        match judged.by.iter_mut().find(|known| known.0 == by.0) {
            Some(known) => *known = by,
            None => judged.by.push(by),
        }
        true
    }
}

impl Subscriber for Slos {
    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        let call = Finished::of(finished_call);
        let names = call.names();
        let mut state = self.state();
        let judged = state.judged.remove(&finished_call.id);
        let mut verdicts = Verdicts::default();
        let seconds = state.calendar.seconds(finished_call.ended) as u64;
        let call_ref = CallRef {
            call: &call.record.id,
            trace_id: call.record.trace_id.as_deref(),
        };
        for at in 0..state.trackers.len() {
            let tracker = &mut state.trackers[at];
            let by = judged.iter().flat_map(|judged| &judged.by);
            let partial = by.filter(|by| by.0 == at).map(|by| by.1).next();
            let judgement = &tracker.objective.judgement;
            if partial.is_none() && !judgement.select.matches(&names) {
                continue;
            }
            let so_far = partial.unwrap_or_default().so_far;
            let events = verdict::judge_rest(judgement, &call, &so_far);
            match (so_far.decided, judgement.sli) {
                (_, Sli::Throughput(_)) if call.record.operation_class.counts() => {
                    verdicts.add_counted(at);
                }
                (true, _) => verdicts.add_bad(at),
                (false, _) => verdicts.add(at, &events, tracker.objective.budget()),
            }
            for events in &events {
                tracker.count(seconds, events, call_ref);
            }
            state.changed |= !events.is_empty();
        }
        let ended = state.calendar.seconds(finished_call.ended);
        state.samples.add(ended, finished_call, verdicts);
    }
}
