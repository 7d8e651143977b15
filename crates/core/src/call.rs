//! The domain types: calls, their records and the events of a response.

pub use crate::dialect::Dialect;
use crate::pod::PodName;
use crate::prompt::{PromptBreak, PromptParts, Repetition, Wait};
use crate::score::Score;
use crate::time::Timestamp;
use crate::upstream_facts::UpstreamFacts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a request asks for. Names are from the GenAI semantic conventions where those define one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// The next message of a conversation.
    Chat,
    /// The continuation of a prompt.
    TextCompletion,
    /// Gemini's name for a chat.
    GenerateContent,
    /// A live spoken conversation.
    Realtime,
    /// Embedding vectors for texts.
    Embeddings,
    /// A ranking of documents.
    Rerank,
    /// Reads a stored object without generating anything.
    Retrieve,
    /// Any other request.
    #[default]
    Unknown,
}

/// The class of an operation. Only generations and embeddings count in objectives and error rates.
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
    /// A model generates text, speech or images.
    Generation,
    /// Embedding vectors for texts, or a ranking of documents.
    Embedding,
    /// Reads a stored object.
    Retrieve,
    /// Any other request, such as a list of models, a health check or a file.
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

    /// Whether the class counts in objectives and error rates, and in lists by default.
    pub fn counts(self) -> bool {
        matches!(self, OperationClass::Generation | OperationClass::Embedding)
    }

    /// The name in records and labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Operation {
    /// The class of the operation.
    pub fn class(self) -> OperationClass {
        match self {
            Operation::Embeddings | Operation::Rerank => OperationClass::Embedding,
            Operation::Retrieve => OperationClass::Retrieve,
            Operation::Unknown => OperationClass::Other,
            _ => OperationClass::Generation,
        }
    }
}

/// The purpose of generated text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// Text for the user: text, a refusal or the transcript of speech.
    Answer,
    /// Reasoning of the model.
    Reasoning,
    /// Arguments of a tool call.
    ToolCall,
}

/// Identifies one contiguous text of a response, which is tokenized as one string. Segments are
/// ordered as their texts in the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Segment {
    /// Index of the choice, candidate or generation.
    pub choice: u32,
    /// Index of the content block, part or tool call within the choice.
    pub index: u32,
    /// The purpose of the text.
    pub channel: Channel,
}

/// Token counts as the provider reported them. Unknown is `null`, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Usage {
    /// All input tokens, including tokens read from or written to a cache. Anthropic and Bedrock
    /// exclude cached tokens from their input tokens: their count is `input - cached_input -
    /// cache_write`.
    pub input: Option<u64>,
    /// Input tokens read from a cache.
    pub cached_input: Option<u64>,
    /// Input tokens written to a cache.
    pub cache_write: Option<u64>,
    /// The part of `cache_write` that is kept for an hour, which has another price. Not in records.
    #[serde(skip)]
    pub cache_write_1h: Option<u64>,
    /// All output tokens, reasoning included.
    pub output: Option<u64>,
    /// Output tokens spent on reasoning.
    pub reasoning: Option<u64>,
    /// Counts that only prices and plausibility checks use. Not in records.
    #[serde(skip)]
    pub details: UsageDetails,
}

