//! The names of the members of usage, by vendor. Numbers with a name in none of the dialect's
//! tables are reported, so that new names are noticed in production.

use super::find::USAGE_BEGIN;
use super::json::Count;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::cell::RefCell;
use tokengauge_core::call::Dialect;

/// The meaning of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageMeaning {
    /// Input tokens.
    Input,
    /// Input tokens that were read from a cache.
    CachedInput,
    /// Input tokens that were written to a cache.
    CacheWrite,
    /// Input tokens that were written to a cache for an hour.
    CacheWrite1h,
    /// Output tokens, including reasoning.
    Output,
    /// Output tokens of reasoning.
    Reasoning,
    /// Output tokens that are billed but never sent.
    UnsentOutput,
    /// Audio tokens.
    Audio,
    /// Image tokens.
    Images,
    /// Searches and other hosted tools that are billed separately.
    Tools,
    /// The cost of the call.
    Cost,
    /// All tokens, which shows which counts include which.
    Total,
    /// The service tier.
    Tier,
    /// Known but not needed.
    Unused,
}

impl UsageMeaning {
    /// The meaning in a few words.
    pub fn as_str(self) -> &'static str {
        match self {
            UsageMeaning::Input => "input",
            UsageMeaning::CachedInput => "read from a cache",
            UsageMeaning::CacheWrite => "written to a cache",
            UsageMeaning::CacheWrite1h => "written to a cache for an hour",
            UsageMeaning::Output => "output",
            UsageMeaning::Reasoning => "reasoning",
            UsageMeaning::UnsentOutput => "billed but never sent",
            UsageMeaning::Audio => "audio (only for the price)",
            UsageMeaning::Images => "images (only for the price)",
            UsageMeaning::Tools => "hosted tools (only for the price)",
            UsageMeaning::Cost => "cost or billed amount",
            UsageMeaning::Total => "all tokens (shows which counts include others)",
            UsageMeaning::Tier => "service tier (only for the price)",
            UsageMeaning::Unused => "not used",
        }
    }
}

use UsageMeaning::{
    Audio, CacheWrite, CacheWrite1h, CachedInput, Cost, Images, Input, Output, Reasoning, Tier,
    Tools, Total, UnsentOutput, Unused,
};

/// The members of one format of usage.
pub struct UsageNames {
    /// The dialects that use the format.
    pub dialects: &'static str,
    /// The place of the object in a response.
    pub place: &'static str,
    /// The paths of members in the object, and their meanings.
    pub names: &'static [(&'static str, UsageMeaning)],
    /// URL of the documentation.
    pub source: &'static str,
}

