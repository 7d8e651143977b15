//! A sidecar in front of an engine in the same pod: ports, probes, metrics.

use crate::inject::{arguments, config, container, fixture, injected, names, settings, variable};
use serde_json::json;
use tokengauge_inject::{InjectBy, Outcome, inject};

#[test]
fn an_engine_gives_its_ports_name_away_and_keeps_its_probes() {
    let (pod, warnings) = injected("vllm");
    let engine = container(&pod, "vllm");
    assert_eq!(
        engine["ports"],
        json!([{ "containerPort": 8000, "protocol": "TCP" }])
    );
    assert_eq!(
        container(&pod, "tokengauge")["ports"][1],
        json!({ "containerPort": 15480, "protocol": "TCP", "name": "http" })
    );
    for probe in ["startupProbe", "readinessProbe"] {
        assert_eq!(engine[probe]["httpGet"]["port"], 8000);
    }
    assert_eq!(engine["livenessProbe"]["tcpSocket"]["port"], 8000);
    assert_eq!(engine["lifecycle"]["preStop"]["httpGet"]["port"], 8000);
    assert!(arguments(&pod).contains("--listen *:15480"));
    assert_eq!(variable(&pod, "vllm", "OPENAI_BASE_URL"), None);
    let config = config(&pod);
    assert_eq!(config.routes.len(), 1);
    assert_eq!(&*config.routes[0].upstream.name, "vllm");
    assert_eq!(config.scrapes[0].endpoint.base_path, "/metrics");
    assert_eq!(
        (config.slos.len(), config.drain_timeout.as_secs()),
        (2, 115)
    );
    assert!(warnings[0].contains("by number"), "{warnings:?}");
}

#[test]
fn an_engine_that_moves_is_reached_by_number_too() {
    let (pod, warnings) = injected("vllm-moved");
    assert_eq!(warnings, Vec::<String>::new());
    let engine = container(&pod, "vllm");
    assert_eq!(engine["args"][3], "18000");
    assert_eq!(
        engine["ports"],
        json!([{ "containerPort": 18000, "protocol": "TCP" }])
    );
    assert_eq!(engine["readinessProbe"]["httpGet"]["port"], 18000);
    assert!(arguments(&pod).contains("--listen *:8000"));
    assert_eq!(
        config(&pod).routes[0].upstream.endpoints[0]
            .authority
            .as_str(),
        "127.0.0.1:18000"
    );
    for (args, env, moved) in [
        (json!(["serve", "--port=8000"]), json!([]), true),
        (json!(["serve", "--http_port=8000"]), json!([]), true),
        (json!(["serve", "--http_port", "8000"]), json!([]), true),
        (
            json!(["exec vllm serve m --port 8000 --seed 1"]),
            json!([]),
            true,
        ),
        (
            json!([]),
            json!([{ "name": "PORT", "value": "8000" }]),
            true,
        ),
        (
            json!([]),
            json!([{ "name": "OLLAMA_HOST", "value": "0.0.0.0:8000" }]),
            true,
        ),
        (json!(["--port", "80001"]), json!([]), false),
        (json!(["--port=80001"]), json!([]), false),
        (
            json!([]),
            json!([{ "name": "SIZE", "value": "8000" }]),
            false,
        ),
    ] {
        let mut pod = fixture("vllm-moved");
        pod["spec"]["containers"][0]["args"] = args.clone();
        pod["spec"]["containers"][0]["env"] = env.clone();
        let outcome = inject(&pod, InjectBy::Annotation, &settings(""));
        assert_eq!(
            matches!(outcome, Outcome::Injected { .. }),
            moved,
            "{args} {env}: {outcome:?}"
        );
    }
}

#[test]
fn what_a_container_does_not_have_is_not_written() {
    for (absent, name) in [
        ("env", "vllm-moved"),
        ("command", "vllm-moved"),
        ("ports", "vllm"),
    ] {
        let mut pod = fixture(name);
        let container_before = pod["spec"]["containers"][0].as_object_mut();
        container_before.expect("a container").remove(absent);
        if absent == "ports" {
            // The annotation names the engine, which then needs no port.
            pod["metadata"]["annotations"]["tokengauge.dev/containers"] = json!("vllm");
        }
        let outcome = inject(&pod, InjectBy::Annotation, &settings(""));
        let Outcome::Injected { pod, .. } = outcome else {
            panic!("{absent}: {outcome:?}");
        };
        let engine = container(&pod, "vllm");
        let members = engine.as_object().expect("a container").iter();
        let nulls: Vec<_> = members.filter(|(_, value)| value.is_null()).collect();
        assert!(nulls.is_empty(), "without {absent}: {nulls:?}");
    }
}

#[test]
fn in_a_mesh_probes_do_not_cross_its_proxy() {
    let (pod, _) = injected("istio");
    assert_eq!(
        names(&pod, "initContainers"),
        ["istio-init", "tokengauge", "warm-up"]
    );
    let command = &container(&pod, "tokengauge")["readinessProbe"]["exec"]["command"];
    assert_eq!(command[2], "http://127.0.0.1:15464/readyz");
    let annotations = &pod["metadata"]["annotations"];
    assert_eq!(
        annotations["traffic.sidecar.istio.io/excludeInboundPorts"],
        "15020,15464"
    );
    assert_eq!(
        annotations["prometheus.io/port"], "15020",
        "somebody else's"
    );
    assert_eq!(variable(&pod, "istio-proxy", "OPENAI_BASE_URL"), None);
    assert!(variable(&pod, "support-bot", "OPENAI_BASE_URL").is_some());
}

#[test]
fn an_engine_may_bring_a_config_map_and_have_no_metrics() {
    let mut pod = fixture("vllm");
    let annotations = &mut pod["metadata"]["annotations"];
    annotations["tokengauge.dev/config"] = json!("engine-gauge");
    let outcome = inject(&pod, InjectBy::Annotation, &settings(""));
    assert!(
        matches!(&outcome, Outcome::Refused(reason) if reason.contains("with the whole configuration")),
        "its objectives would be lost: {outcome:?}"
    );
    let annotations = pod["metadata"]["annotations"].as_object_mut();
    annotations
        .expect("a map")
        .shift_remove("tokengauge.dev/slo");
    match inject(&pod, InjectBy::Annotation, &settings("")) {
        Outcome::Injected { pod, .. } => {
            assert_eq!(
                pod["spec"]["volumes"][1]["configMap"]["name"],
                "engine-gauge"
            );
            let args = arguments(&pod);
            assert!(args.contains("--config") && args.contains("--listen *:15480"));
        }
        other => panic!("{other:?}"),
    }
    let annotations = &mut pod["metadata"]["annotations"];
    annotations["tokengauge.dev/engine-metrics"] = json!("none");
    let map = annotations.as_object_mut().expect("a map");
    map.shift_remove("tokengauge.dev/config");
    match inject(&pod, InjectBy::Annotation, &settings("")) {
        Outcome::Injected { pod, .. } => assert!(config(&pod).scrapes.is_empty()),
        other => panic!("{other:?}"),
    }
}
