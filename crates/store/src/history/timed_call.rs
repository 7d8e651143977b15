//! A finished call on the wall clock.

use std::time::{Duration, SystemTime};
use tokengauge_core::call::{CallRecord, Outcome};
use tokengauge_meter::FinishedCall;

/// A finished call on the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct TimedCall<'a> {
    pub record: &'a CallRecord,
    /// When its request head had been read.
    pub started: SystemTime,
    pub ended: SystemTime,
    /// Whether it was made for another call, which counts for the session.
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

    /// The same of a call that the meter has just finished.
    pub fn of_finished(finished_call: &'a FinishedCall) -> TimedCall<'a> {
        TimedCall {
            nested: finished_call.nested,
            ..TimedCall::of(&finished_call.record)
        }
    }

    /// Whether it went wrong, and not because the agent left.
    pub fn failed(&self) -> bool {
        let outcome = self.record.outcome;
        !matches!(outcome, Outcome::Complete | Outcome::ClientCancelled)
    }

    /// The tokens after the first chunk and the seconds they took, where it has a speed.
    pub fn decode(&self) -> Option<(f64, f64)> {
        let tps = self.record.tps.output.filter(|tps| tps.is_finite())?;
        // What a server began by itself began with its first token.
        let first = self.record.seconds.ttft.unwrap_or(0.0);
        let seconds = self.record.seconds.last_token? - first;
        Some((tps * seconds, seconds))
    }
}

fn duration(record: &CallRecord) -> Duration {
    let seconds = record.seconds.duration.unwrap_or(0.0);
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
