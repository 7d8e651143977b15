//! The JSON of a cause. Objectives on calls and objectives on throughput use the same object.

use crate::call::Dimension;
use crate::report::{
    CallCandidate, Cause, CauseBasis, ComparedWith, Load, Mechanism, Moved, Signal,
    ThroughputChange, TokenCandidate,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use tokengauge_core::time::Timestamp;

/// The cause of a missed objective, as far as it is known.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Cause")]
struct CauseJson<'a> {
    /// When the cause was determined.
    at: Timestamp,
    /// The cause in one sentence.
    sentence: &'a str,
    /// Whether calls of one kind stand out, or a phase moved. If not, the sentence says that the cause is not known.
    known: bool,
    /// The dimension in which a kind of calls stands out; `null` if no kind of calls stands out.
    dimension: Option<Dimension>,
    /// The value of `dimension` that stands out; `null` if no kind of calls stands out.
    value: Option<&'a str>,
    /// The share of the bad calls that have this value. For an objective on throughput, the share of the lost tokens
    /// that are missing from calls with this value.
    share_of_bad: Option<f64>,
    /// The share of all calls that have this value; `null` for an objective on throughput.
    share_of_all: Option<f64>,
    /// The share of the earlier calls that have this value. For an objective on throughput, the share of the earlier tokens
    /// that calls with this value had.
    share_before: Option<f64>,
    /// The prompt length or concurrency that is also common among these bad calls.
    besides: Option<CandidateJson<'a>>,
    /// Which phase makes the calls bad; `null` if that is not known.
    mechanism: Option<Mechanism>,
    /// The most frequent kind of error, if errors make the calls bad.
    error: Option<&'a str>,
    /// The calls that `moved` and `unchanged` compare with; `null` if there are too few calls to compare with.
    compared_with: Option<ComparedWith>,
    /// The figures that differ.
    moved: &'a [Moved],
    /// The figures that were compared and did not change.
    unchanged: &'a [Signal],
    /// The kind of calls that grew in number, if calls wait.
    load: Option<&'a Load>,
    /// When the share of bad calls rose; `null` if that is not known.
    since: Option<Timestamp>,
    /// How throughput changed; `null` if the objective is not on throughput, or if no change was found.
    throughput: Option<ThroughputChange>,
    /// The number of bad calls since `since`, or of all stored bad calls. For an objective on throughput, the number of bad
    /// minutes.
    bad: usize,
    /// The number of calls since `since`, or of all stored calls. For an objective on throughput, the number of minutes.
    calls: usize,
    /// All values that have more than their share of bad calls, the best explanation first. For an objective on
    /// throughput, all values that have more than their share of the lost tokens, in the order of the dimensions.
    candidates: Vec<CandidateJson<'a>>,
}

/// A value of a dimension, and how much of the bad calls it explains. For an objective on throughput, how much of the
/// lost tokens it explains.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "CauseCandidate")]
struct CandidateJson<'a> {
    /// The dimension in which calls differ.
    dimension: Dimension,
    /// The name, or the lowest class.
    value: &'a str,
    /// The share of the bad calls that have the value. For an objective on throughput, the share of the lost tokens
    /// that are missing from calls with the value.
    share_of_bad: f64,
    /// The share of all calls that have the value. For an objective on throughput, the share of the earlier tokens that
    /// calls with the value had.
    share_of_all: f64,
    /// The share of the bad calls that would disappear if calls with the value were bad as often as other calls. For an
    /// objective on throughput, equal to `share_of_bad`.
    explained: f64,
    /// The correlation between having the value and being bad (φ), from 0 to 1. Candidates are ranked by it. For an
    /// objective on throughput, `share_of_bad` minus `share_of_all`, from 0 to 1.
    correlation: f64,
}

impl<'a> CandidateJson<'a> {
    fn of_calls(one: &'a CallCandidate) -> CandidateJson<'a> {
        CandidateJson {
            dimension: one.dimension,
            value: &one.value,
            share_of_bad: one.share_of_bad,
            share_of_all: one.share_of_all,
            explained: one.explained,
            correlation: one.correlation,
        }
    }

    fn of_tokens(one: &'a TokenCandidate) -> CandidateJson<'a> {
        CandidateJson {
            dimension: one.dimension,
            value: &one.value,
            share_of_bad: one.shares.of_lost,
            share_of_all: one.shares.before,
            explained: one.shares.of_lost,
            correlation: (one.shares.of_lost - one.shares.before).clamp(0.0, 1.0),
        }
    }
}

impl<'a> CauseJson<'a> {
    fn of(cause: &'a Cause) -> CauseJson<'a> {
        let mut json = CauseJson {
            at: cause.at,
            sentence: &cause.sentence,
            known: cause.known,
            dimension: cause.dimension,
            value: cause.value.as_deref(),
            share_of_bad: None,
            share_of_all: None,
            share_before: None,
            besides: None,
            mechanism: cause.mechanism,
            error: cause.error.as_deref(),
            compared_with: cause.compared_with,
            moved: &cause.moved,
            unchanged: &cause.unchanged,
            load: cause.load.as_ref(),
            since: cause.since,
            throughput: None,
            bad: cause.basis.bad(),
            calls: cause.basis.all(),
            candidates: Vec::new(),
        };
        match &cause.basis {
            CauseBasis::Calls(basis) => {
                json.share_of_bad = basis.shares.map(|shares| shares.of_bad);
                json.share_of_all = basis.shares.map(|shares| shares.of_all);
                json.share_before = basis.shares.and_then(|shares| shares.before);
                json.besides = basis.besides.as_ref().map(CandidateJson::of_calls);
                let candidates = basis.candidates.iter().map(CandidateJson::of_calls);
                json.candidates = candidates.collect();
            }
            CauseBasis::Minutes(basis) => {
                json.share_of_bad = basis.shares.map(|shares| shares.of_lost);
                json.share_before = basis.shares.map(|shares| shares.before);
                json.throughput = basis.change;
                let candidates = basis.candidates.iter().map(CandidateJson::of_tokens);
                json.candidates = candidates.collect();
            }
        }
        json
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        CauseJson::of(self).serialize(serializer)
    }
}

impl JsonSchema for Cause {
    fn schema_name() -> Cow<'static, str> {
        CauseJson::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        CauseJson::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        CauseJson::json_schema(generator)
    }
}
