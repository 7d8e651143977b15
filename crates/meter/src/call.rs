//! The observer of one call: takes what the proxy shows, guards against panics, and
//! hands over to `finish` at the end.

use super::context::CallContext;
use super::finish;
use super::guard::guarded;
use super::live_generation::LiveGeneration;
use super::reading::Reading;
use super::realtime_turns::RealtimeTurns;
use super::shared::limits;
use crate::cost::Share as GpuShare;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode, header};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_core::call;
use tokengauge_core::call::Dialect;
use tokengauge_core::memory::{AdmissionBuffers, Buffer};
use tokengauge_core::observer::{
    Admission, CallObserver, CallPolicy, End, ErrorReply, Failure, Filter, Frame, Phase,
    RequestBody, Side, UpstreamTrace, Waiting,
};
use tokengauge_wire::{self as wire, Broken, Decoder, ResponseHead};

/// What changes while a call runs.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) run: LiveGeneration,
    pub(crate) reading: Reading,
    is_grpc: bool,
    /// Only on an upgraded connection.
    pub(crate) turns: Option<Box<RealtimeTurns>>,
    pub(crate) endpoint: Option<Box<str>>,
    pub(crate) connected: Option<Instant>,
    pub(crate) sent: Option<Instant>,
    /// When the response head came.
    pub(crate) answered: Option<Instant>,
    pub(crate) status: Option<u16>,
    pub(crate) bytes: call::Bytes,
    pub(crate) warm_up: bool,
    pub(crate) lagged: bool,
    /// What the body was before reading it was given up.
    was_stream: Option<bool>,
    /// The body could not be read to its end.
    pub(crate) broken: bool,
    /// Its share of own GPUs while it is under way, and what it came to behind that.
    share: Option<GpuShare>,
    gpu_usd: Option<f64>,
    pub(crate) head_overhead: Option<Duration>,
    pub(crate) chunk_overhead: Option<Duration>,
    /// The last instant that was given.
    pub(crate) latest: Option<Instant>,
}

impl State {
    /// The call has reached its upstream.
    fn reached(&mut self, context: &CallContext, at: Instant) {
        let gpus = context
            .accounting
            .prices
            .gpus(&context.route_stats.upstream);
        if let (Some(gpus), None) = (gpus, &self.share) {
            self.share = Some(gpus.begin(at));
        }
    }

    /// The call is over: it pays for no more.
    pub(crate) fn settle(&mut self, at: Instant) {
        if let Some(mut share) = self.share.take() {
            self.gpu_usd = Some(share.take(at));
        }
    }

    /// What own GPUs cost up to `at`, or since it was asked before.
    pub(crate) fn gpu_cost(&mut self, at: Instant) -> Option<f64> {
        let under_way = self.share.as_mut().map(|share| share.take(at));
        under_way.or_else(|| self.gpu_usd.take())
    }

    /// Whether the upstream said yes.
    pub(crate) fn accepted(&self) -> bool {
        self.status.is_some_and(|status| status < 300)
    }

    /// Whether the answer came as a stream; unknown without an answer.
    pub(crate) fn streamed(&self) -> Option<bool> {
        let decoder = self.reading.decoder();
        let streamed = decoder.map(|decoder| decoder.is_stream());
        self.status
            .map(|_| streamed.or(self.was_stream).unwrap_or(false))
    }

    /// The dialect, as the wire confirmed or corrected it.
    pub(crate) fn dialect(&self, context: &CallContext) -> Dialect {
        let decoder = self.reading.decoder();
        decoder.map_or(context.dialect, |decoder| decoder.dialect())
    }

    fn saw(&mut self, at: Instant) {
        self.latest = self.latest.max(Some(at));
    }