pub(super) const CHAT: &UsageNames = &UsageNames {
    dialects: "OpenAI chat and text completions, and compatible APIs",
    place: "`usage`, `choices[].usage` (Moonshot), `x_groq.usage` (Groq)",
    names: &[
        ("prompt_tokens", Input),
        ("completion_tokens", Output),
        ("input_tokens", Input),
        ("output_tokens", Output),
        ("total_tokens", Total),
        ("prompt_tokens_details.cached_tokens", CachedInput),
        ("prompt_tokens_details.cache_read_tokens", CachedInput),
        ("prompt_cache_hit_tokens", CachedInput),
        ("cached_tokens", CachedInput),
        ("num_cached_tokens", CachedInput),
        ("cache_read_input_tokens", CachedInput),
        ("prompt_tokens_details.cache_write_tokens", CacheWrite),
        (
            "prompt_tokens_details.cache_creation_input_tokens",
            CacheWrite,
        ),
        ("prompt_tokens_details.cache_creation_tokens", CacheWrite),
        ("cache_creation_input_tokens", CacheWrite),
        (
            "prompt_tokens_details.cache_creation_token_details.ephemeral_1h_input_tokens",
            CacheWrite1h,
        ),
        (
            "prompt_tokens_details.cache_creation.ephemeral_1h_input_tokens",
            CacheWrite1h,
        ),
        ("prompt_tokens_details.audio_tokens", Audio),
        ("completion_tokens_details.reasoning_tokens", Reasoning),
        ("reasoning_tokens", Reasoning),
        (
            "completion_tokens_details.rejected_prediction_tokens",
            UnsentOutput,
        ),
        ("completion_tokens_details.audio_tokens", Audio),
        ("completion_tokens_details.image_tokens", Images),
        ("server_tool_use.web_search_requests", Tools),
        ("num_sources_used", Tools),
        ("connectors.*", Tools),
        ("cost", Cost),
        ("cost.total_cost", Cost),
        ("cost_in_usd_ticks", Cost),
        ("cost_details.upstream_inference_cost", Cost),
        ("prompt_cache_miss_tokens", Unused),
        (
            "completion_tokens_details.accepted_prediction_tokens",
            Unused,
        ),
        ("completion_tokens_details.text_tokens", Unused),
        ("prompt_tokens_details.text_tokens", Unused),
        ("prompt_tokens_details.image_tokens", Unused),
        ("prompt_tokens_details.video_tokens", Unused),
        (
            "prompt_tokens_details.cache_creation_token_details.ephemeral_5m_input_tokens",
            Unused,
        ),
        (
            "prompt_tokens_details.cache_creation.ephemeral_5m_input_tokens",
            Unused,
        ),
        ("audio_prompt_tokens", Unused),
        ("cost.input_cost", Unused),
        ("cost.input_tokens_cost", Unused),
        ("cost.output_tokens_cost", Unused),
        ("cost.request_cost", Unused),
        ("cost_details.upstream_inference_prompt_cost", Unused),
        ("cost_details.upstream_inference_completions_cost", Unused),
        ("market_cost", Unused),
        ("num_search_queries", Unused),
        ("citation_tokens", Unused),
        ("search_context_size", Unused),
        ("draft_tokens", Unused),
        ("draft_tokens_acceptance", Unused),
        ("queue_time", Unused),
        ("prompt_time", Unused),
        ("completion_time", Unused),
        ("total_time", Unused),
        ("prompt_tokens_per_second", Unused),
        ("tokens_per_second", Unused),
        ("time_per_output_token_ms", Unused),
        ("time_to_first_token_ms", Unused),
        ("latency_checkpoint.*", Unused),
        ("server_tool_use_details.*", Unused),
    ],
    source: "https://platform.openai.com/docs/api-reference/chat/object, https://openrouter.ai/docs/use-cases/usage-accounting, \
        https://docs.litellm.ai/docs/completion/prompt_caching, https://api-docs.deepseek.com, https://docs.x.ai, \
        https://www.alibabacloud.com/help/en/model-studio/context-cache",
};

