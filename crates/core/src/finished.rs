//! A finished call, as the meter passes it to subscribers.

use crate::call::{CallRecord, GenerationSettings, TpsUnavailable};
use crate::caller::Charge;
use crate::inter_token::InterToken;
use crate::observer::FailureKind;
use crate::throughput::FinishedGeneration;
use crate::trace::CallTrace;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use uuid::Uuid;

/// The record of a finished call, with details that are not part of the record.
#[derive(Clone, Debug)]
pub struct FinishedCall {
    /// The call record.
    pub record: CallRecord,
    /// The id of the record.
    pub id: Uuid,
    /// The W3C trace id of the record.
    pub trace_id: Option<u128>,
    /// Why the proxy ended the call, if it did. The record has the name of the failure as
    /// `error_type`.
    pub failure: Option<FailureKind>,
    /// When the call ended.
    pub ended: Instant,
    /// The other instants of the call.
    pub timestamps: CallTimestamps,
    /// The spans of the call, if tracing is enabled.
    pub trace: Option<CallTrace>,
    /// The `tracestate` of the request, if the agent's trace is continued and recorded.
    pub trace_state: Option<Box<str>>,
    /// The generation parameters of the request, if the spans of the call are recorded.
    pub request_parameters: Option<Box<RequestParameters>>,
    /// Whether the trace of the record is recorded and can be looked up.
    pub sampled: bool,
    /// The id in the response.
    pub response_id: Option<String>,
    /// Whether the session was guessed.
    pub guessed_session: bool,
    /// Whether the call was made on behalf of another call of this process. That call already
    /// counts for the session.
    pub nested: bool,
    /// The blocking budgets that the call counts towards, with the name it counts under.
    pub charges: Arc<[Charge]>,
    /// Streams in flight on the upstream when the call began, including the call.
    pub concurrency: u32,
    /// Tokens after the first chunk and the seconds that they took, if `output_tps` is known.
    pub decode: Option<(u64, f64)>,
    /// A hash of the name and arguments of each tool call in the response, keyed with a random key
    /// of this process.
    pub tool_calls: Box<[u64]>,
    /// Latencies between tokens.
    pub inter_token: Option<Box<InterToken>>,
    /// Gaps between chunks with generated text.
    pub inter_chunk: Option<Box<InterToken>>,
    /// The time that the proxy spent on the request and response heads.
    pub head_overhead: Option<Duration>,
    /// The longest time that the proxy spent on one chunk of the response body.
    pub chunk_overhead: Option<Duration>,
}

impl FinishedCall {
    /// The call as system throughput counts it.
    pub fn throughput(&self) -> FinishedGeneration {
        let record = &self.record;
        let held_back = record.tps.unavailable == Some(TpsUnavailable::Buffered);
        let tokens = &record.tokens;
        FinishedGeneration {
            sent: self.timestamps.sent.unwrap_or(self.timestamps.received),
            ended: self.ended,
            tokens: tokens.normalised.output.or(tokens.reported.output),
            whole: record.streamed == Some(false) || held_back,
        }
    }
}

/// Request parameters that are not part of the record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestParameters {
    /// The generation settings.
    pub settings: GenerationSettings,
    /// The number of choices that were requested.
    pub choices: Option<u32>,
    /// The service tier that was requested.
    pub service_tier: Option<String>,
}

/// The instants of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallTimestamps {
    /// The wall clock at `received`. The record rounds it to milliseconds.
    pub started_at: SystemTime,
    /// When the request head was read.
    pub received: Instant,
    /// When an upstream connection was ready.
    pub connected: Option<Instant>,
    /// When the last byte of the request was forwarded.
    pub sent: Option<Instant>,
    /// When the response head was read.
    pub head: Option<Instant>,
    /// When the first generated text arrived.
    pub first_token: Option<Instant>,
    /// When the first generated text other than reasoning arrived.
    pub first_answer: Option<Instant>,
    /// When the last generated text arrived.
    pub last_token: Option<Instant>,
    /// The end and the duration of the first few stalls.
    pub stalls: Vec<(Instant, Duration)>,
}

impl CallTimestamps {
    /// Converts an instant of the call to the wall clock.
    pub fn wall(&self, at: Instant) -> SystemTime {
        self.started_at + at.saturating_duration_since(self.received)
    }
}
