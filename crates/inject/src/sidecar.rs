//! The sidecar's container and volumes.

use super::annotations::CONFIG;
use super::compose::STATE;
use super::error::InjectError;
use super::pod::{List, Pod, takes_network};
use super::ports::Ports;
use super::settings::Settings;
use super::{PREFIX, SIDECAR};
use clap::ValueEnum;
use serde_json::{Value, json};
use tokengauge_config::environment::{
    ADMIN_TOKEN, AGENT, COST_CENTER, FALLBACK_CONFIG, ON_REFUSED_CONFIG, OnRefusedConfig, TEAM,
    TENANT,
};

const FOLDER: &str = "/etc/tokengauge";
const FILE: &str = "/etc/tokengauge/proxy-config.toml";
const PROGRAM: &str = "/usr/bin/tokengauge";
const CONFIG_VOLUME: &str = "tokengauge-config";
const STATE_VOLUME: &str = "tokengauge-state";
/// The name of the metrics port, for a PodMonitor and for probes. The admin port is on loopback, so the pod does not
/// declare it.
const METRICS: &str = "tg-metrics";

#[derive(Default)]
pub(super) struct Sidecar {
    pub(super) native: bool,
    pub(super) ports: Ports,
    /// Whether the pod has a mesh's proxy, which intercepts the kubelet's probes.
    pub(super) mesh: bool,
    pub(super) serves: Option<Value>,
    pub(super) resources: Value,
    pub(super) fallback: Option<String>,
    pub(super) on_refused_config: OnRefusedConfig,
}

pub(super) enum Source {
    BuiltIn,
    /// A ConfigMap. Its volume is optional, so that the pod does not wait for it.
    ConfigMap {
        name: String,
        /// Whether the pod names the ConfigMap. While the injector's ConfigMap is missing, the built-in configuration is
        /// used.
        by_pod: bool,
    },
    Text(String),
}

pub(super) fn add(
    pod: &mut Pod,
    sidecar: &Sidecar,
    source: &Source,
    settings: &Settings,
) -> Result<(), InjectError> {
    if let Some(volume) = volume(source) {
        pod.add_volume(volume)?;
    }
    // In memory, since a volume on disk could prevent draining the node.
    pod.add_volume(
        json!({ "name": STATE_VOLUME, "emptyDir": { "medium": "Memory", "sizeLimit": "16Mi" } }),
    )?;
    pod.add_pull_secrets(&settings.image_pull_secrets)?;
    let container = container(sidecar, source, &labels(sidecar, pod, settings), settings);
    if sidecar.native {
        let all = pod.containers_mut(List::Init);
        all.insert(position(all), container);
    } else {
        pod.containers_mut(List::Main).push(container);
    }
    mark(pod, sidecar, source, settings);
    Ok(())
}

/// The sidecar's index among init containers: after those that redirect the pod's network, and before all others, since
/// init containers before the sidecar cannot reach it.
pub(super) fn position(init: &[Value]) -> usize {
    init.iter()
        .rposition(takes_network)
        .map_or(0, |last| last + 1)
}

fn volume(source: &Source) -> Option<Value> {
    match source {
        Source::BuiltIn => None,
        Source::ConfigMap { name, .. } => Some(json!({
            "name": CONFIG_VOLUME, "configMap": { "name": name, "optional": true },
        })),
        Source::Text(_) => Some(json!({
            "name": CONFIG_VOLUME,
            "downwardAPI": { "items": [{
                "path": "proxy-config.toml",
                "fieldRef": { "fieldPath": format!("metadata.annotations['{PREFIX}{CONFIG}']") },
            }] },
        })),
    }
}

