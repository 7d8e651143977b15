//! The vocabulary of the domain: calls, their records and the events of a response.

pub use crate::dialect::Dialect;
use crate::pod::PodName;
use crate::time::Timestamp;
use crate::upstream_facts::UpstreamFacts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What was asked for; the names of the GenAI conventions where those have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A conversation's next message.
    Chat,
    /// A plain continuation of a prompt.
    TextCompletion,
    /// Gemini's word for a chat.
    GenerateContent,
    /// A live, spoken conversation.
    Realtime,
    /// Vectors for texts.
    Embeddings,
    /// An order for documents.
    Rerank,
    /// Something stored is read: nothing is generated.
    Retrieve,
    /// Anything else.
    #[default]
    Unknown,
}

/// What kind of work an operation is. Only generations and embeddings count in objectives and
/// error rates.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
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
pub enum OperationClass {
    /// A model writes, speaks or draws.
    Generation,
    /// Vectors for texts, or an order for documents.
    Embedding,
    /// Something stored is read.
    Retrieve,
    /// Anything else: lists of models, health, files.
    #[default]
    Other,
}

impl OperationClass {
    /// Every class.
    pub const ALL: [OperationClass; 4] = [
        OperationClass::Generation,
        OperationClass::Embedding,
        OperationClass::Retrieve,
        OperationClass::Other,
    ];

    /// Whether it counts in objectives, error rates and lists unless other classes are asked for.
    pub fn counts(self) -> bool {
        matches!(self, OperationClass::Generation | OperationClass::Embedding)
    }

    /// The word used in records and labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Operation {
    /// The class it belongs to.
    pub fn class(self) -> OperationClass {
        match self {
            Operation::Embeddings | Operation::Rerank => OperationClass::Embedding,
            Operation::Retrieve => OperationClass::Retrieve,
            Operation::Unknown => OperationClass::Other,
            _ => OperationClass::Generation,
        }
    }
}

/// Where generated text was meant to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// What the user sees: text, a refusal, the transcript of speech.
    Answer,
    /// What the model thought.
    Reasoning,
    /// The arguments of a tool call.
    ToolCall,
}

/// Names one contiguous text of a response, which is tokenised as one string.
/// The order is that of the texts within the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Segment {
    /// The choice, candidate or generation it belongs to.
    pub choice: u32,
    /// The content block, part or tool call within that choice.
    pub index: u32,
    /// Where the text was meant to go.
    pub channel: Channel,
}

/// Token counts as a provider reported them. Unknown is `None`, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Usage {
    /// All input tokens, those read from a cache or written to it included.
    /// Anthropic and Bedrock report the others alone: what they call input tokens is
    /// `input - cached_input - cache_write`.
    pub input: Option<u64>,
    /// Input tokens read from a cache.
    pub cached_input: Option<u64>,
    /// Input tokens written to a cache.
    pub cache_write: Option<u64>,
    /// The part of it that is kept for an hour, which has a price of its own. In no record.
    #[serde(skip)]
    pub cache_write_1h: Option<u64>,
    /// All output tokens, reasoning included.
    pub output: Option<u64>,
    /// Output tokens spent on reasoning.
    pub reasoning: Option<u64>,
    /// Counts that only the price and the checks of speeds use. Records do not have them.
    #[serde(skip)]
    pub details: UsageDetails,
}

/// Parts of a usage that only the price and the checks of speeds need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageDetails {
    /// Input tokens that are billed, where the provider says so apart from those it processed.
    pub billed_input: Option<u64>,
    /// Output tokens that are billed, where the provider says so apart from those it processed.
    pub billed_output: Option<u64>,
    /// Output tokens that are billed but never sent, such as rejected predictions and the
    /// summaries of a compaction.
    pub unsent_output: Option<u64>,
    /// Input tokens of audio.
    pub audio_input: Option<u64>,
    /// Input tokens of audio that were read from a cache.
    pub cached_audio_input: Option<u64>,
    /// Output tokens of audio.
    pub audio_output: Option<u64>,
    /// Output tokens of images and video.
    pub image_output: Option<u64>,
    /// How often the provider searched the web for the call.
    pub searches: Option<u64>,
    /// Whether it searched, where only its answer shows it.
    pub searched: Option<bool>,
    /// How often the provider ran another tool that it bills apart from tokens.
    pub other_tools: Option<u64>,
    /// Whether a region with its own prices processed the call.
    pub regional: Option<bool>,
}

