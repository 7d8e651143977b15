use std::time::{Duration, SystemTime};
use tokengauge_core::call::{CallRecord, Outcome};
use tokengauge_meter::FinishedCall;

/// A finished call with its start and end on the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct TimedCall<'a> {
    pub record: &'a CallRecord,
    /// When the proxy had read the request head.
    pub started: SystemTime,
    pub ended: SystemTime,
    /// Whether the call is nested in another call, which counts for the session.
    pub nested: bool,
}

impl<'a> TimedCall<'a> {
    pub fn of(record: &'a CallRecord) -> TimedCall<'a> {
        let started = record.started_at.time();
        TimedCall {
            record,
            started,
            ended: started.checked_add(duration(record)).unwrap_or(started),
            nested: false,
        }
    }

    pub fn of_finished(finished_call: &'a FinishedCall) -> TimedCall<'a> {
        TimedCall {
            nested: finished_call.nested,
            ..TimedCall::of(&finished_call.record)
        }
    }

    /// Whether the call failed. A call that its agent cancelled did not fail.
    pub fn failed(&self) -> bool {
        let outcome = self.record.outcome;
        !matches!(outcome, Outcome::Complete | Outcome::ClientCancelled)
    }

    /// The tokens after the first chunk and the seconds they took, if the call has a speed.
    pub fn decode(&self) -> Option<(f64, f64)> {
        let tps = self.record.tps.output.filter(|tps| tps.is_finite())?;
        // A response that the server started by itself begins with its first token.
        let first = self.record.seconds.ttft.unwrap_or(0.0);
        let seconds = self.record.seconds.last_token? - first;
        Some((tps * seconds, seconds))
    }
}

fn duration(record: &CallRecord) -> Duration {
    let seconds = record.seconds.duration.unwrap_or(0.0);
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
