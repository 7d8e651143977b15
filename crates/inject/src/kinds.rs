//! Kinds of objects that create pods: the paths of their pod templates, and kinds without a template.

use super::{PREFIX, SIDECAR};
use serde_json::Value;

pub(super) struct TemplateKind {
    group: &'static str,
    kind: &'static str,
    /// The paths of the templates: keys separated by dots, `*` for every member.
    paths: &'static [&'static str],
    /// Whether the pods run to completion although the template does not say so.
    pub(super) ends: bool,
    /// Whether pods are also created for paths without a template.
    every: bool,
}

impl TemplateKind {
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.paths, [path] if !path.contains('*'))
    }
}

const fn kind(
    group: &'static str,
    kind: &'static str,
    paths: &'static [&'static str],
) -> TemplateKind {
    TemplateKind {
        group,
        kind,
        paths,
        ends: false,
        every: false,
    }
}

const fn ending(
    group: &'static str,
    name: &'static str,
    paths: &'static [&'static str],
) -> TemplateKind {
    let mut all = kind(group, name, paths);
    all.ends = true;
    all
}

/// Spark creates driver and executor pods even without templates.
const SPARK: TemplateKind = {
    let paths = &["spec.driver.template", "spec.executor.template"];
    let mut all = ending("sparkoperator.k8s.io", "SparkApplication", paths);
    all.every = true;
    all
};

const TEMPLATE: &[&str] = &["spec.template"];
const CRON: &[&str] = &["spec.jobTemplate.spec.template"];

const KINDS: &[TemplateKind] = &[
    kind("", "Pod", &[""]),
    kind("", "PodTemplate", &["template"]),
    kind("", "ReplicationController", TEMPLATE),
    kind("apps", "Deployment", TEMPLATE),
    kind("apps", "StatefulSet", TEMPLATE),
    kind("apps", "DaemonSet", TEMPLATE),
    kind("apps", "ReplicaSet", TEMPLATE),
    kind("extensions", "Deployment", TEMPLATE),
    kind("extensions", "DaemonSet", TEMPLATE),
    kind("extensions", "ReplicaSet", TEMPLATE),
    kind("batch", "Job", TEMPLATE),
    kind("batch", "CronJob", CRON),
    kind("apps.openshift.io", "DeploymentConfig", TEMPLATE),
    kind("argoproj.io", "Rollout", TEMPLATE),
    kind("apps.kruise.io", "CloneSet", TEMPLATE),
    kind("apps.kruise.io", "StatefulSet", TEMPLATE),
    kind("apps.kruise.io", "DaemonSet", TEMPLATE),
    ending("apps.kruise.io", "BroadcastJob", TEMPLATE),
    ending(
        "apps.kruise.io",
        "AdvancedCronJob",
        &[
            "spec.template.jobTemplate.spec.template",
            "spec.template.broadcastJobTemplate.spec.template",
        ],
    ),
    kind(
        "leaderworkerset.x-k8s.io",
        "LeaderWorkerSet",
        &[
            "spec.leaderWorkerTemplate.leaderTemplate",
            "spec.leaderWorkerTemplate.workerTemplate",
        ],
    ),
    ending(
        "jobset.x-k8s.io",
        "JobSet",
        &["spec.replicatedJobs.*.template.spec.template"],
    ),
    kind(
        "ray.io",
        "RayCluster",
        &[
            "spec.headGroupSpec.template",
            "spec.workerGroupSpecs.*.template",
        ],
    ),
    kind(
        "ray.io",
        "RayService",
        &[
            "spec.rayClusterConfig.headGroupSpec.template",
            "spec.rayClusterConfig.workerGroupSpecs.*.template",
        ],
    ),
    kind(
        "ray.io",
        "RayJob",
        &[
            "spec.rayClusterSpec.headGroupSpec.template",
            "spec.rayClusterSpec.workerGroupSpecs.*.template",
            "spec.submitterPodTemplate",
        ],
    ),
    ending("batch.volcano.sh", "Job", &["spec.tasks.*.template"]),
    ending(
        "kubeflow.org",
        "PyTorchJob",
        &["spec.pytorchReplicaSpecs.*.template"],
    ),
    ending("kubeflow.org", "TFJob", &["spec.tfReplicaSpecs.*.template"]),
    ending(
        "kubeflow.org",
        "MPIJob",
        &["spec.mpiReplicaSpecs.*.template"],
    ),
    ending(
        "kubeflow.org",
        "XGBoostJob",
        &["spec.xgbReplicaSpecs.*.template"],
    ),
    ending(
        "kubeflow.org",
        "PaddleJob",
        &["spec.paddleReplicaSpecs.*.template"],
    ),
    ending(
        "kubeflow.org",
        "JAXJob",
        &["spec.jaxReplicaSpecs.*.template"],
    ),
    SPARK,
    kind("agents.x-k8s.io", "Sandbox", &["spec.podTemplate"]),
    kind(
        "extensions.agents.x-k8s.io",
        "SandboxTemplate",
        &["spec.podTemplate"],
    ),
];

