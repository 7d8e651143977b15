use crate::cache::{CacheBreak, cache_breaks};
use crate::call_sums::CallSums;
use crate::critical_path::{CriticalPath, critical_path};
use crate::session::Session;
use crate::time_use::{AgentUse, TimeUse, by_agent, time_use};
use crate::tool_use::{ToolUse, tool_use};
use crate::waste::{Waste, waste};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_core::call::CallRecord;

/// Where the time of a session went, what its tools and failures took, and which of its prompts
/// missed the cache.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "SessionAnalysis")]
pub struct Analysis {
    /// The number of analyzed calls: at most the last 5,000 of the session.
    pub calls: usize,
    /// Sums over these calls.
    #[serde(default)]
    pub sums: CallSums,
    /// What the session's time was spent on.
    #[serde(default)]
    pub time: TimeUse,
    /// The agents of the session and what their time was spent on, the longest first.
    #[serde(default)]
    pub agents: Vec<AgentUse>,
    /// The tools of the session, those that took most tokens first.
    #[serde(default)]
    pub tools: Vec<ToolUse>,
    /// What failures, retries and repetition took.
    #[serde(default)]
    pub waste: Waste,
    /// The parts of the session's length.
    pub critical_path: CriticalPath,
    /// The turns whose prompt should have come from a cache and did not, in order of time.
    pub cache_breaks: Vec<CacheBreak>,
}

impl Session<'_> {
    /// Analyzes the session. `price` returns the cost of a call in US dollars if this number of its
    /// input tokens had come from a cache; `None` if the price is unknown.
    pub fn analysis(&self, price: impl Fn(&CallRecord, u64) -> Option<f64>) -> Analysis {
        Analysis {
            calls: self.calls().len(),
            sums: CallSums::of(self.calls().iter()),
            time: time_use(self),
            agents: by_agent(self),
            tools: tool_use(self),
            waste: waste(self),
            critical_path: critical_path(self),
            cache_breaks: cache_breaks(self, price),
        }
    }
}