/// Parts of a usage that only prices and plausibility checks of speeds use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageDetails {
    /// Billed input tokens, if the provider reports them separately from processed ones.
    pub billed_input: Option<u64>,
    /// Billed output tokens, if the provider reports them separately from processed ones.
    pub billed_output: Option<u64>,
    /// Output tokens that are billed but never sent, such as rejected predictions and the summaries
    /// of a compaction.
    pub unsent_output: Option<u64>,
    /// Audio input tokens.
    pub audio_input: Option<u64>,
    /// Audio input tokens read from a cache.
    pub cached_audio_input: Option<u64>,
    /// Audio output tokens.
    pub audio_output: Option<u64>,
    /// Image and video output tokens.
    pub image_output: Option<u64>,
    /// Number of web searches by the provider.
    pub searches: Option<u64>,
    /// Whether the provider searched the web, if only the response text shows it.
    pub searched: Option<bool>,
    /// Number of uses of other tools that the provider bills separately from tokens.
    pub other_tools: Option<u64>,
    /// Whether a region with different prices processed the call.
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
    /// Updates every count that `newer` reports. A zero for the whole input or output does not
    /// replace a larger count, because some servers fill in missing members with zeros. The zeros
    /// for parts of such an input or output are also ignored.
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

    /// Whether no count is known.
    pub fn is_empty(&self) -> bool {
        *self == Usage::default()
    }
}

/// The engine's own measurement of the call, if the response contains one: llama.cpp's `timings`,
/// Ollama's durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct EngineReport {
    /// Number of prompt tokens that the engine evaluated.
    pub prompt_tokens: Option<u64>,
    /// Prefill time in seconds.
    pub prompt_seconds: Option<f64>,
    /// Number of generated tokens.
    pub output_tokens: Option<u64>,
    /// Decode time in seconds.
    pub output_seconds: Option<f64>,
    /// Time to load the model in seconds.
    pub load_seconds: Option<f64>,
    /// Total time in seconds.
    pub total_seconds: Option<f64>,
}

