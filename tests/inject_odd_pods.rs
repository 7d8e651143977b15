//! Injection into pods with unusual containers, annotations and ports.

use crate::inject::{container, settings};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use tokengauge_inject::{InjectBy, Outcome, Settings, inject};

fn injected(pod: &Value, settings: &Settings) -> (Value, Vec<String>) {
    match inject(pod, InjectBy::Namespace, settings) {
        Outcome::Injected { pod, warnings } => (pod, warnings),
        other => panic!("{other:?}"),
    }
}

fn refused(pod: &Value) -> String {
    match inject(pod, InjectBy::Namespace, &settings("")) {
        Outcome::Refused(reason) => reason,
        other => panic!("{other:?}"),
    }
}

fn pod(annotations: Value, spec: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "annotations": annotations },
            "spec": spec })
}

fn init_names(pod: &Value) -> Vec<&str> {
    let all = pod["spec"]["initContainers"].as_array().expect("a list");
    all.iter().filter_map(|one| one["name"].as_str()).collect()
}

#[test]
fn the_sidecar_is_there_before_init_containers_that_use_it() {
    let spec = json!({
        "initContainers": [
            { "name": "embed", "image": "rag" },
            { "name": "cloud-sql-proxy", "image": "x", "restartPolicy": "Always" },
        ],
        "containers": [{ "name": "app", "image": "rag" }],
    });
    let (pod, _) = injected(&pod(json!({}), spec), &settings(""));
    assert_eq!(init_names(&pod), ["tokengauge", "embed", "cloud-sql-proxy"]);
    assert!(container(&pod, "embed")["env"].is_array());
}

#[test]
fn an_init_container_before_the_mesh_is_not_pointed_at_what_is_not_there_yet() {
    let spec = json!({
        "initContainers": [
            { "name": "warm", "image": "rag" },
            { "name": "istio-init", "image": "x" },
            { "name": "index", "image": "rag" },
        ],
        "containers": [{ "name": "app", "image": "rag" }],
    });
    let (pod, warnings) = injected(&pod(json!({}), spec), &settings(""));
    assert_eq!(
        init_names(&pod),
        ["warm", "istio-init", "tokengauge", "index"]
    );
    assert!(container(&pod, "warm")["env"].is_null());
    assert!(container(&pod, "index")["env"].is_array());
    assert!(
        warnings
            .iter()
            .any(|one| one.contains("\"warm\": it runs before")),
        "{warnings:?}"
    );
}

#[test]
fn an_annotation_that_is_no_text_is_refused() {
    let spec = json!({ "containers": [{ "name": "app", "image": "a" }] });
    for (name, value, text) in [
        ("inject", json!(false), "write \"false\""),
        ("engine-port", json!(8000), "write \"8000\""),
    ] {
        let name = format!("tokengauge.dev/{name}");
        let reason = refused(&pod(json!({ name: value }), spec.clone()));
        assert!(reason.contains(text), "{reason}");
    }
}

#[test]
fn an_engine_on_a_low_port_gets_a_sidecar_that_may_listen_there() {
    let annotations = json!({
        "tokengauge.dev/engine-port": "80",
        "tokengauge.dev/engine-moves-to": "18080",
    });
    let spec =
        json!({ "containers": [{ "name": "tgi", "image": "tgi", "args": ["--port", "80"] }] });
    let (pod, warnings) = injected(&pod(annotations, spec), &settings(""));
    let sysctls = &pod["spec"]["securityContext"]["sysctls"];
    let expected = json!([{ "name": "net.ipv4.ip_unprivileged_port_start", "value": "0" }]);
    assert_eq!(*sysctls, expected);
    assert!(
        warnings
            .iter()
            .any(|one| one.contains("listens on port 80")),
        "{warnings:?}"
    );
}

const BASE: &str = "[admin]\nmetrics_token = true\n[[upstream]]\nname = \"openai\"\nurl = \"https://api.openai.com\"\n\
    [[route]]\nupstream = \"openai\"\npath = \"/openai\"\n\
    [[quota]]\nname = \"mine\"\nselect.route = \"openai\"\nrequests_per_minute = 2000000\n\
    [[quota]]\nname = \"all\"\nrequests_per_minute = 2000000\n";

#[test]
fn a_composed_configuration_keeps_the_metrics_token_and_drops_limits_of_removed_routes() {
    let folder = tempfile::tempdir().expect("a folder");
    let (base, file) = (
        folder.path().join("base.toml"),
        folder.path().join("injector.toml"),
    );
    std::fs::write(&base, BASE).expect("written");
    let text = format!("base_config = {base:?}\n");
    std::fs::write(&file, &text).expect("written");
    let without = Settings::load(&file).expect_err("no token");
    assert!(
        without.to_string().contains("admin_token_secret"),
        "{without}"
    );
    let secret = "admin_token_secret = { name = \"t\", key = \"token\" }\n";
    std::fs::write(&file, text + secret).expect("written");
    let settings = Settings::load(&file).expect("settings");
    let spec =
        json!({ "containers": [{ "name": "vllm", "image": "v", "args": ["--port", "8000"] }] });
    let annotations = json!({ "tokengauge.dev/engine-port": "8000" });
    let (pod, _) = injected(&pod(annotations, spec), &settings);
    let text = pod["metadata"]["annotations"]["tokengauge.dev/proxy-config"]
        .as_str()
        .expect("text");
    assert!(text.contains("metrics_token = true"), "{text}");
    assert!(
        text.contains("\"all\"") && !text.contains("\"mine\""),
        "{text}"
    );
}

fn by_command(text: &str) -> (String, bool) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command
        .args(["inject", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let mut stdin = child.stdin.take().expect("piped");
    std::io::Write::write_all(&mut stdin, text.as_bytes()).expect("written");
    drop(stdin);
    let output = child.wait_with_output().expect("ended");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (text, output.status.success())
}

#[test]
fn objects_that_opt_out_and_markers_with_comments_are_unchanged() {
    let out = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata:\n  name: node\n  annotations:\n    \
               tokengauge.dev/inject: \"false\"\nspec:\n  template:\n    spec:\n      hostNetwork: true\n      \
               containers: [{name: a, image: a}]\n";
    let (text, good) = by_command(&format!("---  # first\n{out}---\t# second\n{out}"));
    assert!(good);
    assert_eq!(text, format!("---  # first\n{out}---\t# second\n{out}"));
}
