//! The state of a running call, and how it handles what arrives.

use super::context::{CallContext, copied};
use super::live::LiveCall;
use super::live_generation::LiveGeneration;
use super::operation;
use super::reading::Reading;
use super::shared::limits;
use http::{HeaderMap, HeaderName, StatusCode, header};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_accounting::cost::GpuShare;
use tokengauge_core::call::{self, Dialect, Event};
use tokengauge_core::observer::{Chunk, Side};
use tokengauge_wire::{DecodeError, Decoder, ResponseHead};

#[derive(Default)]
pub(crate) struct CallState {
    pub(crate) run: LiveGeneration,
    pub(crate) reading: Reading,
    is_grpc: bool,
    pub(crate) endpoint: Option<Box<str>>,
    pub(crate) connected: Option<Instant>,
    pub(crate) sent: Option<Instant>,
    pub(crate) answered: Option<Instant>,
    pub(crate) status: Option<u16>,
    pub(crate) bytes: call::Bytes,
    pub(crate) warm_up: bool,
    pub(crate) lagged: bool,
    was_stream: Option<bool>,
    pub(crate) broken: bool,
    /// The GPU time that this call pays for on a self-hosted upstream.
    share: Option<GpuShare>,
    gpu_usd: Option<f64>,
    pub(crate) head_overhead: Option<Duration>,
    pub(crate) chunk_overhead: Option<Duration>,
    pub(crate) latest: Option<Instant>,
}

impl CallState {
    pub(crate) fn new(live: Arc<LiveCall>, received: Instant) -> CallState {
        CallState {
            run: LiveGeneration::new(live),
            latest: Some(received),
            ..CallState::default()
        }
    }

    pub(crate) fn reached(&mut self, context: &CallContext, at: Instant) {
        let gpus = context
            .accounting
            .prices
            .gpus(&context.route_stats.upstream);
        if let (Some(gpus), None) = (gpus, &self.share) {
            self.share = Some(gpus.begin(at));
        }
    }

    /// Marks the call as ended, so that it pays for no more GPU time.
    pub(crate) fn settle(&mut self, at: Instant) {
        if let Some(mut share) = self.share.take() {
            self.gpu_usd = Some(share.take(at));
        }
    }

    /// The cost of self-hosted GPUs from the previous call of this function to `at`.
    pub(crate) fn gpu_cost(&mut self, at: Instant) -> Option<f64> {
        let under_way = self.share.as_mut().map(|share| share.take(at));
        under_way.or_else(|| self.gpu_usd.take())
    }

    pub(crate) fn accepted(&self) -> bool {
        self.status.is_some_and(|status| status < 300)
    }

    /// `None` if there is no response.
    pub(crate) fn streamed(&self) -> Option<bool> {
        let decoder = self.reading.decoder();
        let streamed = decoder.map(|decoder| decoder.is_stream());
        self.status
            .map(|_| streamed.or(self.was_stream).unwrap_or(false))
    }

    pub(crate) fn dialect(&self, context: &CallContext) -> Dialect {
        let decoder = self.reading.decoder();
        decoder.map_or(context.dialect, |decoder| decoder.dialect())
    }

    /// Whether a body is read only to find out if it is a generation.
    pub(crate) fn sniffs(&self, context: &CallContext) -> bool {
        let decoder = self.reading.decoder();
        context.sniffs && decoder.is_some_and(|decoder| !decoder.is_stream())
    }

    pub(crate) fn saw(&mut self, at: Instant) {
        self.latest = self.latest.max(Some(at));
    }

