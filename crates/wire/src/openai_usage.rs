//! The usage and the names in a response, shared by the dialects of the OpenAI family.

use super::Sink;
use super::cost::{Amount, CostDetails, ReportedCost};
use super::emit::{self, RepeatedName};
use super::event_template::{CountFields, CountLiterals, Counts};
use super::json::{Count, Object};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use tokengauge_core::call::{Usage, UsageDetails};

/// The counts of a [`ChatUsage`] that some servers send with every event: Perplexity, and vLLM with
/// `continuous_usage_stats`.
pub(super) const CHAT_COUNTS: CountFields = CountFields {
    literals: chat_count_literals,
    usage: ChatUsage::of_counts,
};

/// The JSON literals of the counts for [`ChatUsage::of_counts`] in an event.
fn chat_count_literals(payload: &[u8]) -> Option<CountLiterals<'_>> {
    #[derive(Deserialize)]
    struct Chunk<'a> {
        #[serde(borrow, default)]
        usage: Object<Sent<'a>>,
    }
    #[derive(Deserialize)]
    struct Sent<'a> {
        #[serde(borrow)]
        prompt_tokens: Option<&'a RawValue>,
        #[serde(borrow)]
        completion_tokens: Option<&'a RawValue>,
        #[serde(borrow)]
        total_tokens: Option<&'a RawValue>,
        #[serde(borrow, default)]
        prompt_tokens_details: Object<Input<'a>>,
        #[serde(borrow, default)]
        completion_tokens_details: Object<Output<'a>>,
        #[serde(borrow)]
        reasoning_tokens: Option<&'a RawValue>,
        #[serde(borrow)]
        prompt_cache_hit_tokens: Option<&'a RawValue>,
        #[serde(borrow)]
        cached_tokens: Option<&'a RawValue>,
        #[serde(borrow)]
        num_cached_tokens: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Input<'a> {
        #[serde(borrow)]
        cached_tokens: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Output<'a> {
        #[serde(borrow)]
        reasoning_tokens: Option<&'a RawValue>,
    }
    let sent = serde_json::from_slice::<Chunk<'_>>(payload).ok()?.usage.0?;
    let input = sent.prompt_tokens_details.0;
    let output = sent.completion_tokens_details.0;
    Some([
        sent.prompt_tokens,
        sent.completion_tokens,
        sent.total_tokens,
        input
            .and_then(|details| details.cached_tokens)
            .or(sent.prompt_cache_hit_tokens)
            .or(sent.cached_tokens)
            .or(sent.num_cached_tokens),
        output
            .and_then(|details| details.reasoning_tokens)
            .or(sent.reasoning_tokens),
    ])
}

/// `usage` of the Chat Completions and text Completions APIs, with vendor-specific members.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ChatUsage {
    #[serde(default)]
    prompt_tokens: Count,
    #[serde(default)]
    completion_tokens: Count,
    /// DashScope, and gateways to Anthropic.
    #[serde(default)]
    input_tokens: Count,
    #[serde(default)]
    output_tokens: Count,
    #[serde(default)]
    prompt_tokens_details: Object<InputDetails>,
    #[serde(default)]
    completion_tokens_details: Object<OutputDetails>,
    #[serde(default)]
    reasoning_tokens: Count,
    #[serde(default)]
    prompt_cache_hit_tokens: Count,
    /// Together, Moonshot.
    #[serde(default)]
    cached_tokens: Count,
    #[serde(default)]
    num_cached_tokens: Count,
    /// Vercel's gateway, LiteLLM, Portkey.
    #[serde(default)]
    cache_read_input_tokens: Count,
    #[serde(default)]
    cache_creation_input_tokens: Count,
    #[serde(default)]
    total_tokens: Count,
    /// OpenRouter, LiteLLM.
    #[serde(default)]
    server_tool_use: Object<ServerToolUse>,
    /// xAI's live search.
    #[serde(default)]
    num_sources_used: Count,
    /// The number of runs of each tool in Mistral conversations.
    #[serde(default)]
    connectors: Object<Sum>,
    /// OpenRouter, Vercel's gateway, LiteLLM, Perplexity.
    #[serde(default)]
    cost: Amount,
    #[serde(default)]
    cost_in_usd_ticks: Count,
    #[serde(default)]
    is_byok: Amount,
    #[serde(default)]
    cost_details: Object<CostDetails>,
}

