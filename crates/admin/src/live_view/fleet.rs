//! A fleet: the calls in flight and objectives that its pods reported last.

use super::{AllPods, CallInFlight, LiveView, SloList, Slos, Visit};
use crate::api::StreamFilter;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokengauge_accounting::cost::Prices;
use tokengauge_core::call::OperationClass;
use tokengauge_fleet::{Fleet, PodState, Streams};
use tokengauge_slo::Objective;

pub struct FleetServices {
    pub fleet: Arc<Fleet>,
    pub objectives: Vec<Arc<Objective>>,
    pub prices: Arc<Prices>,
}

impl LiveView for FleetServices {
    fn streams(&self, _: Instant, filter: &StreamFilter, limit: usize) -> Streams {
        let matches = |stream: &_| filter.matches(stream);
        self.fleet.streams(filter.is_empty(), limit, matches)
    }

    fn visit_in_flight(&self, _: Instant, _: SystemTime, visit: Visit<'_>) {
        self.fleet.visit(|stream| {
            visit(&CallInFlight {
                started: stream.started_at.time(),
                route: &stream.route,
                upstream: &stream.upstream,
                model: stream.model.as_deref(),
                workload: stream.workload.as_deref(),
                agent: stream.agent.as_deref(),
                session: stream.session.as_deref(),
                payer: [
                    stream.team.as_deref(),
                    stream.cost_center.as_deref(),
                    stream.tenant.as_deref(),
                ],
                // A pod does not report the class of a stream. Most are generations.
                class: OperationClass::Generation,
                pod: stream.pod.as_deref(),
            });
        });
    }

    fn slos(&self, _: Instant) -> Slos {
        let (objectives, total) = self.fleet.objectives();
        Slos {
            slos: SloList::Others(objectives.slos),
            source: Some(self.fleet.objective_source()),
            total: Some(total),
        }
    }

    fn objective(&self, name: &str) -> Option<Arc<Objective>> {
        let mut objectives = self.objectives.iter();
        objectives.find(|known| &*known.name == name).cloned()
    }

    fn prices(&self) -> Arc<Prices> {
        Arc::clone(&self.prices)
    }

    fn fleet(&self) -> Option<&Arc<Fleet>> {
        Some(&self.fleet)
    }

    fn pods(&self) -> Option<AllPods> {
        let pods = self.fleet.pods();
        let away = pods.iter().filter(|pod| pod.state == PodState::Unreachable);
        Some(AllPods {
            store: self.fleet.warehouse(),
            objectives: self.fleet.objective_source(),
            objectives_error: self.fleet.objectives().0.error,
            unreachable: away.count(),
            left_out: self.fleet.left_out(),
            pods,
        })
    }
}
