//! An incident as one HTML file: its figures as they were, what is known of the cause, and what to do to see it again.
//! It loads nothing, and holds no prompt, no answer and no key.

mod calls;
mod html;

use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::time::Timestamp;
use tokengauge_sessions::Runaway;
use tokengauge_slo::{BurnDown, Status};
use tokengauge_store::query::{Dimension, GroupRow, Mark, Timeseries};

pub use calls::{SHOWN, worst};

/// Where calls are from, where there is no ledger.
pub const MEMORY: &str = "the memory of the process";

/// The dimensions by which the calls are added up, with their headings.
pub const TABLES: [(Dimension, &str); 4] = [
    (Dimension::Upstream, "By upstream"),
    (Dimension::Model, "By model"),
    (Dimension::Agent, "By agent"),
    (Dimension::Outcome, "By how they ended"),
];

pub struct Capsule {
    pub made: SystemTime,
    pub span: Span,
    /// What of it the source of calls has; `None` where it has none of it.
    pub kept: Option<Span>,
    pub source: &'static str,
    /// The process that was asked; `None` where a file was read.
    pub process: Option<Process>,
    pub objective: Option<Objective>,
    /// Decode speeds over time.
    pub tps: Timeseries,
    /// Times to first token over time.
    pub ttft: Timeseries,
    /// The calls by each of [`TABLES`].
    pub groups: Vec<Vec<GroupRow>>,
    /// The worst calls: those that failed, then the slowest.
    pub calls: Vec<CallRecord>,
    /// Calls that `calls` were chosen from.
    pub looked_at: usize,
    /// What happened in the span, by time.
    pub marks: Vec<Mark>,
    /// Sessions that run away now.
    pub runaways: Vec<Runaway>,
    pub configuration: Option<Configuration>,
}

/// From an instant until before another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub since: SystemTime,
    /// The first instant after it.
    pub until: SystemTime,
}

impl Span {
    fn length(&self) -> Duration {
        self.until.duration_since(self.since).unwrap_or_default()
    }

    /// Seconds of a point of a curve over it: about sixty points, at least ten seconds each.
    pub fn step(&self) -> Duration {
        let seconds = self.length().as_secs() / 60;
        Duration::from_secs(seconds.max(10).next_multiple_of(10))
    }
}

pub struct Process {
    /// Since when it runs.
    pub started_at: Timestamp,
    /// The name of its host or pod.
    pub host: String,
    /// Where it was asked, without a slash at the end.
    pub url: String,
}

pub struct Objective {
    pub status: Status,
    /// What was left of its budget over time.
    pub burn_down: BurnDown,
}

/// The configuration in force when the file was made.
pub struct Configuration {
    /// Its text, without comments and secrets.
    pub text: Arc<str>,
    /// The beginning of the digest of the whole text.
    pub digest: String,
    /// Where it is from: a file, or another name.
    pub origin: String,
    /// The last time that one was put in use while the process ran: when, and what the mark says.
    pub last_change: Option<Mark>,
}

impl Capsule {
    /// The whole file; `commit` is of the program that writes it.
    pub fn html(&self, commit: &str) -> String {
        html::page(self, commit)
    }
}