/// An event that a decoder finds in a response. Events are in the order of the bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// A wire event begins: an SSE event with data, a line, an array element, a message, or a whole
    /// body. All events until the next `Message` are part of it.
    Message,
    /// New generated text, never empty.
    Delta {
        /// The text that the delta continues.
        segment: Segment,
        /// The new part of the text.
        text: &'a str,
    },
    /// The name of a called tool, never empty. Some servers repeat it.
    ToolName {
        /// The segment of the arguments of the call.
        segment: Segment,
        /// Name of the tool.
        name: &'a str,
    },
    /// The model name in the response, never empty.
    Model(&'a str),
    /// The id in the response, never empty.
    ResponseId(&'a str),
    /// A choice ended.
    Finish {
        /// Index of the choice.
        choice: u32,
        /// The finish reason as the provider sent it.
        reason: &'a str,
    },
    /// Token counts. Known counts replace earlier ones.
    Usage(Usage),
    /// The name of a number in a usage that no table of usage names contains.
    UnknownUsage(&'a str),
    /// The engine's own measurement of the call.
    Engine(EngineReport),
    /// The service tier of the response, never empty.
    ServiceTier(&'a str),
    /// The provider that a gateway used, never empty.
    ServedBy(&'a str),
    /// The cost of the call in US dollars, as the provider reports it.
    Cost(f64),
    /// The type or code of an error in the body. Messages are not included, because they quote
    /// prompts.
    Error(&'a str),
    /// The start or the end of a hosted tool, such as a web search.
    ServerTool(ServerTool),
    /// The session id of the connection, never empty.
    Session(&'a str),
    /// A generation began on a connection that carries several (Realtime).
    TurnStarted,
    /// A generation ended on a connection that carries several (Realtime).
    TurnEnded,
    /// The terminator of the dialect.
    End,
    /// A wire event that does not belong to the dialect was skipped. None of its text is counted.
    Skipped,
    /// A wire event was damaged. Some text is missing.
    Damaged,
    /// Part of the response could not be read, so an unknown amount of text is missing. It was
    /// forwarded.
    Unparsed,
}

/// The state of a hosted tool, which the provider runs itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerTool {
    /// The tool started. The model waits for the result.
    Began,
    /// The result of the tool has arrived.
    Ended,
}

/// Facts read from a bounded copy of a request body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// The requested model.
    pub model: Option<String>,
    /// Whether a stream was requested, if the request or the dialect says so.
    pub stream: Option<bool>,
    /// The number of choices that were requested.
    pub choices: Option<u32>,
    /// Whether the agent requested usage in the stream (`true`) or declined it (`false`).
    pub include_usage: Option<bool>,
    /// The user that the body names.
    pub user: Option<String>,
    /// The session that the body names.
    pub session: Option<String>,
    /// The prompt cache key, which calls of one session often share.
    pub session_hint: Option<String>,
    /// The session guessed from the beginning of the conversation, if that is enabled.
    pub prefix_session: Option<Arc<str>>,
    /// The requested service tier, such as `flex`.
    pub service_tier: Option<String>,
    /// The requested reasoning effort in lower case, such as `high`.
    pub reasoning_effort: Option<String>,
    /// The values of the members that are configured to name session, agent and user.
    pub configured: Option<Box<BodyNames>>,
}

/// The generation parameters of a request. Only spans contain them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationSettings {
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling: the probability mass of the tokens that are considered.
    pub top_p: Option<f64>,
    /// The number of most likely tokens that are considered.
    pub top_k: Option<f64>,
    /// Seed of the sampling.
    pub seed: Option<i64>,
    /// Penalty for tokens by how often they occurred.
    pub frequency_penalty: Option<f64>,
    /// Penalty for tokens that occurred at all.
    pub presence_penalty: Option<f64>,
    /// Maximum number of output tokens.
    pub max_tokens: Option<i64>,
    /// Texts that end the generation. Only the first few are kept, and long ones are truncated.
    pub stop_sequences: Vec<String>,
    /// The requested type of the output.
    pub output_type: Option<OutputType>,
    /// The requested encoding of embedding vectors.
    pub encoding_format: Option<String>,
    /// The requested number of dimensions of an embedding.
    pub dimensions: Option<i64>,
}

/// The type of the output, with the names of the GenAI semantic conventions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum OutputType {
    /// Plain text.
    Text,
    /// JSON, with or without a schema.
    Json,
    /// An image.
    Image,
    /// Speech.
    Speech,
}

impl OutputType {
    /// The name in the GenAI semantic conventions.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The names in the configured members of a request body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyNames {
    /// Name of the session.
    pub session: Option<String>,
    /// Name of the agent.
    pub agent: Option<String>,
    /// Name of the user.
    pub user: Option<String>,
}

/// How the session of a call was guessed, if the request does not name one.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum SessionGuess {
    /// Calls with the same prompt cache key.
    PromptCacheKey,
    /// Calls with the same trace id.
    Trace,
    /// A call that begins with the whole conversation of an earlier call.
    Prefix,
}

impl SessionGuess {
    /// The name in records.
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
    /// The response was complete.
    Complete,
    /// The agent disconnected before the end of the response.
    ClientCancelled,
    /// The upstream connection was lost, or the stream ended without its terminator.
    UpstreamReset,
    /// A response with status 200 contained an error.
    ErrorEvent,
    /// The upstream responded with a status of 400 or above.
    HttpError,
    /// A timeout of the proxy expired.
    Timeout,
    /// The proxy refused the request, because of a limit or because it was malformed.
    Rejected,
    /// The proxy could not connect to the upstream.
    Unreachable,
    /// The proxy shut down before the response ended, after the drain timeout.
    Drained,
}

/// The `error_type` of a stream that ended without its terminator, although the connection was not
/// lost.
pub const UNTERMINATED: &str = "unterminated";

/// The `error_type` of a response with status 200 that contains no answer.
pub const EMPTY_RESPONSE: &str = "empty_response";

/// The `error_type` of a response with status 200 that contains no valid JSON: an HTML page, a
/// truncated answer, damaged events.
pub const NOT_JSON: &str = "not_json";

/// The `error_type` of a prompt that the provider refused to pass to the model.
pub const PROMPT_BLOCKED: &str = "prompt_blocked";

impl Outcome {
    /// The name in records and labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether the call failed. A call that the agent cancelled did not fail.
    pub fn is_failure(self) -> bool {
        !matches!(self, Outcome::Complete | Outcome::ClientCancelled)
    }
}

/// Why a call has no `output_tps`.
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
    /// The response was not streamed.
    NotStreamed,
    /// The response has fewer tokens after the first chunk than the configured minimum.
    TooFewTokens,
    /// The response has fewer than four chunks with tokens.
    #[serde(rename = "too_few_frames")]
    #[strum(serialize = "too_few_frames")]
    TooFewChunks,
    /// The response was buffered upstream and released in a burst.
    Buffered,
    /// Several choices are interleaved.
    MultipleChoices,
    /// Far more output was reported than streamed, so reasoning is hidden.
    HiddenOutput,
    /// The agent read too slowly to measure the speed of the upstream.
    AgentLimited,
    /// Chunks were skipped because the meter exceeded its time or memory budget.
    Lagged,
    /// The dialect is unknown or the body cannot be decoded.
    Unparsed,
    /// The call failed or was cancelled before the minimum number of tokens.
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

    /// The name in records and labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The source of a token count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The provider reported the count.
    Reported,
    /// The tokenizer of the proxy counted the whole text.
    Counted,
    /// The tokenizer of the proxy counted the text, but the provider bills by a different
    /// tokenizer.
    Estimated,
}