impl UsageDetails {
    fn overlay(&mut self, newer: UsageDetails) {
        self.billed_input = newer.billed_input.or(self.billed_input);
        self.billed_output = newer.billed_output.or(self.billed_output);
        self.unsent_output = newer.unsent_output.or(self.unsent_output);
        self.audio_input = newer.audio_input.or(self.audio_input);
        self.cached_audio_input = newer.cached_audio_input.or(self.cached_audio_input);
        self.audio_output = newer.audio_output.or(self.audio_output);
        self.image_output = newer.image_output.or(self.image_output);
        self.searches = newer.searches.or(self.searches);
        self.searched = newer.searched.or(self.searched);
        self.other_tools = newer.other_tools.or(self.other_tools);
        self.regional = newer.regional.or(self.regional);
    }
}

impl Usage {
    /// Takes over every count that `newer` knows. Counts of a call do not shrink to nothing: a
    /// zero for all of the input or output is a member that a server filled in, unless it was
    /// zero before. A zero for a part of the input, such as what was written to a cache, is real
    /// where the input is.
    pub fn overlay(&mut self, newer: Usage) {
        let mut newer = newer;
        if newer.input == Some(0) && self.input > Some(0) {
            let filled_in = |count: Option<u64>| count.filter(|count| *count > 0);
            newer.input = None;
            newer.cached_input = filled_in(newer.cached_input);
            newer.cache_write = filled_in(newer.cache_write);
            newer.cache_write_1h = filled_in(newer.cache_write_1h);
        }
        if newer.output == Some(0) && self.output > Some(0) {
            newer.output = None;
            newer.reasoning = newer.reasoning.filter(|count| *count > 0);
        }
        self.input = newer.input.or(self.input);
        self.cached_input = newer.cached_input.or(self.cached_input);
        self.cache_write = newer.cache_write.or(self.cache_write);
        self.cache_write_1h = newer.cache_write_1h.or(self.cache_write_1h);
        self.output = newer.output.or(self.output);
        self.reasoning = newer.reasoning.or(self.reasoning);
        self.details.overlay(newer.details);
    }

    /// Whether nothing at all was reported.
    pub fn is_empty(&self) -> bool {
        *self == Usage::default()
    }
}

/// The engine's own measurement of the call, where the body carries one
/// (llama.cpp's `timings`, Ollama's durations), in addition to our own figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct EngineReport {
    /// Prompt tokens evaluated.
    pub prompt_tokens: Option<u64>,
    /// Seconds of prefill.
    pub prompt_seconds: Option<f64>,
    /// Tokens generated.
    pub output_tokens: Option<u64>,
    /// Seconds of decoding.
    pub output_seconds: Option<f64>,
    /// Seconds of loading the model.
    pub load_seconds: Option<f64>,
    /// Seconds in all.
    pub total_seconds: Option<f64>,
}