    pub(crate) fn chunk(&mut self, context: &CallContext, chunk: &Chunk) {
        self.saw(chunk.at);
        self.run.generation.timeline.blocked(chunk.agent_blocked);
        self.bytes.response += chunk.bytes.len() as u64;
        let shared = &context.shared;
        let length = chunk.bytes.len();
        let sniffs = self.sniffs(context);
        let limit = if sniffs {
            context.measure.sniffed_bytes()
        } else {
            context.measure.body_bytes
        };
        self.reading.prepare(length, &shared.memory, limit);
        if matches!(self.reading, Reading::Deferred { .. }) {
            self.unseen();
        }
        if !self.reading.buffer(chunk.at, &chunk.bytes) {
            if sniffs {
                return self.stop_reading();
            }
            shared.counters.body_skipped();
            self.lag(context, 1);
        }
        let accepted = self.accepted();
        let Reading::Inline { decoder, .. } = &mut self.reading else {
            return;
        };
        let generation = &mut self.run.generation;
        let read = decoder.push(&chunk.bytes, &mut |event| generation.event(event));
        self.run.chunk(context, chunk.at, accepted);
        if let Err(error) = read {
            if !sniffs {
                self.unreadable(context, error);
            }
            self.stop_reading();
        }
        self.release_request(context);
    }

    pub(crate) fn unreadable(&mut self, context: &CallContext, error: DecodeError) {
        match error {
            DecodeError::Memory => return self.lag(context, 1),
            DecodeError::Framing => {
                self.run.generation.event(Event::Message);
                self.run.generation.event(Event::Unparsed);
            }
            DecodeError::Encoding | DecodeError::TooLarge => {}
        }
        self.broken = true;
    }

    /// Counts the bytes of an upgraded connection whose messages are not read.
    pub(crate) fn pass(&mut self, from: Side, chunk: &Chunk) {
        let length = chunk.bytes.len() as u64;
        match from {
            Side::Agent => self.bytes.request += length,
            Side::Upstream => self.bytes.response += length,
        }
    }

    /// Reads the status of a gRPC call from its trailers, or from its head if it has no trailers.
    pub(crate) fn grpc_status(&mut self, fields: &HeaderMap) {
        let status = self.is_grpc.then(|| fields.get("grpc-status")).flatten();
        if let Some(status) = status.filter(|status| *status != "0") {
            let error = grpc_error(status.as_bytes());
            let error = || error.into();
            self.run.generation.error.get_or_insert_with(error);
        }
    }

    /// Drops the copy of the request body as soon as the provider has reported the input tokens,
    /// unless the end of the call analyzes the prompt. If memory is short, the analysis is skipped.
    pub(crate) fn release_request(&mut self, context: &CallContext) {
        if context.measure.analysis.enabled && !context.shared.memory.is_short() {
            return;
        }
        let is_reported = self
            .run
            .generation
            .usage
            .as_ref()
            .is_some_and(|usage| usage.input.is_some());
        if is_reported
            && let Some(mut request) = context.request.try_lock()
            && request.countable()
            && request.facts.is_some()
        {
            if let Some(long) = request.take_long() {
                // If the queue is full, the copy is dropped on this thread.
                let _ = context.shared.worker.queue(Box::new(move |_| drop(long)));
            }
            request.release();
        }
    }

    pub(crate) fn give_up(&mut self) {
        self.broken = true;
        self.stop_reading();
    }

    pub(crate) fn lag(&mut self, context: &CallContext, chunks: u64) {
        context.shared.counters.lagged(chunks);
        self.lagged = true;
        self.stop_reading();
    }

    pub(crate) fn unseen(&self) {
        if let Some(live) = &self.run.live {
            live.unseen();
        }
    }

    pub(crate) fn stop_reading(&mut self) {
        self.unseen();
        self.run.generation.cut_off();
        let was_stream = self.reading.decoder().map(|decoder| decoder.is_stream());
        self.was_stream = was_stream.or(self.was_stream);
        self.reading = Reading::Nothing;
    }