/// The source of the price of a call.
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
    /// The built-in price list.
    List,
    /// A configured price.
    Configured,
    /// The configured cost per hour of self-hosted GPUs.
    Gpu,
    /// The provider reported the cost in the response.
    Reported,
}

impl CostSource {
    /// The name in records and labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Why a call has no cost.
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

    /// The name in records and labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The record of one finished call. The field names are a stable interface. Unknown values are
/// `null`, never 0. Times are in seconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Call")]
pub struct CallRecord {
    /// Unique id of the call. Ids sort by start time.
    pub id: String,
    /// Start of the call by the wall clock: RFC 3339, milliseconds, UTC.
    pub started_at: Timestamp,
    /// Name of the route that matched.
    pub route: String,
    /// Name of the upstream that the call went to.
    pub upstream: String,
    /// The engine and hardware of the upstream, as configured at the time of the call.
    #[serde(default)]
    pub upstream_facts: Option<Arc<UpstreamFacts>>,
    /// The endpoint of the upstream, as `host:port`.
    pub endpoint: Option<String>,
    /// The wire format of request and response.
    pub dialect: Dialect,
    /// What the request asks for.
    pub operation: Operation,
    /// The class of the operation. Error rates, objectives and lists depend on it.
    #[serde(default)]
    pub operation_class: OperationClass,
    /// HTTP method of the request.
    #[serde(default)]
    pub method: Option<String>,
    /// Path of the request without the query. Identifiers are replaced by `{id}` or `{model}`.
    #[serde(default)]
    pub path: Option<String>,
    /// The model that was requested.
    pub model_requested: Option<String>,
    /// The model that responded.
    pub model: Option<String>,
    /// Whether the response was streamed. `null` without a response.
    pub streamed: Option<bool>,
    /// HTTP status from the upstream, or from the proxy if the upstream sent none.
    pub status: Option<u16>,
    /// How the call ended.
    pub outcome: Outcome,
    /// The type of the error in the response body, or the kind of failure.
    pub error_type: Option<String>,
    /// The finish reason of each choice, as the provider sent it.
    pub finish_reasons: Vec<String>,
    /// The names of the tools that the response calls, each once, in order, joined by `+`. `null`
    /// if it calls none.
    #[serde(default)]
    pub tools: Option<String>,
    /// The session that the request names.
    pub session: Option<String>,
    /// How the session was guessed. `null` if the request names it.
    #[serde(default)]
    pub session_guess: Option<SessionGuess>,
    /// The name of the agent.
    pub agent: Option<String>,
    /// The name of the agent that started this agent.
    pub parent_agent: Option<String>,
    /// The user, hashed unless configured otherwise.
    pub user: Option<String>,
    /// The team that pays for the call.
    #[serde(default)]
    pub team: Option<String>,
    /// The cost center of the team.
    #[serde(default)]
    pub cost_center: Option<String>,
    /// The tenant for whom the call was made.
    #[serde(default)]
    pub tenant: Option<String>,
    /// The digest of the provider key in the request, if recording it is enabled. The key itself is
    /// never recorded.
    #[serde(default)]
    pub key_hash: Option<String>,
    /// Name of the workload of the route.
    pub workload: Option<String>,
    /// Name of the experiment that the call was part of.
    pub experiment: Option<String>,
    /// Name of the variant of the experiment.
    pub variant: Option<String>,
    /// W3C trace id of the call.
    pub trace_id: Option<String>,
    /// Number of tokengauge proxies that the call passed before this one. 0 is the outermost record
    /// of a call. `null` if unknown.
    #[serde(default)]
    pub hop: Option<u32>,
    /// The provider's id of the response.
    #[serde(default)]
    pub response_id: Option<String>,
    /// The service tier in the response, otherwise the requested one.
    #[serde(default)]
    pub service_tier: Option<String>,
    /// The requested reasoning effort, in lower case.
    #[serde(default)]
    pub reasoning_effort: Option<String>,
    /// The provider that a gateway such as OpenRouter or LiteLLM used, according to the response.
    #[serde(default)]
    pub served_by: Option<String>,
    /// Whether the upstream had just started.
    pub warm_up: bool,
    /// Token counts of the call.
    pub tokens: Tokens,
    /// Durations of the call.
    pub seconds: Seconds,
    /// Speeds of the call in tokens per second.
    pub tps: Tps,
    /// Number of chunks with generated text.
    pub frames: u64,
    /// Number of gaps between chunks with generated text that exceed the stall threshold.
    pub stalls: u64,
    /// The speed over time within a long stream, in segments of ten seconds from the first token.
    #[serde(default)]
    pub segments: Vec<SpeedSegment>,
    /// Index of the wire event with the first generated text.
    pub first_token_event: Option<u64>,
    /// Number of events of the stream that could not be read and were not measured.
    #[serde(default)]
    pub skipped_events: u64,
    /// Sizes of the bodies.
    pub bytes: Bytes,
    /// Cost of the call in US dollars. `null` if the price is unknown.
    pub cost_usd: Option<f64>,
    /// The source of the price. `null` without a price.
    pub cost_source: Option<CostSource>,
    /// Why there is no cost. `null` if there is a cost.
    #[serde(default)]
    pub cost_unavailable: Option<CostUnavailable>,
    /// The engine's own measurement of the call, if the response contains one.
    pub engine: Option<EngineReport>,
    /// What the prompt consists of. `null` if it was not analyzed.
    #[serde(default)]
    pub prompt: Option<Box<PromptParts>>,
    /// The time since the previous turn of the conversation. `null` for a first turn.
    #[serde(default)]
    pub wait: Option<Box<Wait>>,
    /// Why the prompt cache missed. `null` if it did not miss.
    #[serde(default)]
    pub cache_break: Option<Box<PromptBreak>>,
    /// The id of the earlier call with the same request, which failed.
    #[serde(default)]
    pub retry_of: Option<String>,
    /// What the response repeats again and again. `null` if it repeats nothing.
    #[serde(default)]
    pub repetition: Option<Box<Repetition>>,
    /// Keyed hashes of the prompt's blocks of 64 tokens. Each hash includes all earlier blocks.
    /// `null` unless `prompt_blocks` is enabled.
    #[serde(default)]
    pub prompt_blocks: Option<Vec<u64>>,
    /// The pod that measured the call. Only present where calls of several pods are combined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Arc<PodName>>,
    /// What programs outside the proxy say about the quality of the call, its session and its trace. Absent if there
    /// is no score.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<Score>,
}

impl CallRecord {
    /// Parses a line of a call log. Lines from versions without operation classes get the class of
    /// their operation.
    ///
    /// # Errors
    /// Returns an error if the line is not a call record.
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
    /// o200k_base tokens of the text of the response.
    pub normalised: Normalised,
    /// Token counts that the provider reported.
    pub reported: Usage,
    /// The source of the counts for accounting: the provider if it reported usage, otherwise the
    /// tokenizer of the proxy. `null` if nothing was counted.
    pub source: Option<Source>,
}

/// o200k_base tokens by channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Normalised {
    /// Tokens of visible text.
    pub answer: Option<u64>,
    /// Tokens of reasoning.
    pub reasoning: Option<u64>,
    /// Tokens of tool call arguments.
    pub tool_call: Option<u64>,
    /// Tokens of all channels.
    pub output: Option<u64>,
    /// Tokens of the request texts, if the provider did not report input tokens.
    pub input: Option<u64>,
}

