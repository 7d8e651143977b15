//! What the proxies of a fleet say of a gate, by the Prometheus that scrapes them.

use crate::Error;
use crate::command::api_client;
use crate::gate::Verdict;
use crate::http_client::fetch;
use bytes::Bytes;
use http::Request;
use serde::Deserialize;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
struct Answer {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    result: Vec<Sample>,
}

/// A value, after when it was so.
#[derive(Deserialize)]
struct Sample {
    value: (f64, String),
}

/// 1 where every proxy says that the gate passes, -1 where one says that it fails, else 0; nothing where there is no proxy.
pub(super) fn query(gate: &str) -> Result<String, Error> {
    let gate = super::emit::quoted(gate)?;
    let gauge = "tokengauge_gate_verdict";
    Ok(format!(
        "min({gauge}{{gate={gate},verdict=\"pass\"}}) - max({gauge}{{gate={gate},verdict=\"fail\"}})"
    ))
}

/// The verdict, and why it is that one.
pub(super) fn ask(gate: &str, address: &str) -> Result<(Verdict, &'static str), Error> {
    let query = query(gate)?;
    let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
    let address = address.trim_end_matches('/');
    let url = format!("{address}/api/v1/query?query={query}");
    let failed = |reason: String| Error::Failed(format!("{address}: {reason}"));
    let request = Request::get(&url).body(Bytes::new());
    let request = request.map_err(|error| {
        failed(format!(
            "{error}; --prometheus takes the URL of a Prometheus"
        ))
    })?;
    let answer = api_client::runtime()?.block_on(fetch(request, TIMEOUT));
    let answer =
        answer.map_err(|error| failed(format!("{error}; is a Prometheus running there?")))?;
    if answer.status != http::StatusCode::OK {
        let status = answer.status.as_u16();
        return Err(failed(format!("answered {status}; is it a Prometheus?")));
    }
    let answer: Answer = serde_json::from_slice(&answer.body)
        .map_err(|error| failed(format!("{error}; is it a Prometheus?")))?;
    Ok(verdict(&answer.data.result))
}

fn verdict(samples: &[Sample]) -> (Verdict, &'static str) {
    let value = samples.first().map(|sample| sample.value.1.as_str());
    match value {
        Some("1") => (Verdict::Pass, "every proxy says so"),
        Some("-1") => (Verdict::Fail, "a proxy says so"),
        Some(_) => (
            Verdict::Inconclusive,
            "a proxy says so, and none that it fails",
        ),
        None => (
            Verdict::Inconclusive,
            "Prometheus has no proxy with this gate; does it scrape one that has a ledger?",
        ),
    }
}
