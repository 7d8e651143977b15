use super::budget;
use super::minutes::Minutes;
use super::months::{Attainment, Months};
use super::objective::Objective;
use super::reason::{CallVerdict, Reason};
use super::ring::{Ring, SavedRing, Sum};
use super::verdict::{self, Events};
use super::windows::{Tier, tiers};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::time::Timestamp;

/// Number of calls that spent budget to remember.
const MAX_SPENT: usize = 50;

/// A call that spent budget, with its trace.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Spent {
    /// When the call spent budget, RFC 3339 in UTC.
    pub at: Timestamp,
    /// The id of the call.
    pub call: String,
    /// The trace of the call, if the agent sent one.
    pub trace_id: Option<String>,
    /// Why the call was bad.
    pub reason: Reason,
    /// The value of the indicator.
    pub value: Option<f64>,
    /// The number of bad events: calls or tokens.
    pub events: u64,
}

/// The call that events belong to; empty if a minute was judged.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallRef<'a> {
    pub call: &'a str,
    pub trace_id: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenSlice {
    /// The number of the slice since 1970.
    number: u64,
    good: u64,
    bad: u64,
}

/// A tier and whether it fires.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Alert {
    /// The pair of windows.
    #[serde(flatten)]
    pub tier: Tier,
    /// The burn rate over the long window.
    pub burn_long: f64,
    /// The burn rate over the short window.
    pub burn_short: f64,
    /// Observed seconds of the long window. The window is not observed completely while the
    /// objective is younger than the window.
    pub observed_seconds: f64,
    /// Whether both burn rates are above the factor, with enough events. A ticket over a day or
    /// more also needs a completely observed short window.
    pub firing: bool,
}

#[derive(Debug)]
pub struct Tracker {
    pub objective: Arc<Objective>,
    pub tiers: Vec<Tier>,
    ring: Ring,
    /// When counting began, in seconds since 1970, including the time before restarts.
    began: u64,
    slice: Option<OpenSlice>,
    /// Present if minutes are judged.
    pub minutes: Option<Minutes>,
    months: Months,
    totals: BTreeMap<(CallVerdict, Reason), u64>,
    spent: VecDeque<Spent>,
}

/// The part of a tracker that survives a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedTracker {
    pub judgement: super::Judgement,
    pub objective: f64,
    pub window: Duration,
    #[serde(default)]
    pub calendar_month: bool,
    /// When the tracker was saved, in seconds since 1970.
    pub kept_at: u64,
    /// Whether the objective was not configured any more.
    #[serde(default)]
    pub retired: bool,
    /// When counting began; missing in states of older versions.
    #[serde(default)]
    began: Option<u64>,
    ring: SavedRing,
    #[serde(default)]
    months: Months,
    slice: Option<OpenSlice>,
    spent: VecDeque<Spent>,
}

impl SavedTracker {
    /// The saved counts, marked as counts of a removed objective.
    pub fn retire(mut self) -> SavedTracker {
        self.retired = true;
        self
    }
}

impl Tracker {
    pub fn new(objective: &Arc<Objective>, now: u64) -> Tracker {
        let possible = verdict::possible(&objective.judgement).into_iter();
        Tracker {
            tiers: tiers(objective.window, objective.objective),
            ring: Ring::new(objective.window, now),
            began: now,
            slice: None,
            minutes: Minutes::of(&objective.judgement),
            months: Months::default(),
            totals: possible.map(|kind| (kind, 0)).collect(),
            spent: VecDeque::new(),
            objective: Arc::clone(objective),
        }
    }

    pub fn under(self, objective: &Arc<Objective>, now: u64) -> Tracker {
        let mut tracker = Tracker::new(objective, now);
        if self.objective.window == objective.window {
            tracker.ring = self.ring;
        } else {
            tracker.ring.restore(now, &self.ring.kept());
        }
        Tracker {
            began: self.began,
            slice: self.slice,
            minutes: self.minutes,
            months: self.months,
            totals: self.totals,
            spent: self.spent,
            ..tracker
        }
    }

    pub fn restore(&mut self, now: u64, kept: &SavedTracker) {
        if kept.judgement == self.objective.judgement {
            self.ring.restore(now, &kept.ring);
            // Older versions did not save the start, so counting is taken to have begun in 1970.
            self.began = self.began.min(kept.began.unwrap_or(0));
            self.slice = kept.slice;
            self.months.clone_from(&kept.months);
            self.spent.clone_from(&kept.spent);
        }
    }

    /// Restores saved counts that a wrong clock expired, and keeps the counts since `since`, in
    /// seconds since 1970.
    pub fn give_back(&mut self, now: u64, since: u64, kept: &SavedTracker) {
        if kept.judgement == self.objective.judgement {
            let mut ring = kept.ring.clone();
            ring.extend(self.ring.kept(), since);
            self.ring = Ring::new(self.objective.window, now);
            self.ring.restore(now, &ring);
            self.began = kept.began.unwrap_or(0);
        }
    }

    pub fn kept(&self, now: u64) -> SavedTracker {
        SavedTracker {
            judgement: self.objective.judgement.clone(),
            objective: self.objective.objective,
            window: self.objective.window,
            calendar_month: self.objective.calendar_month,
            kept_at: now,
            retired: false,
            began: Some(self.began),
            ring: self.ring.kept(),
            months: self.months.clone(),
            slice: self.slice,
            spent: self.spent.clone(),
        }
    }