/// What a decoder finds in a response, in the order of the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// A wire event begins: an SSE event with data, a line, an array element, a
    /// message, or a whole body. Everything up to the next one came in it.
    Message,
    /// Newly generated text, never empty.
    Delta {
        /// The contiguous text it continues.
        segment: Segment,
        /// The new piece of it.
        text: &'a str,
    },
    /// The tool that a call is for, never empty. Some servers repeat it.
    ToolName {
        /// The text that its arguments are.
        segment: Segment,
        /// The name of the tool.
        name: &'a str,
    },
    /// The model's name as the response gives it, never empty.
    Model(&'a str),
    /// The response's own id, never empty.
    ResponseId(&'a str),
    /// Why a choice ended, as sent.
    Finish {
        /// The choice that ended.
        choice: u32,
        /// The provider's word for it.
        reason: &'a str,
    },
    /// Token counts; what is known replaces what was.
    Usage(Usage),
    /// A usage has a number under a name that nobody knows here.
    UnknownUsage(&'a str),
    /// The engine's own measurement.
    Engine(EngineReport),
    /// The service tier that was served, never empty.
    ServiceTier(&'a str),
    /// The provider behind a gateway, never empty.
    ServedBy(&'a str),
    /// What the provider says that the call costs, in US dollars.
    Cost(f64),
    /// An error inside the body. Only its type or code: messages quote prompts.
    Error(&'a str),
    /// The provider begins or has finished to run a hosted tool, such as a web search.
    ServerTool(ServerTool),
    /// The connection's own session, never empty.
    Session(&'a str),
    /// A generation begins on a connection that carries several (Realtime).
    TurnStarted,
    /// A generation is over on a connection that carries several (Realtime).
    TurnEnded,
    /// The dialect's own terminator was seen.
    End,
    /// A wire event held no event of the dialect, and none of its text: it is left out.
    Skipped,
    /// A wire event was damaged, so that some text is missing.
    Damaged,
    /// Something could not be read, so that nobody knows how much is missing; it was forwarded
    /// nevertheless.
    Unparsed,
}

/// What happens to a tool that the provider runs itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerTool {
    /// It begins: the model waits from now on.
    Began,
    /// Its result is there.
    Ended,
}

/// What is read from a request: from a bounded copy of its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// The model asked for.
    pub model: Option<String>,
    /// Whether a stream was asked for, where the request or its dialect says.
    pub stream: Option<bool>,
    /// How many choices were asked for.
    pub choices: Option<u32>,
    /// Whether the agent asked for usage in the stream, or declined it.
    pub include_usage: Option<bool>,
    /// The user named in the body.
    pub user: Option<String>,
    /// The session named in the body.
    pub session: Option<String>,
    /// The key of the prompt cache: calls of one session often share one.
    pub session_hint: Option<String>,
    /// The session guessed by the beginning of the conversation, if that is enabled.
    pub prefix_session: Option<Arc<str>>,
    /// The class of service that was asked for, such as `flex`.
    pub service_tier: Option<String>,
    /// How much reasoning was asked for, in small letters, such as `high`.
    pub reasoning_effort: Option<String>,
    /// The values of the configured members, if there are any.
    pub configured: Option<Box<BodyNames>>,
}

/// The generation parameters of a request. Only spans have them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationSettings {
    /// The sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// How many of the likeliest tokens are sampled from.
    pub top_k: Option<f64>,
    /// Makes sampling repeatable.
    pub seed: Option<i64>,
    /// By how much tokens that came often are less likely.
    pub frequency_penalty: Option<f64>,
    /// By how much tokens that came at all are less likely.
    pub presence_penalty: Option<f64>,
    /// Output tokens, at most.
    pub max_tokens: Option<i64>,
    /// What ends the answer where it would come next; the first few, cut where they are long.
    pub stop_sequences: Vec<String>,
    /// What the answer is to be.
    pub output_type: Option<OutputType>,
    /// How the numbers of embeddings are written.
    pub encoding_format: Option<String>,
    /// Numbers of an embedding.
    pub dimensions: Option<i64>,
}

/// What an answer is to be; the words are those of the GenAI conventions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum OutputType {
    /// Plain text.
    Text,
    /// JSON, by a schema or not.
    Json,
    /// An image.
    Image,
    /// Speech.
    Speech,
}

impl OutputType {
    /// The conventions' word.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Who made a call, by the configured members of its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyNames {
    /// The session.
    pub session: Option<String>,
    /// The agent.
    pub agent: Option<String>,
    /// The user.
    pub user: Option<String>,
}

/// What a session is guessed by that nobody names.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum SessionGuess {
    /// Calls share the key of a prompt cache.
    PromptCacheKey,
    /// Calls share a trace.
    Trace,
    /// A call begins with the whole conversation of another.
    Prefix,
}

impl SessionGuess {
    /// The word used in records.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// How a call ended.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The response came whole.
    Complete,
    /// The agent left before the end.
    ClientCancelled,
    /// The upstream connection was lost, or the stream ended without its terminator.
    UpstreamReset,
    /// An error inside a 200.
    ErrorEvent,
    /// A status of 400 or above.
    HttpError,
    /// A time limit of ours passed.
    Timeout,
    /// Refused by a limit of ours, or because the request was malformed.
    Rejected,
    /// No connection to the upstream could be made.
    Unreachable,
    /// The proxy ended before the response did: the time to drain was over.
    Drained,
}

/// The `error_type` of a stream that ended without its terminator, where the connection was not lost.
pub const UNTERMINATED: &str = "unterminated";

/// The `error_type` of a 200 without any answer.
pub const EMPTY_RESPONSE: &str = "empty_response";

/// The `error_type` of a 200 in which nothing is JSON: a page of HTML, a part of an answer, damaged events.
pub const NOT_JSON: &str = "not_json";

/// The `error_type` of a prompt that the provider did not give to the model.
pub const PROMPT_BLOCKED: &str = "prompt_blocked";

impl Outcome {
    /// The word used in records and labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether the call failed: it did not end well, and its agent did not give it up.
    pub fn is_failure(self) -> bool {
        !matches!(self, Outcome::Complete | Outcome::ClientCancelled)
    }
}

/// Why a call has no `output_tps`. A wrong number is worse than none.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum TpsUnavailable {
    /// The answer came as one body.
    NotStreamed,
    /// Fewer tokens after the first chunk than the configured minimum.
    TooFewTokens,
    /// Fewer than four chunks with tokens.
    #[serde(rename = "too_few_frames")]
    #[strum(serialize = "too_few_frames")]
    TooFewChunks,
    /// Held back upstream and let go in a burst.
    Buffered,
    /// Several choices interleave.
    MultipleChoices,
    /// Far more output was reported than streamed, and reasoning is hidden.
    HiddenOutput,
    /// The agent read so slowly that the upstream's speed cannot be known.
    AgentLimited,
    /// Chunks were skipped because the meter outran its budget.
    Lagged,
    /// Unknown dialect or undecodable body.
    Unparsed,
    /// An error or a cancel before the minimum.
    EndedEarly,
}

