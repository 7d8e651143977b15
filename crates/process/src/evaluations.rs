//! Background evaluations of stored calls, by a proxy or a fleet.

pub(crate) mod drift;
pub mod experiments;
pub mod gates;

use crate::periodic::Periodic;
use arc_swap::ArcSwap;
use std::sync::Arc;
use tokengauge_admin::{GateAudit, Services, Verdicts};
use tokengauge_config::Config;

/// The verdicts before the first evaluation.
pub fn verdicts(config: &Config) -> Arc<Verdicts> {
    Arc::new(Verdicts {
        gates: ArcSwap::from_pointee(gates::configured(config)),
        gate_audit: GateAudit::new(config.state_dir.as_deref()),
        ..Verdicts::default()
    })
}

/// Evaluates drift, gates and experiments until the result is dropped.
#[must_use = "dropping the evaluations stops them"]
pub fn start(config: &Arc<ArcSwap<Config>>, services: &Services) -> Vec<Periodic> {
    let all = [
        drift::start(config, services),
        gates::start(services),
        Some(experiments::start(services)),
    ];
    all.into_iter().flatten().collect()
}