/// `usage` of the Responses API and the Realtime API.
#[derive(Debug, Deserialize)]
pub(super) struct ResponsesUsage {
    #[serde(default)]
    input_tokens: Count,
    #[serde(default)]
    output_tokens: Count,
    /// Gateways that send the `usage` of the Chat Completions API.
    #[serde(default)]
    prompt_tokens: Count,
    #[serde(default)]
    completion_tokens: Count,
    #[serde(default)]
    input_tokens_details: Object<InputDetails>,
    #[serde(default)]
    output_tokens_details: Object<OutputDetails>,
    /// The names in the Realtime API. As aliases, they would make an event with both names unreadable.
    #[serde(default)]
    input_token_details: Object<InputDetails>,
    #[serde(default)]
    output_token_details: Object<OutputDetails>,
    /// OpenRouter, LiteLLM.
    #[serde(default)]
    cost: Amount,
    #[serde(default)]
    cost_in_usd_ticks: Count,
    #[serde(default)]
    num_server_side_tools_used: Count,
    #[serde(default)]
    num_sources_used: Count,
    #[serde(default)]
    is_byok: Amount,
    #[serde(default)]
    cost_details: Object<CostDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Count,
    /// LiteLLM.
    cache_read_tokens: Count,
    cache_write_tokens: Count,
    /// Qwen.
    cache_creation_input_tokens: Count,
    /// LiteLLM.
    cache_creation_tokens: Count,
    /// The counts by lifetime: LiteLLM's name, and Qwen's name, which LiteLLM also passes on.
    cache_creation_token_details: Object<CacheLifetimes>,
    cache_creation: Object<CacheLifetimes>,
    audio_tokens: Count,
    cached_tokens_details: Object<CachedDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CacheLifetimes {
    ephemeral_1h_input_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CachedDetails {
    audio_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Count,
    /// Rejected predictions, which are billed but never sent.
    rejected_prediction_tokens: Count,
    audio_tokens: Count,
    image_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServerToolUse {
    web_search_requests: Count,
}

#[derive(Clone, Copy, Debug)]
struct Sum(u64);

impl<'de> Deserialize<'de> for Sum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counts;
        impl<'de> Visitor<'de> for Counts {
            type Value = Sum;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut counts: A) -> Result<Sum, A::Error> {
                let mut sum = Sum(0);
                while let Some((_, count)) = counts.next_entry::<IgnoredAny, Count>()? {
                    sum.0 = sum.0.saturating_add(count.0.unwrap_or(0));
                }
                Ok(sum)
            }
        }
        deserializer.deserialize_map(Counts)
    }
}

impl InputDetails {
    fn cached(&self) -> Option<u64> {
        self.cached_tokens.or(self.cache_read_tokens).0
    }

    fn written(&self) -> Option<u64> {
        self.cache_write_tokens
            .or(self.cache_creation_input_tokens)
            .or(self.cache_creation_tokens)
            .0
    }

    fn written_1h(&self) -> Option<u64> {
        let lifetimes = [&self.cache_creation_token_details, &self.cache_creation];
        let mut lifetimes = lifetimes.into_iter().filter_map(|kept| kept.0.as_ref());
        lifetimes.find_map(|kept| kept.ephemeral_1h_input_tokens.0)
    }
}

/// A count with two names. If a server fills in one of them with 0, the other is right.
fn known(usual: Count, other: Count) -> Option<u64> {
    usual.positive().or(other.positive()).or(usual.or(other).0)
}

fn details(input: Option<&InputDetails>, output: Option<&OutputDetails>) -> UsageDetails {
    let cached = input.and_then(|details| details.cached_tokens_details.0.as_ref());
    UsageDetails {
        unsent_output: output.and_then(|details| details.rejected_prediction_tokens.positive()),
        audio_input: input.and_then(|details| details.audio_tokens.positive()),
        cached_audio_input: cached.and_then(|cached| cached.audio_tokens.positive()),
        audio_output: output.and_then(|details| details.audio_tokens.positive()),
        image_output: output.and_then(|details| details.image_tokens.positive()),
        ..UsageDetails::default()
    }
}

impl ChatUsage {
    fn of_counts([prompt, completion, total, cached, reasoning]: Counts) -> Usage {
        let usage = ChatUsage {
            prompt_tokens: Count(prompt),
            completion_tokens: Count(completion),
            total_tokens: Count(total),
            cached_tokens: Count(cached),
            reasoning_tokens: Count(reasoning),
            ..ChatUsage::default()
        };
        usage.usage()
    }

