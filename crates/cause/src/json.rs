//! How the API writes a cause. Objectives on calls and on throughput share the members of one object.

use crate::call::Dimension;
use crate::report::{
    CallCandidate, Cause, CauseBasis, ComparedWith, Load, Mechanism, Moved, Signal,
    ThroughputChange, TokenCandidate,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use tokengauge_core::time::Timestamp;

/// Why an objective is missed, as far as it is known.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Cause")]
struct CauseJson<'a> {
    /// When this was worked out.
    at: Timestamp,
    /// The cause in one sentence.
    sentence: &'a str,
    /// Whether calls of one kind stand out, or a phase moved. If not, the sentence says that the cause is not known.
    known: bool,
    /// The dimension of the kind of calls that stands out; `null` if no kind of calls stands out.
    dimension: Option<Dimension>,
    /// The value of the dimension that these calls have.
    value: Option<&'a str>,
    /// The share of the bad calls that have this value. For an objective on throughput, the share of the lost tokens
    /// that are missing from calls with this value.
    share_of_bad: Option<f64>,
    /// The share of all calls that have this value; `null` for an objective on throughput.
    share_of_all: Option<f64>,
    /// The share of the calls before that have this value. For an objective on throughput, the share of the tokens
    /// before that calls with this value had.
    share_before: Option<f64>,
    /// The prompt length or concurrency that these bad calls also have in common.
    besides: Option<CandidateJson<'a>>,
    /// Which phase makes the calls bad; `null` if that is not known.
    mechanism: Option<Mechanism>,
    /// The kind of most errors, if errors make the calls bad.
    error: Option<&'a str>,
    /// What `moved` and `unchanged` compare with; `null` if there are too few calls to compare with.
    compared_with: Option<ComparedWith>,
    /// What differs.
    moved: &'a [Moved],
    /// What was compared and is as it was.
    unchanged: &'a [Signal],
    /// Who sends more calls than before, if calls wait.
    load: Option<&'a Load>,
    /// Since when more calls are bad; `null` if that is not known.
    since: Option<Timestamp>,
    /// How throughput changed; `null` if the objective is not on throughput, or if no change is seen.
    throughput: Option<ThroughputChange>,
    /// The number of bad calls since `since`, or of all bad calls that are kept. For an objective on throughput, the
    /// number of bad minutes.
    bad: usize,
    /// The number of calls since `since`, or of all calls that are kept. For an objective on throughput, the number of
    /// minutes.
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
    /// What calls are told apart by.
    dimension: Dimension,
    /// The name, or the least class.
    value: &'a str,
    /// The share of the bad calls that have the value. For an objective on throughput, the share of the lost tokens
    /// that are missing from calls with the value.
    share_of_bad: f64,
    /// The share of all calls that have the value. For an objective on throughput, the share of the tokens before that
    /// calls with the value had.
    share_of_all: f64,
    /// The share of the bad calls that would be missing if calls with the value were bad as often as other calls. For
    /// an objective on throughput, the same as `share_of_bad`.
    explained: f64,
    /// The correlation of having the value and being bad (φ), from 0 to 1, by which candidates are ranked. For an
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
