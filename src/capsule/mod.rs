//! An incident as one HTML file: its figures as they were, what is known of the cause, and what to do to see it again.
//! It loads nothing, and holds no prompt, no answer and no key.

mod calls;
mod html;

use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_sessions::Runaway;
use tokengauge_slo::{BurnDown, Status};
use tokengauge_store::query::{Dimension, GroupRow, Mark, Timeseries};

pub(crate) use calls::{SHOWN, worst};

/// Where calls are from, where there is no ledger.
pub(crate) const MEMORY: &str = "the memory of the process";

/// The dimensions by which the calls are added up, with their headings.
pub(crate) const TABLES: [(Dimension, &str); 4] = [
    (Dimension::Upstream, "By upstream"),
    (Dimension::Model, "By model"),
    (Dimension::Agent, "By agent"),
    (Dimension::Outcome, "By how they ended"),
];

/// What is in the file.
pub(crate) struct Capsule {
    /// When it was made.
    pub(crate) made: SystemTime,
    /// The span that it is of.
    pub(crate) span: Span,
    /// What of it the store of calls has; `None` where it has none of it.
    pub(crate) kept: Option<Span>,
    /// Where the calls are from.
    pub(crate) store: &'static str,
    /// The process that was asked; `None` where a file was read.
    pub(crate) process: Option<Process>,
    /// The objective that it is about.
    pub(crate) objective: Option<Objective>,
    /// Decode speeds over time.
    pub(crate) tps: Timeseries,
    /// Times to first token over time.
    pub(crate) ttft: Timeseries,
    /// The calls by each of [`TABLES`].
    pub(crate) groups: Vec<Vec<GroupRow>>,
    /// The worst calls: those that failed, then the slowest.
    pub(crate) calls: Vec<CallRecord>,
    /// Calls that `calls` were chosen from.
    pub(crate) looked_at: usize,
    /// What happened in the span, by time.
    pub(crate) marks: Vec<Mark>,
    /// Sessions that run away now.
    pub(crate) runaways: Vec<Runaway>,
    /// The configuration.
    pub(crate) configuration: Option<Configuration>,
}

/// From an instant until before another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) since: SystemTime,
    pub(crate) until: SystemTime,
}

impl Span {
    fn length(&self) -> Duration {
        self.until.duration_since(self.since).unwrap_or_default()
    }

    /// Seconds of a point of a curve over it: about sixty points, at least ten seconds each.
    pub(crate) fn step(&self) -> Duration {
        let seconds = self.length().as_secs() / 60;
        Duration::from_secs(seconds.max(10).next_multiple_of(10))
    }
}

/// The process that was asked.
pub(crate) struct Process {
    /// Since when it runs, RFC 3339.
    pub(crate) started_at: String,
    /// The name of its host or pod.
    pub(crate) host: String,
    /// Where it was asked, without a slash at the end.
    pub(crate) url: String,
}

/// An objective as it stands.
pub(crate) struct Objective {
    pub(crate) status: Status,
    pub(crate) burn_down: BurnDown,
}

/// The configuration in force when the file was made.
pub(crate) struct Configuration {
    /// Its text, without comments and secrets.
    pub(crate) text: Arc<str>,
    /// The beginning of the digest of the whole text.
    pub(crate) digest: String,
    /// Where it is from: a file, or another name.
    pub(crate) origin: String,
    /// The last time that one was put in use while the process ran: when, and what the mark says.
    pub(crate) last_change: Option<Mark>,
}

impl Capsule {
    /// The whole file.
    pub(crate) fn html(&self) -> String {
        html::page(self)
    }
}
