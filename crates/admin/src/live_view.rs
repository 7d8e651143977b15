//! Questions about the present. A process answers them for itself, and a fleet for its pods.

mod fleet;
mod process;

use crate::api::StreamFilter;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokengauge_accounting::cost::Prices;
use tokengauge_accounting::quota::LeftOfQuota;
use tokengauge_core::call::OperationClass;
use tokengauge_core::pod::PodName;
use tokengauge_core::throughput::ThroughputTick;
use tokengauge_fleet::{ObjectiveSource, PodStatus, Streams, WarehouseStatus};
use tokengauge_meter::MeterStats;
use tokengauge_slo::{Objective, Status};

pub use fleet::FleetServices;
pub use process::ProcessServices;

/// Answers questions about the present: calls in flight, objectives, prices and limits.
pub trait LiveView: Send + Sync {
    /// The newest calls in flight that `filter` selects, at most `limit`.
    fn streams(&self, now: Instant, filter: &StreamFilter, limit: usize) -> Streams;

    fn visit_in_flight(&self, now: Instant, wall: SystemTime, visit: Visit<'_>);

    fn slos(&self, now: Instant) -> Slos;

    fn objective(&self, name: &str) -> Option<Arc<Objective>>;

    fn prices(&self) -> Arc<Prices>;

    /// What is left of the quotas to the key with this hash. Only a process has quotas.
    fn left_to_key(&self, _key: &str) -> Vec<LeftOfQuota> {
        Vec::new()
    }

    /// Statistics about measuring. Only a process measures.
    fn meter_stats(&self, _now: Instant) -> MeterStats {
        MeterStats::default()
    }

    /// What was added to the throughput since the last call. To be called once a second.
    fn tick(&self, _now: Instant, _wall: SystemTime) -> ThroughputTick {
        ThroughputTick::default()
    }

    /// The pods and the store. Only a fleet has them.
    fn pods(&self) -> Option<AllPods> {
        None
    }

    /// The services that only a process has.
    fn process(self: Arc<Self>) -> Option<Arc<ProcessServices>> {
        None
    }
}

/// The status of every objective.
#[derive(JsonSchema, Serialize)]
pub struct Slos {
    /// In the order of the configuration; of a fleet's pods those with the least budget first.
    #[schemars(with = "Vec<Status>")]
    slos: SloList,
    /// Where they come from, of a fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<ObjectiveSource>,
    /// How many there are, those that are not listed included; of a fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<usize>,
}

/// Objectives of this process, or of others as they have them.
#[derive(Serialize)]
#[serde(untagged)]
enum SloList {
    Own(Vec<Status>),
    Others(Vec<Value>),
}

/// What a fleet is made of.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Pods")]
pub struct AllPods {
    /// The store that finished calls are read from.
    store: WarehouseStatus,
    /// Where objectives come from.
    objectives: ObjectiveSource,
    /// Why they cannot be asked for.
    objectives_error: Option<String>,
    /// Pods that cannot be reached.
    unreachable: usize,
    /// Pods that are not followed because there are too many.
    left_out: u64,
    /// Every pod, those that cannot be reached first.
    pods: Vec<PodStatus>,
}

pub type Visit<'a> = &'a mut dyn FnMut(&CallInFlight<'_>);

pub struct CallInFlight<'a> {
    pub(crate) started: SystemTime,
    pub(crate) route: &'a str,
    pub(crate) upstream: &'a str,
    pub(crate) model: Option<&'a str>,
    pub(crate) workload: Option<&'a str>,
    pub(crate) agent: Option<&'a str>,
    pub(crate) session: Option<&'a str>,
    /// Team, cost center and tenant.
    pub(crate) payer: [Option<&'a str>; 3],
    pub(crate) class: OperationClass,
    pub(crate) pod: Option<&'a PodName>,
}