    fn frame(&mut self, context: &CallContext, frame: &Frame) {
        self.saw(frame.at);
        self.run.generation.timeline.blocked(frame.agent_blocked);
        self.bytes.response += frame.bytes.len() as u64;
        let shared = &context.shared;
        let length = frame.bytes.len();
        self.reading
            .before(length, &shared.memory, context.measure.body_bytes);
        if matches!(self.reading, Reading::Later { .. }) {
            self.unseen();
        }
        if !self.reading.keep(frame.at, &frame.bytes) {
            shared.tally.body_skipped();
            self.lag(context, 1);
        }
        let accepted = self.accepted();
        let Reading::Inline { decoder, .. } = &mut self.reading else {
            return;
        };
        let generation = &mut self.run.generation;
        let read = decoder.push(&frame.bytes, &mut |event| generation.event(event));
        self.run.frame(context, frame.at, accepted);
        match read {
            Ok(()) => {}
            Err(Broken::Memory) => self.lag(context, 1),
            Err(_) => self.give_up(),
        }
        self.release_request(context);
    }

    /// Counts the bytes of a connection that nobody reads.
    fn pass(&mut self, from: Side, frame: &Frame) {
        let length = frame.bytes.len() as u64;
        match from {
            Side::Agent => self.bytes.request += length,
            Side::Upstream => self.bytes.response += length,
        }
    }

    /// How a gRPC call ended, as its trailers say, or its head where there is nothing else.
    fn grpc_status(&mut self, fields: &HeaderMap) {
        let status = fields.get("grpc-status").filter(|_| self.is_grpc);
        if let Some(status) = status.filter(|status| *status != "0") {
            let error = grpc_error(status.as_bytes());
            let error = || error.into();
            self.run.generation.error.get_or_insert_with(error);
        }
    }

    /// Gives the request's copy back as soon as the provider reported the input tokens.
    fn release_request(&mut self, context: &CallContext) {
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
                // Refused, it is given back here.
                let _ = context.shared.worker.queue(Box::new(move |_| drop(long)));
            }
            request.release();
        }
    }

    /// The rest of the body cannot be read.
    pub(crate) fn give_up(&mut self) {
        self.broken = true;
        self.stop_reading();
    }

    /// So many frames were not measured, nor is what follows them.
    pub(crate) fn lag(&mut self, context: &CallContext, frames: u64) {
        context.shared.tally.lagged(frames);
        self.lagged = true;
        self.stop_reading();
    }

    /// Tokens come that are not seen while the call runs.
    fn unseen(&self) {
        if let Some(live) = &self.run.live {
            live.unseen();
        }
    }

    fn stop_reading(&mut self) {
        self.unseen();
        self.run.generation.cut_off();
        let was_stream = self.reading.decoder().map(|decoder| decoder.is_stream());
        self.was_stream = was_stream.or(self.was_stream);
        self.reading = Reading::Nothing;
    }
}

/// Watches one call.
pub(crate) struct Call {
    context: Arc<CallContext>,
    /// `None` once the call has ended.
    state: Mutex<Option<State>>,
}

impl Call {
    pub(crate) fn new(context: CallContext, received: Instant) -> Call {
        let context = Arc::new(context);
        let registry = &context.shared.registry;
        context
            .shared
            .throughput
            .clocks(received, context.started_at);
        let live = registry.begin(context.id, &context, received, context.started_at);
        let state = State {
            run: LiveGeneration::new(live),
            latest: Some(received),
            ..State::default()
        };
        Call {
            context,
            state: Mutex::new(Some(state)),
        }
    }

    fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock()
    }

    /// Lets `act` see the state of a call that runs. A panic in it costs this one
    /// call its measurement.
    fn with(&self, act: impl FnOnce(&Arc<CallContext>, &mut State)) {
        if let Some(state) = self.state().as_mut()
            && guarded(|| act(&self.context, state)).is_none()
        {
            self.context.shared.tally.panicked();
            state.give_up();
        }
    }

    fn read_head(
        context: &Arc<CallContext>,
        state: &mut State,
        status: StatusCode,
        headers: &HeaderMap,
    ) {
        state.status = Some(status.as_u16());
        let content_type = text(headers, &header::CONTENT_TYPE);
        state.is_grpc = content_type.is_some_and(|kind| kind.starts_with("application/grpc"));
        state.grpc_status(headers);
        state.run.generation.cost_usd = litellm_cost(headers);
        if status == StatusCode::SWITCHING_PROTOCOLS {
            let extensions = text(headers, &header::SEC_WEBSOCKET_EXTENSIONS);
            state.turns = RealtimeTurns::new(context, extensions).map(Box::new);
            state.run = LiveGeneration::default();
            return;
        }
        let empty = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
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
        if context.dialect != Dialect::Unknown || decoder.is_stream() {
            if let Some(live) = &state.run.live {
                live.streamed(decoder.is_stream());
            }
            let compressed = encoding.is_some_and(|encoding| encoding != "identity");
            state.reading = Reading::new(decoder, compressed);
        }
    }
}

/// What LiteLLM says that a call costs whose answer it did not stream. It says 0 where it
/// does not know.
fn litellm_cost(headers: &HeaderMap) -> Option<f64> {
    let usd = headers.get("x-litellm-response-cost")?.to_str().ok()?;
    let usd: f64 = usd.parse().ok()?;
    (usd.is_finite() && usd > 0.0).then_some(usd)
}

/// The name of a gRPC status that is not OK, by the protocol's table of codes.
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

impl CallObserver for Call {
    fn endpoint(&self, endpoint: &str) {
        self.with(|_, state| state.endpoint = Some(endpoint.into()));
    }

    fn connected(&self, at: Instant, _reused: bool) {
        self.with(|context, state| {
            state.saw(at);
            state.connected = Some(at);
            state.reached(context, at);
            state.warm_up = context.route_stats.reached(at, &context.measure);
            if let Some(live) = &state.run.live {
                live.warm_up(state.warm_up);
            }
        });
    }

    fn request_frame(&self, bytes: &Bytes) {
        self.with(|context, state| {
            state.bytes.request += bytes.len() as u64;
            if !context.request().push(bytes) {
                context.shared.tally.body_skipped();
            }
        });
    }

    fn sent(&self, at: Instant) {
        self.with(|context, state| {
            state.saw(at);
            state.sent = Some(at);
            state.run.sent(at);
            context.request_complete();
        });
    }

    fn refused(&self) {
        self.with(|context, _| context.leave_quotas());
    }

    fn unsent_frame(&self, bytes: &Bytes) {
        self.with(|context, _| {
            if !context.request().push(bytes) {
                context.shared.tally.body_skipped();
            }
        });
    }

    fn unsent_whole(&self) {
        self.with(|context, _| context.request_complete());
    }

    fn head(&self, at: Instant, status: StatusCode, headers: &HeaderMap) {
        self.with(|context, state| {
            state.saw(at);
            state.answered = Some(at);
            Call::read_head(context, state, status, headers);
        });
    }

    fn waiting(&self) -> Option<Arc<Waiting>> {
        Some(Arc::clone(&self.context.waiting))
    }

    fn response_frame(&self, frame: Frame) {
        self.with(|context, state| state.frame(context, &frame));
    }

    fn trailers(&self, trailers: &HeaderMap) {
        self.with(|_, state| state.grpc_status(trailers));
    }

    fn lagged(&self, frames: u64, bytes: u64) {
        self.with(|context, state| {
            state.bytes.response += bytes;
            state.lag(context, frames);
            if let Some(turns) = &mut state.turns {
                turns.give_up();
            }
        });
    }

    fn agent_blocked(&self, waited: Duration) {
        self.with(|_, state| state.run.generation.timeline.blocked(waited));
    }

    fn overhead(&self, phase: Phase, cost: Duration) {
        self.with(|_, state| match phase {
            Phase::Head => {
                state.head_overhead = Some(state.head_overhead.unwrap_or_default() + cost)
            }
            Phase::Chunk => state.chunk_overhead = state.chunk_overhead.max(Some(cost)),
        });
    }

