//! Requests, limits and secrets of the sidecar, and the QoS class of its pod.

use crate::inject::{container, settings};
use serde_json::{Value, json};
use tokengauge_inject::{InjectBy, Outcome, Settings, inject};

fn pod(annotations: Value, resources: Value) -> Value {
    json!({
        "metadata": { "name": "p", "annotations": annotations },
        "spec": { "containers": [{ "name": "app", "image": "app", "resources": resources }] },
    })
}

fn injected(pod: &Value, settings: &Settings) -> (Value, Vec<String>) {
    match inject(pod, InjectBy::Namespace, settings) {
        Outcome::Injected { pod, warnings } => (pod, warnings),
        other => panic!("{other:?}"),
    }
}

fn resources(pod: &Value) -> Value {
    container(&injected(pod, &settings("")).0, "tokengauge")["resources"].clone()
}

#[test]
fn annotations_set_requests_and_limits() {
    for (annotations, wanted) in [
        (
            json!({}),
            json!({ "requests": { "cpu": "20m", "memory": "32Mi" }, "limits": { "memory": "384Mi" } }),
        ),
        (
            json!({ "tokengauge.dev/cpu-request": "100m", "tokengauge.dev/cpu-limit": "1.5" }),
            json!({ "requests": { "cpu": "100m", "memory": "32Mi" }, "limits": { "memory": "384Mi", "cpu": "1.5" } }),
        ),
        (
            // The API server would refuse the pod for a request above the limit.
            json!({ "tokengauge.dev/memory-request": "1Gi" }),
            json!({ "requests": { "cpu": "20m", "memory": "1Gi" }, "limits": { "memory": "1Gi" } }),
        ),
        (
            json!({ "tokengauge.dev/cpu-limit": "10m" }),
            json!({ "requests": { "cpu": "10m", "memory": "32Mi" }, "limits": { "memory": "384Mi", "cpu": "10m" } }),
        ),
    ] {
        assert_eq!(
            resources(&pod(annotations.clone(), json!({}))),
            wanted,
            "{annotations}"
        );
    }
}

#[test]
fn quantities_that_cannot_be_are_refused() {
    for (name, value, reason) in [
        ("cpu-request", "lots", "not a quantity"),
        ("cpu-limit", "-1", "not a quantity"),
        ("cpu-limit", "0", "not a quantity"),
        ("memory-limit", "384MB", "not a quantity"),
        ("memory-limit", "1e99", "not a quantity"),
        ("memory-limit", "384", "at least 32Mi"),
        ("memory-limit", "512m", "at least 32Mi"),
    ] {
        let mut annotations = json!({});
        annotations[format!("tokengauge.dev/{name}")] = json!(value);
        match inject(
            &pod(annotations, json!({})),
            InjectBy::Namespace,
            &settings(""),
        ) {
            Outcome::Refused(message) => assert!(
                message.contains(&format!("tokengauge.dev/{name}")) && message.contains(reason),
                "{message}"
            ),
            other => panic!("{name} {value}: {other:?}"),
        }
    }
    let both =
        json!({ "tokengauge.dev/memory-request": "1Gi", "tokengauge.dev/memory-limit": "512Mi" });
    let outcome = inject(&pod(both, json!({})), InjectBy::Namespace, &settings(""));
    assert!(
        matches!(&outcome, Outcome::Refused(message) if message.contains("above tokengauge.dev/memory-limit")),
        "{outcome:?}"
    );
    let wrong = Settings::parse("resources = { limits = { memory = \"384MB\" } }")
        .expect_err("no quantity");
    assert!(
        wrong.to_string().contains("resources.limits.memory"),
        "{wrong}"
    );
}

/// Guaranteed as the API server defines it: every container has CPU and memory limits equal to its requests.
fn is_guaranteed(pod: &Value) -> bool {
    let lists = ["initContainers", "containers"];
    let all = lists.iter().filter_map(|list| pod["spec"][list].as_array());
    all.flatten().all(|one| {
        let resources = &one["resources"];
        ["cpu", "memory"].iter().all(|name| {
            let (request, limit) = (&resources["requests"][name], &resources["limits"][name]);
            limit.is_string() && (request.is_null() || request == limit)
        })
    })
}

#[test]
fn a_guaranteed_pod_stays_guaranteed() {
    for resources in [
        json!({ "limits": { "cpu": "2", "memory": "4Gi" } }),
        json!({ "limits": { "cpu": "2", "memory": "4Gi" }, "requests": { "cpu": 2, "memory": "4096Mi" } }),
    ] {
        for annotations in [
            json!({}),
            json!({ "tokengauge.dev/cpu-request": "1", "tokengauge.dev/memory-limit": "1Gi" }),
            json!({ "tokengauge.dev/cpu-request": "1", "tokengauge.dev/cpu-limit": "2" }),
        ] {
            let mut pod = pod(annotations, resources.clone());
            for native in ["on", "off"] {
                let (mut after, _) =
                    injected(&pod, &settings(&format!("native_sidecar = \"{native}\"")));
                after["spec"]["containers"][0]["resources"] =
                    json!({ "limits": { "cpu": "2", "memory": "4Gi" } });
                assert!(
                    is_guaranteed(&after),
                    "{}",
                    container(&after, "tokengauge")["resources"]
                );
            }
            pod["spec"]["initContainers"] = json!([{ "name": "init", "image": "i" }]);
            let (after, _) = injected(&pod, &settings(""));
            assert!(!is_guaranteed(&after), "it was not before");
        }
    }
    let asked = json!({ "tokengauge.dev/cpu-request": "1", "tokengauge.dev/cpu-limit": "2" });
    let guaranteed = json!({ "limits": { "cpu": "2", "memory": "4Gi" } });
    let (_, warnings) = injected(&pod(asked, guaranteed.clone()), &settings(""));
    assert!(
        warnings
            .iter()
            .any(|message| message.contains("Guaranteed")),
        "{warnings:?}"
    );
    let got = resources_of_guaranteed(&guaranteed);
    assert_eq!(
        got,
        json!({ "requests": { "cpu": "200m", "memory": "384Mi" }, "limits": { "memory": "384Mi", "cpu": "200m" } })
    );
}

