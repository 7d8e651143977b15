//! A finished call on the wall clock.

use std::time::{Duration, SystemTime};
use tokengauge_core::call::{CallRecord, Outcome};
use tokengauge_meter::FinishedCall;

/// A finished call on the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct TimedCall<'a> {
    /// Its record.
    pub record: &'a CallRecord,
    /// When its request head had been read.
    pub started: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// Whether it was made for another call, which counts for the session.
    pub nested: bool,
}

impl<'a> TimedCall<'a> {
    /// `None` where the record's start is no instant.
    pub fn of(record: &'a CallRecord) -> Option<TimedCall<'a>> {
        let started = humantime::parse_rfc3339(&record.started_at).ok()?;
        let duration = record.seconds.duration.unwrap_or(0.0);
        let duration = Duration::try_from_secs_f64(duration).unwrap_or_default();
        Some(TimedCall {
            record,
            started,
            ended: started.checked_add(duration)?,
            nested: false,
        })
    }

    /// The same of a call that the meter has just finished.
    pub fn of_finding(finished_call: &'a FinishedCall) -> Option<TimedCall<'a>> {
        let past = TimedCall::of(&finished_call.record)?;
        let nested = finished_call.nested;
        Some(TimedCall { nested, ..past })
    }

    /// Whether it went wrong, and not because the agent left.
    pub fn failed(&self) -> bool {
        let outcome = self.record.outcome;
        !matches!(outcome, Outcome::Complete | Outcome::ClientCancelled)
    }

    /// The tokens after the first frame and the seconds they took, where it has a speed.
    pub fn decode(&self) -> Option<(f64, f64)> {
        let tps = self.record.tps.output.filter(|tps| tps.is_finite())?;
        // What a server began by itself began with its first token.
        let first = self.record.seconds.ttft.unwrap_or(0.0);
        let seconds = self.record.seconds.last_token? - first;
        Some((tps * seconds, seconds))
    }
}
