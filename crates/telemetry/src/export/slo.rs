//! The objectives as series.

use super::names;
use super::registry::{Registry, Threshold};
use std::sync::Arc;
use std::time::Instant;
use tokengauge_slo::{Objective, Sli, Slos};

/// Bounds that make the share of calls on either side of an objective exact.
pub fn thresholds(objectives: &[Arc<Objective>]) -> Vec<Threshold> {
    let of = |objective: &Arc<Objective>| {
        let sli = objective.judgement.sli;
        let metric = match sli {
            Sli::Ttft(_) => &names::TIME_TO_FIRST_TOKEN,
            Sli::TimeToFirstAnswer(_) => &names::TIME_TO_FIRST_ANSWER,
            Sli::OutputTps(_) => &names::OUTPUT_TOKENS_PER_SECOND,
            Sli::Duration(_) => &names::REQUEST_DURATION,
            Sli::InterTokenLatency(_) => &names::TIME_PER_OUTPUT_TOKEN,
            _ => return None,
        };
        let at = sli.threshold()?;
        Some(Threshold {
            metric: metric.name,
            at,
        })
    };
    objectives.iter().filter_map(of).collect()
}

/// Takes away the series of objectives that are not configured any more, and of those
/// whose counts began `anew`: they start from 0, as after a restart.
pub fn forget(registry: &Registry, objectives: &[Arc<Objective>], anew: &[Arc<str>]) {
    registry.retain(|labels| {
        labels.of("slo").is_none_or(|slo| {
            objectives.iter().any(|objective| &*objective.name == slo)
                && !anew.iter().any(|anew| &**anew == slo)
        })
    });
}

/// Brings the series of the objectives up to `now`: every verdict and reason that can
/// come is there from the start.
pub fn refresh(registry: &Registry, slos: &Slos, now: Instant) {
    for status in slos.status(now) {
        let name = &*status.name;
        for (verdict, reasons) in &status.events {
            for (reason, count) in reasons {
                let events = registry.counter(&names::SLO_EVENTS, &[name, verdict, reason]);
                events.absolute(*count);
            }
        }
        let set = |metric, value| registry.gauge(metric, &[name]).set(value);
        set(&names::SLO_OBJECTIVE_RATIO, status.objective);
        set(&names::SLO_ERROR_BUDGET_REMAINING, status.budget_remaining);
        for burn in &status.burn {
            let gauge = registry.gauge(&names::SLO_BURN_RATE, &[name, &burn.window]);
            gauge.set(burn.rate);
        }
    }
}
