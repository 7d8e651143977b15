//! `/api/v1/scores`: how good calls, sessions and traces were, according to programs outside the proxy.

use super::call_source::{CallSource, ask, blocking};
use super::problem::Problem;
use crate::Services;
use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::SystemTime;
use tokengauge_core::score::{self, Score, ScoreTarget, ScoreType};
use tokengauge_store::scores::ScoreError;
use tokengauge_telemetry::export::{labels, names};
use uuid::Uuid;

pub const PATH: &str = "/api/v1/scores";
/// The most scores of one request.
pub const MAX_SCORES: usize = 1_000;
const MAX_ID: usize = 200;
const MAX_SOURCE: usize = 100;
/// The largest body in bytes: scores with the longest ids, and some text that is not stored.
const MAX_BYTES: usize = 2 * 1024 * 1024;

/// The stored scores.
#[derive(JsonSchema, Serialize)]
pub(super) struct StoredScores {
    /// The number of stored scores. A score replaces an earlier score of the same name and target.
    stored: usize,
    /// The number of these scores whose call is not known by its id of the proxy, for example because it is in
    /// progress. They are stored, and join the call when it is. Ids of responses, sessions and traces are not looked
    /// up.
    waiting_for_call: usize,
}

/// A score in a request. Langfuse's names are accepted; `comment` and other texts are read and dropped.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Posted {
    name: String,
    value: PostedValue,
    #[serde(alias = "dataType")]
    data_type: Option<String>,
    call: Option<String>,
    #[serde(alias = "session_id", alias = "sessionId")]
    session: Option<String>,
    #[serde(alias = "traceId")]
    trace_id: Option<String>,
    source: Option<String>,
    #[serde(default, rename = "comment")]
    _comment: IgnoredAny,
    #[serde(default, rename = "metadata")]
    _metadata: IgnoredAny,
    #[serde(default, rename = "environment")]
    _environment: IgnoredAny,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PostedValue {
    Boolean(bool),
    Number(f64),
    Other(IgnoredAny),
}

/// Why scores were refused: the label of a metric, and the answer.
type Refusal = (&'static str, Problem);

pub(super) async fn add(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<(StatusCode, Json<StoredScores>), Problem> {
    super::query_params::QueryParams::of(query.as_deref(), &[])?;
    if services.live.fleet().is_some() {
        let message =
            "a fleet stores no scores; send each score to the proxy that measured its call";
        return Err(Problem::new(StatusCode::NOT_FOUND, message));
    }
    let scores = match received(body, (services.wall)()).await {
        Ok(scores) => scores,
        Err((reason, problem)) => {
            let registry = services.prometheus.registry();
            let reason = labels::ByReason { reason };
            registry
                .series(&names::SCORES_REJECTED, &reason)
                .increment(1);
            return Err(problem);
        }
    };
    let calls = scores
        .iter()
        .filter(|score| score.target == ScoreTarget::Call);
    let calls: Vec<Uuid> = calls
        .filter_map(|score| Uuid::parse_str(&score.target_id).ok())
        .collect();
    let stored = scores.len();
    let all = Arc::clone(&services.scores);
    blocking(move || all.add_and_wait(scores).map_err(|error| not_stored(&error))).await?;
    let waiting = ask(&services, move |source: &CallSource| {
        source.unknown_calls(&calls)
    })
    .await;
    let answer = StoredScores {
        stored,
        // The scores are stored, so a store that does not answer is no reason to send them again.
        waiting_for_call: waiting.unwrap_or(0),
    };
    Ok((StatusCode::CREATED, Json(answer)))
}

fn not_stored(error: &ScoreError) -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        format!("the scores were not stored: {error}"),
    )
}

async fn received(body: Body, now: SystemTime) -> Result<Vec<Score>, Refusal> {
    let body = to_bytes(body, MAX_BYTES).await.map_err(|_| {
        let message = "the scores of one request may have at most 2 MiB";
        let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message);
        ("too_large", problem)
    })?;
    let posted = parsed(&body).map_err(|problem| ("invalid", problem))?;
    if posted.len() > MAX_SCORES {
        let message =
            format!("a request may have at most {MAX_SCORES} scores; send several requests");
        let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message);
        return Err(("too_many", problem));
    }
    let several = posted.len() > 1;
    let checked = posted.into_iter().enumerate().map(|(at, posted)| {
        checked(posted, now).map_err(|(parameter, rule)| {
            let place = if several {
                format!("score {}: ", at + 1)
            } else {
                String::new()
            };
            let message = format!("{place}{parameter} {rule}");
            ("invalid", Problem::about(parameter, message))
        })
    });
    checked.collect()
}

/// Reads one object, an array of objects, or one object per line. Stops after one score too many.
fn parsed(body: &[u8]) -> Result<Vec<Posted>, Problem> {
    let wrong = |error: serde_json::Error| {
        let message = format!(
            "the body must be a score such as {{\"name\": \"success\", \"value\": true, \"session\": \"s-1\"}}, an array of \
             scores, or a score per line: {error}"
        );
        Problem::new(StatusCode::BAD_REQUEST, message)
    };
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    let posted: Vec<Posted> = if first == Some(&b'[') {
        serde_json::from_slice(body).map_err(wrong)?
    } else {
        let lines = serde_json::Deserializer::from_slice(body).into_iter();
        let lines = lines.take(MAX_SCORES + 1);
        lines.collect::<Result<_, _>>().map_err(wrong)?
    };
    if posted.is_empty() {
        let message = "the body has no score";
        return Err(Problem::new(StatusCode::BAD_REQUEST, message));
    }
    Ok(posted)
}

/// A parameter and the rule that it breaks.
type Broken = (&'static str, &'static str);

