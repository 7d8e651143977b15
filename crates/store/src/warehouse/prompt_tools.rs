//! Sums of each tool over the prompts of calls in a warehouse.

use super::Warehouse;
use super::sql::{Span, conditions, text, value_of};
use crate::ledger::QueryError;
use crate::query::{Dimension, Filter, MAX_TOOLS, PromptPlace, PromptToolSums, PromptToolUse};
use std::sync::Arc;
use tokengauge_core::dimension::TOOLS_BETWEEN;
use tokengauge_core::prompt::WaitKind;

/// The columns of a tool in the rows of `prompt_tools`, from the second value on.
const SUMS: [&str; 5] = ["schema", "new_results", "resent", "finished", "failures"];

impl Warehouse {
    /// Sums of each tool over the prompts of the matching calls: tokens of definitions and results, calls, failures and waiting
    /// time.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn prompt_tools(&self, filter: &Filter) -> Result<Vec<PromptToolUse>, QueryError> {
        let waited = format!("splitByChar('{TOOLS_BETWEEN}', ifNull(toString(wait_tools), ''))");
        let fields = [
            format!("{} AS at_upstream", value_of(Dimension::Upstream)),
            format!("{} AS of_model", value_of(Dimension::Model)),
            "endpoint AS at_endpoint".to_owned(),
            "arrayJoin(JSONExtractArrayRaw(ifNull(toString(prompt_tools), '[]'))) AS tool"
                .to_owned(),
            format!(
                "ifNull(toString(wait_kind) = {}, 0) AS waits",
                text(WaitKind::Tools.as_str())
            ),
            format!("{waited} AS waited"),
            "toInt64(round(ifNull(wait_seconds, 0) * 1e6)) AS waited_us".to_owned(),
        ];
        let tools = self.select(
            &fields.join(", "),
            Span::of(filter),
            &conditions(filter),
            "",
        )?;
        let name = "JSONExtractString(tool, 1)";
        let sums = SUMS
            .iter()
            .zip(2..)
            .map(|(sum, at)| format!("sum(JSONExtractUInt(tool, {at})) AS {sum}"));
        let sums: Vec<String> = sums.collect();
        let rows = self.rows(&format!(
            "SELECT at_upstream, of_model, at_endpoint, {name} AS name, JSONExtractString(tool, 7) AS server, \
             countIf(JSONExtractUInt(tool, 2) > 0) AS prompts, {}, \
             sumIf(intDiv(waited_us, greatest(length(waited), 1)), waits AND has(waited, {name})) AS wait \
             FROM ({tools}) GROUP BY at_upstream, of_model, at_endpoint, name, server \
             ORDER BY schema + new_results + resent DESC, name, server LIMIT {MAX_TOOLS}",
            sums.join(", ")
        ))?;
        let uses = rows.iter().map(|row| PromptToolUse {
            place: Arc::new(PromptPlace {
                upstream: row.text(0).unwrap_or_default(),
                model: row.text(1),
                endpoint: row.text(2),
            }),
            tool: row.text(3).unwrap_or_default(),
            server: row.text(4).filter(|server| !server.is_empty()),
            sums: PromptToolSums {
                prompts: row.count(5),
                schema_tokens: row.count(6),
                new_result_tokens: row.count(7),
                resent_result_tokens: row.count(8),
                calls: row.count(9),
                failures: row.count(10),
                wait_us: row.count(11),
            },
        });
        Ok(uses.collect())
    }
}
