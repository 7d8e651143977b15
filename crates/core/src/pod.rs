//! Which pod something is of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pod as Kubernetes names it. A process elsewhere has the name of its instance alone.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema, Serialize, Deserialize,
)]
#[schemars(rename = "Pod")]
pub struct PodName {
    /// `k8s.cluster.name`.
    pub cluster: Option<String>,
    /// `k8s.namespace.name`.
    pub namespace: Option<String>,
    /// `k8s.pod.name`, else `service.instance.id`, else the host's name.
    pub name: Option<String>,
}

impl PodName {
    /// Nothing where all of it is unknown.
    pub fn known(self) -> Option<PodName> {
        (self != PodName::default()).then_some(self)
    }
}
