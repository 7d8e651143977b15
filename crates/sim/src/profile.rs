//! The behaviour of a simulated model: defaults, overridden by `key=value` settings on the command
//! line and in the request header `x-sim`. [`HELP`] documents them.

use super::setting_error::SettingError;
use std::time::Duration;

/// The description of all settings for the command line.
pub const HELP: &str = "\
Settings are KEY=VALUE, separated by commas. Durations: 250us, 20ms, 1.5s, 2m.
  ttft=200ms            request read -> first token
  head=0ms              request read -> response head
  gap=20ms              between chunks with tokens; gap=20ms~5ms uniform in 15..25 ms; gap=exp:20ms exponential
  tokens=128            tokens of the visible answer; tokens=64..256 a random number in this range
  per_frame=1           tokens per event
  burst=1               events per chunk (per write to the socket)
  reasoning=0           tokens of reasoning before the answer
  repeat=11@300         after 300 tokens the answer repeats the same 11 tokens until its end
  tool=24               one tool call with 24 tokens of arguments; tool=24x2 two of them
  prefill=0ms           additional time to first token per 1000 prompt tokens
  knee=8                concurrent streams up to which throughput grows; more streams share it
  stall=500ms@40        a pause before token 40; may be repeated
  reset=@60             connection reset (RST) after 60 tokens
  close=@60             connection closed without a terminator after 60 tokens
  error=@30             error event after 30 tokens; error=TYPE@30 names it
  status=429            an HTTP error instead of an answer
  gzip                  content-encoding gzip, flushed per chunk
  slow_start=4x@16      gaps 4 times as long for the first 16 tokens
  cold_start=2s@5       2 s of additional time to first token for the first 5 calls of the process
  usage=auto            auto: as the dialect does, include_usage honoured; on; off
  cache=5m              report the beginning of a prompt as cached if it was sent in the last 5 minutes (Chat, Responses, Anthropic, Gemini)
  empty=0               empty deltas before the first token (Chat, Completions, Gemini, Converse, Ollama)
  ping=5s               a ping or comment after every 5 s without a chunk, where the framing has one
  finish=stop           or length; refused (Chat, Anthropic, Gemini, Converse, Cohere); invalid_tool_call (Gemini, Converse)
  seed=7                seed of the text and the gaps; by default it follows from the call's id
  cut=random            how a recorded body is cut: a number of bytes, random or random:SEED; by default whole events
  plain                 discard all previous settings
Settings that a dialect cannot express, such as tool calls in text completions, are ignored.
Other request headers: x-sim-id sets the id of the call in the truth and in the response;
x-sim-body serves the recording of that name. GET /sim/truth?limit=N returns what the simulator really did.";

#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// From the end of the request to the first token.
    pub ttft: Duration,
    /// From the end of the request to the response head.
    pub head: Duration,
    pub gap: Gap,
    pub tokens: (u64, u64),
    pub per_frame: u64,
    pub burst: u64,
    pub reasoning: u64,
    /// The period in tokens of an answer that repeats itself, and the tokens before the first period.
    pub repeat: Option<(u64, u64)>,
    pub tool: Option<ToolCalls>,
    /// Additional time to first token per 1,000 prompt tokens.
    pub prefill: Duration,
    /// The number of concurrent streams up to which throughput grows.
    pub knee: Option<u32>,
    /// Pauses, and the token before which each happens.
    pub stalls: Vec<(Duration, u64)>,
    pub fault: Option<Fault>,
    pub status: Option<u16>,
    pub gzip: bool,
    /// The factor on gaps, and the number of first tokens it applies to.
    pub slow_start: Option<(f64, u64)>,
    /// Additional time to first token, and the number of first calls it applies to.
    pub cold_start: Option<(Duration, u64)>,
    pub usage: UsageMode,
    /// How long the provider keeps prompts in its cache. `None`: no cache.
    pub cache: Option<Duration>,
    /// The number of empty deltas before the first token.
    pub empty: u64,
    /// A ping or comment is sent after this time without a chunk.
    pub ping: Option<Duration>,
    pub finish: Finish,
    pub seed: Option<u64>,
    pub cut: Cut,
}

/// The distribution of gaps between chunks with tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gap {
    Constant(Duration),
    /// Uniform around a mean: the mean, and the greatest deviation.
    Jitter(Duration, Duration),
    /// Exponential with this mean.
    Exponential(Duration),
}

/// The number of tool calls, and the tokens of each call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolCalls {
    pub calls: u64,
    pub tokens: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    pub after: u64,
}

/// A failure in the middle of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Resets the connection, or on HTTP/2 the stream.
    Reset,
    Close,
    /// Sends an error event of this type, or of the dialect's usual type.
    Error(Option<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageMode {
    /// Sends usage where the dialect does. `include_usage` is honoured.
    Auto,
    On,
    Off,
}

/// Why the answer ends, if no tool is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    Stop,
    Length,
    /// A filter or the model refused to answer.
    Refused,
    /// The provider could not read the model's tool call.
    InvalidToolCall,
}

/// How a recorded body is cut into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A chunk ends after every event of the framing.
    Events,
    /// A chunk ends after each group of this many bytes.
    Bytes(u64),
    /// Chunks end at random places that follow from the seed.
    Random(Option<u64>),
}

impl Default for Profile {
    fn default() -> Self {
        Profile {
            ttft: Duration::from_millis(200),
            head: Duration::ZERO,
            gap: Gap::Constant(Duration::from_millis(20)),
            tokens: (128, 128),
            per_frame: 1,
            burst: 1,
            reasoning: 0,
            repeat: None,
            tool: None,
            prefill: Duration::ZERO,
            knee: None,
            stalls: Vec::new(),
            fault: None,
            status: None,
            gzip: false,
            slow_start: None,
            cold_start: None,
            usage: UsageMode::Auto,
            cache: None,
            empty: 0,
            ping: None,
            finish: Finish::Stop,
            seed: None,
            cut: Cut::Events,
        }
    }
}

impl Profile {
    /// All tokens of one choice if no fault happens.
    pub fn most_tokens(&self) -> u64 {
        let tools = self
            .tool
            .map_or(0, |tool| tool.calls.saturating_mul(tool.tokens));
        self.tokens
            .1
            .saturating_add(self.reasoning)
            .saturating_add(tools)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("x-sim setting `{setting}`: {reason}")]
pub struct InvalidSetting {
    pub setting: String,
    pub reason: SettingError,
}