fn resources_of_guaranteed(guaranteed: &Value) -> Value {
    resources(&pod(json!({}), guaranteed.clone()))
}

#[test]
fn resources_of_a_whole_pod_grow_by_the_sidecars() {
    let mut pod = pod(json!({}), json!({}));
    pod["spec"]["resources"] = json!({ "requests": { "cpu": "1", "memory": "1Gi" }, "limits": { "cpu": "1", "memory": "1Gi" } });
    let (after, _) = injected(&pod, &settings(""));
    let both = json!({ "cpu": "1200m", "memory": "1408Mi" });
    assert_eq!(
        after["spec"]["resources"],
        json!({ "requests": both, "limits": both })
    );
    pod["spec"]["resources"] =
        json!({ "requests": { "cpu": "1", "memory": "1Gi" }, "limits": { "memory": "2Gi" } });
    let (after, _) = injected(&pod, &settings(""));
    assert_eq!(
        after["spec"]["resources"],
        json!({ "requests": { "cpu": "1020m", "memory": "1056Mi" }, "limits": { "memory": "2432Mi" } })
    );
}

#[test]
fn pull_secrets_are_added_behind_the_pods_own() {
    let asked = settings("image_pull_secrets = [\"registry\", \"mirror\"]");
    let mut pod = pod(json!({}), json!({}));
    let (after, _) = injected(&pod, &asked);
    assert_eq!(
        after["spec"]["imagePullSecrets"],
        json!([{ "name": "registry" }, { "name": "mirror" }])
    );
    pod["spec"]["imagePullSecrets"] = json!([{ "name": "mirror" }, { "name": "own" }]);
    let (after, _) = injected(&pod, &asked);
    assert_eq!(
        after["spec"]["imagePullSecrets"],
        json!([{ "name": "mirror" }, { "name": "own" }, { "name": "registry" }])
    );
    let (after, _) = injected(&pod, &settings(""));
    assert_eq!(
        after["spec"]["imagePullSecrets"],
        pod["spec"]["imagePullSecrets"]
    );
    pod["spec"]["imagePullSecrets"] = json!("own");
    assert!(matches!(
        inject(&pod, InjectBy::Namespace, &asked),
        Outcome::Refused(_)
    ));
    for wrong in ["[\"Up per\"]", "[\"\"]"] {
        let message = Settings::parse(&format!("image_pull_secrets = {wrong}")).expect_err(wrong);
        assert!(
            message.to_string().contains("image_pull_secrets"),
            "{message}"
        );
    }
}

#[test]
fn in_manifests_there_is_a_warning_that_the_service_accounts_pull_secrets_are_unknown() {
    let of = |own: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: a, image: a}}]{own}}}\n"
        );
        let asked = settings("image_pull_secrets = [\"registry\"]");
        tokengauge_inject::manifest::inject_all(&text, InjectBy::Namespace, &asked)
            .expect("manifests")
            .warnings
    };
    assert!(
        of("")
            .iter()
            .any(|message| message.contains("ServiceAccount")),
        "{:?}",
        of("")
    );
    assert_eq!(
        of(", imagePullSecrets: [{name: own}]"),
        Vec::<String>::new()
    );
}

#[test]
fn the_admin_token_comes_from_a_secret_of_the_pods_namespace() {
    let asked = settings("admin_token_secret = { name = \"gauge\", key = \"token\" }");
    let (after, _) = injected(&pod(json!({}), json!({})), &asked);
    let env = container(&after, "tokengauge")["env"]
        .as_array()
        .expect("variables");
    let token = env
        .iter()
        .find(|one| one["name"] == "TOKENGAUGE_ADMIN_TOKEN");
    let reference =
        json!({ "secretKeyRef": { "name": "gauge", "key": "token", "optional": true } });
    assert_eq!(token.expect("a token")["valueFrom"], reference);
    assert!(Settings::parse("admin_token_secret = { name = \"gauge\" }").is_err());
    assert!(Settings::parse("admin_token_secret = { name = \"\", key = \"token\" }").is_err());
}

#[test]
fn the_documents_have_the_defaults() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/injection.md");
    let text = std::fs::read_to_string(file).expect(file);
    let blocks = text.split("```toml\n").skip(1);
    let blocks = blocks.filter_map(|block| block.split("```").next());
    let [block] = blocks.collect::<Vec<_>>()[..] else {
        panic!("there is one");
    };
    let (mut written, mut default) = (settings(block), settings(""));
    assert_eq!(written.resources.take(), default.resources.take());
    assert_eq!(format!("{written:?}"), format!("{default:?}"));
    let commented = block.replace("# admin_token_secret", "admin_token_secret");
    assert!(settings(&commented).admin_token_secret.is_some());
}
