//! The configured gates, and the log of their verdicts.

use crate::Drifts;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokengauge_files::audit;
use tokengauge_gate::{Gate, GateVerdict, Report};

const AUDIT: &str = "gate-audit.jsonl";
/// An unchanged verdict is not logged again within this time.
const SAME_WITHIN: Duration = Duration::from_secs(60);

/// Verdicts on stored calls: what has drifted, and whether rollouts may continue.
#[derive(Debug, Default)]
pub struct Verdicts {
    pub drifts: ArcSwap<Drifts>,
    pub gates: ArcSwap<Gates>,
    pub gate_audit: GateAudit,
}

#[derive(Clone, Debug, Default)]
pub struct Gates {
    pub gates: Vec<Gate>,
    pub digest: String,
}

#[derive(Debug, Default)]
pub struct GateAudit {
    file: Option<PathBuf>,
    last: Mutex<HashMap<String, (GateVerdict, String, Instant)>>,
}

#[derive(Serialize)]
struct Line<'a> {
    asked_by: &'a str,
    #[serde(flatten)]
    report: &'a Report,
}

impl GateAudit {
    /// The log in the state directory. Without a directory nothing is written.
    pub fn new(folder: Option<&Path>) -> GateAudit {
        GateAudit {
            file: folder.map(|folder| folder.join(AUDIT)),
            last: Mutex::default(),
        }
    }

    /// Writes a verdict that `asked_by` received at `now`. A write error is only logged, since the verdict is valid without
    /// it.
    pub fn note(&self, report: &Report, asked_by: &str, decides: bool, now: Instant) {
        let Some(file) = &self.file else { return };
        let mut last = self.last.lock();
        let same = last.get(&report.name).is_some_and(|(verdict, digest, at)| {
            *verdict == report.verdict
                && *digest == report.config_sha256
                && now.saturating_duration_since(*at) < SAME_WITHIN
        });
        if same && !decides {
            return;
        }
        let written = line(report, asked_by).and_then(|line| audit::append(file, &[line]));
        match written {
            Ok(()) => {
                let entry = (report.verdict, report.config_sha256.clone(), now);
                last.insert(report.name.clone(), entry);
            }
            Err(error) => {
                tracing::error!(%error, file = AUDIT, "the verdict of a gate cannot be written to gate-audit.jsonl");
            }
        }
    }
}

pub fn line(report: &Report, asked_by: &str) -> std::io::Result<String> {
    serde_json::to_string(&Line { asked_by, report }).map_err(std::io::Error::other)
}
