//! What a prompt consists of, why its cache broke, and other results of the analysis of a call. No
//! text of a prompt is here: only counts, names of tools and keyed hashes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of tools in [`PromptParts::tools`].
pub const MAX_TOOLS: usize = 64;

/// The name of the entry that sums up the tools beyond [`MAX_TOOLS`].
pub const OTHER_TOOLS: &str = "other";

/// Maximum length of a tool's name, in characters. OpenAI and Bedrock have the same limit.
pub const MAX_TOOL_NAME: usize = 64;

/// A valid name of a tool: at most 64 characters, and `_` for each one outside of `[A-Za-z0-9_.-]`.
pub fn tool_name(sent: &str) -> String {
    let letters = sent.chars().take(MAX_TOOL_NAME);
    letters
        .map(|letter| match letter {
            '_' | '.' | '-' => letter,
            letter if letter.is_ascii_alphanumeric() => letter,
            _ => '_',
        })
        .collect()
}

macro_rules! parts {
    ($($(#[doc = $about:literal])+ $part:ident, $field:ident;)*) => {
        /// A part of a prompt that is counted in tokens.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema, Serialize,
            Deserialize, strum::IntoStaticStr,
        )]
        #[strum(serialize_all = "snake_case")]
        #[serde(rename_all = "snake_case")]
        pub enum PromptPart {
            $($(#[doc = $about])+ $part,)*
        }

        impl PromptPart {
            /// Every part, in the order of tables.
            pub const ALL: &[PromptPart] = &[$(PromptPart::$part,)*];

            /// The column of tables.
            pub const fn column(self) -> &'static str {
                match self {
                    $(PromptPart::$part => concat!("prompt_", stringify!($field)),)*
                }
            }

            /// The attribute of spans.
            pub const fn attribute(self) -> &'static str {
                match self {
                    $(PromptPart::$part => {
                        concat!("tokengauge.prompt.", stringify!($field), "_tokens")
                    })*
                }
            }

            /// The description for people.
            pub fn about(self) -> &'static str {
                match self {
                    $(PromptPart::$part => concat!($($about),+).trim_ascii(),)*
                }
            }
        }

        /// The parts of a prompt, in o200k_base tokens. They add up to the counted input.
        #[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
        #[serde(default)]
        pub struct PromptParts {
            $($(#[doc = $about])+ pub $field: u64,)*
            /// Number of images, sounds and files.
            pub media: u64,
            /// Decoded size of the media in the prompt, in bytes. Linked media are not included.
            pub media_bytes: u64,
            /// The tools that the prompt defines or has results of: at most 64, the largest first.
            /// The rest are summed up under the name `other`.
            pub tools: Vec<PromptTool>,
        }

        /// Tokens of each part of several prompts.
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize,
        )]
        #[serde(default)]
        pub struct PromptTokens {
            $($(#[doc = $about])+ pub $field: u64,)*
        }

        impl PromptTokens {
            /// Tokens of a part.
            pub fn get(&self, part: PromptPart) -> u64 {
                match part {
                    $(PromptPart::$part => self.$field,)*
                }
            }

            /// The tokens of a part, to change them.
            pub fn part_mut(&mut self, part: PromptPart) -> &mut u64 {
                match part {
                    $(PromptPart::$part => &mut self.$field,)*
                }
            }
        }

        impl PromptParts {
            /// Tokens of a part.
            pub fn get(&self, part: PromptPart) -> u64 {
                match part {
                    $(PromptPart::$part => self.$field,)*
                }
            }

            /// The tokens of a part, to change them.
            pub fn part_mut(&mut self, part: PromptPart) -> &mut u64 {
                match part {
                    $(PromptPart::$part => &mut self.$field,)*
                }
            }
        }
    };
}

// The only list of the parts: columns, metrics, attributes, reports and the API follow it.
parts! {
    /// Tokens of the system prompt and of instructions.
    System, system;
    /// Tokens of the definitions of tools.
    ToolSchemas, tool_schemas;
    /// Tokens of the text of users.
    User, user;
    /// Tokens of earlier answers that are sent again.
    Assistant, assistant;
    /// Tokens of earlier reasoning that is sent again.
    Reasoning, reasoning;
    /// Tokens of the arguments of earlier tool calls.
    ToolCalls, tool_calls;
    /// Tokens of the results of tools.
    ToolResults, tool_results;
    /// Tokens of all other text, such as documents, and texts for embeddings.
    Other, other;
}

impl PromptPart {
    /// The name in records, columns and labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl PromptParts {
    /// Tokens of all parts.
    pub fn total(&self) -> u64 {
        let parts = PromptPart::ALL.iter().map(|part| self.get(*part));
        parts.fold(0, u64::saturating_add)
    }
}

impl PromptTokens {
    /// Tokens of all parts.
    pub fn total(&self) -> u64 {
        let parts = PromptPart::ALL.iter().map(|part| self.get(*part));
        parts.fold(0, u64::saturating_add)
    }
}

/// The parts of several prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct PromptSums {
    /// Calls whose prompt was analyzed.
    pub calls: u64,
    /// Tokens of each part, by the count of the proxy.
    pub tokens: PromptTokens,
    /// Number of images, sounds and files.
    pub media: u64,
    /// Decoded size of the media in the prompts, in bytes.
    pub media_bytes: u64,
}

