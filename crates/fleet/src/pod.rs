//! A pod with the streams and objectives that it last reported.

use super::Streams;
use super::address::PodAddress;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;
use tokengauge_core::pod::PodName;
use tokengauge_core::throughput::Rates;
use tokengauge_core::time::Timestamp;
use tokengauge_meter::StreamNow;

/// Maximum number of streams kept for a pod, which is also the maximum that a pod sends.
const MAX_STREAMS: usize = 100;
const MAX_OBJECTIVES: usize = 20;

/// Whether a pod can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PodState {
    /// The pod has not been reached yet.
    Connecting,
    /// The pod's events are being read.
    Connected,
    /// The pod does not answer, or its answer is not valid.
    Unreachable,
}

impl PodState {
    pub const ALL: [PodState; 3] = [
        PodState::Connecting,
        PodState::Connected,
        PodState::Unreachable,
    ];

    /// The word used in API responses and labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The state of a pod.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "FleetPod")]
pub struct PodStatus {
    /// The pod's admin address, or its name if the name cannot be resolved.
    pub address: String,
    /// The name that the pod reports, if the pod was ever reached.
    #[serde(flatten)]
    pub pod: PodName,
    /// Whether the pod can be reached.
    pub state: PodState,
    /// When the pod entered this state, as RFC 3339 in UTC.
    pub since: Timestamp,
    /// Why the pod cannot be reached, and what to do.
    pub error: Option<String>,
    /// Number of the pod's calls in progress.
    pub streams: usize,
    /// Tokens per second of all the pod's streams, over the last 10 seconds.
    pub tokens_per_second: f64,
    /// The pod's version of tokengauge.
    pub version: Option<String>,
}

impl PodStatus {
    /// The pod's name, or its address if the name is unknown.
    pub fn label(&self) -> &str {
        self.pod.name.as_deref().unwrap_or(&self.address)
    }
}

#[derive(Clone, Debug)]
pub(super) struct PodObjective {
    /// Remaining share of the error budget.
    pub(super) remaining: f64,
    /// The objective as in the pod's API, with the pod added.
    pub(super) status: Box<str>,
}

#[derive(Clone, Debug)]
struct Said {
    pod: Option<Arc<PodName>>,
    version: Option<String>,
    state: PodState,
    since: SystemTime,
    error: Option<String>,
    total: usize,
    rates: Rates,
    streams: Arc<Vec<StreamNow>>,
    objectives: Arc<Vec<PodObjective>>,
}

#[derive(Debug)]
pub(super) struct Pod {
    pub(super) at: SocketAddr,
    pub(super) address: PodAddress,
    said: Mutex<Said>,
}

#[derive(Deserialize)]
struct Slos {
    slos: Vec<Value>,
}

impl Pod {
    pub(super) fn new(at: SocketAddr, address: PodAddress, now: SystemTime) -> Pod {
        Pod {
            at,
            address,
            said: Mutex::new(Said {
                pod: None,
                version: None,
                state: PodState::Connecting,
                since: now,
                error: None,
                total: 0,
                rates: Rates::default(),
                streams: Arc::default(),
                objectives: Arc::default(),
            }),
        }
    }

    pub(super) fn connected(&self, pod: PodName, version: Option<String>, now: SystemTime) {
        let mut said = self.said.lock();
        said.pod = Some(Arc::new(pod));
        said.version = version;
        said.state = PodState::Connected;
        said.since = now;
        said.error = None;
    }

    /// Marks the pod as unreachable and drops its last report. Returns whether it was reachable
    /// before.
    pub(super) fn unreachable(&self, error: String, now: SystemTime) -> bool {
        let mut said = self.said.lock();
        let new = said.state != PodState::Unreachable;
        if new {
            said.since = now;
        }
        said.state = PodState::Unreachable;
        said.error = Some(error);
        said.total = 0;
        said.rates = Rates::default();
        said.streams = Arc::default();
        said.objectives = Arc::default();
        new
    }

    pub(super) fn take_streams(&self, data: &[u8]) -> serde_json::Result<()> {
        let mut read: Streams = serde_json::from_slice(data)?;
        read.streams.truncate(MAX_STREAMS);
        let pod = self.name();
        for stream in &mut read.streams {
            stream.pod = pod.clone();
        }
        let mut said = self.said.lock();
        said.total = read.total;
        said.rates = read.tokens_per_second;
        said.streams = Arc::new(read.streams);
        Ok(())
    }

