//! The Kubernetes pod that a process runs in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pod as Kubernetes names it. Outside Kubernetes, only the name is known.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema, Serialize, Deserialize,
)]
#[schemars(rename = "Pod")]
pub struct PodName {
    /// The cluster: `k8s.cluster.name`.
    pub cluster: Option<String>,
    /// The namespace: `k8s.namespace.name`.
    pub namespace: Option<String>,
    /// The pod: `k8s.pod.name`, otherwise `service.instance.id`, otherwise the host name.
    pub name: Option<String>,
}

impl PodName {
    /// `None` if every part is unknown.
    pub fn known(self) -> Option<PodName> {
        (self != PodName::default()).then_some(self)
    }
}
