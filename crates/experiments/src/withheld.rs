use tokengauge_stats::StatsError;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Withheld {
    #[error(
        "no finished call belongs to a variant of the experiment yet: check the traffic on its route, and the headers that name its units"
    )]
    NoTraffic,
    #[error("only `{variant}` has calls; two variants are needed")]
    OneVariant { variant: String },
    #[error(
        "too few units: `{variant}` has {got} complete units, but {needed} are needed (a unit is complete {settled} after its last call)"
    )]
    TooFewUnits {
        /// The variant with the fewest units.
        variant: String,
        got: u64,
        needed: u64,
        /// The time without calls after which a unit is complete.
        settled: String,
    },
    #[error(
        "the split differs from the configured weights: {counts} (p = {p:.1e}); units were lost or counted twice, so the arms are not comparable"
    )]
    Split {
        /// The arms with their actual and expected units.
        counts: String,
        /// The always-valid p value of the configured shares.
        p: f64,
    },
    #[error(
        "variants interfere: {mixed} of {units} units have calls of more than one variant; did the arms, weights or salt change, or do agents reuse names?"
    )]
    Interference { mixed: u64, units: u64 },
    /// The groups have different shares of calls that the metric does not cover.
    #[error(
        "the share of calls without a {what} differs ({:.1} % and {:.1} %), so the remaining calls are not comparable",
        .baseline * 100.0,
        .changed * 100.0
    )]
    UnmeasuredDiffer {
        /// The measurement that the calls do not have.
        what: &'static str,
        baseline: f64,
        /// The share in the other group.
        changed: f64,
    },
    #[error(
        "too few units to estimate the variance: {with} units have the event and {without} have calls without it, but 50 of each are needed"
    )]
    RareEvent { with: u64, without: u64 },
    #[error("too few scores: {got} {what}, but {needed} are needed on each side")]
    TooFewScores {
        /// `units of the baseline have a score`, or of the other side.
        what: &'static str,
        got: u64,
        needed: u64,
    },
    /// The sides have different shares of units with a score.
    #[error(
        "the share of units with this score differs ({:.1} % and {:.1} %), so the scored units are not comparable; score all units, or a random part of them",
        .baseline * 100.0,
        .changed * 100.0
    )]
    ScoredDiffer { baseline: f64, changed: f64 },
    #[error("{calls} calls have no price")]
    NoPrice {
        /// The number of calls, not counting failed ones.
        calls: u64,
    },
    #[error("{0}")]
    NoAnswer(#[from] StatsError),
}