/// Kinds that create pods without a pod template: the group, the kinds, and the reason.
const WITHOUT: &[(&str, &[&str], &str)] = &[
    (
        "serving.knative.dev",
        &["Service", "Configuration"],
        "Knative refuses init containers and a second port in its template",
    ),
    (
        "argoproj.io",
        &[
            "Workflow",
            "CronWorkflow",
            "WorkflowTemplate",
            "ClusterWorkflowTemplate",
        ],
        "its templates are single containers, from which Argo creates the pods",
    ),
    (
        "serving.kserve.io",
        &[
            "InferenceService",
            "InferenceGraph",
            "LLMInferenceService",
            "ServingRuntime",
            "ClusterServingRuntime",
        ],
        "KServe creates the pods from a runtime and from parts of this object",
    ),
    (
        "sparkoperator.k8s.io",
        &["SparkApplication", "ScheduledSparkApplication"],
        "Spark creates the pods, and this object has no template for driver and executor",
    ),
    (
        "trainer.kubeflow.org",
        &["TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"],
        "Kubeflow creates the pods from a runtime and from parts of this object",
    ),
    (
        "kagent.dev",
        &["Agent"],
        "kagent creates the pods, and this object has no template",
    ),
    (
        "apps.nvidia.com",
        &["NIMService", "NIMPipeline"],
        "the NIM operator creates the pods, and this object has no template",
    ),
    (
        "nvidia.com",
        &["DynamoGraphDeployment", "DynamoComponentDeployment"],
        "Dynamo creates the pods from parts of this object",
    ),
];

pub(super) enum Found {
    Templates {
        kind: &'static TemplateKind,
        pointers: Vec<String>,
        missing: Vec<&'static str>,
    },
    /// The object creates pods, or seems to, but has no pod template. The text gives the reason.
    Unknown(String),
    Nothing,
}

pub(super) fn find(object: &Value) -> Found {
    let name = object["kind"].as_str().unwrap_or_default();
    let version = object["apiVersion"].as_str();
    let group = version.map(|version| version.rsplit_once('/').map_or("", |(group, _)| group));
    // An `apiVersion` without a group belongs to Kubernetes itself.
    let known = KINDS
        .iter()
        .find(|known| known.kind == name && group.is_none_or(|group| group == known.group));
    if let Some(known) = known {
        let (mut pointers, mut missing) = (Vec::new(), Vec::new());
        for path in known.paths {
            let before = pointers.len();
            descend(object, &path_keys(path), String::new(), &mut pointers);
            if known.every && pointers.len() == before {
                missing.push(*path);
            }
        }
        if !pointers.is_empty() {
            return Found::Templates {
                kind: known,
                pointers,
                missing,
            };
        }
    }
    if refers_to_another(object) {
        return Found::Nothing;
    }
    let without = WITHOUT
        .iter()
        .find(|(of, kinds, _)| group == Some(*of) && kinds.contains(&name));
    if let Some((.., reason)) = without {
        return Found::Unknown((*reason).to_owned());
    }
    match known {
        Some(known) => Found::Unknown(format!("there is no {}", known.paths.join(" and no "))),
        None if has_containers(object) => {
            Found::Unknown("an unknown kind that contains containers".to_owned())
        }
        None => Found::Nothing,
    }
}

fn path_keys(path: &str) -> Vec<&str> {
    path.split('.').filter(|key| !key.is_empty()).collect()
}

/// Whether the template is in another object, such as the Deployment of a Rollout.
fn refers_to_another(object: &Value) -> bool {
    object["spec"]["workloadRef"].is_object()
}

fn descend(value: &Value, path: &[&str], pointer: String, found: &mut Vec<String>) {
    let Some((first, rest)) = path.split_first() else {
        if !value.is_null() {
            found.push(pointer);
        }
        return;
    };
    let below = |key: &str| {
        let key = key.replace('~', "~0").replace('/', "~1");
        format!("{pointer}/{key}")
    };
    match (*first, value) {
        ("*", Value::Array(all)) => {
            for (at, item) in all.iter().enumerate() {
                descend(item, rest, below(&at.to_string()), found);
            }
        }
        ("*", Value::Object(all)) => {
            for (key, item) in all {
                descend(item, rest, below(key), found);
            }
        }
        (key, value) => {
            if let Some(item) = value.get(key) {
                descend(item, rest, below(key), found);
            }
        }
    }
}

/// Whether the value contains containers with an image, and none of them is our sidecar.
fn has_containers(value: &Value) -> bool {
    let mut images = false;
    let mut injected = false;
    each(value, &mut |key, value| {
        if holds_containers(key) {
            let all = match value {
                Value::Array(all) => all.as_slice(),
                one => std::slice::from_ref(one),
            };
            images |= all.iter().any(|one| one["image"].is_string());
            injected |= all.iter().any(|one| one["name"] == SIDECAR);
        }
    });
    images && !injected
}

/// True for `containers`, `initContainers`, `mainContainer`, Tekton's `steps` and Argo's `script`.
fn holds_containers(key: &str) -> bool {
    let end = key.trim_end_matches('s').to_ascii_lowercase();
    end.ends_with("container") || ["steps", "sidecars", "script"].contains(&key)
}

/// Whether the first injection annotation anywhere in the object opts in or out.
pub(super) fn asks(object: &Value) -> Option<bool> {
    let mut asked = None;
    let name = format!("{PREFIX}inject");
    each(object, &mut |key, value| {
        if asked.is_none() && key == name {
            asked = match value.as_str() {
                Some("false" | "disabled") => Some(false),
                _ => Some(true),
            };
        }
    });
    asked
}

fn each<'a>(value: &'a Value, visit: &mut impl FnMut(&'a str, &'a Value)) {
    match value {
        Value::Array(all) => all.iter().for_each(|item| each(item, visit)),
        Value::Object(all) => {
            for (key, item) in all {
                visit(key, item);
                each(item, visit);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_name_every_kind() {
        let text = include_str!("../../../docs/injection.md");
        let all = text.split("\n## Kinds\n").nth(1).expect("a section");
        let words: Vec<&str> = all.split(|c: char| !c.is_alphanumeric()).collect();
        let without = WITHOUT
            .iter()
            .flat_map(|(_, kinds, _)| kinds.iter().copied());
        for kind in KINDS.iter().map(|known| known.kind).chain(without) {
            assert!(words.contains(&kind), "{kind}");
        }
    }
}
