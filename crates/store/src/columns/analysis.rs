//! The columns of a call's analysis. Tools are JSON rows, which are shorter than objects.

use super::named::Named;
use super::value::{Value, optional};
use serde_json::{Value as Json, json};
use tokengauge_core::call::CallRecord;
use tokengauge_core::dimension::TOOLS_BETWEEN;
use tokengauge_core::prompt::{PromptBreak, PromptPart, PromptParts, PromptTool, Repetition, Wait};

pub(super) fn of_break(record: &CallRecord, value: impl Fn(&PromptBreak) -> Value) -> Value {
    record.cache_break.as_deref().map_or(Value::Null, value)
}

/// The names of the tools that took the time before the call.
pub(super) fn wait_tools(record: &CallRecord) -> Value {
    let tools = record.wait.as_ref().map(|wait| wait.tools.as_slice());
    let tools = tools.filter(|tools| !tools.is_empty());
    optional(
        tools
            .map(|tools| tools.join(&TOOLS_BETWEEN.to_string()))
            .as_deref(),
    )
}

pub(super) fn blocks(record: &CallRecord) -> Value {
    let blocks = record.prompt_blocks.as_ref();
    optional(
        blocks
            .and_then(|blocks| serde_json::to_string(blocks).ok())
            .as_deref(),
    )
}

/// The tools of a prompt as JSON: a list of [`row_of_tool`].
pub(super) fn tools(record: &CallRecord) -> Value {
    let tools = record.prompt.as_ref().map(|prompt| &prompt.tools);
    let rows = tools.filter(|tools| !tools.is_empty());
    let rows = rows.map(|tools| tools.iter().map(row_of_tool).collect::<Vec<_>>());
    optional(
        rows.and_then(|rows| serde_json::to_string(&rows).ok())
            .as_deref(),
    )
}

/// The array of a tool: name, tokens of its definition, of new results and of results sent again, finished calls, failures,
/// MCP server. An unknown server, and zeros before it, are left out at the end of the array.
fn row_of_tool(tool: &PromptTool) -> Vec<Json> {
    let mut row = vec![
        json!(tool.name),
        json!(tool.schema),
        json!(tool.new_results),
        json!(tool.resent_results),
        json!(tool.calls),
        json!(tool.failures),
        json!(tool.server),
    ];
    while row
        .last()
        .is_some_and(|last| *last == json!(0) || last.is_null())
    {
        row.pop();
    }
    row
}

fn tool_of_row(row: &[Json]) -> PromptTool {
    let text = |at: usize| row.get(at).and_then(Json::as_str).map(str::to_owned);
    let count = |at: usize| row.get(at).and_then(Json::as_u64).unwrap_or(0);
    PromptTool {
        name: text(0).unwrap_or_default(),
        schema: count(1),
        new_results: count(2),
        resent_results: count(3),
        calls: count(4),
        failures: count(5),
        server: text(6),
    }
}

/// Parses the column `prompt_tools`.
pub(crate) fn tools_of(json: &str) -> Vec<PromptTool> {
    let rows: Vec<Vec<Json>> = serde_json::from_str(json).unwrap_or_default();
    rows.iter().map(|row| tool_of_row(row)).collect()
}

pub(super) fn prompt(row: Named<'_>) -> Option<Box<PromptParts>> {
    let mut parts = PromptParts::default();
    let mut known = false;
    for part in PromptPart::ALL {
        let tokens: Option<u64> = row.count(part.column());
        known |= tokens.is_some();
        *parts.part_mut(*part) = tokens.unwrap_or(0);
    }
    parts.media = row.count("prompt_media").unwrap_or(0);
    parts.media_bytes = row.count("prompt_media_bytes").unwrap_or(0);
    parts.tools = row
        .text("prompt_tools")
        .as_deref()
        .map(tools_of)
        .unwrap_or_default();
    known.then(|| Box::new(parts))
}

pub(super) fn wait(row: Named<'_>) -> Option<Box<Wait>> {
    let tools = row.text("wait_tools").unwrap_or_default();
    let tools = tools.split(TOOLS_BETWEEN).filter(|name| !name.is_empty());
    Some(Box::new(Wait {
        kind: row.word("wait_kind")?,
        seconds: row.number("wait_seconds")?,
        tools: tools.map(str::to_owned).collect(),
    }))
}

pub(super) fn cache_break(row: Named<'_>) -> Option<Box<PromptBreak>> {
    Some(Box::new(PromptBreak {
        cause: row.word("cache_break_cause")?,
        section: row.text("cache_break_section"),
        tokens: row.count("cache_break_tokens").unwrap_or(0),
        cost_usd: row.number("cache_break_cost_usd"),
        block: row.count("cache_break_block"),
        change: row.text("cache_break_change"),
    }))
}

pub(super) fn repetition(row: Named<'_>) -> Option<Box<Repetition>> {
    Some(Box::new(Repetition {
        start: row.count("repetition_start")?,
        period: row.count("repetition_period")?,
        tokens: row.count("repetition_tokens")?,
        share: row.number("repetition_share")?,
    }))
}
