//! Access to the parts of a pod. Missing lists count as empty. A value of the wrong type is refused.

use super::PREFIX;
use super::error::InjectError;
use serde_json::{Map, Value, json};

/// Containers of service meshes and cluster agents, which call no models.
const FOREIGN: &[&str] = &[
    "istio-proxy",
    "istio-init",
    "istio-validation",
    "linkerd-proxy",
    "linkerd-init",
    "linkerd-network-validator",
    "kuma-sidecar",
    "kuma-init",
    "consul-dataplane",
    "consul-connect-inject-init",
    "cloud-sql-proxy",
    "vault-agent",
    "vault-agent-init",
];
/// Foreign containers that do not change the pod's network.
const OFF_NETWORK: &[&str] = &["cloud-sql-proxy", "vault-agent", "vault-agent-init"];
/// The sysctl that lets every user listen on low ports.
const LOW_PORTS: &str = "net.ipv4.ip_unprivileged_port_start";
const MESH: &[&str] = &[
    "istio-proxy",
    "linkerd-proxy",
    "kuma-sidecar",
    "consul-dataplane",
];

const OS_LABELS: [&str; 2] = ["kubernetes.io/os", "beta.kubernetes.io/os"];
const WINDOWS: &str = "windows";
const LINUX: &str = "linux";

pub(super) struct Pod(Value);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Init,
    Main,
}

impl List {
    const BOTH: [List; 2] = [List::Init, List::Main];

    fn key(self) -> &'static str {
        match self {
            List::Init => "initContainers",
            List::Main => "containers",
        }
    }
}

impl Pod {
    pub(super) fn new(pod: Value) -> Result<Pod, InjectError> {
        for list in List::BOTH {
            let containers = &pod["spec"][list.key()];
            let strange = match containers {
                Value::Array(all) => !all.iter().all(Value::is_object),
                Value::Null => list == List::Main,
                _ => true,
            };
            if strange {
                return Err(InjectError::Refused(format!(
                    "spec.{} is not a list of containers",
                    list.key()
                )));
            }
        }
        for (place, value) in [
            ("metadata", &pod["metadata"]),
            ("metadata.annotations", &pod["metadata"]["annotations"]),
            ("metadata.labels", &pod["metadata"]["labels"]),
        ] {
            if !value.is_null() && !value.is_object() {
                return Err(InjectError::Refused(format!("{place} is not a map")));
            }
        }
        let annotations = pod["metadata"]["annotations"].as_object();
        for (name, value) in annotations.into_iter().flatten() {
            if name.starts_with(PREFIX) && !value.is_string() {
                return Err(InjectError::Refused(format!(
                    "{name}: {value} is not a string; write \"{value}\""
                )));
            }
        }
        Ok(Pod(pod))
    }

    pub(super) fn into_value(self) -> Value {
        self.0
    }

