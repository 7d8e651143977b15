//! How calls are measured, from the configuration.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_accounting::attribution::{Rules, Workload};
use tokengauge_core::memory::DEFAULT_BYTES;
use tokengauge_core::upstream_facts::UpstreamFacts;

#[derive(Clone, Debug)]
pub struct Measure {
    /// The number of tokens after the first chunk that an `output_tps` needs.
    pub min_output_tokens: u64,
    /// A stream with more tokens per second than this must have been buffered upstream.
    pub buffered_above: f64,
    /// A gap between chunks with tokens that is longer than this is a stall.
    pub stall_threshold: Duration,
    /// The number of calls after an upstream comes up that are marked `warm_up`.
    pub warm_up_calls: u32,
    /// How long after an upstream comes up calls are marked `warm_up`.
    pub warm_up_for: Duration,
    /// The limit for a request or response body that is read whole to measure it, in bytes.
    pub body_bytes: usize,
    /// The limit for the memory of all measurement, in bytes.
    pub memory_bytes: usize,
    pub recent_calls: usize,
    pub max_models: usize,
    pub attribution: Arc<Rules>,
    /// Workloads group calls. There are at most 64.
    pub workloads: Arc<[Workload]>,
    /// What `<think>` in an answer means, by upstream. The default is [`ThinkTags::Auto`].
    pub think_tags: Arc<HashMap<Arc<str>, ThinkTags>>,
    pub upstream_facts: Arc<HashMap<Arc<str>, Arc<UpstreamFacts>>>,
    pub analysis: Analysis,
}

/// How prompts and answers are analyzed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Analysis {
    pub enabled: bool,
    /// Whether call records have the hashes of their prompt's blocks.
    pub prompt_blocks: bool,
    /// The key of the hashes of blocks. It is secret: with it, a guessed text can be confirmed.
    pub block_key: [u8; 32],
    /// The limit for the memory of the analysis, which is part of the memory of all measurement, in
    /// bytes.
    pub memory_bytes: usize,
}

impl std::fmt::Debug for Analysis {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Analysis")
            .field("enabled", &self.enabled)
            .field("prompt_blocks", &self.prompt_blocks)
            .field("memory_bytes", &self.memory_bytes)
            .finish_non_exhaustive()
    }
}

impl Default for Analysis {
    fn default() -> Self {
        Analysis {
            enabled: true,
            prompt_blocks: false,
            block_key: [0; 32],
            memory_bytes: 32 << 20,
        }
    }
}

impl Measure {
    /// The longest request or response body that is read on an unknown path, in bytes.
    pub(crate) fn sniffed_bytes(&self) -> usize {
        self.body_bytes.min(256 * 1024)
    }
}

/// What `<think>` in the text of an answer means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkTags {
    /// If an answer begins with `<think>`, the text up to `</think>` is reasoning.
    #[default]
    Auto,
    /// The prompt ends with `<think>`, so every answer begins with reasoning.
    Opened,
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
            analysis: Analysis::default(),
        }
    }
}
