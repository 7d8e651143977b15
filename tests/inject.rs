//! Sidecar injection into pods of real shapes: patches apply, are idempotent, and have the intended effect.

use json_patch::Patch;
use serde_json::{Value, json};
use std::path::Path;
use tokengauge_config::Config;
use tokengauge_inject::{InjectBy, Outcome, Settings, inject, patch};

pub fn fixture(name: &str) -> Value {
    let path = format!(
        "{}/tests/fixtures/pods/{name}.yaml",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).expect(&path);
    serde_saphyr::from_str(&text).expect(&path)
}

pub fn settings(text: &str) -> Settings {
    Settings::parse(text).unwrap_or_else(|reason| panic!("{reason}"))
}

fn injected_by(name: &str, settings: &Settings) -> (Value, Vec<String>) {
    let before = fixture(name);
    let (after, warnings) = match inject(&before, InjectBy::Annotation, settings) {
        Outcome::Injected { pod, warnings } => (pod, warnings),
        other => panic!("{name}: {other:?}"),
    };
    let patch: Patch =
        serde_json::from_value(Value::Array(patch::diff(&before, &after))).expect("a patch");
    let mut patched = before;
    json_patch::patch(&mut patched, &patch).expect("it applies");
    assert_eq!(patched, after, "{name}");
    assert_eq!(
        inject(&after, InjectBy::Namespace, settings),
        Outcome::Left,
        "again"
    );
    if let Some(text) = after["metadata"]["annotations"]["tokengauge.dev/proxy-config"].as_str() {
        Config::parse(text, name).unwrap_or_else(|invalid| panic!("{invalid}"));
    }
    assert_eq!(
        after["metadata"]["labels"]["tokengauge.dev/injected"],
        "true"
    );
    (after, warnings)
}

pub fn injected(name: &str) -> (Value, Vec<String>) {
    injected_by(name, &settings(""))
}

pub fn container<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let both = ["initContainers", "containers"];
    let mut all = both
        .iter()
        .filter_map(|list| pod["spec"][list].as_array())
        .flatten();
    all.find(|container| container["name"] == name)
        .unwrap_or_else(|| panic!("no {name}"))
}

pub fn names(pod: &Value, list: &str) -> Vec<String> {
    let all = pod["spec"][list].as_array().into_iter().flatten();
    all.map(|container| container["name"].as_str().expect("a name").to_owned())
        .collect()
}

pub fn variable<'a>(pod: &'a Value, of: &str, name: &str) -> Option<&'a str> {
    let mut all = container(pod, of)["env"].as_array()?.iter();
    all.find(|variable| variable["name"] == name)?["value"].as_str()
}

pub fn arguments(pod: &Value) -> String {
    let args = container(pod, "tokengauge")["args"]
        .as_array()
        .expect("arguments");
    let args: Vec<&str> = args.iter().map(|arg| arg.as_str().expect("text")).collect();
    args.join(" ")
}

pub fn config(pod: &Value) -> Config {
    let text = &pod["metadata"]["annotations"]["tokengauge.dev/proxy-config"];
    Config::parse(text.as_str().expect("a configuration"), "test").expect("checked already")
}

#[test]
fn an_agents_pod_gets_a_native_sidecar_and_its_base_urls() {
    let (pod, warnings) = injected("agent");
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(names(&pod, "initContainers"), ["tokengauge"]);
    let sidecar = container(&pod, "tokengauge");
    assert_eq!(sidecar["restartPolicy"], "Always");
    assert_eq!(
        arguments(&pod),
        "run --listen 127.0.0.1:15480 --admin 127.0.0.1:15465 --metrics-listen *:15464"
    );
    assert_eq!(
        sidecar["ports"],
        json!([{ "name": "tg-metrics", "containerPort": 15464, "protocol": "TCP" }])
    );
    assert_eq!(sidecar["startupProbe"]["httpGet"]["path"], "/readyz");
    assert_eq!(sidecar["livenessProbe"]["httpGet"]["path"], "/livez");
    for (name, path) in [
        ("OPENAI_BASE_URL", "/openai/v1"),
        ("ANTHROPIC_BASE_URL", "/anthropic"),
        ("GOOGLE_GEMINI_BASE_URL", "/gemini"),
    ] {
        let url = format!("http://127.0.0.1:15480{path}");
        assert_eq!(variable(&pod, "researcher", name), Some(url.as_str()));
    }
    let kept = fixture("agent");
    assert_eq!(
        pod["spec"]["containers"][0]["readinessProbe"],
        kept["spec"]["containers"][0]["readinessProbe"]
    );
    assert_eq!(pod["spec"]["volumes"][0], kept["spec"]["volumes"][0]);
}