/// Adds labels and annotations: the marker of injection, the configuration, Prometheus' annotations.
fn mark(pod: &mut Pod, sidecar: &Sidecar, source: &Source, settings: &Settings) {
    pod.label(&format!("{PREFIX}injected"), "true");
    if let Source::Text(text) = source {
        pod.annotate(&format!("{PREFIX}{CONFIG}"), text);
    }
    let metrics = sidecar.ports.metrics.to_string();
    if settings.prometheus_annotations && pod.foreign_annotation("prometheus.io/scrape").is_none() {
        pod.annotate("prometheus.io/scrape", "true");
        pod.annotate("prometheus.io/port", &metrics);
        pod.annotate("prometheus.io/path", "/metrics");
    }
    if sidecar.mesh {
        // Prometheus and the kubelet have no certificate of the mesh.
        let name = "traffic.sidecar.istio.io/excludeInboundPorts";
        let known = pod.foreign_annotation(name).unwrap_or_default();
        if !known.split(',').any(|port| port.trim() == metrics) {
            let all = if known.is_empty() {
                metrics
            } else {
                format!("{known},{metrics}")
            };
            pod.annotate(name, &all);
        }
    }
}

fn container(sidecar: &Sidecar, source: &Source, labels: &Labels, settings: &Settings) -> Value {
    let Ports {
        traffic,
        metrics,
        admin,
    } = sidecar.ports;
    let listen = match &sidecar.serves {
        Some(_) => settings.bind.at(traffic),
        None => format!("127.0.0.1:{traffic}"),
    };
    let mut args = vec!["run".to_owned()];
    // Without an option the sidecar reads the file in its working directory, if there is one.
    let in_folder = matches!(source, Source::ConfigMap { by_pod: false, .. });
    if !in_folder && !matches!(source, Source::BuiltIn) {
        args.extend(["--config".to_owned(), FILE.to_owned()]);
    }
    args.extend([
        "--listen".to_owned(),
        listen,
        "--admin".to_owned(),
        format!("127.0.0.1:{admin}"),
        "--metrics-listen".to_owned(),
        settings.bind.at(metrics),
    ]);
    let mut container = json!({ "name": SIDECAR, "image": settings.image });
    if let Some(policy) = &settings.image_pull_policy {
        container["imagePullPolicy"] = json!(policy);
    }
    if sidecar.native {
        container["restartPolicy"] = json!("Always");
    }
    container["args"] = json!(args);
    if in_folder {
        container["workingDir"] = json!(FOLDER);
    }
    container["env"] = variables(sidecar, labels, settings);
    let mut ports = vec![json!({ "name": METRICS, "containerPort": metrics, "protocol": "TCP" })];
    ports.extend(sidecar.serves.clone());
    container["ports"] = json!(ports);
    for (name, path, more) in PROBES {
        container[*name] = probe(sidecar, path, more);
    }
    if !sidecar.native {
        container["lifecycle"] = json!({ "preStop": pause(settings) });
    }
    container["resources"] = sidecar.resources.clone();
    container["securityContext"] = settings.security_context.clone().unwrap_or_else(restricted);
    container["volumeMounts"] = mounts(source);
    container
}

