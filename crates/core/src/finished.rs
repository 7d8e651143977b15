//! A finished call, as the meter hands it to its subscribers.

use crate::call::{CallRecord, GenerationSettings, TpsUnavailable};
use crate::caller::Charge;
use crate::inter_token::InterToken;
use crate::observer::FailureKind;
use crate::throughput::FinishedGeneration;
use crate::trace::CallTrace;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use uuid::Uuid;

/// A finished call: its record, and what is known of it beyond the record.
#[derive(Clone, Debug)]
pub struct FinishedCall {
    /// The record, as it is shown.
    pub record: CallRecord,
    /// The id of the record.
    pub id: Uuid,
    /// The W3C trace id of the record.
    pub trace_id: Option<u128>,
    /// What failed, if the proxy ended the call; the record has its name as `error_type`.
    pub failure: Option<FailureKind>,
    /// When the call ended.
    pub ended: Instant,
    /// The other instants of the call.
    pub timestamps: CallTimestamps,
    /// Its spans, if tracing is on.
    pub trace: Option<CallTrace>,
    /// The agent's `tracestate`, if its trace is continued and recorded.
    pub trace_state: Option<Box<str>>,
    /// What the request asks for, if its spans are recorded.
    pub request_parameters: Option<Box<RequestParameters>>,
    /// Whether the trace of the record is recorded, so that it can be looked up.
    pub sampled: bool,
    /// The response's own id.
    pub response_id: Option<String>,
    /// Whether the session is no more than a guess.
    pub guessed_session: bool,
    /// Whether it was made for another call of this process, which counts for the session.
    pub nested: bool,
    /// The names under which it counts towards budgets that block.
    pub charges: Arc<[Charge]>,
    /// Streams in flight on the upstream when the call began, itself included.
    pub concurrency: u32,
    /// Tokens after the first chunk and the seconds they took, if `output_tps` is known.
    pub decode: Option<(u64, f64)>,
    /// A hash of the name and the arguments of each tool call of the answer, by a key of this process.
    pub tool_calls: Box<[u64]>,
    /// Latencies by token.
    pub inter_token: Option<Box<InterToken>>,
    /// Gaps between chunks with generated text, in the same classes.
    pub inter_chunk: Option<Box<InterToken>>,
    /// The time that the proxy spent on the heads.
    pub head_overhead: Option<Duration>,
    /// The most time that it spent on one piece of the response body.
    pub chunk_overhead: Option<Duration>,
}

impl FinishedCall {
    /// What it adds to the throughput.
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

/// What a request asks for that is not in its record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestParameters {
    /// How the answer is to be generated.
    pub settings: GenerationSettings,
    /// The number of choices.
    pub choices: Option<u32>,
    /// The class of service.
    pub service_tier: Option<String>,
}

/// The instants of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallTimestamps {
    /// The wall clock at `received`. The record has it in whole milliseconds.
    pub started_at: SystemTime,
    /// The request head had been read.
    pub received: Instant,
    /// An upstream connection was ready.
    pub connected: Option<Instant>,
    /// The last byte of the request had been forwarded.
    pub sent: Option<Instant>,
    /// The response head had been read.
    pub head: Option<Instant>,
    /// The first generated text.
    pub first_token: Option<Instant>,
    /// The first generated text other than reasoning.
    pub first_answer: Option<Instant>,
    /// The last generated text.
    pub last_token: Option<Instant>,
    /// When the first few stalls ended, and how long they took.
    pub stalls: Vec<(Instant, Duration)>,
}

impl CallTimestamps {
    /// An instant of the call on the wall clock.
    pub fn wall(&self, at: Instant) -> SystemTime {
        self.started_at + at.saturating_duration_since(self.received)
    }
}
