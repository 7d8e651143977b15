//! Exports calls as spans: sampling and the queue.

use super::client::Client;
use super::conventions;
use super::losses::{Gate, Losses};
use super::span::Spans;
use super::{Failed, bound, exporter};
use crate::export::otlp::Conventions;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, TraceContextExt, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Context, InstrumentationScope};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, Config, IdGenerator, RandomIdGenerator, SamplingDecision, ShouldSample,
    SpanData, SpanExporter, SpanProcessor,
};
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::trace::{CallTrace, TraceContext, Tracer};
use tokengauge_meter::{FinishedCall, Subscriber};

/// The samplers of the specification; an unknown name selects the first.
const SAMPLERS: [&str; 6] = [
    "parentbased_always_on",
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

#[derive(Debug)]
pub struct Traces {
    spans: Spans,
    gate: Arc<Gate>,
    processor: BatchSpanProcessor,
    client: Client,
}

impl Traces {
    /// Starts the thread that sends. `OTEL_BSP_*` sets its queue.
    ///
    /// # Errors
    /// Returns an error if the exporter cannot be created.
    pub fn start(
        client: Client,
        losses: Arc<Losses>,
        resource: &Resource,
        conventions: Conventions,
        langfuse: bool,
    ) -> Result<Arc<Traces>, Failed> {
        let gate = Arc::new(Gate::new(bound("OTEL_BSP_MAX_QUEUE_SIZE"), losses));
        let counted = Counted {
            exporter: exporter::spans(client.clone())?,
            gate: Arc::clone(&gate),
        };
        let mut processor = BatchSpanProcessor::builder(counted).build();
        processor.set_resource(resource);
        Ok(Arc::new(Traces {
            spans: Spans {
                conventions,
                langfuse,
                scope: InstrumentationScope::builder("tokengauge")
                    .with_version(env!("CARGO_PKG_VERSION"))
                    .with_schema_url(conventions::schema_url(conventions))
                    .build(),
            },
            gate,
            processor,
            client,
        }))
    }

    /// Sends queued spans within `timeout`, and ends the thread. Returns whether all were
    /// delivered, and counts the rest as lost.
    pub fn shutdown(&self, timeout: Duration) -> bool {
        self.client.close();
        let ended = self.processor.shutdown_with_timeout(timeout).is_ok();
        self.gate.close() && ended
    }
}

impl Subscriber for Traces {
    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        let spans = self.spans.of(finished_call);
        if !spans.is_empty() && self.gate.enter(spans.len()) {
            spans
                .into_iter()
                .for_each(|span| self.processor.on_end(span));
        }
    }
}

/// An exporter that tells the gate how many items have left the queue.
#[derive(Debug)]
struct Counted {
    exporter: opentelemetry_otlp::SpanExporter,
    gate: Arc<Gate>,
}

impl SpanExporter for Counted {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let items = batch.len();
        let result = self.exporter.export(batch).await;
        self.gate.leave(items, result.is_ok());
        result
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// Creates the spans of calls, sampled as `OTEL_TRACES_SAMPLER` says. `propagates` says whether the
/// agent's trace is continued and passed to the upstream.
pub fn tracer(propagates: bool) -> Arc<Tracer> {
    if let Ok(name) = std::env::var("OTEL_TRACES_SAMPLER")
        && !name.is_empty()
        && !SAMPLERS.contains(&name.as_str())
    {
        tracing::warn!(
            name,
            "OTEL_TRACES_SAMPLER names an unknown sampler; {} is used",
            SAMPLERS[0]
        );
    }
    let sampler = Config::default().sampler;
    Arc::new(move |parent| begin(&*sampler, parent.filter(|_| propagates), propagates))
}

fn begin(sampler: &dyn ShouldSample, parent: Option<TraceContext>, propagates: bool) -> CallTrace {
    let ids = RandomIdGenerator::default();
    let fresh = || ids.new_trace_id();
    let trace_id = parent.map_or_else(fresh, |parent| TraceId::from(parent.trace_id));
    let context = parent.map(|parent| Context::new().with_remote_span_context(remote(parent)));
    let (kind, context) = (SpanKind::Server, context.as_ref());
    let decision = sampler.should_sample(context, trace_id, "call", &kind, &[], &[]);
    let sampled = decision.decision == SamplingDecision::RecordAndSample;
    let span_id = || u64::from_be_bytes(ids.new_span_id().to_bytes());
    let server = TraceContext {
        trace_id: u128::from_be_bytes(trace_id.to_bytes()),
        span_id: span_id(),
        flags: parent.map_or(0, |parent| parent.flags),
    };
    CallTrace {
        parent,
        server: server.with_sampled(sampled),
        client: span_id(),
        propagates,
    }
}

fn remote(parent: TraceContext) -> SpanContext {
    SpanContext::new(
        TraceId::from(parent.trace_id),
        SpanId::from(parent.span_id),
        TraceFlags::new(parent.flags),
        true,
        TraceState::NONE,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_sdk::trace::Sampler;

    fn parent(sampled: bool) -> TraceContext {
        TraceContext {
            trace_id: 7,
            span_id: 8,
            flags: u8::from(sampled) | 2,
        }
    }

    #[test]
    fn a_call_with_a_parent_goes_on_with_its_trace_and_its_decision() {
        let sampler = Sampler::ParentBased(Box::new(Sampler::AlwaysOn));
        for sampled in [true, false] {
            let trace = begin(&sampler, Some(parent(sampled)), true);
            assert_eq!(
                (trace.server.trace_id, trace.parent),
                (7, Some(parent(sampled)))
            );
            assert_eq!(trace.server.flags, parent(sampled).flags);
            assert_eq!(trace.upstream().trace_id, 7);
            assert_ne!(trace.server.span_id, trace.client);
            assert_ne!(trace.server.span_id, 8);
        }
    }

    #[test]
    fn a_call_without_one_begins_a_trace_and_is_sampled_by_the_root_sampler() {
        let on = Sampler::ParentBased(Box::new(Sampler::AlwaysOn));
        let (one, other) = (begin(&on, None, true), begin(&on, None, true));
        assert!(one.server.sampled() && one.parent.is_none());
        assert_ne!(one.server.trace_id, other.server.trace_id);
        let ratio = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(0.25)));
        let calls = (0..2000).filter(|_| begin(&ratio, None, true).server.sampled());
        let sampled = calls.count();
        assert!((400..600).contains(&sampled), "{sampled} of 2000");
        assert!(begin(&ratio, Some(parent(true)), true).server.sampled());
        assert!(
            !begin(&Sampler::AlwaysOff, Some(parent(true)), true)
                .server
                .sampled()
        );
    }
}