impl PromptSums {
    /// The sums of one prompt.
    pub fn of(parts: &PromptParts) -> PromptSums {
        let mut tokens = PromptTokens::default();
        for part in PromptPart::ALL {
            *tokens.part_mut(*part) = parts.get(*part);
        }
        PromptSums {
            calls: 1,
            tokens,
            media: parts.media,
            media_bytes: parts.media_bytes,
        }
    }

    /// Adds the sums of other prompts.
    pub fn merge(&mut self, other: &PromptSums) {
        for (sum, more) in self.counts_mut().into_iter().zip(other.counts()) {
            *sum = sum.saturating_add(more);
        }
    }

    /// All counts, in an order that never changes: new ones are appended.
    pub fn counts(&self) -> [u64; PROMPT_SUMS] {
        let mut copy = *self;
        copy.counts_mut().map(|count| *count)
    }

    /// The places of [`counts`](PromptSums::counts).
    pub fn counts_mut(&mut self) -> [&mut u64; PROMPT_SUMS] {
        let PromptTokens {
            system,
            tool_schemas,
            user,
            assistant,
            reasoning,
            tool_calls,
            tool_results,
            other,
        } = &mut self.tokens;
        [
            &mut self.calls,
            &mut self.media,
            &mut self.media_bytes,
            system,
            tool_schemas,
            user,
            assistant,
            reasoning,
            tool_calls,
            tool_results,
            other,
        ]
    }

    /// `None` if no prompt was analyzed.
    pub fn known(self) -> Option<PromptSums> {
        (self.calls > 0).then_some(self)
    }
}

/// Number of counts in [`PromptSums`].
pub const PROMPT_SUMS: usize = 11;

/// What one tool adds to a prompt: o200k_base tokens of its definition and results, and its calls and failures.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(default)]
pub struct PromptTool {
    /// Name of the tool.
    pub name: String,
    /// Name of the MCP server, if the provider runs the tool or its definition names the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Tokens of the definition of the tool.
    pub schema: u64,
    /// Tokens of results that the previous turn of the conversation did not have.
    pub new_results: u64,
    /// Tokens of results that the previous turn of the conversation already had.
    pub resent_results: u64,
    /// Number of results that the previous turn of the conversation did not have.
    pub calls: u64,
    /// The number of these results that are marked as an error.
    pub failures: u64,
}

impl PromptTool {
    /// Tokens of the definition and of all results.
    pub fn total(&self) -> u64 {
        let results = self.new_results.saturating_add(self.resent_results);
        self.schema.saturating_add(results)
    }
}

/// The time between the previous turn of the conversation and this call.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Wait {
    /// Who took the time.
    pub kind: WaitKind,
    /// From the end of the previous call to the start of this call.
    pub seconds: f64,
    /// The tools whose results are new in this call, each once.
    #[serde(default)]
    pub tools: Vec<String>,
}

