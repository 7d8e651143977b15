//! Why nothing is said, of an experiment or of one metric.

use tokengauge_stats::StatsError;

/// Why nothing is said.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Withheld {
    /// No finished call names the experiment.
    #[error(
        "no finished call is in a variant of it yet: is there traffic on its route, and do headers name its units?"
    )]
    NoTraffic,
    #[error("only `{variant}` has calls; two variants are needed")]
    OneVariant { variant: String },
    #[error(
        "too few units: `{variant}` has {got} complete ones of {needed} (a unit is complete {settled} after its last call)"
    )]
    TooFewUnits {
        /// The variant with the fewest.
        variant: String,
        got: u64,
        needed: u64,
        /// How long a unit must have had no call.
        settled: String,
    },
    /// The arms do not have the units that their weights give them.
    #[error(
        "the split is not what was configured: {counts} (p = {p:.1e}); units are lost or counted on their way, so that the arms are not alike"
    )]
    Split {
        /// The arms, their units and how many were expected.
        counts: String,
        /// The always-valid p value of the configured shares.
        p: f64,
    },
    /// Units have calls of several variants.
    #[error(
        "variants interfere: {mixed} of {units} units have calls of more than one variant; did the arms, weights or salt change, or do agents reuse names?"
    )]
    Interference {
        /// Units with calls of several variants.
        mixed: u64,
        units: u64,
    },
    /// Calls that a metric is not of are not the same share of both groups.
    #[error(
        "the share of calls without a {what} differs ({:.1} % and {:.1} %), so that the calls with one are not alike",
        .baseline * 100.0,
        .changed * 100.0
    )]
    UnmeasuredDiffer {
        /// What the calls do not have.
        what: &'static str,
        baseline: f64,
        /// The share in the other group.
        changed: f64,
    },
    /// Too few units have the event that is counted, or have it not.
    #[error(
        "too few units to know how it varies: {with} have it, {without} have calls without it; 50 of each are needed"
    )]
    RareEvent {
        /// Units with such a call.
        with: u64,
        /// Units with a call that is none.
        without: u64,
    },
    #[error("{calls} calls have no price")]
    NoPrice {
        /// How many, failed ones aside.
        calls: u64,
    },
    #[error("{0}")]
    NoAnswer(#[from] StatsError),
}