#[test]
fn a_config_map_is_used_if_it_exists_and_does_not_block_the_pod_otherwise() {
    let (pod, _) = injected_by("agent", &settings("config_map = \"tokengauge\""));
    assert_eq!(
        pod["spec"]["volumes"][1]["configMap"],
        json!({ "name": "tokengauge", "optional": true })
    );
    assert_eq!(
        container(&pod, "tokengauge")["workingDir"],
        "/etc/tokengauge"
    );
    assert!(
        !arguments(&pod).contains("--config"),
        "its folder's file, else the built-in one"
    );
    let (pod, _) = injected("several");
    assert_eq!(
        pod["spec"]["volumes"][0]["configMap"],
        json!({ "name": "voice-gauge", "optional": true })
    );
    assert_eq!(
        arguments(&pod),
        "run --config /etc/tokengauge/proxy-config.toml --listen 127.0.0.1:4000 --admin 127.0.0.1:15465 --metrics-listen *:15464"
    );
}

#[test]
fn counts_of_objectives_are_kept_in_a_small_volume_and_no_calls() {
    let base = "state_dir = \"/data\"\n[ledger]\npath = \"/data/calls.sqlite\"\n\
        [[upstream]]\nname = \"u\"\nurl = \"http://u\"\n[[route]]\nupstream = \"u\"\n";
    let (pod, _) = injected_by("job", &settings(&format!("base_config = {base:?}\n")));
    let config = config(&pod);
    let folder = config.state_dir.as_deref();
    assert_eq!(folder, Some(Path::new("/var/lib/tokengauge")));
    assert!(config.ledger.is_none(), "{:?}", config.ledger);
}

#[test]
fn a_job_ends_although_the_sidecar_does_not_and_is_measured_by_its_own_promises() {
    let (pod, _) = injected("job");
    assert_eq!(names(&pod, "containers"), ["evaluate"]);
    let config = config(&pod);
    assert_eq!(&*config.measure.workloads[0].name, "evaluation");
    assert_eq!(&*config.slos[0].name, "evaluation-speed");
    assert_eq!(config.drain_timeout.as_secs(), 25);
    assert_eq!(
        &*config.routes[0].upstream.name, "openai",
        "the rest is the base's"
    );
    let source = &pod["spec"]["volumes"][0]["downwardAPI"]["items"][0];
    assert_eq!(source["path"], "proxy-config.toml");
    assert_eq!(
        source["fieldRef"]["fieldPath"],
        "metadata.annotations['tokengauge.dev/proxy-config']"
    );
    let old = settings("kubernetes_version = \"1.28\"");
    let outcome = inject(&fixture("job"), InjectBy::Annotation, &old);
    assert!(
        matches!(&outcome, Outcome::Refused(reason) if reason.contains("keep it running")),
        "{outcome:?}"
    );
}

#[test]
fn an_older_cluster_gets_a_plain_container_that_ends_late() {
    let (pod, _) = injected_by("agent", &settings("kubernetes_version = \"1.28\""));
    assert_eq!(names(&pod, "containers"), ["researcher", "tokengauge"]);
    let sidecar = container(&pod, "tokengauge");
    assert_eq!(sidecar["restartPolicy"], Value::Null);
    assert_eq!(
        sidecar["lifecycle"]["preStop"]["exec"]["command"],
        json!(["/usr/bin/tokengauge", "pause", "5s"])
    );
    let (pod, _) = injected_by("init-containers", &settings("native_sidecar = \"off\""));
    assert_eq!(
        variable(&pod, "index", "OPENAI_BASE_URL"),
        None,
        "it runs before the sidecar"
    );
    let sleep = &container(&pod, "tokengauge")["lifecycle"]["preStop"]["sleep"];
    assert_eq!(sleep["seconds"], 5);
}

