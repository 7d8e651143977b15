//! The columns of a call as a row of a table: in exports, in Parquet files and in warehouses. They
//! are the columns of the view `calls_readable` without the pod. Values come from the call record,
//! with the ledger's rounding.

mod analysis;
mod named;
mod value;

pub(crate) use self::analysis::tools_of;
use self::named::Named;
pub use self::value::Value;
use self::value::{count, flag, list, number, optional, seconds, speed, text, whole_of};
use crate::ledger::LedgerCall;
use crate::ledger::row::{milliseconds, nanos, segments, started_ms, timestamp, whole, word};
use rusqlite::Row;
use std::sync::Arc;
use tokengauge_core::call::{
    Bytes, CallRecord, EngineReport, Normalised, Operation, Outcome, Seconds, SpeedSegment, Tokens,
    Tps, Usage,
};
use tokengauge_core::dimension::Dimension;
use tokengauge_core::pod::PodName;
use tokengauge_core::prompt::PromptPart;

/// The type of a column. Every value may be unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    Text,
    /// Milliseconds since 1970, UTC.
    Instant,
    Flag,
    /// A whole number ≥ 0.
    Count,
    /// Seconds, tokens per second, US dollars.
    Number,
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    pub kind: ColumnKind,
    source: Source,
    value: CallValue,
}