    pub(crate) fn read_head(
        &mut self,
        context: &Arc<CallContext>,
        status: StatusCode,
        headers: &HeaderMap,
    ) {
        self.status = Some(status.as_u16());
        let content_type = text(headers, &header::CONTENT_TYPE);
        self.is_grpc = content_type.is_some_and(|kind| kind.starts_with("application/grpc"));
        self.grpc_status(headers);
        let tags = context
            .measure
            .think_tags
            .get(&context.route_stats.upstream);
        self.run.generation.think.tags = tags.copied().unwrap_or_default();
        if context.generates && context.measure.analysis.enabled {
            (self.run.generation.counts).watch_within(&context.shared.memory);
        }
        // One pass over all names is faster than a lookup of each name.
        if headers.keys().any(is_of_gateway) {
            self.run.generation.cost(litellm_cost(headers));
            if let Some(provider) = served_by(headers) {
                self.run.generation.served_by(provider);
            }
        }
        let empty = matches!(
            status,
            StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
        if context.bodiless || empty {
            return;
        }
        let encoding = text(headers, &header::CONTENT_ENCODING);
        let response = ResponseHead {
            status: status.as_u16(),
            content_type,
            content_encoding: encoding,
        };
        let limits = limits(&context.measure);
        let decoder = Decoder::within(&context.shared.memory, context.dialect, &response, limits);
        let is_stream = decoder.is_stream();
        let is_measured = context.dialect != Dialect::Unknown || is_stream;
        let may_be_answer = context.sniffs
            && self.accepted()
            && operation::is_json(headers) == Some(true)
            && copied(headers, context.measure.sniffed_bytes()) > 0;
        if is_measured && let Some(live) = &self.run.live {
            live.streamed(is_stream);
        }
        if is_measured || may_be_answer {
            let compressed = encoding.is_some_and(|encoding| encoding != "identity");
            self.reading = Reading::new(decoder, compressed);
        }
        if context.sniffs && (is_stream || !may_be_answer) {
            context.answered(is_stream);
        }
    }
}

static LITELLM_COST: HeaderName = HeaderName::from_static("x-litellm-response-cost");

/// The cost that LiteLLM reports for a response that is not a stream. 0 means unknown.
fn litellm_cost(headers: &HeaderMap) -> Option<f64> {
    let usd = headers.get(&LITELLM_COST)?.to_str().ok()?;
    let usd: f64 = usd.parse().ok()?;
    (usd.is_finite() && usd > 0.0).then_some(usd)
}

static SERVED_BY: [HeaderName; 4] = [
    // LiteLLM sends the address of the provider's API.
    HeaderName::from_static("x-litellm-model-api-base"),
    // Azure sends the region, which a global deployment chooses for each call.
    HeaderName::from_static("x-ms-region"),
    HeaderName::from_static("x-portkey-provider"),
    HeaderName::from_static("cf-aig-provider"),
];

fn is_of_gateway(name: &HeaderName) -> bool {
    *name == LITELLM_COST || SERVED_BY.contains(name)
}

fn served_by(headers: &HeaderMap) -> Option<&str> {
    let mut named = SERVED_BY.iter().filter_map(|name| text(headers, name));
    let value = named.find(|value| !value.is_empty())?;
    let host = value.split_once("://").map_or(value, |(_, rest)| rest);
    let host = host.split(['/', '?', '#']).next()?;
    let host = host.rsplit('@').next()?;
    (!host.is_empty()).then_some(host)
}

/// The name of a gRPC status other than OK, from the table of codes in the gRPC specification.
fn grpc_error(status: &[u8]) -> &'static str {
    const NAMES: [&str; 16] = [
        "cancelled",
        "unknown",
        "invalid_argument",
        "deadline_exceeded",
        "not_found",
        "already_exists",
        "permission_denied",
        "resource_exhausted",
        "failed_precondition",
        "aborted",
        "out_of_range",
        "unimplemented",
        "internal",
        "unavailable",
        "data_loss",
        "unauthenticated",
    ];
    let code = std::str::from_utf8(status).ok();
    let code = code.and_then(|code| code.parse::<usize>().ok());
    let name = code.and_then(|code| NAMES.get(code.checked_sub(1)?));
    name.copied().unwrap_or("unknown")
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