#[test]
fn init_containers_follow_the_sidecar_and_upstreams_come_from_the_pod() {
    let (pod, _) = injected("init-containers");
    assert_eq!(
        names(&pod, "initContainers"),
        ["tokengauge", "migrate", "index"]
    );
    let url = Some("http://127.0.0.1:15480/openai/v1");
    for name in ["migrate", "index", "app"] {
        assert_eq!(variable(&pod, name, "OPENAI_BASE_URL"), url, "{name}");
    }
    let config = config(&pod);
    let route = |name: &str| {
        config
            .routes
            .iter()
            .find(|route| &*route.name == name)
            .expect("a route")
    };
    let openai = &route("openai").upstream.endpoints[0];
    assert_eq!(
        (openai.authority.as_str(), openai.base_path.as_str()),
        ("vllm.serving:8000", ""),
        "/v1 is the SDK's"
    );
    assert_eq!(route("local").matches.path_prefix, "/local");
    assert_eq!(
        route("anthropic").upstream.endpoints[0].authority.as_str(),
        "api.anthropic.com"
    );
}

#[test]
fn ports_that_are_taken_are_left_to_those_who_have_them() {
    let (pod, warnings) = injected("existing-sidecars");
    assert_eq!(
        names(&pod, "initContainers"),
        ["tokengauge", "log-shipper", "prepare"]
    );
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(variable(&pod, "cloud-sql-proxy", "OPENAI_BASE_URL"), None);
    let (pod, warnings) = injected("ports");
    assert_eq!(
        arguments(&pod),
        "run --listen 127.0.0.1:15482 --admin 127.0.0.1:15467 --metrics-listen *:15466"
    );
    assert_eq!(
        variable(&pod, "app", "OPENAI_BASE_URL"),
        Some("http://127.0.0.1:15482/openai/v1")
    );
    assert_eq!(
        warnings,
        [
            "15480 may be in use (spec.containers[app].command[2]): tokengauge takes 15482 for calls",
            "15464 may be in use (spec.containers[app].env[METRICS_PORT].value): tokengauge takes 15466 \
             for its metrics",
            "15465 may be in use (spec.containers[app].livenessProbe.exec.command[3]): tokengauge takes 15467 \
             for operators",
        ]
    );
    assert_eq!(
        pod["metadata"]["annotations"]["tokengauge.dev/warnings"],
        warnings.join("; ")
    );
}

#[test]
fn the_hosts_network_is_refused_and_opting_out_is_heard() {
    let outcome = inject(
        &fixture("host-network"),
        InjectBy::Annotation,
        &settings(""),
    );
    assert!(
        matches!(&outcome, Outcome::Refused(reason) if reason.contains("host's network")),
        "{outcome:?}"
    );
    let mut pod = fixture("agent");
    pod["metadata"]["annotations"]["tokengauge.dev/inject"] = json!("false");
    assert_eq!(
        inject(&pod, InjectBy::Namespace, &settings("")),
        Outcome::Left
    );
    pod["metadata"]["annotations"] = Value::Null;
    assert_eq!(
        inject(&pod, InjectBy::Annotation, &settings("")),
        Outcome::Left
    );
    assert!(matches!(
        inject(&pod, InjectBy::Namespace, &settings("")),
        Outcome::Injected { .. }
    ));
}

#[test]
fn base_urls_of_the_pod_stay_with_a_warning_unless_replacement_is_enabled() {
    let (pod, warnings) = injected("env-from");
    for name in ["by-config-map", "by-env-from"] {
        assert_eq!(variable(&pod, name, "OPENAI_BASE_URL"), None, "{name}");
    }
    assert_eq!(
        variable(&pod, "by-config-map", "OPENAI_API_BASE"),
        None,
        "LangChain would prefer it"
    );
    assert!(variable(&pod, "by-config-map", "ANTHROPIC_BASE_URL").is_some());
    assert_eq!(
        variable(&pod, "by-value", "OPENAI_BASE_URL"),
        Some("http://vllm.serving:8000/v1")
    );
    let message = |text: &str| {
        warnings
            .iter()
            .filter(|warning| warning.contains(text))
            .count()
    };
    assert_eq!(
        (
            message("sets OPENAI_BASE_URL itself"),
            message("envFrom"),
            message("NO_PROXY")
        ),
        (2, 1, 1),
        "{warnings:?}"
    );
    let (pod, _) = injected("taken-over");
    assert_eq!(
        variable(&pod, "by-value", "OPENAI_BASE_URL"),
        Some("http://127.0.0.1:15480/openai/v1")
    );
    assert!(variable(&pod, "by-env-from", "OPENAI_BASE_URL").is_some());
    let upstream = &config(&pod).routes[0].upstream;
    assert_eq!(
        (&*upstream.name, upstream.endpoints[0].authority.as_str()),
        ("openai", "vllm.serving:8000")
    );
}