/// How the ledger's SQL gets the value of a column: `c` is the row of the call, and `s` is the row of its series.
#[derive(Clone, Copy, Debug)]
enum Source {
    Sql(&'static str),
    /// The name whose id is in this column.
    Name(&'static str),
    Of(Dimension),
    /// The column with this name in the row of the call's analysis, `a`.
    Analysis,
}

#[derive(Clone, Copy, Debug)]
enum CallValue {
    Is(fn(&LedgerCall<'_>) -> Value),
    Of(Dimension),
    Part(PromptPart),
}

impl Column {
    pub fn field(&self) -> (&'static str, ColumnKind) {
        (self.name, self.kind)
    }

    /// The value of a call.
    pub(crate) fn of(&self, call: &LedgerCall<'_>) -> Value {
        match self.value {
            CallValue::Is(value) => value(call),
            CallValue::Of(by) => optional(by.of(call.record).as_deref()),
            CallValue::Part(part) => {
                let prompt = call.record.prompt.as_ref();
                count(prompt.map(|prompt| prompt.get(part)))
            }
        }
    }
}

const fn column(
    name: &'static str,
    kind: ColumnKind,
    sql: &'static str,
    value: fn(&LedgerCall<'_>) -> Value,
) -> Column {
    let (source, value) = (Source::Sql(sql), CallValue::Is(value));
    Column {
        name,
        kind,
        source,
        value,
    }
}

/// A text column whose values are interned names.
const fn named(
    name: &'static str,
    id: &'static str,
    value: fn(&LedgerCall<'_>) -> Value,
) -> Column {
    let (kind, source, value) = (ColumnKind::Text, Source::Name(id), CallValue::Is(value));
    Column {
        name,
        kind,
        source,
        value,
    }
}

const fn dimension(by: Dimension) -> Column {
    let (name, kind) = (by.column(), ColumnKind::Text);
    let (source, value) = (Source::Of(by), CallValue::Of(by));
    Column {
        name,
        kind,
        source,
        value,
    }
}

/// A column that only calls with an analysis have. The ledger stores its values as they are here.
const fn analysis(
    name: &'static str,
    kind: ColumnKind,
    value: fn(&LedgerCall<'_>) -> Value,
) -> Column {
    let (source, value) = (Source::Analysis, CallValue::Is(value));
    Column {
        name,
        kind,
        source,
        value,
    }
}

const fn prompt_part(part: PromptPart) -> Column {
    Column {
        name: part.column(),
        kind: ColumnKind::Count,
        source: Source::Analysis,
        value: CallValue::Part(part),
    }
}

const UUID: &str = "lower(substr(hex(c.id), 1, 8) || '-' || substr(hex(c.id), 9, 4) || '-' || substr(hex(c.id), 13, 4) \
    || '-' || substr(hex(c.id), 17, 4) || '-' || substr(hex(c.id), 21))";
const STARTED_AT: &str = "strftime('%Y-%m-%dT%H:%M:%S', c.started_ms / 1000, 'unixepoch') \
    || printf('.%03dZ', c.started_ms % 1000)";

/// Columns of the view that exports lack: the pod that measured the call (in a fleet), and the key
/// of the row.
const OF_FILE: &[Column] = &[
    dimension(Dimension::Cluster),
    dimension(Dimension::Namespace),
    dimension(Dimension::Pod),
    column("key", ColumnKind::Count, "c.key", |_| Value::Null),
];

/// The view `calls_readable`, for people and other programs.
pub(crate) fn view() -> String {
    let (mut columns, mut joins) = (Vec::new(), String::new());
    for Column { name, source, .. } in COLUMNS.iter().chain(OF_FILE) {
        let id = match *source {
            Source::Sql(sql) => {
                columns.push(format!("{sql} AS {name}"));
                continue;
            }
            Source::Analysis => {
                columns.push(format!("a.{name} AS {name}"));
                continue;
            }
            Source::Name(id) => id.to_owned(),
            Source::Of(by) if by.is_in_series() => format!("s.{name}"),
            Source::Of(_) => format!("c.{name}"),
        };
        columns.push(format!("{name}.name AS {name}"));
        joins.push_str(&format!("\nLEFT JOIN names {name} ON {name}.id = {id}"));
    }
    let columns = columns.join(",\n  ");
    format!(
        "DROP VIEW IF EXISTS calls_readable;\nCREATE VIEW calls_readable AS SELECT\n  {columns}\nFROM calls c
LEFT JOIN series s ON s.id = c.series
LEFT JOIN analyses a ON a.key = c.key
LEFT JOIN sessions session ON session.id = c.session
LEFT JOIN names model_of_series ON model_of_series.id = s.model{joins};"
    )
}

/// All columns, in the order of the view.
pub const COLUMNS: &[Column] = &[
    column("id", ColumnKind::Text, UUID, |call| text(&call.record.id)),
    column("started_at", ColumnKind::Instant, STARTED_AT, |call| {
        Value::Whole(milliseconds(call.record.started_at.time()))
    }),
    dimension(Dimension::Route),
    dimension(Dimension::Upstream),
    dimension(Dimension::UpstreamFacts),
    named("endpoint", "c.endpoint", |call| {
        optional(call.record.endpoint.as_deref())
    }),
    named("dialect", "c.dialect", |call| {
        Value::text(word(&call.record.dialect))
    }),
    named("operation", "c.operation", |call| {
        Value::text(word(&call.record.operation))
    }),
    named("operation_class", "s.operation_class", |call| {
        text(call.record.operation_class.as_str())
    }),
    named("method", "c.method", |call| {
        optional(call.record.method.as_deref())
    }),
    named("path", "c.path", |call| {
        optional(call.record.path.as_deref())
    }),
    named("model_requested", "c.model_requested", |call| {
        optional(call.record.model_requested.as_deref())
    }),
    column(
        "model",
        ColumnKind::Text,
        "iif(c.answered, model_of_series.name, NULL)",
        |call| optional(call.record.model.as_deref()),
    ),
    column("streamed", ColumnKind::Flag, "c.streamed", |call| {
        flag(call.record.streamed)
    }),
    column("status", ColumnKind::Count, "c.status", |call| {
        whole_of(call.record.status)
    }),
    dimension(Dimension::Outcome),
    named("error_type", "c.error_type", |call| {
        optional(call.record.error_type.as_deref())
    }),
    named("finish_reasons", "c.finish_reasons", |call| {
        list(&call.record.finish_reasons)
    }),
    dimension(Dimension::Tool),
    column("session", ColumnKind::Text, "session.name", |call| {
        optional(call.record.session.as_deref())
    }),
    named("session_guess", "c.session_guess", |call| {
        optional(call.record.session_guess.map(|guess| guess.as_str()))
    }),
    dimension(Dimension::Agent),
    named("parent_agent", "c.parent_agent", |call| {
        optional(call.record.parent_agent.as_deref())
    }),
    dimension(Dimension::User),
    dimension(Dimension::Team),
    dimension(Dimension::CostCenter),
    dimension(Dimension::Tenant),
    dimension(Dimension::KeyHash),
    dimension(Dimension::Workload),
    dimension(Dimension::Experiment),
    dimension(Dimension::Variant),
    column(
        "trace_id",
        ColumnKind::Text,
        "nullif(lower(hex(c.trace_id)), '')",
        trace_id,
    ),
    column("hop", ColumnKind::Count, "c.hop", |call| {
        whole_of(call.record.hop)
    }),
    column("response_id", ColumnKind::Text, "c.response_id", |call| {
        optional(call.record.response_id.as_deref())
    }),
    named("service_tier", "c.service_tier", |call| {
        optional(call.record.service_tier.as_deref())
    }),
    named("served_by", "coalesce(s.served_by, c.served_by)", |call| {
        optional(call.record.served_by.as_deref())
    }),
    dimension(Dimension::ReasoningEffort),
    column("warm_up", ColumnKind::Flag, "c.warm_up", |call| {
        Value::Flag(call.record.warm_up)
    }),
    column(
        "normalised_answer_tokens",
        ColumnKind::Count,
        "c.normalised_answer",
        |call| count(call.record.tokens.normalised.answer),
    ),
    column(
        "normalised_reasoning_tokens",
        ColumnKind::Count,
        "c.normalised_reasoning",
        |call| count(call.record.tokens.normalised.reasoning),
    ),
    column(
        "normalised_tool_call_tokens",
        ColumnKind::Count,
        "c.normalised_tool_call",
        |call| count(call.record.tokens.normalised.tool_call),
    ),
    column(
        "normalised_output_tokens",
        ColumnKind::Count,
        "c.normalised_output",
        |call| count(call.record.tokens.normalised.output),
    ),
    column(
        "normalised_input_tokens",
        ColumnKind::Count,
        "c.normalised_input",
        |call| count(call.record.tokens.normalised.input),
    ),
    column(
        "reported_input_tokens",
        ColumnKind::Count,
        "c.reported_input",
        |call| count(call.record.tokens.reported.input),
    ),
    column(
        "reported_cached_input_tokens",
        ColumnKind::Count,
        "c.reported_cached_input",
        |call| count(call.record.tokens.reported.cached_input),
    ),
    column(
        "reported_cache_write_tokens",
        ColumnKind::Count,
        "c.reported_cache_write",
        |call| count(call.record.tokens.reported.cache_write),
    ),
    column(
        "reported_output_tokens",
        ColumnKind::Count,
        "c.reported_output",
        |call| count(call.record.tokens.reported.output),
    ),
    column(
        "reported_reasoning_tokens",
        ColumnKind::Count,
        "c.reported_reasoning",
        |call| count(call.record.tokens.reported.reasoning),
    ),
    named("token_source", "c.token_source", |call| {
        optional(call.record.tokens.source.as_ref().map(word).as_deref())
    }),
    column(
        "ttft_seconds",
        ColumnKind::Number,
        "c.ttft_us / 1e6",
        |call| seconds(call.record.seconds.ttft),
    ),
    column(
        "ttft_upstream_seconds",
        ColumnKind::Number,
        "c.ttft_upstream_us / 1e6",
        |call| seconds(call.record.seconds.ttft_upstream),
    ),
    column(
        "first_answer_seconds",
        ColumnKind::Number,
        "c.first_answer_us / 1e6",
        |call| seconds(call.record.seconds.first_answer),
    ),
    column(
        "connect_seconds",
        ColumnKind::Number,
        "c.connect_us / 1e6",
        |call| seconds(call.record.seconds.connect),
    ),
    column(
        "upload_seconds",
        ColumnKind::Number,
        "c.upload_us / 1e6",
        |call| seconds(call.record.seconds.upload),
    ),
    column(
        "last_token_seconds",
        ColumnKind::Number,
        "c.last_token_us / 1e6",
        |call| seconds(call.record.seconds.last_token),
    ),
    column(
        "longest_gap_seconds",
        ColumnKind::Number,
        "c.longest_gap_us / 1e6",
        |call| seconds(call.record.seconds.longest_gap),
    ),
    column(
        "duration_seconds",
        ColumnKind::Number,
        "c.duration_us / 1e6",
        |call| seconds(call.record.seconds.duration),
    ),
    column(
        "agent_blocked_seconds",
        ColumnKind::Number,
        "c.agent_blocked_us / 1e6",
        |call| seconds(call.record.seconds.agent_blocked),
    ),
    column(
        "server_tools_seconds",
        ColumnKind::Number,
        "c.server_tools_us / 1e6",
        |call| seconds(call.record.seconds.server_tools),
    ),
    column(
        "output_tokens_per_second",
        ColumnKind::Number,
        "c.tps_output_milli / 1e3",
        |call| speed(call.record.tps.output),
    ),
    column(
        "answer_tokens_per_second",
        ColumnKind::Number,
        "c.tps_answer_milli / 1e3",
        |call| speed(call.record.tps.answer),
    ),
    column(
        "total_tokens_per_second",
        ColumnKind::Number,
        "c.tps_total_milli / 1e3",
        |call| speed(call.record.tps.total),
    ),
    column(
        "reported_tokens_per_second",
        ColumnKind::Number,
        "c.tps_reported_milli / 1e3",
        |call| speed(call.record.tps.reported),
    ),
    column(
        "prefill_tokens_per_second",
        ColumnKind::Number,
        "c.tps_prefill_milli / 1e3",
        |call| speed(call.record.tps.prefill),
    ),
    named("tps_unavailable", "c.tps_unavailable", |call| {
        optional(call.record.tps.unavailable.map(|why| why.as_str()))
    }),
    named("tps_total_unavailable", "c.tps_total_unavailable", |call| {
        optional(call.record.tps.total_unavailable.map(|why| why.as_str()))
    }),
    column("frames", ColumnKind::Count, "c.frames", |call| {
        Value::Whole(whole(call.record.frames))
    }),
    column("stalls", ColumnKind::Count, "c.stalls", |call| {
        Value::Whole(whole(call.record.stalls))
    }),
    column("segments", ColumnKind::Text, "c.segments", |call| {
        optional(segments(call.record).as_deref())
    }),
    column(
        "first_token_event",
        ColumnKind::Count,
        "c.first_token_event",
        |call| count(call.record.first_token_event),
    ),
    column(
        "skipped_events",
        ColumnKind::Count,
        "c.skipped_events",
        |call| Value::Whole(whole(call.record.skipped_events)),
    ),
    column(
        "request_bytes",
        ColumnKind::Count,
        "c.request_bytes",
        |call| Value::Whole(whole(call.record.bytes.request)),
    ),
    column(
        "response_bytes",
        ColumnKind::Count,
        "c.response_bytes",
        |call| Value::Whole(whole(call.record.bytes.response)),
    ),
    column(
        "cost_usd",
        ColumnKind::Number,
        "c.cost_nano_usd / 1e9",
        |call| number(call.record.cost_usd.and_then(nanos), 1e9),
    ),
    named("cost_source", "c.cost_source", |call| {
        optional(call.record.cost_source.map(|source| source.as_str()))
    }),
    named("cost_unavailable", "c.cost_unavailable", |call| {
        optional(call.record.cost_unavailable.map(|why| why.as_str()))
    }),
    column("concurrency", ColumnKind::Count, "c.concurrency", |call| {
        whole_of(call.concurrency)
    }),
    column(
        "engine_prompt_tokens",
        ColumnKind::Count,
        "c.engine_prompt_tokens",
        |call| count(engine(call).prompt_tokens),
    ),
    column(
        "engine_prompt_seconds",
        ColumnKind::Number,
        "c.engine_prompt_us / 1e6",
        |call| seconds(engine(call).prompt_seconds),
    ),
    column(
        "engine_output_tokens",
        ColumnKind::Count,
        "c.engine_output_tokens",
        |call| count(engine(call).output_tokens),
    ),
    column(
        "engine_output_seconds",
        ColumnKind::Number,
        "c.engine_output_us / 1e6",
        |call| seconds(engine(call).output_seconds),
    ),
    column(
        "engine_load_seconds",
        ColumnKind::Number,
        "c.engine_load_us / 1e6",
        |call| seconds(engine(call).load_seconds),
    ),
    column(
        "engine_total_seconds",
        ColumnKind::Number,
        "c.engine_total_us / 1e6",
        |call| seconds(engine(call).total_seconds),
    ),
    prompt_part(PromptPart::System),
    prompt_part(PromptPart::ToolSchemas),
    prompt_part(PromptPart::User),
    prompt_part(PromptPart::Assistant),
    prompt_part(PromptPart::Reasoning),
    prompt_part(PromptPart::ToolCalls),
    prompt_part(PromptPart::ToolResults),
    prompt_part(PromptPart::Other),
    analysis("prompt_media", ColumnKind::Count, |call| {
        count(call.record.prompt.as_ref().map(|prompt| prompt.media))
    }),
    analysis("prompt_media_bytes", ColumnKind::Count, |call| {
        count(call.record.prompt.as_ref().map(|prompt| prompt.media_bytes))
    }),
    analysis("prompt_tools", ColumnKind::Text, |call| {
        analysis::tools(call.record)
    }),
    analysis("wait_kind", ColumnKind::Text, |call| {
        optional(call.record.wait.as_ref().map(|wait| wait.kind.as_str()))
    }),
    analysis("wait_seconds", ColumnKind::Number, |call| {
        seconds(call.record.wait.as_ref().map(|wait| wait.seconds))
    }),
    analysis("wait_tools", ColumnKind::Text, |call| {
        analysis::wait_tools(call.record)
    }),
    analysis("cache_break_cause", ColumnKind::Text, |call| {
        analysis::of_break(call.record, |found| text(found.cause.as_str()))
    }),
    analysis("cache_break_section", ColumnKind::Text, |call| {
        analysis::of_break(call.record, |found| optional(found.section.as_deref()))
    }),
    analysis("cache_break_tokens", ColumnKind::Count, |call| {
        analysis::of_break(call.record, |found| count(Some(found.tokens)))
    }),
    analysis("cache_break_cost_usd", ColumnKind::Number, |call| {
        analysis::of_break(call.record, |found| {
            number(found.cost_usd.and_then(nanos), 1e9)
        })
    }),
    analysis("cache_break_block", ColumnKind::Count, |call| {
        analysis::of_break(call.record, |found| count(found.block))
    }),
    analysis("cache_break_change", ColumnKind::Text, |call| {
        analysis::of_break(call.record, |found| optional(found.change.as_deref()))
    }),
    analysis("retry_of", ColumnKind::Text, |call| {
        optional(call.record.retry_of.as_deref())
    }),
    analysis("repetition_start", ColumnKind::Count, |call| {
        count(call.record.repetition.as_ref().map(|found| found.start))
    }),
    analysis("repetition_period", ColumnKind::Count, |call| {
        count(call.record.repetition.as_ref().map(|found| found.period))
    }),
    analysis("repetition_tokens", ColumnKind::Count, |call| {
        count(call.record.repetition.as_ref().map(|found| found.tokens))
    }),
    analysis("repetition_share", ColumnKind::Number, |call| {
        seconds(call.record.repetition.as_ref().map(|found| found.share))
    }),
    analysis("prompt_blocks", ColumnKind::Text, |call| {
        analysis::blocks(call.record)
    }),
];

/// The columns of the ledger's table `analyses`.
pub(crate) fn analysis_columns() -> impl Iterator<Item = &'static Column> {
    let columns = COLUMNS.iter();
    columns.filter(|column| matches!(column.source, Source::Analysis))
}

/// The values of a call, in the order of [`COLUMNS`].
pub fn values(call: &LedgerCall<'_>) -> Vec<Value> {
    COLUMNS.iter().map(|column| column.of(call)).collect()
}

pub(crate) fn values_of_row(row: &Row<'_>) -> rusqlite::Result<Vec<Value>> {
    let columns = COLUMNS.iter().enumerate();
    columns
        .map(|(at, column)| value_of_row(row, at, column.kind))
        .collect()
}

fn value_of_row(row: &Row<'_>, at: usize, kind: ColumnKind) -> rusqlite::Result<Value> {
    let value = match kind {
        ColumnKind::Text => row.get::<_, Option<Box<str>>>(at)?.map(Value::Text),
        ColumnKind::Instant => Some(Value::Whole(started_ms(row.get("key")?))),
        ColumnKind::Count => row.get::<_, Option<i64>>(at)?.map(Value::Whole),
        ColumnKind::Flag => row.get::<_, Option<bool>>(at)?.map(Value::Flag),
        ColumnKind::Number => row.get::<_, Option<f64>>(at)?.map(Value::Number),
    };
    Ok(value.unwrap_or(Value::Null))
}

fn trace_id(call: &LedgerCall<'_>) -> Value {
    call.trace_id
        .map_or(Value::Null, |id| Value::text(format!("{id:032x}")))
}

fn engine(call: &LedgerCall<'_>) -> EngineReport {
    call.record.engine.unwrap_or_default()
}

fn by_name(values: &[Value]) -> Named<'_> {
    let place = |name: &str| COLUMNS.iter().position(|column| column.name == name);
    Named { values, place }
}

/// The call record of a row. Unknown values of fields that a record always has are replaced by
/// their defaults.
pub fn record(values: &[Value]) -> CallRecord {
    let row = by_name(values);
    let operation: Operation = row.word("operation").unwrap_or_default();
    CallRecord {
        id: row.text("id").unwrap_or_default(),
        started_at: row.count("started_at").map(timestamp).unwrap_or_default(),
        route: row.text("route").unwrap_or_default(),
        upstream: row.text("upstream").unwrap_or_default(),
        upstream_facts: row
            .text("upstream_facts")
            .and_then(|facts| Some(Arc::new(facts.parse().ok()?))),
        endpoint: row.text("endpoint"),
        dialect: row.word("dialect").unwrap_or_default(),
        operation,
        operation_class: row.word("operation_class").unwrap_or(operation.class()),
        method: row.text("method"),
        path: row.text("path"),
        model_requested: row.text("model_requested"),
        model: row.text("model"),
        streamed: row.flag("streamed"),
        status: row.count("status"),
        outcome: row.word("outcome").unwrap_or(Outcome::Complete),
        error_type: row.text("error_type"),
        finish_reasons: row.json("finish_reasons"),
        tools: row.text("tools"),
        session: row.text("session"),
        session_guess: row.word("session_guess"),
        agent: row.text("agent"),
        parent_agent: row.text("parent_agent"),
        user: row.text("user"),
        team: row.text("team"),
        cost_center: row.text("cost_center"),
        tenant: row.text("tenant"),
        key_hash: row.text("key_hash"),
        workload: row.text("workload"),
        experiment: row.text("experiment"),
        variant: row.text("variant"),
        trace_id: row.text("trace_id"),
        hop: row.count("hop"),
        response_id: row.text("response_id"),
        service_tier: row.text("service_tier"),
        served_by: row.text("served_by"),
        reasoning_effort: row.text("reasoning_effort"),
        warm_up: row.flag("warm_up").unwrap_or(false),
        tokens: tokens(row),
        seconds: durations(row),
        tps: speeds(row),
        frames: row.count("frames").unwrap_or(0),
        stalls: row.count("stalls").unwrap_or(0),
        segments: speed_segments(row),
        first_token_event: row.count("first_token_event"),
        skipped_events: row.count("skipped_events").unwrap_or(0),
        bytes: Bytes {
            request: row.count("request_bytes").unwrap_or(0),
            response: row.count("response_bytes").unwrap_or(0),
        },
        cost_usd: row.number("cost_usd"),
        cost_source: row.word("cost_source"),
        cost_unavailable: row.word("cost_unavailable"),
        engine: engine_report(row),
        prompt: analysis::prompt(row),
        wait: analysis::wait(row),
        cache_break: analysis::cache_break(row),
        retry_of: row.text("retry_of"),
        repetition: analysis::repetition(row),
        prompt_blocks: row.optional_json("prompt_blocks"),
        pod: None,
        scores: Vec::new(),
    }
}

/// A call as a row of a table, and the pod that measured it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRow {
    /// The pod, if the table is of several.
    pub pod: Option<PodName>,
    /// A value for each of [`COLUMNS`].
    pub values: Vec<Value>,
}

impl CallRow {
    /// A row of `calls_readable`.
    pub(crate) fn of_ledger(row: &Row<'_>) -> rusqlite::Result<CallRow> {
        let pod = PodName {
            cluster: row.get("cluster")?,
            namespace: row.get("namespace")?,
            name: row.get("pod")?,
        };
        Ok(CallRow {
            pod: pod.known(),
            values: values_of_row(row)?,
        })
    }

    /// The call's id.
    pub fn id(&self) -> &str {
        match self.values.first() {
            Some(Value::Text(id)) => id,
            _ => "",
        }
    }

    /// When the call began, in milliseconds since 1970.
    pub fn started_ms(&self) -> i64 {
        match self.values.get(1) {
            Some(Value::Whole(ms)) => *ms,
            _ => 0,
        }
    }

    /// The call record of the row.
    pub fn record(&self) -> CallRecord {
        CallRecord {
            pod: self.pod.clone().map(Arc::new),
            ..record(&self.values)
        }
    }
}

pub fn concurrency(values: &[Value]) -> Option<u32> {
    by_name(values).count("concurrency")
}

fn tokens(row: Named<'_>) -> Tokens {
    Tokens {
        normalised: Normalised {
            answer: row.count("normalised_answer_tokens"),
            reasoning: row.count("normalised_reasoning_tokens"),
            tool_call: row.count("normalised_tool_call_tokens"),
            output: row.count("normalised_output_tokens"),
            input: row.count("normalised_input_tokens"),
        },
        reported: Usage {
            input: row.count("reported_input_tokens"),
            cached_input: row.count("reported_cached_input_tokens"),
            cache_write: row.count("reported_cache_write_tokens"),
            output: row.count("reported_output_tokens"),
            reasoning: row.count("reported_reasoning_tokens"),
            ..Usage::default()
        },
        source: row.word("token_source"),
    }
}

fn durations(row: Named<'_>) -> Seconds {
    Seconds {
        ttft: row.number("ttft_seconds"),
        ttft_upstream: row.number("ttft_upstream_seconds"),
        first_answer: row.number("first_answer_seconds"),
        connect: row.number("connect_seconds"),
        upload: row.number("upload_seconds"),
        last_token: row.number("last_token_seconds"),
        longest_gap: row.number("longest_gap_seconds"),
        duration: row.number("duration_seconds"),
        agent_blocked: row.number("agent_blocked_seconds"),
        server_tools: row.number("server_tools_seconds"),
    }
}

fn speeds(row: Named<'_>) -> Tps {
    Tps {
        output: row.number("output_tokens_per_second"),
        answer: row.number("answer_tokens_per_second"),
        total: row.number("total_tokens_per_second"),
        reported: row.number("reported_tokens_per_second"),
        prefill: row.number("prefill_tokens_per_second"),
        unavailable: row.word("tps_unavailable"),
        total_unavailable: row.word("tps_total_unavailable"),
    }
}

/// Parses pairs of tokens and seconds from JSON.
fn speed_segments(row: Named<'_>) -> Vec<SpeedSegment> {
    let pairs: Vec<(u64, f64)> = row.json("segments");
    let pairs = pairs.into_iter();
    pairs
        .map(|(tokens, seconds)| SpeedSegment { tokens, seconds })
        .collect()
}

fn engine_report(row: Named<'_>) -> Option<EngineReport> {
    let engine = EngineReport {
        prompt_tokens: row.count("engine_prompt_tokens"),
        prompt_seconds: row.number("engine_prompt_seconds"),
        output_tokens: row.count("engine_output_tokens"),
        output_seconds: row.number("engine_output_seconds"),
        load_seconds: row.number("engine_load_seconds"),
        total_seconds: row.number("engine_total_seconds"),
    };
    (engine != EngineReport::default()).then_some(engine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::LedgerDatabase;
    use std::path::Path;

    #[test]
    fn the_columns_are_those_of_the_view() {
        let folder = tempfile::tempdir().expect("a folder");
        let ledger = LedgerDatabase::open(&folder.path().join("ledger.sqlite")).expect("opens");
        let statement = ledger.connection().prepare("SELECT * FROM calls_readable");
        let statement = statement.expect("a view");
        let mut names: Vec<_> = statement.column_names().collect();
        assert_eq!(
            names.split_off(COLUMNS.len()),
            ["cluster", "namespace", "pod", "key"]
        );
        let ours: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
        assert_eq!(names, ours);
    }

    #[test]
    fn an_analysis_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ledger = LedgerDatabase::open(&folder.path().join("ledger.sqlite")).expect("opens");
        let analyzed: CallRecord = serde_json::from_value(serde_json::json!({
            "id": "01980a1e-0000-7000-8000-000000000001", "started_at": "2026-01-31T09:30:00.000Z",
            "route": "r", "upstream": "u", "dialect": "openai_chat", "operation": "chat",
            "outcome": "complete", "finish_reasons": [], "warm_up": false,
            "tokens": {"normalised": {}, "reported": {}, "source": null},
            "seconds": {}, "tps": {}, "frames": 1, "stalls": 0, "bytes": {"request": 1, "response": 1},
            "prompt": {
                "system": 1, "tool_schemas": 2, "user": 3, "assistant": 4, "reasoning": 5,
                "tool_calls": 6, "tool_results": 7, "other": 8, "media": 9, "media_bytes": 10,
                "tools": [
                    {"name": "a \"b\"", "schema": 1, "new_results": 2, "resent_results": 3, "calls": 4, "failures": 5},
                    {"name": "c", "server": "docs", "schema": 0},
                    {"name": "d", "schema": 7},
                ],
            },
            "wait": {"kind": "tools", "seconds": 0.25, "tools": ["c", "d"]},
            "cache_break": {"cause": "changed", "section": "system", "tokens": 9, "cost_usd": 0.001,
                "block": 3, "change": "00c0ffee00c0ffee"},
            "retry_of": "01980a1e-0000-7000-8000-000000000000",
            "repetition": {"start": 5, "period": 2, "tokens": 600, "share": 0.75},
            "prompt_blocks": [0, 9_007_199_254_740_991_u64],
        }))
        .expect("a record");
        let mut plain = analyzed.clone();
        plain.id = "01980a1e-0000-7000-8000-000000000002".to_owned();
        (plain.prompt, plain.wait, plain.cache_break) = (None, None, None);
        (plain.retry_of, plain.repetition, plain.prompt_blocks) = (None, None, None);
        for call in [&analyzed, &plain] {
            let stored = LedgerCall::of_record(call, None).expect("valid");
            assert_eq!(record(&values(&stored)).prompt, call.prompt);
            ledger.write(&[stored]).expect("written");
            let sql = "SELECT * FROM calls_readable WHERE id = ?";
            let connection = ledger.connection();
            let read =
                connection.query_row(sql, [&call.id], |row| Ok(record(&values_of_row(row)?)));
            let read = read.expect("a row");
            assert_eq!(read.prompt, call.prompt);
            assert_eq!(read.wait, call.wait);
            assert_eq!(read.cache_break, call.cache_break);
            assert_eq!(read.retry_of, call.retry_of);
            assert_eq!(read.repetition, call.repetition);
            assert_eq!(read.prompt_blocks, call.prompt_blocks);
        }
    }

    #[test]
    fn a_call_has_the_values_that_the_ledger_gives_back() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = folder.join("../../tests/fixtures/ledger/version-4.jsonl");
        let lines = std::fs::read_to_string(file).expect("records");
        let folder = tempfile::tempdir().expect("a folder");
        let mut ledger = LedgerDatabase::open(&folder.path().join("ledger.sqlite")).expect("opens");
        for line in lines.lines() {
            let record = CallRecord::of_line(line).expect("a record");
            let call = LedgerCall::of_record(&record, Some(3)).expect("valid");
            ledger.write(&[call]).expect("written");
            let sql = "SELECT * FROM calls_readable WHERE id = ?";
            let read = ledger
                .connection()
                .query_row(sql, [&record.id], values_of_row)
                .expect("a row");
            for ((column, read), ours) in COLUMNS.iter().zip(read).zip(values(&call)) {
                assert_eq!(read, ours, "{} of {}", column.name, record.id);
            }
        }
    }
}
