//! Objectives of a fleet, from Prometheus or from each pod.

use super::{Fleet, SHOWN_OBJECTIVES};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// The source of a fleet's objectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectiveSource {
    /// The recording rules of a Prometheus, which cover all pods together.
    Prometheus,
    /// Each pod's own counts.
    Pods,
    /// The fleet shows no objectives.
    None,
}

/// The objectives from the most recent query.
#[derive(Clone, Debug, Default)]
pub struct Objectives {
    /// Each objective as in the API.
    pub slos: Vec<Value>,
    /// Why the query failed.
    pub error: Option<String>,
}

impl Fleet {
    pub fn set_objectives(&self, objectives: Objectives) {
        self.objectives.store(Some(Arc::new(objectives)));
    }

    pub fn objective_source(&self) -> ObjectiveSource {
        match (self.of_pods, self.settings.addresses.is_empty()) {
            (false, _) => ObjectiveSource::Prometheus,
            (true, false) => ObjectiveSource::Pods,
            (true, true) => ObjectiveSource::None,
        }
    }

    pub(super) fn objectives_of_pods(&self) -> bool {
        self.of_pods
    }

    /// The objectives and their total number. Pods' own objectives are cut to those with the
    /// smallest remaining budget.
    pub fn objectives(&self) -> (Objectives, usize) {
        if let Some(asked) = self.objectives.load_full() {
            return ((*asked).clone(), asked.slos.len());
        }
        let said: Vec<_> = self.all().iter().map(|pod| pod.objectives()).collect();
        let mut all: Vec<_> = said.iter().flat_map(|of_pod| of_pod.iter()).collect();
        all.sort_by(|one, other| one.remaining.total_cmp(&other.remaining));
        let total = all.len();
        all.truncate(SHOWN_OBJECTIVES);
        let slos = all
            .into_iter()
            .filter_map(|one| serde_json::from_str(&one.status).ok());
        let objectives = Objectives {
            slos: slos.collect(),
            error: None,
        };
        (objectives, total)
    }
}
