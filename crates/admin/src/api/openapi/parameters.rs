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
        "description": "The time of the mark: RFC 3339 in UTC, or milliseconds since 1970; now if absent or null.",
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
            "Calls that began at this instant or later, and sessions whose last call ended then or later. RFC 3339 in UTC, \
             or a duration before now.",
        ),
        "until" => (
            instant,
            "Calls and sessions that began before this instant. RFC 3339 in UTC, or a duration before now.",
        ),
        "outcome" => (
            json!({
                "type": "array", "minItems": 1, "uniqueItems": true,
                "items": words(OUTCOMES.map(|outcome| outcome.as_str()).into_iter().chain([FAILED]).collect()),
            }),
            "The outcomes of calls, separated by commas. failed means every outcome except complete and client_cancelled.",
        ),
        "operation_class" => (
            json!({
                "type": "array", "minItems": 1, "uniqueItems": true,
                "items": words(CLASSES.map(|(word, _)| word).to_vec()),
            }),
            "The operation classes, separated by commas. The default is generation and embedding; all means every class. \
             Sessions always include all of their calls.",
        ),
        "session" => (name_of, "The exact name."),
        "tool" => (
            name_of,
            "A tool that the response calls, among others or as the only tool. Several names joined by `+`, as in records, \
             mean exactly these tools: `fetch+search`.",
        ),
        "cost_unavailable" => (
            words(CostUnavailable::ALL.map(CostUnavailable::as_str).to_vec()),
            "Calls that have no cost for this reason.",
        ),
        "tps_unavailable" => (
            words(TpsUnavailable::ALL.map(TpsUnavailable::as_str).to_vec()),
            "Calls that have no decode speed for this reason.",
        ),
        "slo" => (
            name_of,
            "The name of an objective. It selects calls that spent its budget, according to their records.",
        ),
        "from" => (
            moment,
            "Marks from this instant on. RFC 3339 in UTC, a duration before now, or milliseconds since 1970.",
        ),
        "to" => (
            moment,
            "Marks before this instant. RFC 3339 in UTC, a duration before now, or milliseconds since 1970.",
        ),
        "kind" => (
            words(kinds().into_iter().map(|(word, _)| word).collect()),
            "The kinds of marks.",
        ),
        "q" => (
            name_of,
            "A part of the session's id or of an agent's name. Upper and lower case are equal.",
        ),
        "sort" => (
            words(SORTS.map(|(word, _)| word).to_vec()),
            "The sort key; the default is last_at. Unknown values come last.",
        ),
        "order" => (
            words(ORDERS.map(|(word, _)| word).to_vec()),
            "The sort order; the default is desc.",
        ),
        "format" => (
            words(TRACE_FORMATS.map(|(word, _)| word).to_vec()),
            "The file format. The default is perfetto, Chrome's trace event format.",
        ),
        "metric" => (
            words(METRICS.map(|(word, _)| word).to_vec()),
            "Decode speed (the default) or time to first token.",
        ),
        "counts" => (
            words(YES_OR_NO.map(|(word, _)| word).to_vec()),
            "Whether each point has the number of calls in each class of the metric. The default is false.",
        ),
        "dimension" => (
            words(DIMENSIONS.iter().map(|row| row.name).collect()),
            "The dimension of the series. The default is model.",
        ),
        "series" => (
            json!({"type": "integer", "minimum": 1, "maximum": MAX_SERIES, "default": DEFAULT_SERIES}),
            "The largest number of series, those that cost most. All other calls form one more series.",
        ),
        "step" => (
            json!({"type": "string", "pattern": format!("^{STEP}$")}),
            "The length of a point, at most 400d. The default is 1m. For costs, the default is 1h for more than 12 hours, \
             and 1d for more than 14 days.",
        ),
        "by" => (
            json!({
                "type": "array", "minItems": 1, "uniqueItems": true,
                "items": words(DIMENSIONS.iter().map(|row| row.name).collect()),
            }),
            "The dimensions of a group, separated by commas. Without dimensions, all calls form one group.",
        ),
        "limit" => (
            json!({"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}),
            "The largest number of rows.",
        ),
        "cursor" => (
            json!({"type": "string", "minLength": 1, "maxLength": MAX_CURSOR}),
            "The next_cursor of a response to the same query.",
        ),
        name => match Dimension::named(name) {
            Some(by) => (name_of, by.definition().about),
            None => unreachable!("{name} has a schema"),
        },
    }
}
