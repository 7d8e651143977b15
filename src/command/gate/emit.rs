//! Manifests by which Argo Rollouts and Flagger ask a gate.

use crate::Error;
use crate::cli::{GateArgs, Manifest};
use crate::gate::Gate;
use std::time::Duration;

/// How often a gate is asked.
const INTERVAL: Duration = Duration::from_secs(60);
/// How often at most, where the gate has no longest wait: a day.
const MEASUREMENTS: u64 = 1_440;

/// The manifest that `manifest` names.
pub(super) fn emit(manifest: Manifest, gate: &Gate, args: &GateArgs) -> Result<String, Error> {
    let base = match args.admin.admin.contains("://") {
        true => args.admin.admin.trim_end_matches('/').to_owned(),
        false => format!("http://{}", args.admin.admin),
    };
    let name: String = form_urlencoded::byte_serialize(gate.name.as_bytes()).collect();
    let url = format!("{base}/api/v1/gates/{}", name.replace('+', "%20"));
    match manifest {
        Manifest::Argo => argo(gate, &url),
        Manifest::Flagger => flagger(gate, &url),
    }
}

/// Inconclusive measurements go on until one passes or fails, or the gate has waited for too long.
fn argo(gate: &Gate, url: &str) -> Result<String, Error> {
    let waits = gate
        .max_wait
        .map(|wait| wait.as_secs().div_ceil(INTERVAL.as_secs()) + 1);
    let count = waits.unwrap_or(MEASUREMENTS);
    // One less: a version that does not know `consecutiveSuccessLimit` takes the end of the count for success.
    let inconclusive = count - 1;
    let (name, url) = (object_name(&gate.name), quoted(url)?);
    Ok(format!(
        r#"apiVersion: argoproj.io/v1alpha1
kind: AnalysisTemplate
metadata:
  name: {name}
spec:
  args:
    - name: token
      valueFrom:
        secretKeyRef:
          name: tokengauge-admin
          key: token
  metrics:
    - name: {name}
      interval: 1m
      count: {count}
      consecutiveSuccessLimit: 1
      failureLimit: 0
      inconclusiveLimit: {inconclusive}
      successCondition: result == "pass"
      failureCondition: result == "fail"
      provider:
        web:
          url: {url}
          timeoutSeconds: 30
          headers:
            - key: Authorization
              value: "Bearer {{{{args.token}}}}"
          jsonPath: "{{$.verdict}}"
"#
    ))
}

/// The hooks of a canary: promotion waits until the gate passes, and a gate that fails rolls it back.
fn flagger(gate: &Gate, url: &str) -> Result<String, Error> {
    let name = object_name(&gate.name);
    let (confirm, rollback) = (
        format!("{url}/confirm-promotion"),
        format!("{url}/rollback"),
    );
    let (confirm, rollback) = (quoted(&confirm)?, quoted(&rollback)?);
    Ok(format!(
        r#"apiVersion: flagger.app/v1beta1
kind: Canary
metadata:
  name: {name}
spec:
  targetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {name}
  service:
    port: 80
  analysis:
    interval: 1m
    threshold: 5
    maxWeight: 50
    stepWeight: 10
    webhooks:
      - name: tokengauge-confirm-promotion
        type: confirm-promotion
        url: {confirm}
        timeout: 30s
        metadata:
          token: "${{TOKENGAUGE_ADMIN_TOKEN}}"
      - name: tokengauge-rollback
        type: rollback
        url: {rollback}
        timeout: 30s
        metadata:
          token: "${{TOKENGAUGE_ADMIN_TOKEN}}"
"#
    ))
}

/// A string of JSON is one of YAML.
fn quoted(text: &str) -> Result<String, Error> {
    serde_json::to_string(text).map_err(|error| Error::Failed(error.to_string()))
}

/// A name that Kubernetes takes.
fn object_name(name: &str) -> String {
    let plain = name.to_ascii_lowercase();
    let plain = plain.replace(|one: char| !one.is_ascii_alphanumeric(), "-");
    format!("tokengauge-{}", plain.trim_matches('-'))
        .trim_end_matches('-')
        .to_owned()
}