pub(super) const RESPONSES: &UsageNames = &UsageNames {
    dialects: "OpenAI responses, Realtime and audio",
    place: "`usage`, `response.usage`",
    names: &[
        ("input_tokens", Input),
        ("output_tokens", Output),
        ("prompt_tokens", Input),
        ("completion_tokens", Output),
        ("total_tokens", Unused),
        ("input_tokens_details.cached_tokens", CachedInput),
        ("input_token_details.cached_tokens", CachedInput),
        ("input_tokens_details.cache_read_tokens", CachedInput),
        ("input_tokens_details.cache_write_tokens", CacheWrite),
        (
            "input_tokens_details.cache_creation_input_tokens",
            CacheWrite,
        ),
        ("input_tokens_details.cache_creation_tokens", CacheWrite),
        ("input_tokens_details.audio_tokens", Audio),
        ("input_token_details.audio_tokens", Audio),
        (
            "input_token_details.cached_tokens_details.audio_tokens",
            Audio,
        ),
        ("output_tokens_details.reasoning_tokens", Reasoning),
        ("output_token_details.reasoning_tokens", Reasoning),
        ("output_token_details.audio_tokens", Audio),
        (
            "output_tokens_details.rejected_prediction_tokens",
            UnsentOutput,
        ),
        ("output_tokens_details.image_tokens", Images),
        ("num_server_side_tools_used", Tools),
        ("num_sources_used", Tools),
        ("cost", Cost),
        ("cost.total_cost", Cost),
        ("cost_details.upstream_inference_cost", Cost),
        ("cost_in_usd_ticks", Cost),
        ("input_tokens_details.text_tokens", Unused),
        ("input_tokens_details.image_tokens", Unused),
        ("input_token_details.text_tokens", Unused),
        ("input_token_details.image_tokens", Unused),
        ("input_token_details.grok_tokens", Unused),
        (
            "input_token_details.cached_tokens_details.text_tokens",
            Unused,
        ),
        (
            "input_token_details.cached_tokens_details.image_tokens",
            Unused,
        ),
        ("output_tokens_details.text_tokens", Unused),
        ("output_token_details.text_tokens", Unused),
        ("output_token_details.grok_tokens", Unused),
        ("context_details.*", Unused),
        ("cost_details.upstream_inference_input_cost", Unused),
        ("cost_details.upstream_inference_output_cost", Unused),
        ("server_side_tool_usage_details.*", Unused),
        ("seconds", Unused),
        ("billable_audio_seconds", Unused),
        ("output_audio_seconds", Unused),
    ],
    source: "https://platform.openai.com/docs/api-reference/responses/object, https://docs.x.ai",
};

pub(super) const ANTHROPIC: &UsageNames = &UsageNames {
    dialects: "Anthropic messages",
    place: "`usage`, `message.usage`",
    names: &[
        ("input_tokens", Input),
        ("cache_read_input_tokens", CachedInput),
        ("cache_creation_input_tokens", CacheWrite),
        ("cache_creation.ephemeral_1h_input_tokens", CacheWrite1h),
        ("output_tokens", Output),
        ("output_tokens_details.thinking_tokens", Reasoning),
        ("iterations.input_tokens", Input),
        ("iterations.cache_read_input_tokens", CachedInput),
        ("iterations.cache_creation_input_tokens", CacheWrite),
        ("iterations.output_tokens", UnsentOutput),
        ("server_tool_use.web_search_requests", Tools),
        ("cost", Cost),
        ("cost.total_cost", Cost),
        ("cache_creation.ephemeral_5m_input_tokens", Unused),
        (
            "iterations.cache_creation.ephemeral_5m_input_tokens",
            Unused,
        ),
        (
            "iterations.cache_creation.ephemeral_1h_input_tokens",
            Unused,
        ),
        ("server_tool_use.web_fetch_requests", Unused),
    ],
    source: "https://platform.claude.com/docs/en/api/messages",
};

pub(super) const GEMINI: &UsageNames = &UsageNames {
    dialects: "Gemini, Gemini Live",
    place: "`usageMetadata`, `response.usageMetadata` (Code Assist)",
    names: &[
        ("promptTokenCount", Input),
        ("toolUsePromptTokenCount", Input),
        ("cachedContentTokenCount", CachedInput),
        ("candidatesTokenCount", Output),
        ("responseTokenCount", Output),
        ("thoughtsTokenCount", Reasoning),
        ("totalTokenCount", Total),
        ("promptTokensDetails.tokenCount", Audio),
        ("cacheTokensDetails.tokenCount", Audio),
        ("candidatesTokensDetails.tokenCount", Audio),
        ("responseTokensDetails.tokenCount", Audio),
        ("toolUsePromptTokensDetails.tokenCount", Audio),
        ("promptTokenDetails.tokenCount", Unused),
        ("promptTokenDetails.modality", Unused),
        ("promptTokensDetails.modality", Unused),
        ("candidatesTokensDetails.modality", Unused),
        ("cacheTokensDetails.modality", Unused),
        ("toolUsePromptTokensDetails.modality", Unused),
        ("responseTokensDetails.modality", Unused),
        ("trafficType", Tier),
    ],
    source: "https://ai.google.dev/api/generate-content#UsageMetadata",
};

