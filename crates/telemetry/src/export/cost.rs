//! Series of GPUs, budgets and upstreams' facts.

use super::labels::{self, UpstreamInfo};
use super::names::{self, Family};
use super::registry::{Counter, Registry};
use tokengauge_accounting::cost::budget::{Budget, Budgets};
use tokengauge_accounting::cost::{PriceList, Prices};
use tokengauge_core::upstream_facts::UpstreamFacts;
use tokengauge_meter::settings::Measure;

pub fn gpus(registry: &Registry, prices: &Prices) {
    for (upstream, gpus) in prices.all_gpus() {
        let labels = labels::Upstream { upstream };
        let gauge = registry.series(&names::UPSTREAM_GPU_USD_PER_HOUR, &labels);
        gauge.set(gpus.usd_per_hour());
    }
}

pub fn facts(registry: &Registry, measure: &Measure) {
    for (upstream, facts) in measure.upstream_facts.iter() {
        registry
            .series(&names::UPSTREAM_INFO, &info(upstream, facts))
            .set(1.0);
    }
}

/// The labels of an upstream's facts; unknown facts are empty.
fn info<'a>(upstream: &'a str, facts: &'a UpstreamFacts) -> UpstreamInfo<'a> {
    let [
        hardware,
        quantization,
        batch_size,
        engine,
        engine_version,
        model_version,
    ] = facts.values().map(Option::unwrap_or_default);
    UpstreamInfo {
        upstream,
        hardware,
        quantization,
        batch_size,
        engine,
        engine_version,
        model_version,
    }
}

/// The parts of a configuration that are labels of series.
#[derive(Clone, Copy, Debug)]
pub struct Labelled<'a> {
    pub measure: &'a Measure,
    pub prices: &'a PriceList,
    pub budgets: &'a [Budget],
}

/// Removes the series of budgets, GPUs and facts that are in `now` and not in `next`.
pub fn forget(registry: &Registry, now: &Labelled<'_>, next: &Labelled<'_>) {
    for (upstream, facts) in now.measure.upstream_facts.iter() {
        if next.measure.upstream_facts.get(upstream) != Some(facts) {
            registry.forget(&names::UPSTREAM_INFO, &info(upstream, facts));
        }
    }
    let gpus = &next.prices.gpus;
    let gone = now.prices.gpus.keys();
    for upstream in gone.filter(|name| !gpus.contains_key(*name)) {
        let labels = labels::Upstream { upstream };
        registry.forget(&names::UPSTREAM_GPU_USD_PER_HOUR, &labels);
    }
    for budget in now
        .budgets
        .iter()
        .filter(|known| !next.budgets.contains(known))
    {
        let name = &*budget.name;
        let labels = labels::Budget { budget: name };
        registry.forget(&names::BUDGET_SPENT_RATIO, &labels);
        registry.forget(&names::BUDGET_SPENT_USD, &labels);
        for metric in [
            &names::BUDGET_BLOCKED,
            &names::BUDGET_SHADOW_BLOCKED,
            &names::BUDGET_UNREADABLE,
            &names::BUDGET_FORGOTTEN,
        ] {
            registry.forget(metric, &labels);
        }
        for threshold in &budget.warn_at {
            let labels = labels::BudgetThreshold {
                budget: name,
                threshold: &threshold.to_string(),
            };
            registry.forget(&names::BUDGET_WARNINGS, &labels);
        }
    }
}

/// Updates the series of the budgets at `now`, in seconds since 1970. All series exist from the
/// start.
pub fn budgets(registry: &Registry, budgets: &Budgets, now: u64) {
    for status in budgets.statuses(now) {
        let name = &*status.name;
        let labels = labels::Budget { budget: name };
        let ratio = registry.series(&names::BUDGET_SPENT_RATIO, &labels);
        ratio.set(status.spent_ratio);
        let spent = registry.series(&names::BUDGET_SPENT_USD, &labels);
        spent.absolute(status.usd);
        let count =
            |metric: &Family<Counter, _>, value| registry.series(metric, &labels).absolute(value);
        count(&names::BUDGET_BLOCKED, status.blocked);
        count(&names::BUDGET_SHADOW_BLOCKED, status.shadow_blocked);
        count(&names::BUDGET_UNREADABLE, status.unreadable);
        count(&names::BUDGET_FORGOTTEN, status.forgotten);
        for (threshold, count) in &status.warnings {
            let labels = labels::BudgetThreshold {
                budget: name,
                threshold: &threshold.to_string(),
            };
            registry
                .series(&names::BUDGET_WARNINGS, &labels)
                .absolute(*count);
        }
    }
}