/// The durations of one call, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "CallSeconds")]
pub struct Seconds {
    /// Time to first token, from the request head: first_token − received.
    pub ttft: Option<f64>,
    /// Time to first token, from the complete request: first_token − sent.
    pub ttft_upstream: Option<f64>,
    /// Time to the first text other than reasoning: first_answer − received.
    pub first_answer: Option<f64>,
    /// Time until an upstream connection was ready: connected − received.
    pub connect: Option<f64>,
    /// Time to send the request: sent − connected.
    pub upload: Option<f64>,
    /// Time to last token: last_token − received.
    pub last_token: Option<f64>,
    /// The longest gap between chunks with generated text.
    pub longest_gap: Option<f64>,
    /// Duration of the call: ended − received.
    pub duration: Option<f64>,
    /// Time during which the agent did not read while tokens arrived.
    #[serde(default)]
    pub agent_blocked: Option<f64>,
    /// Time that the provider ran hosted tools, such as web search, between the first and the last
    /// token. Decode speeds exclude it.
    #[serde(default)]
    pub server_tools: Option<f64>,
}

/// Duration of one [`SpeedSegment`] in seconds.
pub const SEGMENT_SECONDS: u64 = 10;

/// A segment of a stream. Every segment but the last lasts ten seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct SpeedSegment {
    /// Normalised tokens that arrived in the segment. Tokens of the first chunk are excluded.
    pub tokens: u64,
    /// Duration of the segment in seconds.
    pub seconds: f64,
}