/// Who took the time between two turns of a conversation.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// Tools: this call has results that the previous call asked for.
    Tools,
    /// A person: this call has a new message of a user.
    Human,
    /// The agent itself, or unknown.
    Other,
}

impl WaitKind {
    /// Every kind.
    pub const ALL: [WaitKind; 3] = [WaitKind::Tools, WaitKind::Human, WaitKind::Other];

    /// The name in records and labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Why input that an earlier call had put into the prompt cache was not read from it.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct PromptBreak {
    /// Why the cache missed.
    pub cause: PromptBreakCause,
    /// The section of the prompt that changed: `system`, `tools`, `tool search` or `message 3`.
    /// `null` unless the prompt changed.
    #[serde(default)]
    pub section: Option<String>,
    /// Input tokens that missed the cache.
    pub tokens: u64,
    /// What the miss cost, in US dollars. `null` if the price is unknown.
    #[serde(default)]
    pub cost_usd: Option<f64>,
    /// Index of the first block of 64 tokens that changed.
    #[serde(default)]
    pub block: Option<u64>,
    /// Identifies the kind of change: 16 hexadecimal digits, which are equal in every session of an
    /// agent that changes the same section.
    #[serde(default)]
    pub change: Option<String>,
}

/// Why a prompt cache missed.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum PromptBreakCause {
    /// The prompt no longer begins as in the previous turn.
    Changed,
    /// The provider lost an unchanged prompt earlier than its cache usually does.
    Evicted,
    /// The previous turn was too long ago.
    Idle,
    /// The previous turn went to another model.
    OtherModel,
    /// The previous turn went to another upstream.
    OtherUpstream,
}

impl PromptBreakCause {
    /// The cause with this name.
    pub fn named(name: &str) -> Option<PromptBreakCause> {
        let mut all = PromptBreakCause::ALL.into_iter();
        all.find(|cause| cause.as_str() == name)
    }

    /// Every cause.
    pub const ALL: [PromptBreakCause; 5] = [
        PromptBreakCause::Changed,
        PromptBreakCause::Evicted,
        PromptBreakCause::Idle,
        PromptBreakCause::OtherModel,
        PromptBreakCause::OtherUpstream,
    ];

    /// The name in records and labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Text that a response repeats until its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Repetition {
    /// Index of the output token at which the repetition starts.
    pub start: u64,
    /// Tokens of the text that is repeated, at most 256.
    pub period: u64,
    /// Output tokens that repeat the text one period before them. The first period is not included.
    pub tokens: u64,
    /// The share of these tokens in the output, from 0 to 1.
    pub share: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_a_field_of_the_json_and_of_the_total() {
        let mut parts = PromptParts::default();
        for (at, part) in PromptPart::ALL.iter().enumerate() {
            *parts.part_mut(*part) = 1 << at;
        }
        assert_eq!(parts.total(), (1 << PromptPart::ALL.len()) - 1);
        let json = serde_json::to_value(&parts).expect("JSON");
        for part in PromptPart::ALL {
            assert_eq!(json[part.as_str()], parts.get(*part), "{}", part.as_str());
            assert_eq!(serde_json::to_value(part).expect("JSON"), part.as_str());
        }
    }

    #[test]
    fn sums_have_the_parts_in_their_order() {
        let mut parts = PromptParts {
            media: 101,
            media_bytes: 102,
            ..PromptParts::default()
        };
        for (at, part) in (1..).zip(PromptPart::ALL) {
            *parts.part_mut(*part) = at;
        }
        let mut sums = PromptSums::of(&parts);
        let counts = [1, 101, 102, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(sums.counts(), counts);
        sums.merge(&PromptSums::of(&parts));
        assert_eq!(sums.counts(), counts.map(|count| 2 * count));
        assert_eq!(sums.tokens.total(), 2 * parts.total());
    }

    #[test]
    fn a_total_beyond_the_largest_number_does_not_overflow() {
        let parts = PromptParts {
            system: u64::MAX,
            other: 1,
            ..PromptParts::default()
        };
        assert_eq!(parts.total(), u64::MAX);
    }
}
