//! The table `[analysis]`.

use super::super::scalar::Size;
use super::super::spanned::Spanned;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use tokengauge_meter::settings;

/// Less cannot hold the texts of one long conversation.
const MIN_MEMORY: usize = 1 << 20;

/// What prompts, tools and answers consist of, and why prompt caches broke. The analysis runs in the background after a
/// call, and keeps no text.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Analysis {
    /// Whether prompts and answers are analyzed. A prompt of 100,000 tokens with 1,000 new ones takes about 1 ms of CPU
    /// time.
    #[schemars(extend("default" = settings::Analysis::default().enabled))]
    pub(crate) enabled: Option<bool>,
    /// Whether the ledger, exports and sinks have the keyed hashes of each prompt's blocks of 64 tokens. A prompt of
    /// 100,000 tokens adds about 30 KB to its call.
    #[serde(default)]
    pub(crate) prompt_blocks: bool,
    /// The key of block hashes: at least 16 printable ASCII characters. Equal keys give equal hashes. The default is a
    /// random key, which is kept in `state_dir`.
    pub(crate) block_key: Option<Spanned<String>>,
    /// The path of a file with the key of block hashes. The environment variable `TOKENGAUGE_BLOCK_KEY` overrides
    /// `block_key` and `block_key_file`.
    pub(crate) block_key_file: Option<Spanned<PathBuf>>,
    /// How much of `memory_bytes` in `[measure]` the analysis may use for counted texts and recent turns.
    #[schemars(extend(
        "default" = Size(settings::Analysis::default().memory_bytes),
        "minimum" = MIN_MEMORY,
        "x-reason" = ", or every turn would count its whole prompt again",
    ))]
    pub(crate) memory_bytes: Option<Spanned<Size>>,
}