    /// The value of a tokengauge annotation, by its name without the prefix.
    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        self.0["metadata"]["annotations"][format!("{PREFIX}{name}")].as_str()
    }

    pub(super) fn annotations(&self) -> Vec<&str> {
        let all = self.0["metadata"]["annotations"].as_object();
        let all = all.into_iter().flat_map(Map::keys);
        all.filter_map(|name| name.strip_prefix(PREFIX)).collect()
    }

    pub(super) fn foreign_annotation(&self, name: &str) -> Option<&str> {
        self.0["metadata"]["annotations"][name].as_str()
    }

    /// Whether the pod has a label with a value that is not empty.
    pub(super) fn has_label(&self, name: &str) -> bool {
        let value = self.0["metadata"]["labels"][name].as_str();
        value.is_some_and(|value| !value.is_empty())
    }

    pub(super) fn annotate(&mut self, name: &str, value: &str) {
        self.put("annotations", name, value);
    }

    pub(super) fn label(&mut self, name: &str, value: &str) {
        self.put("labels", name, value);
    }

    fn put(&mut self, map: &str, name: &str, value: &str) {
        if let Some(map) = object(&mut self.0["metadata"]).map(|metadata| {
            let map = metadata.entry(map).or_insert_with(|| json!({}));
            if map.is_null() {
                *map = json!({});
            }
            map
        }) {
            map[name] = json!(value);
        }
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.0["spec"][name] == true
    }

    pub(super) fn is_windows(&self) -> bool {
        let spec = &self.0["spec"];
        let selected = OS_LABELS
            .iter()
            .any(|label| spec["nodeSelector"][label] == WINDOWS);
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let terms = &spec["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"];
        // A node must match at least one term, including all expressions of that term.
        let by_affinity = terms
            .as_array()
            .is_some_and(|terms| !terms.is_empty() && terms.iter().all(excludes_linux));
        spec["os"]["name"] == WINDOWS || selected || by_affinity
    }

    /// Whether the pod runs to completion, as pods of Jobs do.
    pub(super) fn ends_by_itself(&self) -> bool {
        matches!(
            self.0["spec"]["restartPolicy"].as_str(),
            Some("Never" | "OnFailure")
        )
    }

    pub(super) fn grace(&self) -> u64 {
        let grace = &self.0["spec"]["terminationGracePeriodSeconds"];
        grace.as_u64().unwrap_or(30)
    }

    pub(super) fn mesh(&self) -> bool {
        MESH.iter().any(|name| self.has_container(name))
    }

    pub(super) fn has_container(&self, name: &str) -> bool {
        let mut all = List::BOTH
            .into_iter()
            .flat_map(|list| self.containers(list));
        all.any(|container| container["name"] == name)
    }

    pub(super) fn containers(&self, list: List) -> &[Value] {
        let all = self.0["spec"][list.key()].as_array();
        all.map_or(&[], Vec::as_slice)
    }

    pub(super) fn containers_mut(&mut self, list: List) -> &mut Vec<Value> {
        list_mut(&mut self.0["spec"], list.key())
    }

    pub(super) fn add_volume(&mut self, volume: Value) -> Result<(), InjectError> {
        if !matches!(self.0["spec"]["volumes"], Value::Null | Value::Array(_)) {
            return Err(InjectError::Refused(
                "spec.volumes is not a list".to_owned(),
            ));
        }
        let volumes = list_mut(&mut self.0["spec"], "volumes");
        if volumes.iter().any(|known| known["name"] == volume["name"]) {
            return Err(InjectError::Refused(format!(
                "the pod already has a volume {}",
                volume["name"]
            )));
        }
        volumes.push(volume);
        Ok(())
    }

    /// Pod-level resources, which Kubernetes has since 1.34.
    pub(super) fn resources(&self) -> &Value {
        &self.0["spec"]["resources"]
    }

    pub(super) fn resources_mut(&mut self) -> &mut Value {
        &mut self.0["spec"]["resources"]
    }

    /// Lets an unprivileged user listen below port 1024, which many container runtimes forbid. The restricted pod security
    /// standard allows this.
    pub(super) fn allow_low_ports(&mut self) -> Result<(), InjectError> {
        let context = &mut self.0["spec"]["securityContext"];
        if !matches!(context["sysctls"], Value::Null | Value::Array(_)) {
            return Err(InjectError::Refused(
                "spec.securityContext.sysctls is not a list".to_owned(),
            ));
        }
        object(context).ok_or("spec.securityContext is not a map")?;
        let all = list_mut(context, "sysctls");
        if !all.iter().any(|known| known["name"] == LOW_PORTS) {
            all.push(json!({ "name": LOW_PORTS, "value": "0" }));
        }
        Ok(())
    }

    pub(super) fn add_pull_secrets(&mut self, names: &[String]) -> Result<(), InjectError> {
        if names.is_empty() {
            return Ok(());
        }
        if !matches!(
            self.0["spec"]["imagePullSecrets"],
            Value::Null | Value::Array(_)
        ) {
            return Err(InjectError::Refused(
                "spec.imagePullSecrets is not a list".to_owned(),
            ));
        }
        let all = list_mut(&mut self.0["spec"], "imagePullSecrets");
        for name in names {
            if !all.iter().any(|known| known["name"] == **name) {
                all.push(json!({ "name": name }));
            }
        }
        Ok(())
    }
}

/// Whether a term of a node affinity matches no Linux node.
fn excludes_linux(term: &Value) -> bool {
    let all = term["matchExpressions"].as_array().into_iter().flatten();
    let mut of_systems = all.filter(|one| OS_LABELS.iter().any(|label| one["key"] == **label));
    of_systems.any(|one| {
        let mut values = one["values"].as_array().into_iter().flatten();
        let has_linux = values.any(|value| value == LINUX);
        match one["operator"].as_str() {
            Some("In") => !has_linux,
            Some("NotIn") => has_linux,
            _ => false,
        }
    })
}

pub(super) fn is_foreign(container: &Value) -> bool {
    container["name"]
        .as_str()
        .is_some_and(|name| FOREIGN.contains(&name))
}

pub(super) fn takes_network(container: &Value) -> bool {
    let name = container["name"].as_str().unwrap_or_default();
    is_foreign(container) && !OFF_NETWORK.contains(&name)
}

/// The object in `value`, which is created if it is missing.
pub(super) fn object(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}

pub(super) fn list_of<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Vec<Value>> {
    value.get_mut(key)?.as_array_mut()
}

/// The list under `key`, which is created if it is missing. A value of another type is replaced; callers have already
/// refused such a value.
pub(super) fn list_mut<'a>(value: &'a mut Value, key: &str) -> &'a mut Vec<Value> {
    let place = &mut value[key];
    if !place.is_array() {
        *place = json!([]);
    }
    place.as_array_mut().expect("made above")
}