    pub fn count(&mut self, now: u64, events: &Events, call_ref: CallRef<'_>) {
        let (good, bad) = match events.verdict {
            CallVerdict::Good => (events.count, 0),
            CallVerdict::Bad => (0, events.count),
            CallVerdict::Excluded => (0, 0),
        };
        if let Some(slice) = &self.objective.judgement.slice {
            let number = now / slice.every.as_secs().max(1);
            self.close_slices(now);
            let open = self.slice.get_or_insert_default();
            if open.number < number {
                *open = OpenSlice {
                    number,
                    ..OpenSlice::default()
                };
            }
            open.good += good;
            open.bad += bad;
        } else {
            self.total(now, events.verdict, events.reason, events.count);
            self.ring.add(now, good, bad);
        }
        if bad > 0 && !call_ref.call.is_empty() {
            self.remember(now, events, call_ref);
        }
    }

    /// Counts the slices of time that have ended as events.
    pub fn close_slices(&mut self, now: u64) {
        let Some(slice) = self.objective.judgement.slice else {
            return;
        };
        let number = now / slice.every.as_secs().max(1);
        let open = *self.slice.get_or_insert(OpenSlice {
            number,
            ..OpenSlice::default()
        });
        if number <= open.number {
            return;
        }
        let (good, all) = (open.good as f64, (open.good + open.bad) as f64);
        if all == 0.0 {
            self.total(now, CallVerdict::Excluded, Reason::NoTraffic, 1);
        } else if good >= slice.target * all {
            self.total(now, CallVerdict::Good, Reason::Met, 1);
            self.ring.add(now, 1, 0);
        } else {
            self.total(now, CallVerdict::Bad, Reason::Missed, 1);
            self.ring.add(now, 0, 1);
        }
        // Slices that passed unseen, for example while the process was down, had no calls.
        let unseen = (number - open.number - 1).min(1_000_000);
        self.total(now, CallVerdict::Excluded, Reason::NoTraffic, unseen);
        self.slice = Some(OpenSlice {
            number,
            ..OpenSlice::default()
        });
    }

    fn total(&mut self, now: u64, verdict: CallVerdict, reason: Reason, count: u64) {
        if count > 0 {
            self.months.add(now, verdict, count);
        }
        *self.totals.entry((verdict, reason)).or_default() += count;
    }

    fn remember(&mut self, now: u64, events: &Events, call_ref: CallRef<'_>) {
        if self.spent.len() == MAX_SPENT {
            self.spent.pop_front();
        }
        let at = std::time::UNIX_EPOCH + Duration::from_secs(now);
        self.spent.push_back(Spent {
            at: Timestamp::seconds(at),
            call: call_ref.call.to_owned(),
            trace_id: call_ref.trace_id.map(str::to_owned),
            reason: events.reason,
            value: events.value.filter(|value| value.is_finite()),
            events: events.count,
        });
    }

    /// Moves all counts by the seconds by which the clock was set.
    pub fn redate(&mut self, seconds: i64) {
        if let Some(minutes) = &mut self.minutes {
            minutes.redate(seconds);
        }
        self.ring.redate(seconds);
        self.began = self.began.saturating_add_signed(seconds);
        if let (Some(open), Some(slice)) = (&mut self.slice, self.objective.judgement.slice) {
            let slices = seconds / i64::try_from(slice.every.as_secs().max(1)).unwrap_or(i64::MAX);
            open.number = open.number.saturating_add_signed(slices);
        }
    }

    pub fn totals(&self) -> &BTreeMap<(CallVerdict, Reason), u64> {
        &self.totals
    }

    pub fn spent(&self) -> &VecDeque<Spent> {
        &self.spent
    }

    pub fn sum(&self, now: f64, window: Duration) -> Sum {
        self.ring.sum(now, window)
    }

    /// The length of buckets in seconds, and the buckets of `window` by minute or hour, oldest
    /// first.
    pub fn buckets(&self, now: f64, window: Duration) -> (u64, Vec<(u64, Sum)>) {
        self.ring.buckets(now, window)
    }

    /// The events of the budget's period: the window, or the calendar month so far.
    pub fn period(&self, now: f64) -> Sum {
        if self.objective.calendar_month {
            self.months.current(now)
        } else {
            self.sum(now, self.objective.window)
        }
    }

    pub fn attained(&self, now: f64) -> Vec<Attainment> {
        self.months.attained(now, self.objective.objective)
    }

    pub fn remaining(&self, now: f64) -> f64 {
        budget::remaining(self.period(now), self.objective.objective)
    }

    pub fn burn(&self, now: f64, window: Duration) -> f64 {
        budget::burn_rate(self.sum(now, window), self.objective.objective)
    }

    pub fn windows(&self) -> Vec<Duration> {
        let pairs = self.tiers.iter().flat_map(|tier| [tier.short, tier.long]);
        let mut windows: Vec<Duration> = pairs.chain([self.objective.window]).collect();
        windows.sort_unstable();
        windows.dedup();
        windows
    }

    pub fn alerts(&self, now: f64) -> Vec<Alert> {
        let alerts = self.tiers.iter().map(|tier| {
            let (long, short) = (self.burn(now, tier.long), self.burn(now, tier.short));
            // Partly covered buckets yield fractions of events.
            let enough = self.sum(now, tier.long).all().round() >= self.objective.min_events as f64;
            let observed = (now - self.began as f64).clamp(0.0, tier.long.as_secs_f64());
            let old_enough = !tier.is_slow_ticket() || observed >= tier.short.as_secs_f64();
            Alert {
                tier: *tier,
                burn_long: long,
                burn_short: short,
                observed_seconds: observed,
                firing: enough && old_enough && long > tier.factor && short > tier.factor,
            }
        });
        alerts.collect()
    }
}
