//! The table of all metrics: names, kinds, labels, buckets, help. The exporters, the rules, the
//! dashboards' test and the reference in docs/metrics.md read it.

use super::cell::Cell;
use super::labels::LabelSet;
use std::marker::PhantomData;

mod calls;
mod cost;
mod drift;
#[cfg(test)]
mod example;
mod experiments;
mod fleet;
mod gate;
mod own;
mod prompts;
mod sessions;
mod slo;
mod upstreams;

pub use super::metric::{Metric, MetricKind, Unit};
pub use calls::*;
pub use cost::*;
pub use drift::*;
pub use experiments::*;
pub use fleet::*;
pub use gate::*;
pub use own::*;
pub use prompts::*;
pub use sessions::*;
pub use slo::*;
pub use upstreams::*;

/// A metric whose series are cells of type `C` with labels of type `L`. A series of another kind or
/// with other labels does not compile.
#[derive(Clone, Copy, Debug)]
pub struct Family<C, L> {
    metric: Metric,
    types: PhantomData<(C, L)>,
}

impl<C: Cell, L: LabelSet> Family<C, L> {
    const fn new(
        name: &'static str,
        unit: Unit,
        buckets: &'static [f64],
        help: &'static str,
    ) -> Self {
        let metric = Metric {
            name,
            kind: C::KIND,
            unit,
            labels: L::NAMES,
            buckets,
            help: help.trim_ascii_start(),
        };
        let types = PhantomData;
        Family { metric, types }
    }
}

impl<C, L> std::ops::Deref for Family<C, L> {
    type Target = Metric;

    fn deref(&self) -> &Metric {
        &self.metric
    }
}

/// The upper bounds of a histogram's buckets, ascending: the bounds of the table and `more`.
pub fn buckets(metric: &Metric, more: &[f64]) -> Vec<f64> {
    let usable = more.iter().filter(|bound| bound.is_finite());
    let mut bounds: Vec<f64> = metric.buckets.iter().chain(usable).copied().collect();
    bounds.sort_by(f64::total_cmp);
    bounds.dedup();
    bounds
}

/// Defines metrics. The doc comment of a metric is also its help in `/metrics` and its row in
/// docs/metrics.md.
macro_rules! families {
    ($(
        $(#[doc = $help:literal])+
        $name:ident: $cell:ident[$($labels:ident)?] = $text:expr, $unit:ident $(, $buckets:expr)?;
    )+) => {
        $(
            $(#[doc = $help])+
            pub const $name: $crate::export::names::Family<
                $crate::export::cell::$cell,
                families!(@labels $($labels)?),
            > = $crate::export::names::Family::new(
                $text,
                $crate::export::names::Unit::$unit,
                families!(@buckets $($buckets)?),
                concat!($($help),+),
            );
        )+

        pub(super) const ALL: &[$crate::export::names::Metric] = &[$($name.metric),+];
    };
    (@labels) => { () };
    (@labels $labels:ident) => { $crate::export::labels::$labels<'static> };
    (@buckets) => { &[] };
    (@buckets $buckets:expr) => { $buckets };
}
use families;

pub fn all() -> impl Iterator<Item = &'static Metric> {
    let files = [
        calls::ALL,
        cost::ALL,
        upstreams::ALL,
        own::ALL,
        slo::ALL,
        drift::ALL,
        gate::ALL,
        experiments::ALL,
        sessions::ALL,
        prompts::ALL,
        fleet::ALL,
    ];
    files.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_that_promtool_checks() {
        for metric in all() {
            let (name, counter) = (metric.name, metric.kind == MetricKind::Counter);
            assert!(
                name.starts_with("tokengauge_") || name.starts_with("process_"),
                "{name}"
            );
            assert_eq!(name.ends_with("_total"), counter, "{name}");
            let base = name.trim_end_matches("_total");
            assert_eq!(
                base.ends_with("_seconds"),
                metric.unit == Unit::Seconds,
                "{name}"
            );
            assert_eq!(
                base.ends_with("_bytes"),
                metric.unit == Unit::Bytes,
                "{name}"
            );
            assert!(metric.help.ends_with('.'), "{name}");
            assert!(!metric.help.contains(['\\', '"', '\n']), "{name}");
            assert_eq!(
                all().filter(|other| other.name == name).count(),
                1,
                "{name}"
            );
        }
    }

    #[test]
    fn every_histogram_has_ascending_buckets_and_nothing_else_has_any() {
        for metric in all() {
            let histogram = metric.kind == MetricKind::Histogram;
            assert_eq!(!metric.buckets.is_empty(), histogram, "{}", metric.name);
            assert!(
                metric.buckets.is_sorted_by(|one, next| one < next),
                "{}",
                metric.name
            );
        }
    }
}
