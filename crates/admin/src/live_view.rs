//! Queries about the present. A process answers for itself, a fleet for its pods.

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
use tokengauge_fleet::{Fleet, ObjectiveSource, PodStatus, Streams, WarehouseStatus};
use tokengauge_meter::MeterStats;
use tokengauge_slo::{Objective, Status};

pub use fleet::FleetServices;
pub use process::ProcessServices;

/// Answers queries about the present: calls in flight, objectives, prices and limits.
pub trait LiveView: Send + Sync {
    fn streams(&self, now: Instant, filter: &StreamFilter, limit: usize) -> Streams;

    fn visit_in_flight(&self, now: Instant, wall: SystemTime, visit: Visit<'_>);

    fn slos(&self, now: Instant) -> Slos;

    fn objective(&self, name: &str) -> Option<Arc<Objective>>;

    fn prices(&self) -> Arc<Prices>;

    /// The remaining quotas of the key with this hash, which a proxy has and `tokengauge fleet` does not.
    fn left_to_key(&self, _key: &str) -> Vec<LeftOfQuota> {
        Vec::new()
    }

    fn meter_stats(&self, _now: Instant) -> MeterStats {
        MeterStats::default()
    }

    /// The tokens since the previous tick. Must be called once a second.
    fn tick(&self, _now: Instant, _wall: SystemTime) -> ThroughputTick {
        ThroughputTick::default()
    }

    fn pods(&self) -> Option<AllPods> {
        None
    }

    fn process(self: Arc<Self>) -> Option<Arc<ProcessServices>> {
        None
    }

    fn fleet(&self) -> Option<&Arc<Fleet>> {
        None
    }
}

/// The status of every objective.
#[derive(JsonSchema, Serialize)]
pub struct Slos {
    /// The objectives in the order of the configuration. A fleet lists those with the least remaining budget first.
    #[schemars(with = "Vec<Status>")]
    slos: SloList,
    /// The source of a fleet's objectives.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<ObjectiveSource>,
    /// The number of a fleet's objectives, including those that are not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<usize>,
}

/// The objectives of this process, or the objectives that other processes reported.
#[derive(Serialize)]
#[serde(untagged)]
enum SloList {
    Own(Vec<Status>),
    Others(Vec<Value>),
}

/// The pods of a fleet and the sources of its figures.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Pods")]
pub struct AllPods {
    /// The store from which finished calls are read.
    store: WarehouseStatus,
    /// The source of objectives.
    objectives: ObjectiveSource,
    /// Why objectives cannot be queried.
    objectives_error: Option<String>,
    /// The number of pods that cannot be reached.
    unreachable: usize,
    /// The number of pods that are not followed because there are too many.
    left_out: u64,
    /// All pods; those that cannot be reached come first.
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
    pub(crate) payer: [Option<&'a str>; 3],
    pub(crate) class: OperationClass,
    pub(crate) pod: Option<&'a PodName>,
}
