//! The scores of the process, counted by name.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokengauge_store::ledger::Ledger;
use tokengauge_store::scores::{ScoreMetrics, Scores};
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::{labels, names};

/// Names that become labels. The names come from outside, so they must be bounded.
const MAX_NAMES: usize = 50;
const OTHER: &str = "other";

pub(crate) fn open(ledger: Option<Arc<Ledger>>, prometheus: &Arc<Prometheus>) -> Arc<Scores> {
    let known = Mutex::new(BTreeSet::new());
    let metrics = Arc::clone(prometheus);
    let stored = move |name: &str| {
        let score = label(&mut known.lock(), name);
        let labels = labels::ByScore { score };
        metrics.registry().series(&names::SCORES, &labels)
    };
    let lost = prometheus.registry().series(&names::SCORES_LOST, &());
    for reason in ["invalid", "too_many", "too_large"] {
        let labels = labels::ByReason { reason };
        prometheus
            .registry()
            .series(&names::SCORES_REJECTED, &labels);
    }
    Scores::new(ledger, ScoreMetrics::new(stored, lost))
}

/// The label of a score: its name, if it is one of the first.
fn label<'a>(known: &mut BTreeSet<String>, name: &'a str) -> &'a str {
    if known.contains(name) {
        return name;
    }
    if known.len() >= MAX_NAMES {
        return OTHER;
    }
    known.insert(name.to_owned());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_names_share_a_label() {
        let mut known = BTreeSet::new();
        let names: Vec<String> = (0..60).map(|at| format!("score-{at}")).collect();
        let found = names.iter().filter(|name| label(&mut known, name) == OTHER);
        assert_eq!(found.count(), 10);
        assert_eq!(label(&mut known, "score-3"), "score-3");
    }
}
