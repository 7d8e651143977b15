//! The metrics of a fleet.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;
use tokengauge_fleet::{Fleet, PodState, PodStatus, WarehouseState};
use tokengauge_telemetry::export::labels::{ByReason, ByState, FleetMember};
use tokengauge_telemetry::export::names;
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::registry::Registry;

pub(super) fn install(prometheus: &Prometheus, fleet: &Arc<Fleet>) {
    let fleet = Arc::clone(fleet);
    let named = Mutex::new(BTreeSet::new());
    prometheus.before_scrape(move |registry, _| {
        let pods = fleet.pods();
        for state in PodState::ALL {
            let count = pods.iter().filter(|pod| pod.state == state).count();
            let labels = ByState {
                state: state.as_str(),
            };
            let gauge = registry.series(&names::FLEET_PODS, &labels);
            gauge.set(count as f64);
        }
        members(registry, &pods, &mut named.lock());
        warehouse(registry, &fleet);
        for (why, events) in fleet.drops() {
            let labels = ByReason {
                reason: why.as_str(),
            };
            let counter = registry.series(&names::FLEET_EVENTS_DROPPED, &labels);
            counter.absolute(events);
        }
    });
}

/// Sets one series per pod and removes the series of pods that no longer exist.
fn members(registry: &Registry, pods: &[PodStatus], named: &mut BTreeSet<String>) {
    let now: BTreeSet<String> = pods.iter().map(|pod| pod.label().to_owned()).collect();
    for member in named.difference(&now) {
        registry.forget(&names::FLEET_POD_UP, &FleetMember { member });
    }
    for pod in pods {
        let labels = FleetMember {
            member: pod.label(),
        };
        let up = registry.series(&names::FLEET_POD_UP, &labels);
        up.set(f64::from(u8::from(pod.state == PodState::Connected)));
    }
    *named = now;
}

fn warehouse(registry: &Registry, fleet: &Fleet) {
    let warehouse = fleet.warehouse();
    let up = registry.series(&names::FLEET_STORE_UP, &());
    up.set(f64::from(u8::from(warehouse.state != WarehouseState::Away)));
    let age = warehouse
        .read_at
        .and_then(|at| SystemTime::now().duration_since(at.time()).ok());
    if let Some(age) = age {
        let gauge = registry.series(&names::FLEET_STORE_AGE, &());
        gauge.set(age.as_secs_f64());
    }
    let calls = registry.series(&names::FLEET_CALLS, &());
    calls.absolute(warehouse.calls);
    let failures = registry.series(&names::FLEET_STORE_FAILURES, &());
    failures.absolute(warehouse.failures);
}
