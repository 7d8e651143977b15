//! The label sets of metrics: names and values are fields, so that they cannot be mixed up.

use tokengauge_accounting::quota::{Resource, SharedReason};
use tokengauge_core::call::{OperationClass, Outcome, TpsUnavailable};
use tokengauge_core::prompt::PromptPart;

/// A set of labels, and the values of one series.
pub trait LabelSet {
    const NAMES: &'static [&'static str];

    /// The values of the labels, in the order of `NAMES`.
    fn values(&self) -> impl Iterator<Item = &str>;
}

trait LabelValue {
    fn text(&self) -> &str;
}

impl LabelValue for &str {
    fn text(&self) -> &str {
        self
    }
}

impl LabelValue for bool {
    fn text(&self) -> &str {
        if *self { "true" } else { "false" }
    }
}

macro_rules! typed_values {
    ($($value:ty),+) => {
        $(impl LabelValue for $value {
            fn text(&self) -> &str {
                self.as_str()
            }
        })+
    };
}

typed_values!(
    Outcome,
    OperationClass,
    TpsUnavailable,
    PromptPart,
    Resource,
    SharedReason
);

/// A metric without labels has one series.
impl LabelSet for () {
    const NAMES: &'static [&'static str] = &[];

    fn values(&self) -> impl Iterator<Item = &str> {
        [].into_iter()
    }
}

macro_rules! label_sets {
    ($($(#[doc = $text:literal])+ $name:ident { $($field:ident: $value:ty),+ $(,)? })+) => {
        $(
            $(#[doc = $text])+
            #[derive(Clone, Copy, Debug)]
            pub struct $name<'a> {
                $(pub $field: $value),+
            }

            impl LabelSet for $name<'_> {
                const NAMES: &'static [&'static str] = &[$(stringify!($field)),+];

                fn values(&self) -> impl Iterator<Item = &str> {
                    [$(self.$field.text()),+].into_iter()
                }
            }
        )+
    };
}

/// Label sets that start with the labels of [`Model`].
macro_rules! label_sets_of_a_model {
    ($($(#[doc = $text:literal])+ $name:ident { $($field:ident: $value:ty),+ $(,)? })+) => {
        $(
            $(#[doc = $text])+
            #[derive(Clone, Copy, Debug)]
            pub struct $name<'a> {
                pub of: Model<'a>,
                $(pub $field: $value),+
            }

            impl LabelSet for $name<'_> {
                const NAMES: &'static [&'static str] =
                    &["upstream", "route", "model", "workload", $(stringify!($field)),+];

                fn values(&self) -> impl Iterator<Item = &str> {
                    self.of.values().chain([$(self.$field.text()),+])
                }
            }
        )+
    };
}

label_sets! {
    /// Labels of series per upstream, route, model and workload.
    Model { upstream: &'a str, route: &'a str, model: &'a str, workload: &'a str }
    /// One upstream.
    Upstream { upstream: &'a str }
    /// One route to an upstream.
    Route { upstream: &'a str, route: &'a str }
    /// The facts of an upstream; empty if they are not configured.
    UpstreamInfo {
        upstream: &'a str,
        hardware: &'a str,
        quantization: &'a str,
        batch_size: &'a str,
        engine: &'a str,
        engine_version: &'a str,
        model_version: &'a str,
    }
    /// Why a request to an upstream failed.
    UpstreamReason { upstream: &'a str, reason: &'a str }
    /// A prompt cache at an upstream.
    ByCache { upstream: &'a str, cache: &'a str }
    /// One budget.
    Budget { budget: &'a str }
    /// A warning threshold of a budget.
    BudgetThreshold { budget: &'a str, threshold: &'a str }
    /// One quota.
    Quota { quota: &'a str }
    /// A resource that a quota bounds.
    QuotaResource { quota: &'a str, resource: Resource }
    /// Why callers share a bucket of a quota.
    QuotaReason { quota: &'a str, reason: SharedReason }
    /// A part of forwarding.
    Phase { phase: &'a str }
    /// The exporter and reason of failed deliveries.
    ExportFailure { exporter: &'a str, reason: &'a str }
    /// The result of an operation.
    ByResult { result: &'a str }
    /// The kind of an item.
    ByKind { kind: &'a str }
    /// The cause of an event.
    ByCause { cause: &'a str }
    /// Why an item was lost or closed.
    ByReason { reason: &'a str }
    /// The state of an item.
    ByState { state: &'a str }
    /// A pod of a fleet.
    FleetMember { member: &'a str }
    /// A sink.
    BySink { sink: &'a str }
    /// A sink, and why a batch failed or calls were lost.
    BySinkReason { sink: &'a str, reason: &'a str }
    /// How limits are decided while the quota store does not respond.
    QuotaStoreOnError { on_error: &'a str }
    /// How calls are handled while the fallback is in use.
    FallbackCalls { calls: &'a str }
    /// A configuration.
    Digest { digest: &'a str }
    /// A version of the program.
    Version { version: &'a str }
    /// A tokio runtime.
    Runtime { runtime: &'a str }
    /// One comparison with previous weeks.
    DriftEntry { drift: &'a str }
    /// A signal of a comparison with previous weeks.
    Drift { drift: &'a str, signal: &'a str }
    /// A state of a signal of a comparison with previous weeks.
    DriftStateLabels { drift: &'a str, signal: &'a str, state: &'a str }
    /// A possible verdict of a gate.
    GateVerdictLabels { gate: &'a str, verdict: &'a str }
    /// One experiment.
    Experiment { experiment: &'a str }
    /// A variant of an experiment.
    ExperimentVariant { experiment: &'a str, variant: &'a str }
    /// A metric of a variant.
    ExperimentMetric { experiment: &'a str, variant: &'a str, metric: &'a str }
    /// One objective.
    Slo { slo: &'a str }
    /// How events of an objective were judged.
    SloEvent { slo: &'a str, verdict: &'a str, reason: &'a str }
    /// A window of a burn rate.
    SloWindow { slo: &'a str, window: &'a str }
}

label_sets_of_a_model! {
    /// Calls by how they ended.
    Request {
        outcome: Outcome,
        streamed: bool,
        status: &'a str,
        operation_class: OperationClass,
    }
    /// Prompt length of calls of a model.
    ModelContext { context: &'a str }
    /// Number of streams in flight on an upstream.
    ModelConcurrency { concurrency: &'a str }
    /// Outcome of calls of a model.
    ModelOutcome { outcome: Outcome }
    /// Tokens by direction, channel and source of the count.
    ModelTokens { direction: &'a str, channel: &'a str, source: &'a str }
    /// A part of prompts.
    ModelPromptPart { part: PromptPart }
    /// Why calls have no decode speed.
    ModelReason { reason: TpsUnavailable }
    /// Cost by source of the token count and source of the price.
    ModelCost { operation_class: OperationClass, source: &'a str, price: &'a str }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_of_a_set_have_one_order() {
        let of = Model {
            upstream: "u",
            route: "r",
            model: "m",
            workload: "w",
        };
        let set = ModelOutcome {
            of,
            outcome: Outcome::Complete,
        };
        let pairs: Vec<_> = ModelOutcome::NAMES
            .iter()
            .copied()
            .zip(set.values())
            .collect();
        let expected = [
            ("upstream", "u"),
            ("route", "r"),
            ("model", "m"),
            ("workload", "w"),
            ("outcome", "complete"),
        ];
        assert_eq!(pairs, expected);
    }
}