#[test]
fn base_urls_without_a_route_are_not_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let base = folder.path().join("base.toml");
    std::fs::write(&base, "[[upstream]]\nname = \"o\"\nurl = \"http://o\"\n[[route]]\npath = \"/openai\"\nupstream = \"o\"\n").expect("written");
    let file = folder.path().join("injector.toml");
    std::fs::write(
        &file,
        format!("base_config = {base:?}\nconfig_map = \"tokengauge\"\n"),
    )
    .expect("written");
    let settings = Settings::load(&file).expect("settings");
    let (pod, _) = injected_by("agent", &settings);
    assert!(variable(&pod, "researcher", "OPENAI_BASE_URL").is_some());
    assert_eq!(variable(&pod, "researcher", "ANTHROPIC_BASE_URL"), None);
}

#[test]
fn misspelt_annotations_are_refused_with_a_suggestion() {
    for (annotations, reason) in [
        (
            json!({ "upstraem": "http://a" }),
            "the annotation tokengauge.dev/upstraem does not exist",
        ),
        (json!({ "inject": "yes" }), "must be `true` or `false`"),
        (
            json!({ "upstream": "engine:8000" }),
            "neither a URL nor a name and a URL",
        ),
        (
            json!({ "upstream": "openai=ftp://a" }),
            "must start with `http://`",
        ),
        (json!({ "port": "http" }), "is not a port from 1 to 65535"),
        (
            json!({ "port": "8000" }),
            "8000 may be in use already (spec.containers[researcher].ports[http].containerPort)",
        ),
        (json!({ "slo": "chatty" }), "is not a preset"),
        (json!({ "slo.fast": "ttft.at_most = 5" }), "annotations"),
        (
            json!({ "slo.fast": "x }\n[[upstream]" }),
            "not the content of a [[slo]] table",
        ),
        (
            json!({ "containers": "resercher" }),
            "no container `resercher`",
        ),
        (json!({ "variables": "OPENAI_URL" }), "has no path"),
        (
            json!({ "config": "a", "workload": "b" }),
            "names a ConfigMap with the whole configuration",
        ),
        (
            json!({ "engine-moves-to": "1" }),
            "needs tokengauge.dev/engine-port",
        ),
        (
            json!({ "engine-port": "8000", "upstream": "http://a" }),
            "remove tokengauge.dev/upstream",
        ),
        (json!({ "base-urls": "all" }), "must be `unset`"),
    ] {
        let mut pod = fixture("agent");
        for (name, value) in annotations.as_object().expect("a map") {
            pod["metadata"]["annotations"][format!("tokengauge.dev/{name}")] = value.clone();
        }
        match inject(&pod, InjectBy::Namespace, &settings("")) {
            Outcome::Refused(message) => assert!(message.contains(reason), "{message}"),
            other => panic!("{annotations}: {other:?}"),
        }
    }
}

