#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics if the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod address;
mod event_parser;
mod objective;
mod pod;
mod pod_answers;
mod pod_stream;
mod warehouse_status;
mod warehouse_watch;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use pod::Pod;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tokengauge_core::pod::PodName;
use tokengauge_core::throughput::{Rates, SpreadRates};
use tokengauge_meter::StreamNow;
use tokengauge_net::tls::ClientTls;
use tokengauge_sink::Secret;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};

pub use address::PodAddress;
pub use objective::{ObjectiveSource, Objectives};
pub use pod::{PodState, PodStatus};
pub use pod_answers::PodsAsked;
pub use warehouse_status::{WarehouseState, WarehouseStatus};

pub const MAX_PODS: usize = 2_000;
/// Maximum number of pods that are being connected to at one time.
const CONNECTING: usize = 64;
const RESOLVE_EVERY: Duration = Duration::from_secs(10);
/// Maximum number of pods' objectives that are shown, smallest remaining budget first.
const SHOWN_OBJECTIVES: usize = 100;

/// Receives a finished call that a pod reports: the call record as JSON, and the pod.
pub type Finished = dyn Fn(&[u8], Option<&PodName>) -> serde_json::Result<()> + Send + Sync;

pub struct FleetSettings {
    /// Empty if only the warehouse is read.
    pub addresses: Vec<PodAddress>,
    /// The token for the pods' admin addresses.
    pub token: Option<Secret>,
    pub tls: ClientTls,
    pub finished: Box<Finished>,
}

/// Why an event of a pod is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Dropped {
    TooLarge,
    Unreadable,
    /// The pod dropped the event because it was not read in time.
    Slow,
}

impl Dropped {
    pub const ALL: [Dropped; 3] = [Dropped::TooLarge, Dropped::Unreadable, Dropped::Slow];

    /// The value of the label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The calls in progress.
#[derive(Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Streams {
    /// How many calls match, including those beyond the limit.
    pub total: usize,
    /// The output of all calls that match, listed or not.
    pub tokens_per_second: Rates,
    /// The newest calls that match.
    pub streams: Vec<StreamNow>,
}

/// Live state of many pods, merged as if they were one process.
pub struct Fleet {
    settings: FleetSettings,
    connecting: Semaphore,
    pods: Mutex<BTreeMap<SocketAddr, Followed>>,
    unresolved: Mutex<BTreeMap<String, (SystemTime, String)>>,
    /// Number of addresses beyond the maximum number of pods.
    left_out: AtomicU64,
    dropped: [AtomicU64; Dropped::ALL.len()],
    warehouse: Mutex<WarehouseStatus>,
    /// Objectives over all pods; `None` if the pods' own objectives are shown.
    objectives: ArcSwapOption<Objectives>,
    of_pods: bool,
}

struct Followed {
    pod: Arc<Pod>,
    task: AbortHandle,
}

/// What a fleet consists of, for the page.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct FleetInfo {
    /// Whether pods are followed. If not, calls in progress are unknown.
    pub pods: bool,
    /// Where objectives come from.
    pub objectives: ObjectiveSource,
}

impl Fleet {
    /// A fleet that reads the warehouse at `warehouse`, if any, and takes objectives from
    /// `objectives`.
    pub fn new(
        settings: FleetSettings,
        warehouse: String,
        objectives: ObjectiveSource,
    ) -> Arc<Fleet> {
        Arc::new(Fleet {
            of_pods: objectives == ObjectiveSource::Pods,
            settings,
            connecting: Semaphore::new(CONNECTING),
            pods: Mutex::default(),
            unresolved: Mutex::default(),
            left_out: AtomicU64::new(0),
            dropped: Default::default(),
            warehouse: Mutex::new(WarehouseStatus::new(warehouse, SystemTime::now())),
            objectives: ArcSwapOption::empty(),
        })
    }

    pub fn info(&self) -> FleetInfo {
        FleetInfo {
            pods: !self.settings.addresses.is_empty(),
            objectives: self.objective_source(),
        }
    }

    /// Follows all pods until the future is dropped.
    pub async fn follow_pods(self: Arc<Self>) {
        let mut ticks = interval(RESOLVE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let found = self.resolve().await;
            self.follow(found);
        }
    }

    /// The addresses of all pods now. A name that cannot be resolved keeps its previous addresses.
    async fn resolve(&self) -> BTreeMap<SocketAddr, PodAddress> {
        let mut found = BTreeMap::new();
        for address in &self.settings.addresses {
            let name = address.to_string();
            match address.resolve().await {
                Ok(addresses) => {
                    self.unresolved.lock().remove(&name);
                    found.extend(addresses.into_iter().map(|at| (at, address.clone())));
                }
                Err(error) => {
                    let mut unresolved = self.unresolved.lock();
                    let known = unresolved.entry(name.clone());
                    let known = known.or_insert_with(|| {
                        tracing::warn!(name, error, "pods cannot be found");
                        (SystemTime::now(), String::new())
                    });
                    known.1 = error;
                    let pods = self.pods.lock();
                    let had = pods.values().filter(|one| one.pod.address == *address);
                    found.extend(had.map(|one| (one.pod.at, address.clone())));
                }
            }
        }
        found
    }