/// Variables, and the pod labels that provide their values.
type Labels = Vec<(&'static str, String)>;

/// The labels that name the pod's agent (unless it is an engine) and who pays. The first label of each list that the pod
/// has is used.
fn labels(sidecar: &Sidecar, pod: &Pod, settings: &Settings) -> Labels {
    let words = |all: &[&str]| all.iter().map(|label| (*label).to_owned()).collect();
    let agents: Vec<String> = match sidecar.serves {
        None => words(&["app.kubernetes.io/name", "app"]),
        Some(_) => Vec::new(),
    };
    let payers = &settings.payer_labels;
    let kinds = [
        (AGENT, "agent", sidecar.serves.is_none(), &agents),
        (TEAM, "team", true, &payers.team),
        (COST_CENTER, "cost-center", true, &payers.cost_center),
        (TENANT, "tenant", true, &payers.tenant),
    ];
    let mut found = Vec::new();
    for (variable, ours, wanted, others) in kinds {
        let ours = format!("{PREFIX}{ours}");
        let mut all = std::iter::once(&ours).chain(others);
        let label = all.find(|label| wanted && pod.has_label(label));
        found.extend(label.map(|label| (variable, label.clone())));
    }
    found
}

/// The sidecar's variables: the pod's attributes for telemetry, the fallback, and the operator's variables.
fn variables(sidecar: &Sidecar, labels: &Labels, settings: &Settings) -> Value {
    let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let mut all = vec![
        json!({ "name": "TOKENGAUGE_LOG", "value": settings.log_level }),
        field("K8S_NAMESPACE_NAME", "metadata.namespace"),
        field("K8S_POD_NAME", "metadata.name"),
        field("K8S_POD_UID", "metadata.uid"),
        field("K8S_NODE_NAME", "spec.nodeName"),
        json!({ "name": "K8S_CONTAINER_NAME", "value": SIDECAR }),
    ];
    let by_label = labels.iter();
    all.extend(by_label.map(|(name, label)| field(name, &format!("metadata.labels['{label}']"))));
    if let Some(secret) = &settings.admin_token_secret {
        // Optional, so that a missing Secret does not block the pod: the address is on loopback.
        let key = json!({ "name": secret.name, "key": secret.key, "optional": true });
        all.push(json!({ "name": ADMIN_TOKEN, "valueFrom": { "secretKeyRef": key } }));
    }
    if let Some(fallback) = &sidecar.fallback {
        // Kubernetes replaces `$$` with `$`, and `$(…)` with a variable.
        let text = fallback.replace('$', "$$");
        all.push(json!({ "name": FALLBACK_CONFIG, "value": text }));
        let policy = sidecar.on_refused_config;
        let policy = policy
            .to_possible_value()
            .filter(|_| policy != OnRefusedConfig::default());
        all.extend(
            policy.map(|policy| json!({ "name": ON_REFUSED_CONFIG, "value": policy.get_name() })),
        );
    }
    let own = |known: &Value| settings.env.iter().any(|own| own["name"] == known["name"]);
    all.retain(|known| !own(known));
    all.extend(settings.env.iter().cloned());
    Value::Array(all)
}

const PROBES: &[(&str, &str, &str)] = &[
    (
        "startupProbe",
        "/readyz",
        r#"{ "periodSeconds": 1, "failureThreshold": 60 }"#,
    ),
    (
        "readinessProbe",
        "/readyz",
        r#"{ "periodSeconds": 5, "timeoutSeconds": 2 }"#,
    ),
    (
        "livenessProbe",
        "/livez",
        r#"{ "periodSeconds": 10, "timeoutSeconds": 5 }"#,
    ),
];

fn probe(sidecar: &Sidecar, path: &str, more: &str) -> Value {
    let mut probe: Value = serde_json::from_str(more).expect("written above");
    let url = format!("http://127.0.0.1:{}{path}", sidecar.ports.metrics);
    let (way, how) = if sidecar.mesh {
        (
            "exec",
            json!({ "command": [PROGRAM, "probe", url, "--within", "1s"] }),
        )
    } else {
        ("httpGet", json!({ "path": path, "port": METRICS }))
    };
    probe[way] = how;
    probe
}

/// The `preStop` hook that sleeps, since the other containers may still make calls.
fn pause(settings: &Settings) -> Value {
    let seconds = settings.pre_stop_seconds;
    if settings.sleeps() {
        json!({ "sleep": { "seconds": seconds } })
    } else {
        json!({ "exec": { "command": [PROGRAM, "pause", format!("{seconds}s")] } })
    }
}

fn restricted() -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "readOnlyRootFilesystem": true,
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "seccompProfile": { "type": "RuntimeDefault" },
    })
}

fn mounts(source: &Source) -> Value {
    let mut mounts = Vec::new();
    if !matches!(source, Source::BuiltIn) {
        mounts.push(json!({ "name": CONFIG_VOLUME, "mountPath": FOLDER, "readOnly": true }));
    }
    mounts.push(json!({ "name": STATE_VOLUME, "mountPath": STATE }));
    Value::Array(mounts)
}