    fn usage(&self) -> Usage {
        let input = self.prompt_tokens_details.0.as_ref();
        let output = self.completion_tokens_details.0.as_ref();
        let reasoning = output
            .and_then(|details| details.reasoning_tokens.0)
            .or(self.reasoning_tokens.0);
        Usage {
            input: self.prompt(),
            cached_input: input
                .and_then(InputDetails::cached)
                .or(self.prompt_cache_hit_tokens.0)
                .or(self.cached_tokens.0)
                .or(self.num_cached_tokens.0)
                .or(self.cache_read_input_tokens.0),
            cache_write: input
                .and_then(InputDetails::written)
                .or(self.cache_creation_input_tokens.0),
            cache_write_1h: input.and_then(InputDetails::written_1h),
            output: self.output(reasoning.unwrap_or(0)),
            reasoning,
            details: UsageDetails {
                searches: (self.server_tool_use.0.as_ref())
                    .and_then(|used| used.web_search_requests.positive()),
                other_tools: (self.num_sources_used.positive()).or(self
                    .connectors
                    .0
                    .and_then(|sum| Count(Some(sum.0)).positive())),
                ..details(input, output)
            },
        }
    }

    pub(super) fn give(&self, sink: Sink<'_>) {
        emit::usage(sink, self.usage());
        let charge = ReportedCost {
            cost: self.cost,
            ticks: self.cost_in_usd_ticks,
            own_key: self.is_byok,
            details: &self.cost_details,
        };
        charge.give(sink);
    }

    fn prompt(&self) -> Option<u64> {
        known(self.prompt_tokens, self.input_tokens)
    }

    /// All output tokens. xAI excludes reasoning from `completion_tokens`, other vendors include
    /// it. Only the total shows which.
    fn output(&self, reasoning: u64) -> Option<u64> {
        let completion = known(self.completion_tokens, self.output_tokens)?;
        let apart = self.prompt().unwrap_or(0).checked_add(completion)?;
        let is_apart = self.total_tokens.0 == apart.checked_add(reasoning);
        completion.checked_add(if is_apart { reasoning } else { 0 })
    }
}

impl ResponsesUsage {
    pub(super) fn give(&self, sink: Sink<'_>) {
        let realtime = self.input_token_details.0.as_ref();
        let input = self.input_tokens_details.0.as_ref().or(realtime);
        let realtime = self.output_token_details.0.as_ref();
        let output = self.output_tokens_details.0.as_ref().or(realtime);
        emit::usage(
            sink,
            Usage {
                input: known(self.input_tokens, self.prompt_tokens),
                cached_input: input.and_then(InputDetails::cached),
                cache_write: input.and_then(InputDetails::written),
                cache_write_1h: input.and_then(InputDetails::written_1h),
                output: known(self.output_tokens, self.completion_tokens),
                reasoning: output.and_then(|details| details.reasoning_tokens.0),
                details: UsageDetails {
                    other_tools: self
                        .num_server_side_tools_used
                        .or(self.num_sources_used)
                        .positive(),
                    ..details(input, output)
                },
            },
        );
        let charge = ReportedCost {
            cost: self.cost,
            ticks: self.cost_in_usd_ticks,
            own_key: self.is_byok,
            details: &self.cost_details,
        };
        charge.give(sink);
    }
}

/// The names in a response, emitted when they change.
#[derive(Debug, Default)]
pub(super) struct ResponseIdentity {
    id: RepeatedName,
    model: RepeatedName,
    tier: RepeatedName,
    /// Boxed, because only gateways name a provider.
    provider: Option<Box<RepeatedName>>,
}

impl ResponseIdentity {
    pub(super) fn note(&mut self, id: &str, model: &str, sink: Sink<'_>) {
        self.id.response_id(sink, id);
        self.model.model(sink, model);
    }

    pub(super) fn provider(&mut self, provider: &str, sink: Sink<'_>) {
        if !provider.is_empty() {
            let repeated = self.provider.get_or_insert_default();
            repeated.served_by(sink, provider);
        }
    }

    pub(super) fn service_tier(&mut self, tier: &str, sink: Sink<'_>) {
        self.tier.service_tier(sink, tier);
    }
}
