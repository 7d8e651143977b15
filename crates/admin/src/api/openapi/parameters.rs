//! The parameters of the API.

use crate::api::costs::{DEFAULT_SERIES, MAX_SERIES};
use crate::api::endpoint::Subject;
use crate::api::finished::{METRICS, ORDERS, SORTS, YES_OR_NO};
use crate::api::marks::{MAX_MS, kinds};
use crate::api::query_params::{
    CLASSES, DEFAULT_LIMIT, FAILED, MAX_CURSOR, MAX_LIMIT, MAX_NAME, OUTCOMES,
};
use crate::api::sessions::TRACE_FORMATS;
use serde_json::{Value, json};
use tokengauge_core::call::{CostUnavailable, TpsUnavailable};
use tokengauge_core::dimension::DIMENSIONS;
use tokengauge_store::query::Dimension;

/// A whole number of seconds, minutes, hours, days or weeks.
const DURATION: &str = "[1-9][0-9]{0,5}[smhdw]";
/// A [`DURATION`] of up to 400 days.
const STEP: &str = "([1-9][0-9]{0,5}s|\
    ([1-9][0-9]{0,4}|[1-4][0-9]{5}|5[0-6][0-9]{4}|57[0-5][0-9]{3}|576000)m|\
    ([1-9][0-9]{0,2}|[1-8][0-9]{3}|9[0-5][0-9]{2}|9600)h|\
    ([1-9]|[1-9][0-9]|[1-3][0-9]{2}|400)d|([1-9]|[1-4][0-9]|5[0-7])w)";
/// RFC 3339 in UTC from 1970 on. The pattern does not match February 29, which is nevertheless accepted.
const INSTANT: &str = "(19[7-9][0-9]|20[0-9]{2})-\
    ((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)\
    T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?Z";

pub(super) fn query(name: &str) -> Value {
    let (schema, description) = schema(name);
    let mut parameter = json!({
        "name": name, "in": "query", "required": false,
        "description": description, "schema": schema,
    });
    if matches!(name, "by" | "operation_class" | "outcome") {
        parameter["style"] = "form".into();
        parameter["explode"] = false.into();
    }
    parameter
}

pub(super) fn of_path(subject: &Subject) -> Value {
    let schema = if subject.is_uuid {
        json!({"type": "string", "format": "uuid"})
    } else {
        json!({"type": "string", "minLength": 1})
    };
    json!({
        "name": subject.parameter, "in": "path", "required": true,
        "description": subject.about, "schema": schema,
    })
}

pub(super) fn mark_time() -> Value {
    json!({
        "description": "When it happened: RFC 3339 in UTC, or milliseconds since 1970; now where it is absent or null.",
        "anyOf": [
            {"type": "null"},
            {"type": "string", "pattern": format!("^{INSTANT}$")},
            {"type": "integer", "minimum": 0, "maximum": MAX_MS},
        ],
    })
}

fn schema(name: &str) -> (Value, &'static str) {
    let moment =
        json!({"type": "string", "pattern": format!("^({DURATION}|{INSTANT}|[0-9]{{1,13}})$")});
    let instant = json!({"type": "string", "pattern": format!("^({DURATION}|{INSTANT})$")});
    let name_of = json!({"type": "string", "minLength": 1, "maxLength": MAX_NAME});
    let words = |all: Vec<&str>| json!({"type": "string", "enum": all});
    match name {
        "since" => (
            instant,
            "Calls that began at this instant or later; sessions whose last call ended then or later. \
             RFC 3339 in UTC, or a duration back from now.",
        ),
        "until" => (
            instant,
            "Calls, and sessions, that began before this instant. RFC 3339 in UTC, or a duration back.",
        ),
        "outcome" => (
            json!({
                "type": "array", "minItems": 1, "uniqueItems": true,
                "items": words(OUTCOMES.map(|outcome| outcome.as_str()).into_iter().chain([FAILED]).collect()),
            }),
            "How a call ended, with commas between; failed is every outcome but complete and client_cancelled.",
        ),
        "operation_class" => (
            json!({
                "type": "array", "minItems": 1, "uniqueItems": true,
                "items": words(CLASSES.map(|(word, _)| word).to_vec()),
            }),
            "Which classes of operations, with commas between them: generation and embedding where \
             nothing is said, all for every one. Sessions are those of all of their calls.",
        ),
        "session" => (name_of, "Its whole name."),
        "tool" => (
            name_of,
            "A tool that the answer calls, alone or among others. Several names with a `+` between them, as records have \
             them, are exactly these tools: `fetch+search`.",
        ),
        "cost_unavailable" => (
            words(CostUnavailable::ALL.map(CostUnavailable::as_str).to_vec()),
            "Calls without a cost, for this reason.",
        ),
        "tps_unavailable" => (
            words(TpsUnavailable::ALL.map(TpsUnavailable::as_str).to_vec()),
            "Calls without a decode speed, for this reason.",
        ),
        "slo" => (
            name_of,
            "An objective: calls that spent its budget, as far as their records tell.",
        ),
        "from" => (
            moment,
            "Marks from this instant on. RFC 3339 in UTC, a duration back from now, or milliseconds since 1970.",
        ),
        "to" => (
            moment,
            "Marks before this instant. RFC 3339 in UTC, a duration back from now, or milliseconds since 1970.",
        ),
        "kind" => (
            words(kinds().into_iter().map(|(word, _)| word).collect()),
            "What they are of.",
        ),
        "q" => (
            name_of,
            "A part of the session's id or of an agent's name, in any case.",
        ),
        "sort" => (
            words(SORTS.map(|(word, _)| word).to_vec()),
            "last_at, where nothing is said. What is unknown comes last.",
        ),
        "order" => (
            words(ORDERS.map(|(word, _)| word).to_vec()),
            "desc, where nothing is said.",
        ),
        "format" => (
            words(TRACE_FORMATS.map(|(word, _)| word).to_vec()),
            "perfetto, where nothing is said: Chrome's trace event format.",
        ),
        "metric" => (
            words(METRICS.map(|(word, _)| word).to_vec()),
            "Decode speed (where nothing is said) or time to first token.",
        ),
        "counts" => (
            words(YES_OR_NO.map(|(word, _)| word).to_vec()),
            "Whether each point says how many of its calls are of which class of the metric; false, where nothing is said.",
        ),
        "dimension" => (
            words(DIMENSIONS.iter().map(|row| row.name).collect()),
            "What the calls of a series have in common; model, where nothing is said.",
        ),
        "series" => (
            json!({"type": "integer", "minimum": 1, "maximum": MAX_SERIES, "default": DEFAULT_SERIES}),
            "Series at most, those that cost most; the calls of all others are one more.",
        ),
        "step" => (
            json!({"type": "string", "pattern": format!("^{STEP}$")}),
            "The length of a point, at most 400d; where nothing is said 1m, and of costs over more than 12 hours 1h, over more \
             than 14 days 1d.",
        ),
        "by" => (
            json!({
                "type": "array", "minItems": 1, "uniqueItems": true,
                "items": words(DIMENSIONS.iter().map(|row| row.name).collect()),
            }),
            "What the calls of a group have in common, with commas between; without it all are one group.",
        ),
        "limit" => (
            json!({"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}),
            "Rows at most.",
        ),
        "cursor" => (
            json!({"type": "string", "minLength": 1, "maxLength": MAX_CURSOR}),
            "The next_cursor of an answer to the same question.",
        ),
        name => match Dimension::named(name) {
            Some(by) => (name_of, by.definition().about),
            None => unreachable!("{name} has a schema"),
        },
    }
}
