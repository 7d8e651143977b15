//! The resource of the process, from the environment: `service.*` and `k8s.*`.

use super::settings::Variables;
use opentelemetry::{Key, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{ResourceDetector, TelemetryResourceDetector};

const SERVICE: &str = "tokengauge";

/// Kubernetes attributes and the variables that usually hold them; the first that is set is used.
const KUBERNETES: &[(&str, &[&str])] = &[
    (
        "k8s.namespace.name",
        &["K8S_NAMESPACE_NAME", "POD_NAMESPACE"],
    ),
    ("k8s.pod.name", &["K8S_POD_NAME", "POD_NAME"]),
    ("k8s.pod.uid", &["K8S_POD_UID", "POD_UID"]),
    (
        "k8s.container.name",
        &["K8S_CONTAINER_NAME", "CONTAINER_NAME"],
    ),
    ("k8s.node.name", &["K8S_NODE_NAME", "NODE_NAME"]),
    ("k8s.deployment.name", &["K8S_DEPLOYMENT_NAME"]),
    ("k8s.cluster.name", &["K8S_CLUSTER_NAME"]),
];

/// The resource. `OTEL_RESOURCE_ATTRIBUTES` overrides the detected attributes, and
/// `OTEL_SERVICE_NAME` overrides both. `instance` is the default of `service.instance.id`.
pub fn resource(variables: Variables<'_>, instance: &str) -> Resource {
    let text = |name: &str| variables(name).filter(|value| !value.trim().is_empty());
    let named = text("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let named: Vec<_> = named.split(',').filter_map(attribute).collect();
    let of_pod = KUBERNETES.iter().filter_map(|(key, names)| {
        let value = names.iter().find_map(|name| text(name))?;
        Some(((*key).to_owned(), value))
    });
    let mut all: Vec<(String, String)> = of_pod.collect();
    overlay(&mut all, named);
    let find = |key: &str| {
        let found = all.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.clone())
    };
    let pod = [
        find("k8s.namespace.name"),
        find("k8s.pod.name"),
        Some(find("k8s.container.name").unwrap_or_else(|| SERVICE.to_owned())),
    ];
    // The conventions require an instance that is unique in the cluster and stable across restarts
    // of the container.
    let in_pod = pod.into_iter().collect::<Option<Vec<_>>>();
    let instance = in_pod.map_or_else(|| instance.to_owned(), |names| names.join("."));
    let sdk = TelemetryResourceDetector.detect();
    let sdk = sdk
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()));
    let mut defaults: Vec<_> = sdk.collect();
    defaults.extend([
        ("service.name".to_owned(), SERVICE.to_owned()),
        (
            "service.version".to_owned(),
            env!("CARGO_PKG_VERSION").to_owned(),
        ),
        ("service.instance.id".to_owned(), instance),
    ]);
    overlay(&mut defaults, all);
    let service = text("OTEL_SERVICE_NAME");
    overlay(
        &mut defaults,
        service.map(|name| ("service.name".to_owned(), name)),
    );
    let attributes = defaults
        .into_iter()
        .map(|(key, value)| KeyValue::new(key, value));
    Resource::builder_empty()
        .with_attributes(attributes)
        .build()
}

pub fn attribute_of(variables: Variables<'_>, key: &'static str) -> Option<String> {
    let value = resource(variables, "").get(&Key::from_static_str(key))?;
    Some(value.to_string()).filter(|value| !value.is_empty())
}

fn overlay(all: &mut Vec<(String, String)>, more: impl IntoIterator<Item = (String, String)>) {
    for (key, value) in more {
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => all.push((key, value)),
        }
    }
}

/// One `key=value`, percent-encoded as in baggage.
fn attribute(member: &str) -> Option<(String, String)> {
    let (key, value) = member.split_once('=')?;
    let value = super::settings::decoded(value.trim())?;
    let key = key.trim();
    (!key.is_empty()).then(|| (key.to_owned(), String::from_utf8_lossy(&value).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)], key: &'static str) -> Option<String> {
        let named = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let resource = resource(&named, "fallback");
        let value = resource.get(&Key::from_static_str(key));
        value.map(|value| value.to_string())
    }

    #[test]
    fn an_instance_in_kubernetes_is_its_namespace_pod_and_container() {
        let pod = [("POD_NAMESPACE", "ml"), ("K8S_POD_NAME", "agent-7")];
        let instance = |variables: &[_]| of(variables, "service.instance.id");
        assert_eq!(instance(&pod).as_deref(), Some("ml.agent-7.tokengauge"));
        let named = [pod[0], pod[1], ("K8S_CONTAINER_NAME", "gauge")];
        assert_eq!(instance(&named).as_deref(), Some("ml.agent-7.gauge"));
        assert_eq!(instance(&pod[..1]).as_deref(), Some("fallback"));
        assert_eq!(of(&pod, "k8s.pod.name").as_deref(), Some("agent-7"));
    }

    #[test]
    fn what_the_operator_names_goes_before_what_is_found() {
        let named = "service.name=a,k8s.pod.name=b%2Cc,service.instance.id=i,broken";
        let variables = [("OTEL_RESOURCE_ATTRIBUTES", named), ("POD_NAME", "found")];
        assert_eq!(of(&variables, "service.name").as_deref(), Some("a"));
        assert_eq!(of(&variables, "k8s.pod.name").as_deref(), Some("b,c"));
        assert_eq!(of(&variables, "service.instance.id").as_deref(), Some("i"));
        let both = [variables[0], ("OTEL_SERVICE_NAME", "mine")];
        assert_eq!(of(&both, "service.name").as_deref(), Some("mine"));
        assert_eq!(of(&[], "service.name").as_deref(), Some("tokengauge"));
    }
}
