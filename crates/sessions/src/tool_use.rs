//! Time, tokens and failures of the tools of a session.

use crate::session::Session;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Time, tokens and failures of one tool in a session.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ToolUse {
    /// Name of the tool.
    pub name: String,
    /// Number of results.
    pub calls: u64,
    /// Number of results that are marked as an error.
    pub failures: u64,
    /// Time between calls in which the agent ran the tool. Tools that ran at the same time share
    /// it evenly.
    pub seconds: f64,
    /// Tokens of the tool's definition, in all prompts together.
    pub schema_tokens: u64,
    /// Tokens of results, each counted in the first prompt that had it.
    pub new_result_tokens: u64,
    /// Tokens of results in all later prompts.
    pub resent_result_tokens: u64,
}

/// The tools of the session, those that took most tokens first.
pub(crate) fn tool_use(session: &Session<'_>) -> Vec<ToolUse> {
    let mut tools: BTreeMap<&str, ToolUse> = BTreeMap::new();
    for call in session.calls() {
        let prompt = call.record.prompt.as_deref();
        for of in prompt.iter().flat_map(|prompt| &prompt.tools) {
            let tool = tools.entry(&of.name).or_default();
            tool.calls += of.calls;
            tool.failures += of.failures;
            tool.schema_tokens += of.schema;
            tool.new_result_tokens += of.new_results;
            tool.resent_result_tokens += of.resent_results;
        }
        if let Some(wait) = call.record.wait.as_deref() {
            let share = wait.seconds.max(0.0) / wait.tools.len().max(1) as f64;
            for name in &wait.tools {
                tools.entry(name).or_default().seconds += share;
            }
        }
    }
    let mut all: Vec<ToolUse> = tools
        .into_iter()
        .map(|(name, tool)| ToolUse {
            name: name.to_owned(),
            ..tool
        })
        .collect();
    all.sort_by_key(|tool| std::cmp::Reverse(tool.tokens()));
    all
}

impl ToolUse {
    /// Tokens of definitions and results in all prompts.
    pub fn tokens(&self) -> u64 {
        self.schema_tokens + self.new_result_tokens + self.resent_result_tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::{TestCall, session_of};
    use tokengauge_core::call::CallRecord;
    use tokengauge_core::prompt::{PromptParts, PromptTool, Wait, WaitKind};

    #[test]
    fn tools_that_run_together_share_their_time() {
        let tool = |name: &str, calls, resent_results| PromptTool {
            name: name.to_owned(),
            schema: 100,
            new_results: calls * 50,
            resent_results,
            calls,
            failures: calls / 2,
            ..PromptTool::default()
        };
        let call = |id, start, tools: Vec<PromptTool>, waited: &[&str]| CallRecord {
            prompt: Some(Box::new(PromptParts {
                tools,
                ..PromptParts::default()
            })),
            wait: Some(Box::new(Wait {
                kind: WaitKind::Tools,
                seconds: 3.0,
                tools: waited.iter().map(|name| (*name).to_owned()).collect(),
            })),
            ..TestCall::new(id, "main", start, start + 1.0).record()
        };
        let records = [
            call(
                "a",
                5.0,
                vec![tool("search", 2, 0), tool("read", 1, 0)],
                &["search", "read"],
            ),
            call(
                "b",
                9.0,
                vec![tool("search", 1, 100), tool("read", 0, 50)],
                &["search"],
            ),
        ];
        let tools = tool_use(&session_of(&records));
        let found: Vec<_> = tools
            .iter()
            .map(|tool| {
                (
                    &*tool.name,
                    tool.calls,
                    tool.failures,
                    tool.seconds,
                    tool.tokens(),
                )
            })
            .collect();
        assert_eq!(
            found,
            [("search", 3, 1, 4.5, 450), ("read", 1, 0, 1.5, 300)]
        );
    }
}
