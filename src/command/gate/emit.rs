//! Manifests with which Argo Rollouts and Flagger query a gate.

use super::prometheus::{self, quoted};
use crate::Error;
use crate::cli::{GateArgs, Manifest};
use crate::command::api_client::encoded;
use std::time::Duration;
use tokengauge_gate::Gate;

const INTERVAL: Duration = Duration::from_secs(60);
/// The maximum number of measurements if the gate has no maximum wait: one per minute for a day.
const MEASUREMENTS: u64 = 1_440;
/// Flagger rolls back after this number of failed checks of any metric of the Canary.
const FAILED_CHECKS: u64 = 5;

pub(super) fn emit(manifest: Manifest, gate: &Gate, args: &GateArgs) -> Result<String, Error> {
    if let Some(address) = &args.prometheus {
        let (address, query) = (quoted(address)?, quoted(&prometheus::query(&gate.name)?)?);
        return Ok(match manifest {
            Manifest::Argo => argo_of_prometheus(gate, &address, &query),
            Manifest::Flagger => flagger_of_prometheus(gate, &address, &query),
        });
    }
    let base = if args.admin.admin.contains("://") {
        args.admin.admin.trim_end_matches('/').to_owned()
    } else {
        format!("http://{}", args.admin.admin)
    };
    let url = format!("{base}/api/v1/gates/{}", encoded(&gate.name));
    match manifest {
        Manifest::Argo => argo(gate, &url),
        Manifest::Flagger => flagger(gate, &url),
    }
}

fn measurements(gate: &Gate) -> u64 {
    let wait = gate.max_wait;
    wait.map_or(MEASUREMENTS, |wait| {
        wait.as_secs().div_ceil(INTERVAL.as_secs()) + 1
    })
}

fn argo(gate: &Gate, url: &str) -> Result<String, Error> {
    let url = quoted(url)?;
    let args = r#"  args:
    - name: token
      valueFrom:
        secretKeyRef:
          name: tokengauge-admin
          key: token
"#;
    let provider = format!(
        r#"        web:
          url: {url}
          timeoutSeconds: 30
          headers:
            - key: Authorization
              value: "Bearer {{{{args.token}}}}"
          jsonPath: "{{$.verdict}}"
"#
    );
    let conditions = [r#"result == "pass""#, r#"result == "fail""#];
    Ok(analysis(gate, args, conditions, &provider))
}

/// The result is an instant vector, which is empty if no proxy was scraped.
fn argo_of_prometheus(gate: &Gate, address: &str, query: &str) -> String {
    let provider = format!(
        r"        prometheus:
          address: {address}
          query: {query}
"
    );
    let conditions = [
        "len(result) > 0 && result[0] == 1",
        "len(result) > 0 && result[0] == -1",
    ];
    analysis(gate, "", conditions, &provider)
}

/// Inconclusive measurements continue until one passes or fails, or until the maximum wait of the gate.
fn analysis(gate: &Gate, args: &str, [success, failure]: [&str; 2], provider: &str) -> String {
    let count = measurements(gate);
    // The limit is below the count, because versions without `consecutiveSuccessLimit` treat the end of the count as
    // success.
    let inconclusive = count - 1;
    let name = object_name(&gate.name);
    format!(
        r"apiVersion: argoproj.io/v1alpha1
kind: AnalysisTemplate
metadata:
  name: {name}
spec:
{args}  metrics:
    - name: {name}
      interval: 1m
      count: {count}
      consecutiveSuccessLimit: 1
      failureLimit: 0
      inconclusiveLimit: {inconclusive}
      successCondition: {success}
      failureCondition: {failure}
      provider:
{provider}"
    )
}

/// Returns the hooks of a canary. Promotion waits until the gate passes, and a failing gate triggers the rollback.
fn flagger(gate: &Gate, url: &str) -> Result<String, Error> {
    let (confirm, rollback) = (
        format!("{url}/confirm-promotion"),
        format!("{url}/rollback"),
    );
    let (confirm, rollback) = (quoted(&confirm)?, quoted(&rollback)?);
    let hooks = format!(
        r#"    webhooks:
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
    );
    Ok(canary(gate, FAILED_CHECKS, &hooks))
}

/// Returns a metric check for each step. Flagger has no inconclusive result, so an inconclusive gate is a failed check,
/// and the threshold allows as many failed checks as the gate may wait for.
fn flagger_of_prometheus(gate: &Gate, address: &str, query: &str) -> String {
    let name = object_name(&gate.name);
    let metrics = format!(
        r"    metrics:
      - name: {name}
        templateRef:
          name: {name}
        thresholdRange:
          min: 1
        interval: 1m
"
    );
    let canary = canary(gate, measurements(gate), &metrics);
    format!(
        r"apiVersion: flagger.app/v1beta1
kind: MetricTemplate
metadata:
  name: {name}
spec:
  provider:
    type: prometheus
    address: {address}
  query: {query}
---
{canary}"
    )
}

fn canary(gate: &Gate, threshold: u64, checks: &str) -> String {
    let name = object_name(&gate.name);
    format!(
        r"apiVersion: flagger.app/v1beta1
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
    threshold: {threshold}
    maxWeight: 50
    stepWeight: 10
{checks}"
    )
}

fn object_name(name: &str) -> String {
    let plain = name.to_ascii_lowercase();
    let plain = plain.replace(|one: char| !one.is_ascii_alphanumeric(), "-");
    format!("tokengauge-{}", plain.trim_matches('-'))
        .trim_end_matches('-')
        .to_owned()
}