#[test]
fn the_operators_own_settings_are_followed() {
    let text = r#"
        image = "registry.example/tokengauge@sha256:abc"
        image_pull_policy = "Always"
        traffic_port = 4001
        metrics_port = 4002
        admin_port = 4003
        bind = "::"
        prometheus_annotations = true
        log_level = "warn"
        env = [{ name = "OTEL_EXPORTER_OTLP_ENDPOINT", value = "http://collector:4318" }]
        resources = { requests = { cpu = "1" } }
        security_context = { runAsUser = 1000 }
    "#;
    let (pod, _) = injected_by("agent", &settings(text));
    let sidecar = container(&pod, "tokengauge");
    assert_eq!(sidecar["image"], "registry.example/tokengauge@sha256:abc");
    assert_eq!(sidecar["imagePullPolicy"], "Always");
    assert_eq!(
        arguments(&pod),
        "run --listen 127.0.0.1:4001 --admin 127.0.0.1:4003 --metrics-listen [::]:4002"
    );
    assert_eq!(
        variable(&pod, "tokengauge", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        Some("http://collector:4318")
    );
    assert_eq!(variable(&pod, "tokengauge", "TOKENGAUGE_LOG"), Some("warn"));
    assert_eq!(sidecar["resources"], json!({ "requests": { "cpu": "1" } }));
    assert_eq!(sidecar["securityContext"], json!({ "runAsUser": 1000 }));
    assert_eq!(pod["metadata"]["annotations"]["prometheus.io/port"], "4002");
}

#[test]
fn the_pods_labels_name_who_pays_for_its_calls() {
    let of = |name: &str, labels: Value, text: &str| {
        let mut pod = fixture(name);
        pod["metadata"]["labels"] = labels;
        let Outcome::Injected { pod, .. } = inject(&pod, InjectBy::Annotation, &settings(text))
        else {
            panic!("{name} is injected");
        };
        let all = container(&pod, "tokengauge")["env"].as_array().cloned();
        let all = all.expect("variables");
        ["TEAM", "COST_CENTER", "TENANT"].map(|variable| {
            let name = format!("TOKENGAUGE_{variable}");
            let found = all.iter().find(|variable| variable["name"] == name)?;
            let path = found["valueFrom"]["fieldRef"]["fieldPath"].as_str()?;
            let label = path.strip_prefix("metadata.labels['")?.strip_suffix("']")?;
            Some(label.to_owned())
        })
    };
    let names = |names: [&str; 3]| names.map(|name| (!name.is_empty()).then(|| name.to_owned()));
    let plain = json!({ "team": "search", "cost-center": "4711", "tenant": "acme" });
    assert_eq!(
        of("agent", plain.clone(), ""),
        names(["team", "cost-center", "tenant"])
    );
    // Calls of an engine also have a payer.
    assert_eq!(
        of("vllm", plain, ""),
        names(["team", "cost-center", "tenant"])
    );
    let own = json!({ "team": "search", "tokengauge.dev/team": "ads", "tenant": "" });
    assert_eq!(of("agent", own, ""), names(["tokengauge.dev/team", "", ""]));
    let company = json!({ "team": "x", "example.com/squad": "search" });
    let text = "[payer_labels]\nteam = [\"example.com/squad\"]";
    assert_eq!(
        of("agent", company, text),
        names(["example.com/squad", "", ""])
    );
    assert_eq!(of("agent", json!({ "app": "a" }), ""), names(["", "", ""]));
}

#[test]
fn only_the_variables_that_are_asked_for_are_set() {
    for (annotation, value, openai, anthropic) in [
        ("variables", "ANTHROPIC_BASE_URL", false, true),
        ("base-urls", "none", false, false),
    ] {
        let mut pod = fixture("agent");
        pod["metadata"]["annotations"][format!("tokengauge.dev/{annotation}")] = json!(value);
        match inject(&pod, InjectBy::Annotation, &settings("")) {
            Outcome::Injected { pod, .. } => {
                let is_set = |name| variable(&pod, "researcher", name).is_some();
                assert_eq!(is_set("OPENAI_BASE_URL"), openai, "{annotation}");
                assert_eq!(is_set("ANTHROPIC_BASE_URL"), anthropic, "{annotation}");
            }
            other => panic!("{annotation}: {other:?}"),
        }
    }
}

#[test]
fn the_pods_label_names_its_agent_but_none_in_front_of_an_engine() {
    let label_of = |name: &str, labels: Value, settings: &Settings| {
        let mut pod = fixture(name);
        pod["metadata"]["labels"] = labels;
        let Outcome::Injected { pod, .. } = inject(&pod, InjectBy::Annotation, settings) else {
            panic!("{name} is injected");
        };
        let all = container(&pod, "tokengauge")["env"].as_array().cloned();
        let mut all = all.expect("variables").into_iter();
        let variable = all.find(|variable| variable["name"] == "TOKENGAUGE_AGENT");
        variable.map(|variable| variable["valueFrom"]["fieldRef"]["fieldPath"].clone())
    };
    let plain = settings("");
    let all = json!({ "app": "a", "app.kubernetes.io/name": "b", "tokengauge.dev/agent": "c" });
    let of = |labels| label_of("agent", labels, &plain);
    let path = |label: &str| Some(json!(format!("metadata.labels['{label}']")));
    assert_eq!(of(all.clone()), path("tokengauge.dev/agent"));
    assert_eq!(
        of(json!({ "app": "a", "app.kubernetes.io/name": "b" })),
        path("app.kubernetes.io/name")
    );
    assert_eq!(
        of(json!({ "app": "a", "tokengauge.dev/agent": "" })),
        path("app")
    );
    assert_eq!(of(json!({ "tier": "x" })), None);
    assert_eq!(label_of("vllm", all.clone(), &plain), None);
    let own = settings("env = [{ name = \"TOKENGAUGE_AGENT\", value = \"mine\" }]");
    assert_eq!(
        label_of("agent", all, &own),
        Some(Value::Null),
        "a value, by the operator"
    );
}
