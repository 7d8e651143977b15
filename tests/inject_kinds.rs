//! Manifests of every kind by the real binary: pod templates are injected, and objects that seem to create pods are
//! named.

use crate::inject::{fixture, injected, settings};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use tokengauge_inject::{InjectBy, Outcome, inject};

/// Exit code if some object was not injected and all others were written.
const LEFT_OUT: i32 = 3;

fn kinds() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kinds")
}

fn run(file: &std::path::Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.arg("inject").arg("-f").arg(file).args(options);
    command.stdin(Stdio::null()).output().expect("it runs")
}

fn written(text: &str, options: &[&str]) -> Output {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("written");
    run(file.path(), options)
}

fn at<'a>(value: &'a Value, path: &[&str]) -> Vec<&'a Value> {
    let Some((first, rest)) = path.split_first() else {
        return vec![value];
    };
    let below: Vec<&Value> = match (value, *first) {
        (Value::Array(all), "*") => all.iter().collect(),
        (Value::Object(all), "*") => all.values().collect(),
        (value, name) => value.get(name).into_iter().collect(),
    };
    below
        .into_iter()
        .flat_map(|value| at(value, rest))
        .collect()
}

#[test]
fn every_pod_template_of_every_known_kind_is_injected() {
    for (name, paths) in [
        (
            "leader-worker-set",
            vec![
                "spec.leaderWorkerTemplate.leaderTemplate",
                "spec.leaderWorkerTemplate.workerTemplate",
            ],
        ),
        (
            "ray-cluster",
            vec![
                "spec.headGroupSpec.template",
                "spec.workerGroupSpecs.*.template",
            ],
        ),
        (
            "ray-service",
            vec![
                "spec.rayClusterConfig.headGroupSpec.template",
                "spec.rayClusterConfig.workerGroupSpecs.*.template",
            ],
        ),
        (
            "ray-job",
            vec![
                "spec.rayClusterSpec.headGroupSpec.template",
                "spec.submitterPodTemplate",
            ],
        ),
        ("pytorch-job", vec!["spec.pytorchReplicaSpecs.*.template"]),
        ("mpi-job", vec!["spec.mpiReplicaSpecs.*.template"]),
        (
            "job-set",
            vec!["spec.replicatedJobs.*.template.spec.template"],
        ),
        ("rollout", vec!["spec.template"]),
        ("clone-set", vec!["spec.template"]),
        ("volcano-job", vec!["spec.tasks.*.template"]),
        (
            "spark-application",
            vec!["spec.driver.template", "spec.executor.template"],
        ),
        ("deployment-config", vec!["spec.template"]),
        ("agent-sandbox", vec!["spec.podTemplate"]),
    ] {
        let done = run(&kinds().join(name).with_extension("yaml"), &[]);
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{name}: {stderr}");
        let text = String::from_utf8(done.stdout).expect("text");
        let object: Value = serde_saphyr::from_str(&text).expect("YAML");
        let paths = paths.iter().map(|path| path.split('.').collect::<Vec<_>>());
        let templates: Vec<&Value> = paths.flat_map(|path| at(&object, &path)).collect();
        assert!(
            stderr.contains(&format!("{} injected", templates.len())),
            "{name}: {stderr}"
        );
        for template in templates {
            let first = &template["spec"]["initContainers"][0];
            assert_eq!(first["name"], "tokengauge", "{name}: {template}");
            assert_eq!(
                template["metadata"]["labels"]["tokengauge.dev/injected"],
                "true"
            );
        }
        let again = written(&text, &[]);
        assert_eq!(
            String::from_utf8_lossy(&again.stdout),
            text,
            "{name}: again"
        );
    }
}

