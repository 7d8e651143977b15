//! The contribution of each call to the figures of its group, and the reasons why some calls contribute nothing.

use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use tokengauge_core::call::{CallRecord, OperationClass, Outcome};
use tokengauge_core::fingerprint::FingerprintBuilder;
use tokengauge_core::time::since_1970;
use tokengauge_store::history::{TimedCall, tokens};

/// The values of one call. Unknown values are NaN, which takes half the memory of an `Option`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    /// The number of the session. A call without a session has a unique number.
    pub(super) unit: u32,
    /// Seconds since 1970.
    pub(super) started: f64,
    pub(super) duration: f64,
    pub(super) failed: bool,
    pub(super) tps: f64,
    pub(super) reported: f64,
    pub(super) decode: f64,
    pub(super) ttft: f64,
    /// The cost of a generation in US dollars.
    pub(super) cost: f64,
    pub(super) output: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Judged {
    pub(super) calls: u64,
    pub(super) of: u64,
    pub(super) without: BTreeMap<&'static str, u64>,
}

impl Judged {
    fn add(&mut self, reason: Option<&'static str>) {
        self.of += 1;
        match reason {
            None => self.calls += 1,
            Some(reason) => *self.without.entry(reason).or_default() += 1,
        }
    }

    pub(super) fn merge(&mut self, other: &Judged) {
        self.calls += other.calls;
        self.of += other.of;
        for (reason, calls) in &other.without {
            *self.without.entry(reason).or_default() += calls;
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Observations {
    pub(super) calls: Vec<Observation>,
    pub(super) tps: Judged,
    pub(super) ttft: Judged,
    pub(super) cost: Judged,
    pub(super) fingerprint: FingerprintBuilder,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Sessions {
    pub(super) count: u64,
    pub(super) calls_of_largest: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Units {
    sessions: HashMap<String, u32>,
    last: u32,
}

impl Units {
    pub(super) fn count(&self) -> u32 {
        self.last
    }

    /// Returns the number of the call's session, or a unique number.
    pub(super) fn of(&mut self, call: &CallRecord) -> u32 {
        let mut fresh = || {
            self.last = self.last.saturating_add(1);
            self.last
        };
        match &call.session {
            Some(session) => *self.sessions.entry(session.clone()).or_insert_with(fresh),
            None => fresh(),
        }
    }
}

impl Observations {
    pub(super) fn sessions(&self) -> Sessions {
        let mut calls: HashMap<u32, u64> = HashMap::new();
        for call in &self.calls {
            *calls.entry(call.unit).or_default() += 1;
        }
        Sessions {
            count: calls.len() as u64,
            calls_of_largest: calls.into_values().max().unwrap_or(0),
        }
    }

    /// Adds a call. `timed` is false for warm-up calls, whose speed is excluded.
    pub(super) fn add(&mut self, past: &TimedCall<'_>, unit: u32, timed: bool) {
        let call = past.record;
        self.fingerprint.add(call);
        let known = |value: Option<f64>| value.filter(|value| value.is_finite());
        let when_timed = |value| known(value).filter(|_| timed).unwrap_or(f64::NAN);
        let (tps, ttft) = (when_timed(call.tps.output), when_timed(call.seconds.ttft));
        let generation = call.operation_class == OperationClass::Generation;
        let cost = known(call.cost_usd).filter(|_| generation);
        self.tps.add(tps.is_nan().then(|| without_tps(call, timed)));
        self.ttft
            .add(ttft.is_nan().then(|| without_ttft(call, timed)));
        self.cost.add(cost.is_none().then(|| without_cost(call)));
        self.calls.push(Observation {
            unit,
            started: since_1970(past.started),
            duration: known(call.seconds.duration).unwrap_or(0.0),
            failed: past.failed(),
            tps,
            reported: when_timed(call.tps.reported),
            decode: when_timed(past.decode().map(|(_, seconds)| seconds)),
            ttft,
            cost: cost.unwrap_or(f64::NAN),
            output: tokens(call).output.unwrap_or(0) as f64,
        });
    }
}

fn without_tps(call: &CallRecord, timed: bool) -> &'static str {
    match call.tps.unavailable {
        _ if !timed => "warm_up",
        Some(reason) => reason.as_str(),
        None => "no_generation",
    }
}

fn without_ttft(call: &CallRecord, timed: bool) -> &'static str {
    match call.outcome {
        _ if !timed => "warm_up",
        Outcome::Complete if call.streamed == Some(false) => "not_streamed",
        Outcome::Complete => "no_text",
        outcome => outcome.as_str(),
    }
}

fn without_cost(call: &CallRecord) -> &'static str {
    match (call.operation_class, call.cost_unavailable) {
        (OperationClass::Generation, Some(reason)) => reason.as_str(),
        // Records of older versions have no reason.
        (OperationClass::Generation, None) => "unknown",
        _ => "no_generation",
    }
}
