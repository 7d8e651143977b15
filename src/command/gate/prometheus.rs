//! The verdict of all proxies of a fleet on a gate, from the Prometheus that scrapes them.

use crate::Error;
use crate::cli::PrometheusCredentials;
use crate::command::api_client;
use crate::command::error::CommandError;
use crate::command::prometheus::{PrometheusClient, Sample};
use tokengauge_gate::GateVerdict;

/// Returns a query whose result is 1 if all proxies pass the gate, -1 if one fails it, and otherwise 0. The result is
/// empty if there is no proxy.
pub(super) fn query(gate: &str) -> Result<String, CommandError> {
    let gate = quoted(gate)?;
    let gauge = "tokengauge_gate_verdict";
    Ok(format!(
        "min({gauge}{{gate={gate},verdict=\"pass\"}}) - max({gauge}{{gate={gate},verdict=\"fail\"}})"
    ))
}

pub(super) fn ask(
    gate: &str,
    address: &str,
    credentials: &PrometheusCredentials,
) -> Result<(GateVerdict, &'static str), Error> {
    let prometheus = PrometheusClient::new(address, credentials)?;
    let query = query(gate)?;
    let samples = api_client::runtime()?.block_on(prometheus.query(&query))?;
    Ok(verdict(&samples))
}

fn verdict(samples: &[Sample]) -> (GateVerdict, &'static str) {
    let value = samples.first().map(|sample| sample.value.1.as_str());
    match value {
        Some("1") => (GateVerdict::Pass, "every proxy reports this verdict"),
        Some("-1") => (GateVerdict::Fail, "a proxy reports this verdict"),
        Some(_) => (
            GateVerdict::Inconclusive,
            "a proxy reports this verdict, and no proxy reports `fail`",
        ),
        None => (
            GateVerdict::Inconclusive,
            "Prometheus has no data about this gate; does it scrape a proxy that has a ledger?",
        ),
    }
}

/// Quotes a string for YAML. JSON strings are valid YAML.
pub(super) fn quoted(text: &str) -> Result<String, CommandError> {
    Ok(serde_json::to_string(text)?)
}
