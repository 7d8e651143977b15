//! How calls are measured, as the configuration says.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_accounting::attribution::{Rules, Workload};
use tokengauge_core::memory::DEFAULT_BYTES;
use tokengauge_core::upstream_facts::UpstreamFacts;

#[derive(Clone, Debug)]
pub struct Measure {
    /// Tokens after the first chunk that an `output_tps` needs.
    pub min_output_tokens: u64,
    /// Tokens per second of one stream above which it must have been buffered upstream.
    pub buffered_above: f64,
    /// A longer gap between chunks with tokens is a stall.
    pub stall_threshold: Duration,
    /// Calls after an upstream comes up that are marked `warm_up`, and for how long.
    pub warm_up_calls: u32,
    /// How long after an upstream comes up calls are marked `warm_up`.
    pub warm_up_for: Duration,
    /// Bytes of one request or response body that is read whole to measure it.
    pub body_bytes: usize,
    /// The most bytes that all measuring together may hold.
    pub memory_bytes: usize,
    /// Finished calls kept for the API.
    pub recent_calls: usize,
    /// Distinct model names that become labels.
    pub max_models: usize,
    /// Where session, agent and user are written.
    pub attribution: Arc<Rules>,
    /// Which calls belong together; at most 64.
    pub workloads: Arc<[Workload]>,
    /// What `<think>` in an answer means, by upstream; [`ThinkTags::Auto`] for others.
    pub think_tags: Arc<HashMap<Arc<str>, ThinkTags>>,
    /// The configured facts about engines and hardware, by upstream.
    pub upstream_facts: Arc<HashMap<Arc<str>, Arc<UpstreamFacts>>>,
}

impl Measure {
    /// The longest body of a request or a response that is read on an unknown path.
    pub(crate) fn sniffed_bytes(&self) -> usize {
        self.body_bytes.min(256 * 1024)
    }
}

/// What `<think>` in the text of an answer means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkTags {
    /// An answer that begins with it begins with reasoning, up to `</think>`.
    #[default]
    Auto,
    /// Every answer begins within the reasoning, as the prompt ends with the tag.
    Opened,
    /// Nothing: it is part of the answer.
    Answer,
}

impl Default for Measure {
    fn default() -> Self {
        Measure {
            min_output_tokens: 32,
            buffered_above: 5_000.0,
            stall_threshold: Duration::from_secs(1),
            warm_up_calls: 5,
            warm_up_for: Duration::from_secs(30),
            body_bytes: 16 << 20,
            memory_bytes: DEFAULT_BYTES,
            recent_calls: 1_000,
            max_models: 200,
            attribution: Arc::default(),
            workloads: Arc::default(),
            think_tags: Arc::default(),
            upstream_facts: Arc::default(),
        }
    }
}
