//! A running generation, its live state and the observers of its tokens.

use super::context::CallContext;
use super::counts::ByChannel;
use super::generation::Generation;
use super::live::LiveCall;
use super::{Stream, TokenObserver};
use std::sync::Arc;
use std::time::Instant;
use tokengauge_core::call::Channel;
use tokengauge_core::throughput::{FinishedGeneration, GenerationThroughput};

/// A generation and its live state.
#[derive(Default)]
pub(crate) struct LiveGeneration {
    pub(crate) generation: Generation,
    pub(crate) live: Option<Arc<LiveCall>>,
    observers: Option<Box<[Box<dyn TokenObserver>]>>,
    /// Tokens that were reported to the observers.
    reported: ByChannel,
    /// What it adds to the system throughput.
    throughput: GenerationThroughput,
    /// Whether it arrived as one body.
    whole: bool,
}

impl LiveGeneration {
    pub(crate) fn new(live: Arc<LiveCall>) -> LiveGeneration {
        LiveGeneration {
            live: Some(live),
            ..LiveGeneration::default()
        }
    }

    /// A generation on a connection that has not begun yet.
    pub(crate) fn continuing(generation: Generation) -> LiveGeneration {
        LiveGeneration {
            generation,
            ..LiveGeneration::default()
        }
    }

    /// All events of a frame were given.
    pub(crate) fn frame(&mut self, context: &CallContext, at: Instant, accepted: bool) {
        if !context.generates {
            // Reading a stored answer has no generation speed.
            self.generation.counts.frame();
            return;
        }
        if self.generation.frame(at, context.stall_threshold()) {
            self.publish(context, at, accepted);
        }
    }

    /// All events of a whole body were given: its tokens count, but have no speed.
    pub(crate) fn whole(&mut self, context: &CallContext, at: Instant, accepted: bool) {
        self.whole = true;
        if self.generation.counts.frame().text {
            self.publish(context, at, accepted);
        }
    }

    /// No more text follows.
    pub(crate) fn finish(&mut self, context: &CallContext, at: Instant, accepted: bool) {
        self.generation.counts.finish();
        // The last tokens are final now: they arrived with the last text.
        let last = self.generation.timeline.all.map(|span| span.last);
        let at = last.unwrap_or(at);
        if self.generation.tokens().all() > 0 {
            self.notify(context, at, accepted);
        }
    }

    /// Its request was sent.
    pub(crate) fn sent(&mut self, at: Instant) {
        self.throughput.counted = Some(at);
    }

    /// Its record has been made: what it adds to the throughput is final.
    pub(crate) fn conclude(
        &mut self,
        context: &CallContext,
        ended: FinishedGeneration,
        accepted: bool,
    ) {
        if !context.generates {
            return;
        }
        if ended.tokens > Some(0) {
            self.ensure_series(context, accepted);
        }
        self.throughput.end(&context.shared.throughput, ended);
    }

    /// Sets the throughput series in which its tokens are counted.
    fn ensure_series(&mut self, context: &CallContext, accepted: bool) {
        let answered = self.generation.model.as_deref();
        self.throughput.series(|| {
            let requested = answered
                .is_none()
                .then(|| context.model_requested())
                .flatten();
            let model = answered.or(requested.as_deref());
            let (route, upstream) = (&context.route_stats.route, &context.route_stats.upstream);
            let throughput = &context.shared.throughput;
            throughput.series(route, upstream, context.workload(), model, accepted)
        });
    }

    fn publish(&mut self, context: &CallContext, at: Instant, accepted: bool) {
        if let Some(live) = &self.live {
            if let Some(model) = &self.generation.model {
                live.model(model);
            }
            live.frame(at, self.generation.tokens());
        }
        self.notify(context, at, accepted);
    }

    /// Notifies the observers of tokens that were not reported yet.
    fn notify(&mut self, context: &CallContext, at: Instant, accepted: bool) {
        // A stored answer was counted when it was generated.
        if !context.generates {
            return;
        }
        if self.observers.is_none() {
            self.observers = Some(self.watch(context, accepted));
        }
        let before = self.reported.all();
        let mut settled = self.generation.counts.settled();
        for channel in [Channel::Answer, Channel::Reasoning, Channel::ToolCall] {
            let (settled, reported) = (*settled.of(channel), self.reported.of(channel));
            let new = settled.saturating_sub(*reported);
            if new > 0 {
                *reported = settled;
                context.charge(new);
                let observers = self.observers.iter_mut().flatten();
                observers.for_each(|watch| watch.tokens(at, channel, new));
            }
        }
        if !self.whole {
            self.ensure_series(context, accepted);
            let new = self.reported.all().saturating_sub(before);
            let tokens = (new, self.generation.tokens().all());
            let throughput = &context.shared.throughput;
            self.throughput
                .frame(throughput, at, tokens, context.measure.buffered_above);
        }
    }

    fn watch(&self, context: &CallContext, accepted: bool) -> Box<[Box<dyn TokenObserver>]> {
        let requested = self
            .generation
            .model
            .is_none()
            .then(|| context.model_requested());
        let answered = self.generation.model.as_deref();
        context.shared.subscribers.watch(&Stream {
            route: &context.route_stats.route,
            upstream: &context.route_stats.upstream,
            workload: context.workload(),
            model: answered.or(requested.as_ref().and_then(|model| model.as_deref())),
            accepted,
        })
    }
}