#[test]
fn what_makes_pods_in_another_way_is_named_and_the_rest_is_written() {
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: beside}\nspec: {containers: [{name: a, image: a}]}\n";
    for (name, object) in [
        ("knative-service", "Service/summarise"),
        ("argo-workflow", "Workflow/evaluate-"),
        ("argo-cron-workflow", "CronWorkflow/nightly"),
        ("inference-service", "InferenceService/llama"),
        ("notebook", "Notebook/lab"),
        ("sandbox", "Sandbox/box"),
        ("tekton-task", "Task/review"),
    ] {
        let file = std::fs::read_to_string(kinds().join(name).with_extension("yaml")).expect(name);
        let text = format!("{file}{pod}");
        let done = written(&text, &[]);
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(LEFT_OUT), "{name}: {stderr}");
        assert!(stderr.contains(&format!("{object}: ")), "{name}: {stderr}");
        let out = String::from_utf8(done.stdout).expect("text");
        assert!(out.starts_with(&file), "{name}: as it was");
        assert!(out.contains("initContainers"), "{name}: the pod beside it");
        assert_eq!(
            written(&text, &["--lenient"]).status.code(),
            Some(0),
            "{name}"
        );
        // Only pods that ask for injection are examined.
        assert_eq!(
            written(&text, &["--annotated"]).status.code(),
            Some(0),
            "{name}"
        );
        let asking = text.replacen(
            "metadata: {",
            "metadata: { annotations: { tokengauge.dev/inject: 'true' },",
            1,
        );
        assert_eq!(
            written(&asking, &["--annotated"]).status.code(),
            Some(LEFT_OUT),
            "{name}"
        );
        assert_eq!(
            written(&asking.replace("'true'", "'false'"), &[])
                .status
                .code(),
            Some(0),
            "{name}"
        );
    }
}

#[test]
fn a_part_without_a_template_is_named() {
    let file = std::fs::read_to_string(kinds().join("spark-application.yaml")).expect("a file");
    let text = file.replace(
        "template: { spec: { containers: [{ name: spark-kubernetes-executor",
        "pod: { spec: { containers: [{ name: spark-kubernetes-executor",
    );
    let done = written(&text, &[]);
    let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(LEFT_OUT), "{stderr}");
    assert!(
        stderr.contains("SparkApplication/classify: spec.executor.template is missing"),
        "{stderr}"
    );
    assert!(stderr.contains("1 injected"), "{stderr}");
}

#[test]
fn lists_are_looked_into() {
    let done = run(&kinds().join("list.yaml"), &[]);
    let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        done.status.success() && stderr.contains("2 injected"),
        "{stderr}"
    );
    let list = |name: &str, items: &str| format!("apiVersion: v1\nkind: {name}\nitems:\n{items}");
    let sandbox = "- {apiVersion: a/v1, kind: Sandbox, metadata: {name: s}, spec: {containers: [{image: i}]}}\n";
    assert_eq!(
        written(&list("List", sandbox), &[]).status.code(),
        Some(LEFT_OUT)
    );
    assert_eq!(
        written(&list("SandboxList", sandbox), &[]).status.code(),
        Some(LEFT_OUT)
    );
    // The kind ends like a list's.
    let allow = "apiVersion: a/v1\nkind: AllowList\nmetadata: {name: a}\nspec: {containers: [{image: i}]}\n";
    assert_eq!(written(allow, &[]).status.code(), Some(LEFT_OUT));
    let array = "[{\"kind\": \"Pod\", \"apiVersion\": \"v1\", \"metadata\": {\"name\": \"p\"}, \"spec\": {\"containers\": [{\"name\": \"a\", \"image\": \"a\"}]}}]";
    let done = written(array, &[]);
    assert!(
        String::from_utf8_lossy(&done.stderr).contains("1 injected"),
        "{done:?}"
    );
}

#[test]
fn objects_without_pods_pass_without_a_message() {
    for text in [
        "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 80}]}\n",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: s}\ndata: {a: 'containers: [{image: a}]'}\n",
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: s}\n\
         spec: {versions: [{schema: {openAPIV3Schema: {properties: {containers: {type: array, items: {properties: {image: {type: string}}}}}}}}]}\n",
        "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: r}\n\
         spec: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: d}}\n",
    ] {
        let done = written(text, &[]);
        assert_eq!(
            (
                done.status.code(),
                String::from_utf8_lossy(&done.stdout).as_ref()
            ),
            (Some(0), text)
        );
    }
}

