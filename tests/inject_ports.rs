//! The sidecar never listens on a port that the pod may use, wherever the pod mentions it.

use crate::inject::{container, fixture, settings};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokengauge_inject::{InjectBy, Outcome, inject};

/// The ports that the sidecar listens on, in the order of its arguments.
fn ports(pod: &Value) -> Vec<u16> {
    let arguments = container(pod, "tokengauge")["args"].as_array();
    let addresses = arguments.into_iter().flatten().filter_map(Value::as_str);
    let ports = addresses.filter_map(|address| address.rsplit_once(':'));
    ports.filter_map(|(_, port)| port.parse().ok()).collect()
}

fn injected(pod: &Value, text: &str) -> (Value, Vec<String>) {
    match inject(pod, InjectBy::Namespace, &settings(text)) {
        Outcome::Injected { pod, warnings } => (pod, warnings),
        other => panic!("{other:?}"),
    }
}

fn plain_pod() -> Value {
    json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "app", "image": "app:v" }] } })
}

/// Whether `port` appears somewhere as a separate number.
fn is_written(value: &Value, port: u16) -> bool {
    let text = value.to_string();
    let digits: Vec<&str> = text.split(|c: char| !c.is_ascii_digit()).collect();
    let wanted = port.to_string();
    digits
        .iter()
        .any(|run| run.trim_start_matches('0') == wanted)
}

fn uses(port: u16) -> Vec<(&'static str, Value)> {
    let text = port.to_string();
    vec![
        (
            "/spec/containers/0/ports",
            json!([{ "containerPort": port }]),
        ),
        (
            "/spec/containers/0/ports",
            json!([{ "containerPort": 1, "hostPort": port }]),
        ),
        (
            "/spec/containers/0/livenessProbe",
            json!({ "httpGet": { "port": port } }),
        ),
        (
            "/spec/containers/0/readinessProbe",
            json!({ "tcpSocket": { "port": text } }),
        ),
        (
            "/spec/containers/0/startupProbe",
            json!({ "grpc": { "port": port } }),
        ),
        (
            "/spec/containers/0/livenessProbe",
            json!({ "exec": { "command": ["nc", "-z", "localhost", text] } }),
        ),
        (
            "/spec/containers/0/lifecycle",
            json!({ "preStop": { "httpGet": { "port": port } } }),
        ),
        (
            "/spec/containers/0/command",
            json!(["serve", "--port", text]),
        ),
        ("/spec/containers/0/args", json!([format!("--port={port}")])),
        ("/spec/containers/0/args", json!(["-p", text])),
        ("/spec/containers/0/args", json!([format!("-p{port}")])),
        ("/spec/containers/0/args", json!([format!(":{port}")])),
        (
            "/spec/containers/0/args",
            json!(["--bind", format!("0.0.0.0:{port}")]),
        ),
        (
            "/spec/containers/0/args",
            json!(["--listen", format!("[::]:{port}")]),
        ),
        (
            "/spec/containers/0/args",
            json!([format!("set -e; exec app --metrics {port} &")]),
        ),
        (
            "/spec/containers/0/args",
            json!([format!("--ports={}-{}", port - 2, port + 2)]),
        ),
        (
            "/spec/containers/0/env",
            json!([{ "name": "PORT", "value": text }]),
        ),
        (
            "/spec/containers/0/env",
            json!([{ "name": "METRICS_PORT", "value": text }]),
        ),
        (
            "/spec/containers/0/env",
            json!([{ "name": "HOST", "value": format!("0.0.0.0:{port}") }]),
        ),
        (
            "/spec/containers/0/env",
            json!([{ "name": "OTHER", "value": format!("http://localhost:{port}/x") }]),
        ),
        (
            "/spec/initContainers",
            json!([{ "name": "proxy", "restartPolicy": "Always", "args": [format!("--port={port}")] }]),
        ),
        (
            "/spec/ephemeralContainers",
            json!([{ "name": "debug", "args": [format!(":{port}")] }]),
        ),
        (
            "/metadata/annotations",
            json!({ "prometheus.io/port": text }),
        ),
        ("/metadata/annotations", json!({ "dapr.io/app-port": text })),
        (
            "/metadata/annotations",
            json!({ "config.linkerd.io/skip-inbound-ports": format!("25,{port}") }),
        ),
    ]
}

fn put(pod: &mut Value, place: &str, value: Value) {
    let (parent, key) = place.rsplit_once('/').expect("a path");
    pod.pointer_mut(parent).expect("a parent")[key] = value;
}

#[test]
fn a_port_that_the_pod_names_anywhere_is_left_to_it() {
    let defaults = ports(&injected(&plain_pod(), "").0);
    for port in &defaults {
        for (place, value) in uses(*port) {
            let mut pod = plain_pod();
            put(&mut pod, place, value.clone());
            let (after, warnings) = injected(&pod, "");
            let chosen = ports(&after);
            assert!(!chosen.contains(port), "{place} {value}: {chosen:?}");
            assert_eq!(chosen, ports(&injected(&pod, "").0), "the same each time");
            let warned = |warning: &&String| warning.contains(&port.to_string());
            assert_eq!(warnings.iter().filter(warned).count(), 1, "{warnings:?}");
        }
    }
}