    fn ended(&self, at: Instant, end: End) {
        let state = self.state().take();
        if let Some(state) = state {
            finish::end(&self.context, state, at, end);
        }
    }

    fn tunnel_frame(&self, from: Side, frame: Frame) {
        self.with(|context, state| {
            state.saw(frame.at);
            let Some(mut turns) = state.turns.take() else {
                state.pass(from, &frame);
                return;
            };
            if guarded(|| turns.frame(context, state, from, &frame)).is_none() {
                context.shared.tally.panicked();
                state.broken = true;
                turns.give_up();
            }
            state.turns = Some(turns);
        });
    }

    fn tunnel_over(&self, from: Side) {
        self.with(|_, state| {
            if let Some(turns) = &mut state.turns {
                turns.over(from);
            }
        });
    }
}

impl CallPolicy for Call {
    fn error_reply(&self, failure: &Failure) -> ErrorReply {
        let code = failure.kind.as_str();
        wire::error_body(
            self.context.dialect,
            failure.kind.status(),
            code,
            &failure.message,
        )
    }

    fn buffer(&self, limit: usize) -> Buffer {
        Buffer::new(&self.context.shared.memory, limit)
    }

    fn rewrite_request(&self, body: &[u8]) -> Option<Bytes> {
        if !wire::DIALECTS
            .registration(self.context.dialect)
            .takes_usage_option
        {
            return None;
        }
        guarded(|| wire::inject::rewrite_request(body)).flatten()
    }

    fn admission_buffers(&self) -> AdmissionBuffers {
        let memory = &self.context.shared.admission_memory;
        memory.buffers(self.context.measure.body_bytes)
    }

    fn admit(&self, body: RequestBody<'_>) -> Admission {
        guarded(|| self.context.admit(body)).unwrap_or_default()
    }

    fn upstream_trace(&self) -> Option<UpstreamTrace> {
        let trace = self.context.trace.as_ref()?;
        let hop = self.context.hop.as_ref()?;
        trace.propagates.then(|| UpstreamTrace {
            traceparent: trace.upstream().header(),
            hop: hop.passed(trace).header(),
            member: hop.passed(trace).member(),
            keeps_state: trace.continues(),
        })
    }

    fn response_filter(&self) -> Option<Box<dyn Filter>> {
        Some(Box::<wire::inject::UsageFilter>::default())
    }
}

impl Drop for Call {
    /// Nobody said how the call ended: the agent must have gone.
    fn drop(&mut self) {
        if let Some(state) = self.state().take() {
            let at = state.latest.unwrap_or(self.context.received);
            finish::end(&self.context, state, at, End::ClientCancelled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::counts::Counts;
    use super::super::generation::Generation;
    use super::super::live::LiveCall;
    use super::super::timeline::Timeline;
    use super::*;

    #[test]
    fn the_state_of_a_call_is_small() {
        for (name, bytes) in [
            ("Head", size_of::<CallContext>()),
            ("Call", size_of::<Call>()),
            ("State", size_of::<State>()),
            ("Run", size_of::<LiveGeneration>()),
            ("Generation", size_of::<Generation>()),
            ("Counts", size_of::<Counts>()),
            ("Timeline", size_of::<Timeline>()),
            ("Counter", size_of::<tokengauge_tokenizer::Counter>()),
            ("Decoder", size_of::<Decoder>()),
            ("Live", size_of::<LiveCall>()),
            ("Request", size_of::<super::super::request::Request>()),
        ] {
            println!("{name}: {bytes} bytes");
        }
        let inline = size_of::<CallContext>()
            + size_of::<Call>()
            + size_of::<Decoder>()
            + size_of::<LiveCall>();
        assert!(inline <= 3 * 1024, "{inline} bytes");
    }
}
