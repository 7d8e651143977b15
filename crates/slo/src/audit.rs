//! The audit log of objectives: who changed which objective, when and how, one line per change.
//! Changes are found by comparing the configuration with the saved state of the previous one.

use super::objective::window_label;
use super::objective::{Judgement, Objective};
use super::saved_state::SavedState;
use super::tracker::SavedTracker;
use serde::Serialize;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Circumstances {
    pub at: String,
    pub who: String,
    pub config: String,
    pub digest: String,
}

#[derive(Serialize)]
struct AuditEntry<'a> {
    at: &'a str,
    who: &'a str,
    config: &'a str,
    config_sha256: &'a str,
    slo: &'a str,
    change: &'static str,
    /// Whether the previous counts are kept.
    counts: &'static str,
    before: Option<Definition<'a>>,
    after: Option<Definition<'a>>,
}

#[derive(Serialize)]
struct Definition<'a> {
    objective: f64,
    window: String,
    #[serde(flatten)]
    judgement: &'a Judgement,
}

/// One line of JSON for each objective that was added, changed or removed.
pub fn changes(
    kept: &SavedState,
    objectives: &[Arc<Objective>],
    under: &Circumstances,
) -> Vec<String> {
    let mut lines = Vec::new();
    let mut tell = |name: &str, change, counts, before, after| {
        let line = AuditEntry {
            at: &under.at,
            who: &under.who,
            config: &under.config,
            config_sha256: &under.digest,
            slo: name,
            change,
            counts,
            before,
            after,
        };
        // Serialization of numbers, names and strings does not fail.
        lines.extend(serde_json::to_string(&line));
    };
    for objective in objectives {
        let after = Some(of(objective));
        match kept.slos.get(&*objective.name) {
            None => tell(&objective.name, "added", "anew", None, after),
            Some(before) if before.retired => {
                let counts = counts(before, objective);
                tell(
                    &objective.name,
                    "added",
                    counts,
                    Some(of_kept(before)),
                    after,
                );
            }
            Some(before) if differs(before, objective) => {
                let counts = counts(before, objective);
                tell(
                    &objective.name,
                    "changed",
                    counts,
                    Some(of_kept(before)),
                    after,
                );
            }
            Some(_) => {}
        }
    }
    for (name, before) in kept.slos.iter().filter(|(_, before)| !before.retired) {
        if !objectives.iter().any(|objective| *objective.name == **name) {
            tell(name, "removed", "kept", Some(of_kept(before)), None);
        }
    }
    lines
}

fn of(objective: &Objective) -> Definition<'_> {
    Definition {
        objective: objective.objective,
        window: objective.window_label(),
        judgement: &objective.judgement,
    }
}

fn of_kept(kept: &SavedTracker) -> Definition<'_> {
    Definition {
        objective: kept.objective,
        window: window_label(kept.window, kept.calendar_month),
        judgement: &kept.judgement,
    }
}

fn differs(kept: &SavedTracker, objective: &Objective) -> bool {
    let window = (objective.window, objective.calendar_month);
    let now = (objective.objective, window, &objective.judgement);
    let window = (kept.window, kept.calendar_month);
    (kept.objective, window, &kept.judgement) != now
}

fn counts(kept: &SavedTracker, objective: &Objective) -> &'static str {
    if kept.judgement == objective.judgement {
        "kept"
    } else {
        "anew"
    }
}
