//! Exemplars: from a bucket to the trace of a call that fell into it.

use std::time::SystemTime;
use tokengauge_meter::FinishedCall;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    pub trace: u128,
    pub value: f64,
    pub at: SystemTime,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trace {
    id: u128,
    at: SystemTime,
}

impl Trace {
    /// The trace of a finished call; `None` if it was not sampled.
    pub fn of(finished_call: &FinishedCall) -> Option<Trace> {
        let id = finished_call.trace_id.filter(|_| finished_call.sampled)?;
        let at = finished_call.timestamps.wall(finished_call.ended);
        Some(Trace { id, at })
    }

    pub fn exemplar(&self, value: f64) -> Exemplar {
        Exemplar {
            trace: self.id,
            value,
            at: self.at,
        }
    }
}