pub(super) const INTERACTIONS: &UsageNames = &UsageNames {
    dialects: "Gemini interactions",
    place: "`usage`, `interaction.usage`",
    names: &[
        ("total_input_tokens", Input),
        ("total_tool_use_tokens", Input),
        ("total_cached_tokens", CachedInput),
        ("total_output_tokens", Output),
        ("total_thought_tokens", Reasoning),
        ("total_reasoning_tokens", Reasoning),
        ("total_tokens", Unused),
        ("input_tokens_by_modality.tokens", Audio),
        ("cached_tokens_by_modality.tokens", Audio),
        ("output_tokens_by_modality.tokens", Audio),
        ("tool_use_tokens_by_modality.tokens", Audio),
    ],
    source: "https://ai.google.dev/api/interactions-api",
};

pub(super) const BEDROCK: &UsageNames = &UsageNames {
    dialects: "Bedrock Converse and InvokeModel",
    place: "`usage`",
    names: &[
        ("inputTokens", Input),
        ("outputTokens", Output),
        ("cacheReadInputTokens", CachedInput),
        ("cacheReadInputTokenCount", CachedInput),
        ("cacheWriteInputTokens", CacheWrite),
        ("cacheWriteInputTokenCount", CacheWrite),
        ("totalTokens", Unused),
        ("cacheDetails.inputTokens", Unused),
    ],
    source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_TokenUsage.html",
};

pub(super) const COHERE: &UsageNames = &UsageNames {
    dialects: "Cohere",
    place: "`usage`, `delta.usage`",
    names: &[
        ("tokens.input_tokens", Input),
        ("tokens.output_tokens", Output),
        ("tokens.reasoning_tokens", Reasoning),
        ("cached_tokens", CachedInput),
        ("billed_units.input_tokens", Cost),
        ("billed_units.output_tokens", Cost),
        ("billed_units.search_units", Tools),
        ("billed_units.classifications", Unused),
        ("billed_units.image_tokens", Unused),
    ],
    source: "https://docs.cohere.com/reference/chat",
};

pub(super) const OLLAMA: &UsageNames = &UsageNames {
    dialects: "Ollama",
    place: "the last object",
    names: &[
        ("prompt_eval_count", Input),
        ("prompt_eval_cached_count", CachedInput),
        ("eval_count", Output),
    ],
    source: "https://docs.ollama.com/api/generate",
};

pub(super) const MISTRAL: &UsageNames = &UsageNames {
    dialects: "Mistral conversations",
    place: "`usage`",
    names: &[("connector_tokens", Unused)],
    source: "https://docs.mistral.ai/agents/agents",
};

const GATEWAYS: &UsageNames = &UsageNames {
    dialects: "Gateways, in every dialect",
    place: "the usage of the dialect",
    names: &[("pydantic_ai_gateway.*", Unused), ("gateway.*", Unused)],
    source: "https://ai.pydantic.dev/gateway/",
};

/// Every known format of usage. The registration of a dialect lists the formats that it reads.
pub const USAGE_NAMES: &[&UsageNames] = &[
    CHAT,
    RESPONSES,
    ANTHROPIC,
    GEMINI,
    INTERACTIONS,
    BEDROCK,
    COHERE,
    OLLAMA,
    MISTRAL,
    GATEWAYS,
];

