//! Marks: what happened at an instant, to be seen beside the figures. Deployments, reloads, restarts, alerts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;
use tokengauge_core::time::Timestamp;

/// What a mark is of.
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
    /// Somebody added it, such as a pipeline that deploys.
    Note,
    /// Another configuration is in use.
    Reload,
    /// Another list of prices is in use.
    Prices,
    /// An engine restarted, as its own metrics say.
    Restart,
    /// An upstream came up again and warms up.
    WarmUp,
    /// The level of a signal jumped.
    Drift,
    /// An alert began or ended.
    Alert,
}

impl MarkKind {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// What a mark is about; all that is absent means everything.
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

/// What happened at an instant.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Mark {
    /// Its number: one that was added later has a greater one.
    pub id: u64,
    /// When it happened.
    pub time: Timestamp,
    /// What it is of.
    pub kind: MarkKind,
    /// What happened.
    pub text: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// The model that it is about; `null` for all, as below.
    pub model: Option<String>,
    /// The upstream.
    pub upstream: Option<String>,
    /// The route.
    pub route: Option<String>,
    /// The workload.
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
    /// From this instant on.
    pub from: Option<SystemTime>,
    /// Before this instant.
    pub to: Option<SystemTime>,
    /// What they are of; all kinds where it is absent.
    pub kind: Option<MarkKind>,
    /// What they are about. A mark that says nothing of it is about everything, and matches.
    pub subject: MarkSubject,
    /// At most so many: the newest.
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
