//! Marks: events at a point in time, such as deployments, reloads, restarts and alerts, for display
//! next to the figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;
use tokengauge_core::time::Timestamp;

/// The kind of a mark.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum MarkKind {
    /// A person or a program added the mark, such as a deployment pipeline.
    Note,
    /// A new configuration is in use.
    Reload,
    /// A new price list is in use.
    Prices,
    /// An engine restarted, according to its metrics.
    Restart,
    /// An upstream is available again and warms up.
    WarmUp,
    /// The level of a signal jumped.
    Drift,
    /// An alert started or ended.
    Alert,
}

impl MarkKind {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The traffic that a mark is about; a missing part means everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkSubject {
    pub model: Option<String>,
    pub upstream: Option<String>,
    pub route: Option<String>,
    pub workload: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMark {
    pub at: SystemTime,
    pub kind: MarkKind,
    pub text: String,
    pub tags: Vec<String>,
    pub subject: MarkSubject,
}

/// An event at a point in time.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Mark {
    /// The number of the mark; later marks have greater numbers.
    pub id: u64,
    /// When the event happened.
    pub time: Timestamp,
    /// The kind of the mark.
    pub kind: MarkKind,
    /// A description of the event.
    pub text: String,
    /// Words to find the mark by.
    pub tags: Vec<String>,
    /// The model that the mark is about; `null` for all models.
    pub model: Option<String>,
    /// The upstream that the mark is about; `null` for all upstreams.
    pub upstream: Option<String>,
    /// The route that the mark is about; `null` for all routes.
    pub route: Option<String>,
    /// The workload that the mark is about; `null` for all workloads.
    pub workload: Option<String>,
}

impl Mark {
    pub fn of(id: u64, mark: &NewMark) -> Mark {
        let NewMark {
            kind,
            text,
            tags,
            subject,
            ..
        } = mark.clone();
        Mark {
            id,
            time: mark.at.into(),
            kind,
            text,
            tags,
            model: subject.model,
            upstream: subject.upstream,
            route: subject.route,
            workload: subject.workload,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct MarkQuery {
    /// Selects marks from this time on.
    pub from: Option<SystemTime>,
    /// Selects marks before this time.
    pub to: Option<SystemTime>,
    /// The kind of marks; `None` selects all kinds.
    pub kind: Option<MarkKind>,
    /// The subject of marks. A mark without a subject is about everything, and matches.
    pub subject: MarkSubject,
    /// Maximum number of marks; the newest are returned.
    pub limit: usize,
}

impl MarkQuery {
    pub(crate) fn matches(&self, mark: &NewMark) -> bool {
        let about = |wanted: &Option<String>, named: &Option<String>| {
            wanted.is_none() || named.is_none() || wanted == named
        };
        let (wanted, named) = (&self.subject, &mark.subject);
        self.from.is_none_or(|from| mark.at >= from)
            && self.to.is_none_or(|to| mark.at < to)
            && self.kind.is_none_or(|kind| mark.kind == kind)
            && about(&wanted.model, &named.model)
            && about(&wanted.upstream, &named.upstream)
            && about(&wanted.route, &named.route)
            && about(&wanted.workload, &named.workload)
    }
}