    /// Starts to follow new pods and stops following pods that are gone. A pod whose address has
    /// left its name because it is not ready is followed until its event stream ends.
    fn follow(self: &Arc<Self>, found: BTreeMap<SocketAddr, PodAddress>) {
        let mut pods = self.pods.lock();
        pods.retain(|at, one| {
            let stays = found.contains_key(at) || one.pod.state() == PodState::Connected;
            if !stays {
                one.task.abort();
            }
            stays
        });
        let mut left_out = 0;
        for (at, address) in found {
            if pods.contains_key(&at) {
                continue;
            }
            if pods.len() >= MAX_PODS {
                left_out += 1;
                continue;
            }
            let pod = Arc::new(Pod::new(at, address, SystemTime::now()));
            let task = tokio::spawn(pod_stream::follow(Arc::clone(&pod), Arc::clone(self)));
            let task = task.abort_handle();
            pods.insert(at, Followed { pod, task });
        }
        if self.left_out.swap(left_out, Ordering::Relaxed) == 0 && left_out > 0 {
            tracing::warn!(left_out, "more than {MAX_PODS} pods: some are not followed");
        }
    }

    fn all(&self) -> Vec<Arc<Pod>> {
        let pods = self.pods.lock();
        pods.values().map(|one| Arc::clone(&one.pod)).collect()
    }

    /// The state of every pod: unreachable pods first, then by name.
    pub fn pods(&self) -> Vec<PodStatus> {
        let mut pods: Vec<_> = self.all().iter().map(|pod| pod.status()).collect();
        let unresolved = self.unresolved.lock();
        let unresolved = unresolved.iter().map(|(name, (since, error))| PodStatus {
            address: name.clone(),
            pod: PodName::default(),
            state: PodState::Unreachable,
            since: (*since).into(),
            error: Some(error.clone()),
            streams: 0,
            tokens_per_second: 0.0,
            version: None,
        });
        pods.extend(unresolved);
        let reached = |pod: &PodStatus| pod.state != PodState::Unreachable;
        pods.sort_by(|one, other| {
            (reached(one), &one.pod, &one.address).cmp(&(
                reached(other),
                &other.pod,
                &other.address,
            ))
        });
        pods
    }

    /// Number of addresses that are not followed because there are too many pods.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// The newest calls in progress that `is` selects. `all` says that `is` selects every call:
    /// then the throughput is the sum over the pods, otherwise the sum over the selected calls.
    pub fn streams(&self, all: bool, limit: usize, is: impl Fn(&StreamNow) -> bool) -> Streams {
        let mut found = Streams::default();
        let said: Vec<_> = self.all().iter().map(|pod| pod.streams()).collect();
        for (streams, total, rates) in &said {
            if all {
                found.total += total;
                add(&mut found.tokens_per_second, rates);
            } else {
                let chosen = streams.iter().filter(|stream| is(stream));
                for stream in chosen {
                    found.total += 1;
                    found.tokens_per_second.now += stream.tps.unwrap_or(0.0);
                }
            }
        }
        let streams = said.iter().flat_map(|(streams, ..)| streams.iter());
        let mut newest: Vec<_> = streams.filter(|stream| is(stream)).collect();
        newest.sort_unstable_by(|one, other| {
            (other.started_at, &other.id).cmp(&(one.started_at, &one.id))
        });
        newest.truncate(limit);
        found.streams = newest.into_iter().cloned().collect();
        found
    }

    pub fn visit(&self, mut visit: impl FnMut(&StreamNow)) {
        for pod in self.all() {
            pod.streams().0.iter().for_each(&mut visit);
        }
    }

    pub fn warehouse(&self) -> WarehouseStatus {
        self.warehouse.lock().clone()
    }

    fn warehouse_is(&self, change: impl FnOnce(&mut WarehouseStatus)) {
        change(&mut self.warehouse.lock());
    }

    fn dropped(&self, why: Dropped, events: u64) {
        self.dropped[why as usize].fetch_add(events, Ordering::Relaxed);
    }

    /// Numbers of events that were not shown, by reason.
    pub fn drops(&self) -> impl Iterator<Item = (Dropped, u64)> + '_ {
        let counts = self
            .dropped
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        Dropped::ALL.into_iter().zip(counts)
    }
}

fn add(sum: &mut Rates, more: &Rates) {
    let SpreadRates { now, sustained } = more.spread;
    sum.now += more.now;
    sum.sustained += more.sustained;
    // Pods may peak at different times, so the sum of their peaks is an upper bound.
    sum.peak += more.peak;
    sum.spread.now += now;
    sum.spread.sustained += sustained;
}