impl TpsUnavailable {
    /// Every reason.
    pub const ALL: [TpsUnavailable; 10] = [
        TpsUnavailable::NotStreamed,
        TpsUnavailable::TooFewTokens,
        TpsUnavailable::TooFewChunks,
        TpsUnavailable::Buffered,
        TpsUnavailable::MultipleChoices,
        TpsUnavailable::HiddenOutput,
        TpsUnavailable::AgentLimited,
        TpsUnavailable::Lagged,
        TpsUnavailable::Unparsed,
        TpsUnavailable::EndedEarly,
    ];

    /// The word used in records and labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Where a token count comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The provider's own usage.
    Reported,
    /// Our tokenizer, over the whole text.
    Counted,
    /// Our tokenizer, where the provider bills by its own.
    Estimated,
}

/// Where the price of a call comes from.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum CostSource {
    /// The table of list prices that the binary carries.
    List,
    /// A price of the configuration.
    Configured,
    /// The GPUs one runs oneself, by the hour.
    Gpu,
    /// What the provider says in the response.
    Reported,
}

impl CostSource {
    /// The word used in records and labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Why a call has no cost. A wrong cost is worse than none.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum CostUnavailable {
    /// The upstream was not reached or refused the call, so nothing is billed.
    NotBilled,
    /// The model has no price, neither configured nor in the built-in list.
    NoPrice,
    /// A number of tokens that the price depends on is unknown.
    NoTokens,
    /// The price of the service tier is unknown.
    ServiceTier,
    /// Audio, images or video are billed at prices that are unknown.
    Modality,
    /// The provider's own tools, such as web search, are billed at a price that is unknown.
    HostedTools,
    /// The price of the region that processed the call is unknown.
    Region,
}

impl CostUnavailable {
    /// Every reason.
    pub const ALL: [CostUnavailable; 7] = [
        CostUnavailable::NotBilled,
        CostUnavailable::NoPrice,
        CostUnavailable::NoTokens,
        CostUnavailable::ServiceTier,
        CostUnavailable::Modality,
        CostUnavailable::HostedTools,
        CostUnavailable::Region,
    ];

