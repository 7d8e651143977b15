//! Evaluates `[[experiment]]` entries in the background of a running proxy and exports the results as gauges.

use crate::periodic::Periodic;
use std::collections::HashSet;
use std::time::Duration;
use tokengauge_admin::{Services, experiments_now};
use tokengauge_experiments::{MetricReport, Report};
use tokengauge_telemetry::export::registry::Registry;
use tokengauge_telemetry::export::{labels, names};

/// Delay of the first evaluation, because the ledger may still have to be created.
const FIRST_AFTER: Duration = Duration::from_secs(5);
const EVERY: Duration = Duration::from_secs(60);
/// Maximum number of variants per experiment that have gauges, because agents may name any number of variants.
const MAX_VARIANTS: usize = 20;

pub(crate) fn start(services: &Services) -> Periodic {
    let services = services.clone();
    Periodic::start("experiments", FIRST_AFTER, EVERY, move || look(&services))
}

fn look(services: &Services) {
    let registry = services.prometheus.registry();
    let failures = registry.series(&names::EXPERIMENT_FAILURES, &());
    let configured = services.experiments.load_full();
    if configured.is_empty() {
        return forget(registry, &HashSet::new());
    }
    let reports = match experiments_now(services) {
        Ok(reports) => reports,
        Err(error) => {
            failures.increment(1);
            tracing::warn!(%error, "experiments cannot be evaluated");
            return;
        }
    };
    let mut present = HashSet::new();
    for report in &reports {
        export(registry, report, &mut present);
    }
    forget(registry, &present);
}

/// Labels of a series: experiment, variant and metric.
type Key = (String, Option<String>, Option<String>);

fn export(registry: &Registry, report: &Report, present: &mut HashSet<Key>) {
    let experiment = report.name.as_str();
    let withheld = f64::from(u8::from(report.withheld.is_some()));
    registry
        .series(
            &names::EXPERIMENT_WITHHELD,
            &labels::Experiment { experiment },
        )
        .set(withheld);
    present.insert((experiment.to_owned(), None, None));
    for arm in report.arms.iter().take(MAX_VARIANTS) {
        let variant = arm.name.as_str();
        let labels = labels::ExperimentVariant {
            experiment,
            variant,
        };
        registry
            .series(&names::EXPERIMENT_UNITS, &labels)
            .set(arm.complete_units as f64);
        present.insert((experiment.to_owned(), Some(variant.to_owned()), None));
    }
    for comparison in report.comparisons.iter().take(MAX_VARIANTS) {
        for metric in &comparison.metrics {
            let Some(values) = bounds(metric) else {
                continue;
            };
            let (variant, metric) = (comparison.variant.as_str(), metric.label());
            let labels = labels::ExperimentMetric {
                experiment,
                variant,
                metric: &metric,
            };
            let families = [
                &names::EXPERIMENT_DIFFERENCE,
                &names::EXPERIMENT_DIFFERENCE_LOWER,
                &names::EXPERIMENT_DIFFERENCE_UPPER,
            ];
            for (family, value) in families.into_iter().zip(values) {
                registry.series(family, &labels).set(value);
            }
            present.insert((
                experiment.to_owned(),
                Some(variant.to_owned()),
                Some(metric),
            ));
        }
    }
}

/// The difference and its bounds, or `None` if the report withholds them.
fn bounds(metric: &MetricReport) -> Option<[f64; 3]> {
    Some([metric.difference?, metric.lower?, metric.upper?])
}

/// Removes series that are not in `present`: removed experiments, removed variants and differences that are now
/// withheld.
fn forget(registry: &Registry, present: &HashSet<Key>) {
    let known: HashSet<(&str, Option<&str>, Option<&str>)> = present
        .iter()
        .map(|(experiment, variant, metric)| {
            (experiment.as_str(), variant.as_deref(), metric.as_deref())
        })
        .collect();
    registry.retain(|labels| match labels.of("experiment") {
        Some(experiment) => {
            known.contains(&(experiment, labels.of("variant"), labels.of("metric")))
        }
        None => true,
    });
}