/// The speeds of one call, in normalised tokens per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "CallTps")]
pub struct Tps {
    /// Decode speed: (n − n_first) / (last_token − first_token).
    pub output: Option<f64>,
    /// Decode speed of text other than reasoning, from the first such text on.
    pub answer: Option<f64>,
    /// Tokens per second over the whole call: n / duration.
    pub total: Option<f64>,
    /// `output` in tokens of the provider: multiplied by reported ÷ normalised output tokens.
    #[serde(default)]
    pub reported: Option<f64>,
    /// Prefill speed: input tokens ÷ `ttft_upstream`. Cached tokens are excluded if their number is
    /// known.
    #[serde(default)]
    pub prefill: Option<f64>,
    /// Why `output` is unknown.
    pub unavailable: Option<TpsUnavailable>,
    /// Why `total` is unknown.
    #[serde(default)]
    pub total_unavailable: Option<TpsUnavailable>,
}

/// The sizes of the bodies of one call, as forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "CallBytes")]
pub struct Bytes {
    /// Size of the request body in bytes.
    pub request: u64,
    /// Size of the response body in bytes.
    pub response: u64,
}

/// Seconds from `earlier` to `later`. 0 if they are out of order.
pub fn seconds_between(earlier: Instant, later: Instant) -> f64 {
    later.saturating_duration_since(earlier).as_secs_f64()
}

/// A duration in seconds with a fraction, for records.
pub fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
