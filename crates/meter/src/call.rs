//! The observer of one call: receives events from the proxy, catches panics, and calls `finish`
//! at the end.

use super::call_state::CallState;
use super::context::CallContext;
use super::finish::{self, RunningCall};
use super::guard::guarded;
use super::live::Registry;
use super::realtime_turns::RealtimeTurns;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_accounting::LimitedCall;
use tokengauge_core::memory::{AdmissionBuffers, Buffer};
use tokengauge_core::observer::{
    Admission, CallObserver, CallPolicy, Chunk, End, ErrorResponse, Failure, Filter, Phase,
    RequestBody, Side, UnmeasuredChunks, UpstreamTrace,
};
use tokengauge_wire as wire;

pub(crate) struct Call {
    context: Arc<CallContext>,
    /// `None` once the call has ended.
    running: Mutex<Option<RunningCall>>,
}

impl Call {
    pub(crate) fn new(context: CallContext, registry: &Arc<Registry>, received: Instant) -> Call {
        let context = Arc::new(context);
        context
            .shared
            .throughput
            .set_clocks(received, context.started_at);
        let live = registry.begin(context.id, &context, received);
        let running = RunningCall {
            state: CallState::new(live, received),
            turns: None,
        };
        Call {
            context,
            running: Mutex::new(Some(running)),
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<RunningCall>> {
        self.running.lock()
    }

    /// Runs `act` on the state of a running call. After a panic the call is no longer measured.
    fn with(&self, act: impl FnOnce(&Arc<CallContext>, &mut CallState)) {
        self.with_turns(|context, state, _| act(context, state));
    }

    fn with_turns(
        &self,
        act: impl FnOnce(&Arc<CallContext>, &mut CallState, &mut Option<Box<RealtimeTurns>>),
    ) {
        if let Some(RunningCall { state, turns }) = self.running().as_mut()
            && guarded(|| act(&self.context, state, turns)).is_none()
        {
            self.context.shared.counters.panicked();
            state.give_up();
        }
    }
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

    fn request_chunk(&self, bytes: &Bytes) {
        self.with(|context, state| {
            state.bytes.request += bytes.len() as u64;
            if !context.request().push(bytes) {
                context.shared.counters.body_skipped();
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
        self.with(|context, _| {
            context
                .limited
                .iter()
                .for_each(|limited| limited.release_slots())
        });
    }

    fn unsent_chunk(&self, bytes: &Bytes) {
        self.with(|context, _| {
            if !context.request().push(bytes) {
                context.shared.counters.body_skipped();
            }
        });
    }

    fn unsent_whole(&self) {
        self.with(|context, _| context.request_complete());
    }

    fn head(&self, at: Instant, status: StatusCode, headers: &HeaderMap) {
        self.with_turns(|context, state, turns| {
            state.saw(at);
            state.answered = Some(at);
            state.read_head(context, status, headers);
            if status == StatusCode::SWITCHING_PROTOCOLS {
                let live = std::mem::take(&mut state.run).live;
                *turns = live
                    .and_then(|live| RealtimeTurns::new(context, &live.registry, headers))
                    .map(Box::new);
            }
        });
    }

    fn unmeasured_chunks(&self) -> Option<Arc<UnmeasuredChunks>> {
        Some(Arc::clone(&self.context.unmeasured_chunks))
    }

    fn response_chunk(&self, chunk: Chunk) {
        self.with(|context, state| state.chunk(context, &chunk));
    }

    fn trailers(&self, trailers: &HeaderMap) {
        self.with(|_, state| state.grpc_status(trailers));
    }

    fn lagged(&self, chunks: u64, bytes: u64) {
        self.with_turns(|context, state, turns| {
            state.bytes.response += bytes;
            state.lag(context, chunks);
            if let Some(turns) = turns {
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
        let running = self.running().take();
        if let Some(running) = running {
            finish::end(&self.context, running, at, end);
        }
    }

    fn tunnel_chunk(&self, from: Side, chunk: Chunk) {
        self.with_turns(|context, state, turns| {
            state.saw(chunk.at);
            let Some(turns) = turns else {
                state.pass(from, &chunk);
                return;
            };
            if guarded(|| turns.chunk(context, state, from, &chunk)).is_none() {
                context.shared.counters.panicked();
                state.broken = true;
                turns.give_up();
            }
        });
    }

    fn tunnel_over(&self, from: Side) {
        self.with_turns(|_, _, turns| {
            if let Some(turns) = turns {
                turns.over(from);
            }
        });
    }
}

impl CallPolicy for Call {
    fn error_response(&self, failure: &Failure) -> ErrorResponse {
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

    fn may_rewrite_request(&self, method: &Method, headers: &HeaderMap) -> bool {
        wire::inject::may_rewrite(method, headers)
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

    fn limit_headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let context = &self.context;
        let fields = |limited: &LimitedCall| limited.header_fields(&context.accounting.quotas);
        guarded(|| context.limited.as_deref().map(fields))
            .flatten()
            .unwrap_or_default()
    }

    fn upstream_trace(&self) -> Option<UpstreamTrace> {
        let trace = self.context.trace.as_ref()?;
        let hop = self.context.hop.as_ref()?;
        trace.propagates.then(|| UpstreamTrace {
            traceparent: trace.upstream().header(),
            hop: hop.propagated(trace).header(),
            member: hop.propagated(trace).member(),
            keeps_state: trace.continues(),
        })
    }

    fn response_filter(&self, headers: &HeaderMap) -> Option<Box<dyn Filter>> {
        wire::inject::can_filter(headers)
            .then(|| Box::<wire::inject::UsageFilter>::default() as Box<dyn Filter>)
    }
}

impl Drop for Call {
    /// If the call is dropped without `ended`, the agent has left.
    fn drop(&mut self) {
        if let Some(running) = self.running().take() {
            let at = running.state.latest.unwrap_or(self.context.received);
            finish::end(&self.context, running, at, End::ClientCancelled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::counts::Counts;
    use super::super::generation::Generation;
    use super::super::live::LiveCall;
    use super::super::live_generation::LiveGeneration;
    use super::super::timeline::Timeline;
    use super::*;
    use tokengauge_wire::Decoder;

    #[test]
    fn the_state_of_a_call_is_small() {
        for (name, bytes) in [
            ("Head", size_of::<CallContext>()),
            ("Call", size_of::<Call>()),
            ("CallState", size_of::<CallState>()),
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