/// The names of numbers in a usage that the dialect does not read, at most a few.
pub(super) fn unknown_usage(
    (dialect, shapes): (Dialect, &[&UsageNames]),
    payload: &[u8],
) -> Vec<String> {
    const MOST: usize = 4;
    // A longer payload could become structures of many times its size.
    const MOST_BYTES: usize = 64 * 1024;
    let mut unknown = Vec::new();
    let Some(begin) = USAGE_BEGIN
        .find(payload)
        .filter(|_| payload.len() <= MOST_BYTES)
    else {
        return unknown;
    };
    let shape = Shape::of(dialect, &payload[begin..]);
    if shape.is_some_and(Shape::is_known) {
        return unknown;
    }
    let Ok(holder) = serde_json::from_slice::<Holder<'_>>(payload) else {
        return unknown;
    };
    for usage in holder.usages() {
        if let Ok(usage) = serde_json::from_str::<Value>(usage.get()) {
            walk(&usage, "", &mut |name| {
                if unknown.len() < MOST && !is_known(shapes, name) {
                    unknown.push(name.to_owned());
                }
            });
        }
    }
    if let Some(shape) = shape.filter(|_| unknown.is_empty()) {
        shape.learn();
    }
    unknown
}

/// A hash of a dialect and of the payload from its usage on, without numbers. Reading a usage for
/// its names is more expensive than everything else that is done with it, and nearly all usages of
/// an upstream have the same names.
#[derive(Clone, Copy)]
struct Shape(u64);

thread_local! {
    /// Shapes in which every name is known, indexed by their low bits.
    static KNOWN_SHAPES: RefCell<[u64; 64]> = const { RefCell::new([0; 64]) };
}

impl Shape {
    fn of(dialect: Dialect, text: &[u8]) -> Option<Shape> {
        const MOST_BYTES: usize = 1024;
        if text.len() > MOST_BYTES {
            return None;
        }
        let (mut hash, mut before) = (0xcbf2_9ce4_8422_2325_u64 ^ dialect as u64, b' ');
        for &byte in text {
            // Digits in a name, such as in `ephemeral_1h_input_tokens`, are part of the name.
            let is_number =
                byte.is_ascii_digit() && !(before.is_ascii_alphabetic() || before == b'_');
            if !is_number {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
                before = byte;
            }
        }
        Some(Shape(hash ^ (hash >> 32)))
    }

    fn place(self) -> usize {
        usize::from(self.0.to_le_bytes()[0] % 64)
    }

    fn is_known(self) -> bool {
        KNOWN_SHAPES.with_borrow(|shapes| shapes[self.place()] == self.0)
    }

    fn learn(self) {
        KNOWN_SHAPES.with_borrow_mut(|shapes| shapes[self.place()] = self.0);
    }
}

fn is_known(shapes: &[&UsageNames], path: &str) -> bool {
    let names = shapes
        .iter()
        .chain([&GATEWAYS])
        .flat_map(|shape| shape.names);
    names
        .into_iter()
        .any(|(known, _)| match known.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => *known == path,
        })
}

/// Calls `each` with the path of every number, including numbers in strings.
fn walk(value: &Value, path: &str, each: &mut dyn FnMut(&str)) {
    match value {
        Value::Number(_) => each(path),
        Value::String(_) if Count::deserialize(value).is_ok_and(|count| count.0.is_some()) => {
            each(path);
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, path, each)),
        Value::Object(members) => {
            for (name, member) in members {
                match path {
                    "" => walk(member, name, each),
                    _ => walk(member, &format!("{path}.{name}"), each),
                }
            }
        }
        _ => {}
    }
}

#[derive(Deserialize)]
struct Holder<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, rename = "usageMetadata")]
    usage_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    interaction: Option<&'a RawValue>,
    #[serde(borrow)]
    x_groq: Option<&'a RawValue>,
    #[serde(borrow)]
    choices: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Inner<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, rename = "usageMetadata")]
    usage_metadata: Option<&'a RawValue>,
}