    /// Reads an event `slos`. Fields that are long or that apply to one process only are left out.
    pub(super) fn take_objectives(&self, data: &[u8]) -> serde_json::Result<()> {
        let read: Slos = serde_json::from_slice(data)?;
        let pod = self.name();
        let objectives = read.slos.into_iter().take(MAX_OBJECTIVES).map(|mut slo| {
            slo["spent_by"] = json!([]);
            slo["months"] = json!([]);
            slo["pod"] = json!(pod);
            PodObjective {
                remaining: slo["budget_remaining"].as_f64().unwrap_or(1.0),
                status: slo.to_string().into(),
            }
        });
        let objectives = Arc::new(objectives.collect());
        self.said.lock().objectives = objectives;
        Ok(())
    }

    pub(super) fn name(&self) -> Option<Arc<PodName>> {
        self.said.lock().pod.clone()
    }

    pub(super) fn state(&self) -> PodState {
        self.said.lock().state
    }

    pub(super) fn streams(&self) -> (Arc<Vec<StreamNow>>, usize, Rates) {
        let said = self.said.lock();
        (Arc::clone(&said.streams), said.total, said.rates)
    }

    pub(super) fn objectives(&self) -> Arc<Vec<PodObjective>> {
        Arc::clone(&self.said.lock().objectives)
    }

    pub(super) fn status(&self) -> PodStatus {
        let said = self.said.lock();
        PodStatus {
            address: self.at.to_string(),
            pod: said.pod.as_deref().cloned().unwrap_or_default(),
            state: said.state,
            since: said.since.into(),
            error: said.error.clone(),
            streams: said.total,
            tokens_per_second: said.rates.now,
            version: said.version.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        let pod = Pod::new(
            ([127, 0, 0, 1], 9090).into(),
            "gauges:9090".parse().expect("an address"),
            SystemTime::UNIX_EPOCH,
        );
        let name = PodName {
            name: Some("agent-1".to_owned()),
            ..PodName::default()
        };
        pod.connected(name, Some("1".to_owned()), SystemTime::UNIX_EPOCH);
        pod
    }

    #[test]
    fn what_a_pod_said_is_kept_until_it_cannot_be_reached() {
        let pod = pod();
        let stream = json!({
            "id": "1", "route": "r", "upstream": "u", "model": null, "workload": null, "session": "s", "agent": null,
            "started_at": "2026-01-01T00:00:00.000Z", "seconds": 1.0, "tps": 20.0, "last_gap": null, "silent": null,
            "tokens": {"answer": 1, "reasoning": 0, "tool_call": 0, "output": 1}
        });
        let spread = json!({"now": 0.0, "sustained": 0.0});
        let rates = json!({"now": 20.0, "peak": 20.0, "sustained": 20.0, "spread": spread});
        let streams = json!({"total": 1, "tokens_per_second": rates, "streams": [stream]});
        pod.take_streams(streams.to_string().as_bytes())
            .expect("taken");
        let slos =
            json!({"slos": [{"name": "fast", "budget_remaining": 0.25, "spent_by": [1, 2]}]});
        pod.take_objectives(slos.to_string().as_bytes())
            .expect("taken");
        let (found, total, rates) = pod.streams();
        assert_eq!((found.len(), total, rates.now), (1, 1, 20.0));
        let name = found[0].pod.as_deref().and_then(|pod| pod.name.as_deref());
        assert_eq!(name, Some("agent-1"));
        let objectives = pod.objectives();
        assert_eq!(objectives[0].remaining, 0.25);
        let status: Value = serde_json::from_str(&objectives[0].status).expect("JSON");
        assert_eq!(status["pod"]["name"], "agent-1");
        assert_eq!(status["spent_by"], json!([]));
        assert!(pod.unreachable("gone".to_owned(), SystemTime::UNIX_EPOCH));
        assert!(!pod.unreachable("still".to_owned(), SystemTime::UNIX_EPOCH));
        assert_eq!((pod.streams().0.len(), pod.objectives().len()), (0, 0));
        let status = pod.status();
        assert_eq!(status.label(), "agent-1", "it is still named");
        assert_eq!(status.error.as_deref(), Some("still"));
    }

    #[test]
    fn an_event_that_is_none_changes_nothing() {
        let pod = pod();
        assert!(pod.take_streams(b"{\"streams\": 5}").is_err());
        assert!(pod.take_objectives(b"[").is_err());
        assert_eq!(pod.state(), PodState::Connected);
    }
}