    /// The word used in records and labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Everything known of one finished call. The field names are an interface.
/// Unknown is `null`, never 0. Times are seconds, sizes bytes.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Call")]
pub struct CallRecord {
    /// Our own id, sorting by start.
    pub id: String,
    /// Wall-clock start, RFC 3339, milliseconds, UTC.
    pub started_at: Timestamp,
    /// The route that matched.
    pub route: String,
    /// The upstream it went to.
    pub upstream: String,
    /// What the operator said of the upstream's engine and hardware then.
    #[serde(default)]
    pub upstream_facts: Option<Arc<UpstreamFacts>>,
    /// The endpoint of that upstream, `host:port`.
    pub endpoint: Option<String>,
    /// The shapes on the wire.
    pub dialect: Dialect,
    /// What was asked for.
    pub operation: Operation,
    /// The class of that operation: what error rates, objectives and lists go by.
    #[serde(default)]
    pub operation_class: OperationClass,
    /// The request's method.
    #[serde(default)]
    pub method: Option<String>,
    /// The request's path without its query, identifiers replaced by `{id}` or `{model}`.
    #[serde(default)]
    pub path: Option<String>,
    /// The model asked for.
    pub model_requested: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// Whether the answer came as a stream; `null` without an answer.
    pub streamed: Option<bool>,
    /// The upstream's HTTP status, or ours where it gave none.
    pub status: Option<u16>,
    /// How the call ended.
    pub outcome: Outcome,
    /// The kind of error: of the body's error event, or of what failed.
    pub error_type: Option<String>,
    /// Why each choice ended, as sent, by choice.
    pub finish_reasons: Vec<String>,
    /// The tools that the answer calls: each name once, in order, with a `+` between them; `null` where it calls none.
    #[serde(default)]
    pub tools: Option<String>,
    /// The session the agent named.
    pub session: Option<String>,
    /// What the session is guessed by; `null` where somebody names it.
    #[serde(default)]
    pub session_guess: Option<SessionGuess>,
    /// The agent, by its own name.
    pub agent: Option<String>,
    /// The agent that started this one, by the name it gave.
    pub parent_agent: Option<String>,
    /// The user, hashed.
    pub user: Option<String>,
    /// The team that pays for it.
    #[serde(default)]
    pub team: Option<String>,
    /// The cost center of that team.
    #[serde(default)]
    pub cost_center: Option<String>,
    /// The tenant for whom it was made.
    #[serde(default)]
    pub tenant: Option<String>,
    /// The digest of the key that it carried for the provider, where that is recorded; never the key.
    #[serde(default)]
    pub key_hash: Option<String>,
    /// The workload of the route.
    pub workload: Option<String>,
    /// The experiment the agent named.
    pub experiment: Option<String>,
    /// The variant of that experiment.
    pub variant: Option<String>,
    /// The W3C trace id the agent sent.
    pub trace_id: Option<String>,
    /// How many proxies of this kind the call had passed before: 0 is the outermost record
    /// of a call. `null` where nothing tells.
    #[serde(default)]
    pub hop: Option<u32>,
    /// The provider's id of the response.
    #[serde(default)]
    pub response_id: Option<String>,
    /// The service tier the response says was served, else the one asked for.
    #[serde(default)]
    pub service_tier: Option<String>,
    /// How much reasoning the request asked for, in small letters.
    #[serde(default)]
    pub reasoning_effort: Option<String>,
    /// The provider that a gateway such as OpenRouter or LiteLLM says it sent the call to.
    #[serde(default)]
    pub served_by: Option<String>,
    /// Whether the upstream had just come up.
    pub warm_up: bool,
    /// Token counts.
    pub tokens: Tokens,
    /// Instants and durations.
    pub seconds: Seconds,
    /// Speeds.
    pub tps: Tps,
    /// Chunks that carried generated text.
    pub frames: u64,
    /// Gaps between such chunks over the stall threshold.
    pub stalls: u64,
    /// The speed within a long stream, in segments of ten seconds from its first token.
    #[serde(default)]
    pub segments: Vec<SpeedSegment>,
    /// Index of the wire event that carried the first generated text.
    pub first_token_event: Option<u64>,
    /// Events of the stream that could not be read and were left out of the measurement.
    #[serde(default)]
    pub skipped_events: u64,
    /// Body sizes.
    pub bytes: Bytes,
    /// Cost in US dollars; unknown without a price.
    pub cost_usd: Option<f64>,
    /// Where the price came from; `null` without one.
    pub cost_source: Option<CostSource>,
    /// Why there is no cost; `null` where there is one.
    #[serde(default)]
    pub cost_unavailable: Option<CostUnavailable>,
    /// The engine's own measurement, where the body has one.
    pub engine: Option<EngineReport>,
    /// The pod that measured it; only where calls of several are together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Arc<PodName>>,
}

impl CallRecord {
    /// The record that a line of a call log is. Lines of before there were classes of operations
    /// have that of their operation.
    ///
    /// # Errors
    /// Where the line is no call record.
    pub fn of_line(line: &str) -> serde_json::Result<CallRecord> {
        let mut record: CallRecord = serde_json::from_str(line)?;
        if record.operation_class == OperationClass::Other {
            record.operation_class = record.operation.class();
        }
        Ok(record)
    }
}

/// The token counts of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "CallTokens")]
pub struct Tokens {
    /// o200k_base tokens of the text that came.
    pub normalised: Normalised,
    /// The provider's own usage.
    pub reported: Usage,
    /// Where the counts to account with come from: the provider's usage where it
    /// gave one, else our own count; `null` where nothing was counted.
    pub source: Option<Source>,
}

/// o200k_base tokens by channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Normalised {
    /// Visible text.
    pub answer: Option<u64>,
    /// Reasoning.
    pub reasoning: Option<u64>,
    /// Arguments of tool calls.
    pub tool_call: Option<u64>,
    /// All channels.
    pub output: Option<u64>,
    /// The request's texts, where the provider did not report the input.
    pub input: Option<u64>,
}

