//! Series of objectives.

use super::labels;
use super::names::{self, Family};
use super::registry::{Gauge, Registry, Threshold};
use std::sync::Arc;
use std::time::Instant;
use tokengauge_slo::{Objective, Sli, Slos};

/// Bounds that make the share of calls on either side of an objective exact.
pub fn thresholds(objectives: &[Arc<Objective>]) -> Vec<Threshold> {
    let of = |objective: &Arc<Objective>| {
        let sli = objective.judgement.sli;
        let metric = match sli {
            Sli::Ttft(_) => names::TIME_TO_FIRST_TOKEN.name,
            Sli::TimeToFirstAnswer(_) => names::TIME_TO_FIRST_ANSWER.name,
            Sli::OutputTps(_) => names::OUTPUT_TOKENS_PER_SECOND.name,
            Sli::Duration(_) => names::REQUEST_DURATION.name,
            Sli::InterTokenLatency(_) => names::TIME_PER_OUTPUT_TOKEN.name,
            _ => return None,
        };
        let at = sli.threshold()?;
        Some(Threshold { metric, at })
    };
    objectives.iter().filter_map(of).collect()
}

/// Removes the series of objectives that are not configured any more or whose counts started again
/// from 0.
pub fn forget(registry: &Registry, objectives: &[Arc<Objective>], anew: &[Arc<str>]) {
    registry.retain(|labels| {
        labels.of("slo").is_none_or(|slo| {
            objectives.iter().any(|objective| &*objective.name == slo)
                && !anew.iter().any(|anew| &**anew == slo)
        })
    });
}

/// Updates the series of the objectives at `now`. A series for every possible verdict and reason
/// exists from the start.
pub fn refresh(registry: &Registry, slos: &Slos, now: Instant) {
    for status in slos.status(now) {
        let slo = &*status.name;
        for (verdict, reasons) in &status.events {
            for (reason, count) in reasons {
                let labels = labels::SloEvent {
                    slo,
                    verdict,
                    reason,
                };
                let events = registry.series(&names::SLO_EVENTS, &labels);
                events.absolute(*count);
            }
        }
        let set = |metric: &Family<Gauge, _>, value| {
            registry.series(metric, &labels::Slo { slo }).set(value)
        };
        set(&names::SLO_OBJECTIVE_RATIO, status.objective);
        set(&names::SLO_ERROR_BUDGET_REMAINING, status.budget_remaining);
        for burn in &status.burn {
            let window = &*burn.window;
            let gauge = registry.series(&names::SLO_BURN_RATE, &labels::SloWindow { slo, window });
            gauge.set(burn.rate);
        }
    }
}
