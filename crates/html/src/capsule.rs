//! An incident as one HTML file: its figures at the time, the cause as far as it is known, and how to reproduce it. The
//! file loads nothing and contains no prompt, no response and no key.

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

/// The name of the source of calls if there is no ledger.
pub const MEMORY: &str = "the memory of the process";

pub const TABLES: [(Dimension, &str); 4] = [
    (Dimension::Upstream, "By upstream"),
    (Dimension::Model, "By model"),
    (Dimension::Agent, "By agent"),
    (Dimension::Outcome, "By outcome"),
];

pub struct Capsule {
    pub made: SystemTime,
    pub span: Span,
    /// The part of the span for which the source has calls. `None` if there is no such part.
    pub kept: Option<Span>,
    pub source: &'static str,
    /// The process that was asked. `None` if a file was read.
    pub process: Option<Process>,
    pub objective: Option<Objective>,
    pub tps: Timeseries,
    pub ttft: Timeseries,
    pub groups: Vec<Vec<GroupRow>>,
    pub calls: Vec<CallRecord>,
    pub looked_at: usize,
    pub marks: Vec<Mark>,
    /// The sessions that are runaways when the file is made.
    pub runaways: Vec<Runaway>,
    pub configuration: Option<Configuration>,
}

/// A span of time from `since` up to, but not including, `until`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub since: SystemTime,
    pub until: SystemTime,
}

impl Span {
    fn length(&self) -> Duration {
        self.until.duration_since(self.since).unwrap_or_default()
    }

    /// The step of the curves: about sixty points in the span, at least ten seconds each.
    pub fn step(&self) -> Duration {
        let seconds = self.length().as_secs() / 60;
        Duration::from_secs(seconds.max(10).next_multiple_of(10))
    }
}

pub struct Process {
    pub started_at: Timestamp,
    pub host: String,
    /// The address at which the process was asked, without a slash at the end.
    pub url: String,
}

pub struct Objective {
    pub status: Status,
    pub burn_down: BurnDown,
}

pub struct Configuration {
    pub text: Arc<str>,
    pub digest: String,
    /// The source of the configuration: a file, or another name.
    pub origin: String,
    /// The mark of the last configuration change while the process ran.
    pub last_change: Option<Mark>,
}

impl Capsule {
    /// The text of the HTML file. `commit` is the commit of the program that writes it.
    pub fn html(&self, commit: &str) -> String {
        html::page(self, commit)
    }
}
