use crate::cache::{CacheBreak, cache_breaks};
use crate::critical_path::{CriticalPath, critical_path};
use crate::session::Session;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_core::call::CallRecord;

/// Where the time of a session went, and which of its prompts missed the cache.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "SessionAnalysis")]
pub struct Analysis {
    /// The number of analyzed calls: at most the last 5,000 of the session.
    pub calls: usize,
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
            critical_path: critical_path(self),
            cache_breaks: cache_breaks(self, price),
        }
    }
}
