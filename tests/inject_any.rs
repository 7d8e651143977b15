//! Injection into arbitrary JSON: no panic, and patches that apply.

use crate::inject::{fixture, settings};
use json_patch::Patch;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokengauge_inject::{InjectBy, Outcome, inject, patch};

/// Arbitrary JSON that contains words of pods more often than chance.
fn any_json() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        3 => prop::sample::select(vec![
            "metadata", "annotations", "labels", "spec", "containers", "initContainers", "name", "env", "envFrom",
            "value", "ports", "containerPort", "volumes", "args", "readinessProbe", "httpGet", "port", "lifecycle",
            "tokengauge.dev/inject", "tokengauge.dev/engine-port", "tokengauge.dev/engine-moves-to",
            "tokengauge.dev/upstream", "tokengauge.dev/slo.a", "tokengauge.dev/base-urls", "OPENAI_BASE_URL",
            "istio-proxy", "true", "8000", "18000", "--port", "http://a", "replace", "a/b~c",
        ]).prop_map(str::to_owned),
        1 => "\\PC{0,8}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!(8000)),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

fn broken_pod() -> impl Strategy<Value = Value> {
    let names = vec![
        "agent",
        "job",
        "vllm",
        "vllm-moved",
        "istio",
        "taken-over",
        "existing-sidecars",
    ];
    let places = vec![
        "/spec",
        "/spec/containers",
        "/spec/containers/0",
        "/spec/containers/0/env",
        "/spec/containers/0/ports",
        "/spec/containers/0/args",
        "/spec/initContainers",
        "/spec/volumes",
        "/metadata",
        "/metadata/annotations",
        "/metadata/labels",
        "/spec/containers/0/readinessProbe",
        "/spec/containers/0/lifecycle",
        "/spec/containers/0/envFrom",
        "/spec/containers/0/name",
        "/spec/terminationGracePeriodSeconds",
    ];
    let parts = (
        prop::sample::select(names),
        prop::sample::select(places),
        any_json(),
    );
    parts.prop_map(|(name, place, json)| {
        let mut pod = fixture(name);
        if let Some(part) = pod.pointer_mut(place) {
            *part = json;
        }
        pod
    })
}

fn holds(before: &Value) -> Result<(), TestCaseError> {
    for native in ["on", "off"] {
        let settings = settings(&format!("native_sidecar = \"{native}\""));
        if let Outcome::Injected { pod, .. } = inject(before, InjectBy::Namespace, &settings) {
            let patch: Patch =
                serde_json::from_value(Value::Array(patch::diff(before, &pod))).expect("a patch");
            let mut patched = before.clone();
            json_patch::patch(&mut patched, &patch).expect("it applies");
            prop_assert_eq!(&patched, &pod);
            prop_assert_eq!(inject(&pod, InjectBy::Namespace, &settings), Outcome::Left);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_json_makes_it_panic(json in any_json()) {
        holds(&json)?;
    }

    #[test]
    fn no_broken_pod_makes_it_panic(pod in broken_pod()) {
        holds(&pod)?;
    }

    #[test]
    fn a_difference_applied_to_one_gives_the_other(one in any_json(), other in any_json()) {
        let patch: Patch = serde_json::from_value(Value::Array(patch::diff(&one, &other))).expect("a patch");
        let mut patched = one;
        json_patch::patch(&mut patched, &patch).expect("it applies");
        prop_assert_eq!(patched, other);
    }
}
