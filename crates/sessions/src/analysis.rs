//! Where the time and the cached input of a session went.

use crate::cache::{CacheBreak, cache_breaks};
use crate::critical_path::{CriticalPath, critical_path};
use crate::session::Session;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_core::call::CallRecord;

/// Where the time of a session went, and what of its prompts should have come from a cache.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "SessionAnalysis")]
pub struct Analysis {
    /// The number of calls that were analyzed: at most the last 5,000 of the session.
    pub calls: usize,
    /// The parts of its length.
    pub critical_path: CriticalPath,
    /// The turns whose prompt should have come from a cache and did not, by time.
    pub cache_breaks: Vec<CacheBreak>,
}

impl Session<'_> {
    /// The analysis of the session. `price` gives what a call would have cost, in US dollars, if that number of its input
    /// tokens had come from a cache; `None` if the price is unknown.
    pub fn analysis(&self, price: impl Fn(&CallRecord, u64) -> Option<f64>) -> Analysis {
        Analysis {
            calls: self.calls().len(),
            critical_path: critical_path(self),
            cache_breaks: cache_breaks(self, price),
        }
    }
}