fn checked(posted: Posted, now: SystemTime) -> Result<Score, Broken> {
    if !score::is_name(&posted.name) {
        let rule = "must have 1 to 64 of the characters a-z, 0-9, `_`, `.` and `-`";
        return Err(("name", rule));
    }
    let (value, data_type) = value(&posted)?;
    let (target, target_id) = target(posted.call, posted.session, posted.trace_id)?;
    let source = posted.source;
    if source
        .as_ref()
        .is_some_and(|source| !is_text(source, MAX_SOURCE))
    {
        return Err((
            "source",
            "must have 1 to 100 characters, without control characters",
        ));
    }
    Ok(Score {
        name: posted.name,
        value,
        data_type,
        target,
        target_id,
        source,
        time: now.into(),
    })
}

fn is_text(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

fn value(posted: &Posted) -> Result<(f64, ScoreType), Broken> {
    let wanted = match posted.data_type.as_deref().map(str::parse::<ScoreType>) {
        None => None,
        Some(Ok(wanted)) => Some(wanted),
        Some(Err(_)) => {
            let rule = "must be `numeric` or `boolean`; a category has no average, so send a boolean for each category";
            return Err(("data_type", rule));
        }
    };
    let (value, given) = match posted.value {
        PostedValue::Boolean(value) => (f64::from(u8::from(value)), ScoreType::Boolean),
        PostedValue::Number(value) => (value, ScoreType::Numeric),
        PostedValue::Other(_) => return Err(("value", "must be a number, true or false")),
    };
    if !value.is_finite() || value.abs() > score::MAX_VALUE {
        return Err(("value", "must be between -1e9 and 1e9"));
    }
    let data_type = wanted.unwrap_or(given);
    if data_type == ScoreType::Boolean && value != 0.0 && value != 1.0 {
        return Err(("value", "must be true, false, 1 or 0 for a boolean"));
    }
    Ok((value, data_type))
}

fn target(
    call: Option<String>,
    session: Option<String>,
    trace: Option<String>,
) -> Result<(ScoreTarget, String), Broken> {
    let given = [
        (ScoreTarget::Call, call),
        (ScoreTarget::Session, session),
        (ScoreTarget::Trace, trace),
    ];
    let mut given = given
        .into_iter()
        .filter_map(|(target, id)| Some((target, id?)));
    let (Some((target, id)), None) = (given.next(), given.next()) else {
        let rule = "must be given: exactly one of `call` (the id of the call or of its response), `session` and `trace_id`";
        return Err(("target", rule));
    };
    match target {
        ScoreTarget::Call if is_text(&id, MAX_ID) => {
            // The proxy writes its ids in lower case.
            let own = Uuid::parse_str(&id).map(|id| id.to_string());
            Ok((target, own.unwrap_or(id)))
        }
        ScoreTarget::Call => Err(("call", ID)),
        ScoreTarget::Session if is_text(&id, MAX_ID) => Ok((target, id)),
        ScoreTarget::Session => Err(("session", ID)),
        ScoreTarget::Trace => {
            let is_id = id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
            let rule = "must have 32 hexadecimal digits";
            is_id
                .then(|| (target, id.to_ascii_lowercase()))
                .ok_or(("trace_id", rule))
        }
    }
}

const ID: &str = "must have 1 to 200 characters, without control characters";

/// The schema of the body: for each target, a score that is a boolean by its type, and any other score.
pub(super) fn body() -> Value {
    let text = |most: usize, about: &str| {
        let pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$";
        json!({"type": "string", "minLength": 1, "maxLength": most, "pattern": pattern, "description": about})
    };
    let targets = [
        (
            "call",
            text(
                MAX_ID,
                "The scored call: its id, or the provider's id of the response.",
            ),
        ),
        ("session", text(MAX_ID, "The scored session.")),
        (
            "trace_id",
            json!({"type": "string", "pattern": "^[0-9a-fA-F]{32}$", "description": "The scored W3C trace."}),
        ),
    ];
    let number = json!({
        "type": ["number", "boolean"], "minimum": -score::MAX_VALUE, "maximum": score::MAX_VALUE,
        "description": "The value. A higher value is better.",
    });
    let boolean = json!({"enum": [true, false, 0, 1], "description": "The value: 1 is true."});
    let types = [
        (
            json!({"enum": ["numeric", "NUMERIC", null]}),
            number,
            vec![],
        ),
        (
            json!({"enum": ["boolean", "BOOLEAN"]}),
            boolean,
            vec!["data_type"],
        ),
    ];
    let one = |(target, id): &(&str, Value),
               (data_type, value, more): &(Value, Value, Vec<&str>)| {
        let mut required = vec!["name", "value", target];
        required.extend(more);
        let mut source = text(MAX_SOURCE, "The program that gives the score.");
        source["type"] = json!(["string", "null"]);
        let mut properties = json!({
            "name": {
                "type": "string", "pattern": "^[a-z0-9_.-]{1,64}$",
                "description": "The name of the score, such as `success`.",
            },
            "value": value, "data_type": data_type, "source": source,
        });
        for (other, _) in &targets {
            properties[*other] = json!({"type": "null"});
        }
        properties[*target] = id.clone();
        json!({
            "type": "object", "required": required, "additionalProperties": false,
            "properties": properties,
        })
    };
    let all = targets
        .iter()
        .flat_map(|target| types.iter().map(move |of_type| one(target, of_type)));
    let one = json!({"anyOf": all.collect::<Vec<_>>()});
    let several = json!({"type": "array", "minItems": 1, "maxItems": MAX_SCORES, "items": one});
    let schema = json!({"oneOf": [one, several]});
    json!({
        "required": true, "description": "A score, an array of scores, or a score per line.",
        "content": {"application/json": {"schema": schema}},
    })
}
