//! Exemplars: from a bucket to the trace of a call that fell into it.

use std::time::{Duration, SystemTime};
use tokengauge_meter::FinishedCall;

/// One observation and the trace of its call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// The W3C trace id.
    pub trace: u128,
    /// What was observed.
    pub value: f64,
    /// When, on the wall clock.
    pub at: SystemTime,
}

/// The trace that the observations of one call point to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trace {
    id: u128,
    at: SystemTime,
}

impl Trace {
    /// Of a finished call; `None` where nobody recorded its trace.
    pub fn of(finished_call: &FinishedCall) -> Option<Trace> {
        let record = Some(&finished_call.record).filter(|_| finished_call.sampled)?;
        let id = u128::from_str_radix(record.trace_id.as_deref()?, 16).ok()?;
        let started = humantime::parse_rfc3339(&record.started_at).ok()?;
        let duration = Duration::try_from_secs_f64(record.seconds.duration?).ok()?;
        let at = started + duration;
        (id != 0).then_some(Trace { id, at })
    }

    /// The exemplar of a call's `value`.
    pub fn exemplar(&self, value: f64) -> Exemplar {
        Exemplar {
            trace: self.id,
            value,
            at: self.at,
        }
    }
}