/// The durations of one call, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "CallSeconds")]
pub struct Seconds {
    /// first_token − received.
    pub ttft: Option<f64>,
    /// first_token − sent.
    pub ttft_upstream: Option<f64>,
    /// first_answer − received.
    pub first_answer: Option<f64>,
    /// connected − received.
    pub connect: Option<f64>,
    /// sent − connected.
    pub upload: Option<f64>,
    /// last_token − received.
    pub last_token: Option<f64>,
    /// The longest gap between chunks with generated text.
    pub longest_gap: Option<f64>,
    /// ended − received.
    pub duration: Option<f64>,
    /// How long the proxy waited, while tokens came, for an agent that did not read.
    #[serde(default)]
    pub agent_blocked: Option<f64>,
    /// How long the provider ran its own tools, such as web search, between the first token and
    /// the last. Speeds of decoding leave it out.
    #[serde(default)]
    pub server_tools: Option<f64>,
}

/// Seconds of one [`SpeedSegment`].
pub const SEGMENT_SECONDS: u64 = 10;

/// A part of a stream, ten seconds long but for the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct SpeedSegment {
    /// Normalised tokens that came within it, those of the first chunk left out.
    pub tokens: u64,
    /// How long it was.
    pub seconds: f64,
}

/// The speeds of one call, in normalised tokens per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "CallTps")]
pub struct Tps {
    /// (n − n_first) / (last_token − first_token).
    pub output: Option<f64>,
    /// The same from the first answer on, reasoning left out.
    pub answer: Option<f64>,
    /// n / duration.
    pub total: Option<f64>,
    /// `output` in the provider's tokens: times reported ÷ normalised output tokens.
    #[serde(default)]
    pub reported: Option<f64>,
    /// Input tokens ÷ `ttft_upstream`; uncached ones where those are known.
    #[serde(default)]
    pub prefill: Option<f64>,
    /// Why `output` is unknown.
    pub unavailable: Option<TpsUnavailable>,
    /// Why `total` is unknown.
    #[serde(default)]
    pub total_unavailable: Option<TpsUnavailable>,
}

/// The body sizes of one call, as forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "CallBytes")]
pub struct Bytes {
    /// Request body bytes.
    pub request: u64,
    /// Response body bytes.
    pub response: u64,
}

/// Seconds from `earlier` to `later`; 0 where they are out of order.
pub fn seconds_between(earlier: Instant, later: Instant) -> f64 {
    later.saturating_duration_since(earlier).as_secs_f64()
}

/// A duration as fractional seconds, for records.
pub fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