#[test]
fn the_defaults_are_uncommon_and_clear_of_meshes() {
    let (pod, warnings) = injected(&plain_pod(), "");
    assert_eq!(ports(&pod), [15480, 15465, 15464]);
    assert_eq!(warnings, Vec::<String>::new());
    let mut pod = plain_pod();
    pod["spec"]["containers"][0]["args"] = json!(["14999"]);
    let text = "traffic_port = 14999\n";
    assert_eq!(
        ports(&injected(&pod, text).0)[0],
        15100,
        "15000 to 15099 are a mesh's"
    );
}

#[test]
fn its_own_ports_never_meet_each_other() {
    let mut pod = plain_pod();
    pod["spec"]["containers"][0]["args"] = json!(["15464", "15466", "15480"]);
    assert_eq!(ports(&injected(&pod, "").0), [15481, 15465, 15467]);
    pod["metadata"]["annotations"] = json!({ "tokengauge.dev/port": "15465" });
    assert_eq!(ports(&injected(&pod, "").0), [15465, 15468, 15467]);
}

#[test]
fn what_the_template_is_in_counts_as_well() {
    let text = "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: r}\nspec:\n  headGroupSpec:\n    \
        rayStartParams: {metrics-export-port: '15464'}\n    \
        template: {spec: {containers: [{name: head, image: 'ray:2'}]}}\n";
    let all = tokengauge_inject::manifest::inject_all(text, InjectBy::Namespace, &settings(""))
        .expect("manifests");
    let object: Value = serde_saphyr::from_str(&all.text).expect("YAML");
    let chosen = ports(&object["spec"]["headGroupSpec"]["template"]);
    assert_eq!(chosen, [15480, 15465, 15466]);
}

#[test]
fn a_port_that_is_asked_for_and_taken_is_refused_with_the_place() {
    for (place, value) in uses(4000) {
        if value.to_string().contains("http://localhost") || place == "/metadata/annotations" {
            continue;
        }
        let mut pod = plain_pod();
        put(&mut pod, place, value.clone());
        pod["metadata"]["annotations"] = json!({ "tokengauge.dev/port": "4000" });
        match inject(&pod, InjectBy::Namespace, &settings("")) {
            Outcome::Refused(reason) => {
                let list = place.split('/').nth(2).expect("a list");
                assert!(
                    reason.contains("tokengauge.dev/port") && reason.contains("4000"),
                    "{reason}"
                );
                assert!(reason.contains(list), "{reason}");
            }
            other => panic!("{place} {value}: {other:?}"),
        }
    }
}

#[test]
fn a_program_may_be_pointed_by_hand_at_the_port_that_is_asked_for() {
    let mut pod = plain_pod();
    pod["metadata"]["annotations"] = json!({ "tokengauge.dev/port": "4000" });
    pod["spec"]["containers"][0]["args"] = json!(["--base-url", "http://127.0.0.1:4000/openai/v1"]);
    assert_eq!(ports(&injected(&pod, "").0)[0], 4000);
}

#[test]
fn an_engine_does_not_move_to_a_port_that_is_used() {
    let mut pod = fixture("vllm-moved");
    pod["spec"]["containers"][0]["env"] = json!([{ "name": "VLLM_RPC_PORT", "value": "18000" }]);
    match inject(&pod, InjectBy::Annotation, &settings("")) {
        Outcome::Refused(reason) => assert!(
            reason.contains("engine-moves-to") && reason.contains("18000"),
            "{reason}"
        ),
        other => panic!("{other:?}"),
    }
}

/// A pod that uses several ports, most of them near the sidecar's defaults.
fn busy_pod() -> impl Strategy<Value = Value> {
    let port = prop_oneof![15460u16..15490, 8078u16..8084, 9462u16..9468, 3u16..=65533];
    prop::collection::vec((port, 0usize..25), 0..24).prop_map(|chosen| {
        let mut pod = plain_pod();
        for (port, which) in chosen {
            let (place, value) = uses(port).swap_remove(which);
            merge(&mut pod, place, value);
        }
        pod
    })
}

/// Lists and maps grow; other values are replaced.
fn merge(pod: &mut Value, place: &str, value: Value) {
    match (pod.pointer_mut(place), value) {
        (Some(Value::Array(known)), Value::Array(more)) => known.extend(more),
        (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
        (_, value) => put(pod, place, value),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_ports_it_takes_are_nowhere_in_the_pod(pod in busy_pod()) {
        let (after, _) = injected(&pod, "");
        let chosen = ports(&after);
        for (at, port) in chosen.iter().enumerate() {
            prop_assert!(!is_written(&pod, *port), "{} of {:?}", port, chosen);
            prop_assert!(!chosen[..at].contains(port), "{:?}", chosen);
        }
    }
}

#[test]
fn a_text_of_only_ports_takes_linear_time() {
    for piece in ["1-9999-", "1:", "http://a:1:", "://a:1"] {
        let mut pod = plain_pod();
        pod["spec"]["containers"][0]["args"] = json!([piece.repeat((3 << 20) / piece.len())]);
        let began = std::time::Instant::now();
        injected(&pod, "");
        // Takes half a second unoptimised. A quadratic algorithm takes minutes.
        assert!(
            began.elapsed().as_secs() < 20,
            "{piece}: {:?}",
            began.elapsed()
        );
    }
}