#[test]
fn pods_that_end_by_themselves_are_refused_where_a_sidecar_would_keep_them() {
    for name in ["pytorch-job", "mpi-job", "job-set", "volcano-job"] {
        let done = run(
            &kinds().join(name).with_extension("yaml"),
            &["--native-sidecar", "off"],
        );
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(
            done.status.code() == Some(1) && stderr.contains("keep it running"),
            "{name}: {stderr}"
        );
    }
}

#[test]
fn calls_that_bypass_the_proxy_are_warned_about_and_annotated() {
    let (pod, warnings) = injected("look-alikes");
    let warnings_of = |name: &str| {
        warnings
            .iter()
            .filter(|warning| warning.contains(name))
            .count()
    };
    for name in [
        "OLLAMA_API_BASE_URL",
        "OPENAI_BASE_URI",
        "AZURE_OPENAI_ENDPOINT",
        "LLM_BASE_URL",
    ] {
        assert_eq!(warnings_of(name), 1, "{name}: {warnings:?}");
    }
    for name in [
        "HF_ENDPOINT",
        "OPENAI_API_KEY",
        "DATABASE_URL",
        "OTEL_",
        "LLM_MODEL",
    ] {
        assert_eq!(warnings_of(name), 0, "{name}: {warnings:?}");
    }
    assert_eq!(
        warnings
            .iter()
            .filter(|warning| warning.contains("http://ollama"))
            .count(),
        0,
        "no value is in a warning"
    );
    let annotation = pod["metadata"]["annotations"]["tokengauge.dev/warnings"].as_str();
    assert!(
        annotation
            .expect("warnings")
            .contains("OLLAMA_API_BASE_URL")
    );
    let (pod, _) = injected("agent");
    assert_eq!(
        pod["metadata"]["annotations"].get("tokengauge.dev/warnings"),
        None
    );
    let mut pod = fixture("look-alikes");
    let env = pod["spec"]["containers"][0]["env"]
        .as_array_mut()
        .expect("variables");
    env.extend(
        (0..500).map(|n| json!({ "name": format!("LLM_{n}_É_BASE_URL"), "value": "http://a" })),
    );
    match inject(&pod, InjectBy::Annotation, &settings("")) {
        Outcome::Injected { pod, .. } => {
            let text = pod["metadata"]["annotations"]["tokengauge.dev/warnings"]
                .as_str()
                .expect("text");
            assert!(
                (500..=2048).contains(&text.len()) && text.ends_with('…'),
                "{}",
                text.len()
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn windows_is_refused_by_affinity_too() {
    let with = |terms: Value| {
        let mut pod = fixture("agent");
        pod["spec"]["affinity"] = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } });
        matches!(inject(&pod, InjectBy::Annotation, &settings("")), Outcome::Refused(reason) if reason.contains("Windows"))
    };
    let os = |operator: &str, values: Value| json!({ "matchExpressions": [{ "key": "kubernetes.io/os", "operator": operator, "values": values }] });
    assert!(with(json!([os("In", json!(["windows"]))])));
    assert!(with(json!([os("NotIn", json!(["linux"]))])));
    assert!(with(json!([
        os("In", json!(["windows"])),
        os("In", json!(["windows"]))
    ])));
    assert!(!with(json!([os("In", json!(["windows", "linux"]))])));
    assert!(!with(json!([
        os("In", json!(["windows"])),
        os("In", json!(["linux"]))
    ])));
    assert!(!with(json!([os("NotIn", json!(["windows"]))])));
    assert!(!with(
        json!([{ "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["windows"] }] }])
    ));
    let mut pod = fixture("agent");
    pod["spec"]["nodeSelector"] = json!({ "beta.kubernetes.io/os": "windows" });
    assert!(matches!(
        inject(&pod, InjectBy::Annotation, &settings("")),
        Outcome::Refused(_)
    ));
}