impl<'a> Holder<'a> {
    fn usages(&self) -> impl Iterator<Item = &'a RawValue> {
        let inner = [
            self.message,
            self.response,
            self.delta,
            self.interaction,
            self.x_groq,
        ];
        let inner = inner.into_iter().flatten().filter_map(|raw| {
            let inner: Inner<'a> = serde_json::from_str(raw.get()).ok()?;
            inner.usage.or(inner.usage_metadata)
        });
        let choices: Vec<Inner<'a>> = self
            .choices
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        let choices = choices.into_iter().filter_map(|choice| choice.usage);
        self.usage
            .into_iter()
            .chain(self.usage_metadata)
            .chain(inner)
            .chain(choices)
    }
}

#[cfg(test)]
mod tests {
    use super::super::events::EventReader;
    use super::super::registration::Registration;
    use super::*;
    use serde_json::json;
    use tokengauge_core::call::Event;

    #[test]
    fn a_number_under_a_new_name_is_noticed_wherever_the_usage_is() {
        for (payload, found) in [
            (r#"{"usage":{"prompt_tokens":1,"total_tokens":2}}"#, ""),
            (
                r#"{"usage":{"prompt_tokens":1,"cache_tokens_read":2}}"#,
                "cache_tokens_read",
            ),
            (
                r#"{"choices":[{"usage":{"prompt_tokens_details":{"warm_tokens":2}}}]}"#,
                "prompt_tokens_details.warm_tokens",
            ),
            (
                r#"{"message":{"usage":{"speculated_tokens":0}}}"#,
                "speculated_tokens",
            ),
            (
                r#"{"usage":{"prompt_tokens":"1","odd_tokens":"2.0"}}"#,
                "odd_tokens",
            ),
            (
                r#"{"response":{"usageMetadata":{"promptTokenCount":1,"oddCount":2}}}"#,
                "oddCount",
            ),
            (
                r#"{"usageMetadata":{"promptTokensDetails":[{"tokenCount":1}]}}"#,
                "",
            ),
            (
                r#"{"usage":{"speed":"fast","is_byok":true,"note":null}}"#,
                "",
            ),
            (r#"{"text":"\"usage\":{\"odd\":1}"}"#, ""),
            (
                r#"{"usage":{"cache_creation":{"ephemeral_1h_input_tokens":7}}}"#,
                "",
            ),
            (
                r#"{"usage":{"cache_creation":{"ephemeral_1h_input_tokens":8}}}"#,
                "",
            ),
            (
                r#"{"usage":{"cache_creation":{"ephemeral_2h_input_tokens":7}}}"#,
                "cache_creation.ephemeral_2h_input_tokens",
            ),
            (
                r#"{"usage":{"cache_creation":{"ephemeral_2h_input_tokens":8}}}"#,
                "cache_creation.ephemeral_2h_input_tokens",
            ),
        ] {
            assert_eq!(
                unknown(Dialect::BedrockInvoke, payload.as_bytes()),
                found,
                "{payload}"
            );
        }
    }

    #[test]
    fn a_name_of_another_dialect_is_a_new_name() {
        let payload = br#"{"usage":{"prompt_tokens":1,"input_tokens":2,"inputTokens":3}}"#;
        for (dialect, found) in [
            (Dialect::OpenaiChat, "inputTokens"),
            (Dialect::Anthropic, "prompt_tokens,inputTokens"),
            // A shape that was learnt for one dialect does not apply to another.
            (Dialect::BedrockInvoke, ""),
            (Dialect::OpenaiChat, "inputTokens"),
        ] {
            assert_eq!(unknown(dialect, payload), found, "{dialect:?}");
        }
    }

    fn unknown(dialect: Dialect, payload: &[u8]) -> String {
        let registration: &Registration = dialect.into();
        unknown_usage((dialect, registration.usage), payload).join(",")
    }

    /// The events of a body whose usage is the given members with the number 7 added at `path`.
    fn read(dialect: Dialect, body: &str, beside: &Value, path: Option<&str>) -> String {
        let mut usage = beside.clone();
        if let Some(path) = path {
            let path = path.replace('*', "any");
            let (holders, name) = path.rsplit_once('.').unwrap_or(("", &path));
            let mut value = json!({name: 7});
            for holder in holders.split('.').rev().filter(|holder| !holder.is_empty()) {
                value["modality"] = "AUDIO".into();
                value["type"] = "compaction".into();
                let is_list = holder.ends_with("_by_modality")
                    || ["iterations", "connectors"].contains(&holder)
                    || (holder.ends_with("Details") && holder != "cacheDetails");
                value = json!({holder: if is_list && holder != "connectors" { json!([value]) } else { value }});
            }
            for (name, value) in value.as_object().expect("an object") {
                usage[name] = value.clone();
            }
        }
        let mut events = String::new();
        let body = body.replace("USAGE", &usage.to_string());
        EventReader::new(dialect.into()).whole(body.as_bytes(), &mut |event| {
            if !matches!(event, Event::UnknownUsage(_)) {
                events += &format!("{event:?} ");
            }
        });
        events
    }

    #[test]
    fn each_dialect_reads_the_names_in_its_tables_and_no_others() {
        let bodies = [
            (
                Dialect::OpenaiChat,
                r#"{"object":"chat.completion","choices":[{"message":{"content":"a"}}],"usage":USAGE}"#,
            ),
            (
                Dialect::OpenaiCompletions,
                r#"{"object":"text_completion","choices":[{"text":"a"}],"usage":USAGE}"#,
            ),
            (
                Dialect::OpenaiResponses,
                r#"{"object":"response","status":"completed","output":[],"usage":USAGE}"#,
            ),
            (
                Dialect::OpenaiRealtime,
                r#"{"type":"response.done","response":{"status":"completed","usage":USAGE}}"#,
            ),
            (
                Dialect::Anthropic,
                r#"{"type":"message","content":[],"usage":USAGE}"#,
            ),
            (
                Dialect::Gemini,
                r#"{"candidates":[],"usageMetadata":USAGE}"#,
            ),
            (
                Dialect::GeminiLive,
                r#"{"serverContent":{"turnComplete":true},"usageMetadata":USAGE}"#,
            ),
            (
                Dialect::GeminiInteractions,
                r#"{"object":"interaction","status":"completed","outputs":[],"usage":USAGE}"#,
            ),
            (
                Dialect::BedrockConverse,
                r#"{"output":{"message":{"content":[]}},"stopReason":"end_turn","usage":USAGE}"#,
            ),
            (
                Dialect::CohereV2,
                r#"{"id":"x","message":{"content":[]},"finish_reason":"COMPLETE","usage":USAGE}"#,
            ),
            (
                Dialect::MistralConversations,
                r#"{"object":"conversation.response","outputs":[],"usage":USAGE}"#,
            ),
        ];
        // Some numbers are read only if another number is present.
        let besides = [
            json!({}),
            json!({"is_byok": true, "cost": 0.5}),
            json!({"input_tokens": 1, "cache_read_input_tokens": 1, "cache_creation_input_tokens": 1}),
            json!({"total_input_tokens": 1}),
        ];
        let mut wrong = Vec::new();
        for (dialect, body) in bodies {
            let registration: &Registration = dialect.into();
            let own = |path: &str| {
                let mut names = registration.usage.iter().flat_map(|shape| shape.names);
                names
                    .find(|(name, _)| *name == path)
                    .map(|(_, meaning)| *meaning)
            };
            for (path, _) in USAGE_NAMES.iter().flat_map(|shape| shape.names) {
                let root = path.split('.').next().unwrap_or(path);
                let besides = besides.iter().filter(|beside| beside.get(root).is_none());
                let is_read = besides.into_iter().any(|beside| {
                    read(dialect, body, beside, Some(path)) != read(dialect, body, beside, None)
                });
                let is_in_table = !matches!(own(path), None | Some(Unused));
                if is_read != is_in_table && own(path) != Some(Total) {
                    wrong.push(format!(
                        "{dialect:?}: {path}: read: {is_read}, in its tables: {:?}",
                        own(path)
                    ));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
