//! Reviews that an API server sends to the webhook. A pod is always allowed, and a patch applies and produces a pod
//! that needs no further patch.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json_patch::Patch;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use tokengauge_inject::review::Injector;
use tokengauge_inject::{InjectBy, Settings};

static INJECTORS: LazyLock<[Arc<Injector>; 2]> = LazyLock::new(|| {
    ["on", "off"].map(|native| {
        let settings = format!("native_sidecar = \"{native}\"\nprometheus_annotations = true");
        Injector::new(Settings::parse(&settings).expect("settings"))
    })
});

pub fn run(input: &[u8]) {
    let [how, body @ ..] = input else { return };
    let asked = if how & 1 == 0 {
        InjectBy::Namespace
    } else {
        InjectBy::Annotation
    };
    let injector = &INJECTORS[usize::from(how & 2 != 0)];
    let review = match serde_json::from_slice::<Value>(body) {
        Ok(pod) if how & 4 == 0 => review(pod),
        Ok(review) => review,
        Err(_) => {
            assert!(injector.answer(body, asked).is_err());
            return;
        }
    };
    let Ok(answer) = injector.answer(review.to_string().as_bytes(), asked) else {
        return;
    };
    let response = &answer["response"];
    assert_eq!(response["uid"], review["request"]["uid"]);
    assert_eq!(response["allowed"], json!(true), "{response}");
    let warnings = response["warnings"].as_array();
    let short = |text: &Value| {
        text.as_str()
            .is_some_and(|text| text.chars().count() <= 251)
    };
    assert!(warnings.is_none_or(|all| all.len() <= 10 && all.iter().all(short)));
    let Some(patch) = response["patch"].as_str() else {
        return;
    };
    let patch = STANDARD.decode(patch).expect("base64");
    let patch: Patch = serde_json::from_slice(&patch).expect("a patch");
    let mut review = review;
    json_patch::patch(&mut review["request"]["object"], &patch).expect("it applies");
    let again = injector.answer(review.to_string().as_bytes(), asked);
    let again = again.expect("a review still");
    assert!(again["response"].get("patch").is_none(), "{again}");
}

fn review(pod: Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": pod},
    })
}
