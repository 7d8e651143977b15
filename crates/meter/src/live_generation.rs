//! A generation in flight, its live state and the observers of its tokens.

use super::context::CallContext;
use super::counts::ByChannel;
use super::generation::Generation;
use super::guard::guarded;
use super::live::LiveCall;
use super::model_names::{NameHash, Naming};
use super::{Stream, TokenObserver};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_core::call::Channel;
use tokengauge_core::finished::FinishedCall;
use tokengauge_core::throughput::{GenerationThroughput, RateSeries};

/// If a response begins with a model name that is new, this is how long after its first tokens the
/// name is accepted. Current rates end 3 seconds ago, so they miss no tokens.
const TRUSTED_AFTER: Duration = Duration::from_secs(2);
/// Each of the first 16 chunks, and then every 16th, may decide about the name of the model.
const EARLY_CHUNKS: u64 = 16;

const CHANNELS: [Channel; 3] = [Channel::Answer, Channel::Reasoning, Channel::ToolCall];

#[derive(Default)]
pub(crate) struct LiveGeneration {
    pub(crate) generation: Generation,
    pub(crate) live: Option<Arc<LiveCall>>,
    observers: Option<Box<[Box<dyn TokenObserver>]>>,
    reported: ByChannel,
    charged: u32,
    first_named: NameHash,
    /// The model under which tokens are counted. Tokens are not reported until it is known.
    labelled: NameHash,
    throughput: GenerationThroughput,
    whole: bool,
}

impl LiveGeneration {
    pub(crate) fn new(live: Arc<LiveCall>) -> LiveGeneration {
        LiveGeneration {
            live: Some(live),
            ..LiveGeneration::default()
        }
    }

    pub(crate) fn continuing(generation: Generation) -> LiveGeneration {
        LiveGeneration {
            generation,
            ..LiveGeneration::default()
        }
    }

    pub(crate) fn chunk(&mut self, context: &CallContext, at: Instant, accepted: bool) {
        if !context.generates {
            // A stored answer is only read here, so it has no generation speed.
            self.generation.counts.chunk();
            return;
        }
        if self.generation.chunk(at, context.stall_threshold()) {
            self.publish(context, at, accepted);
        }
    }

    /// Ends a whole body. Its tokens count, but have no speed.
    pub(crate) fn whole(&mut self, context: &CallContext, at: Instant, accepted: bool) {
        self.whole = true;
        if self.generation.counts.chunk().text {
            self.publish(context, at, accepted);
        }
    }

    pub(crate) fn finish(&mut self, context: &CallContext, at: Instant, accepted: bool) {
        self.generation.finish();
        let unsearched = self.generation.counts.unsearched();
        context.shared.counters.unsearched(unsearched.into());
        // The last tokens are final now. They arrived with the last text.
        let last = self.generation.timeline.all.map(|span| span.last);
        let at = last.unwrap_or(at);
        if self.generation.tokens().all() > 0 {
            self.label(context, true);
            self.notify(context, at, accepted);
        }
    }

    /// Decides whether the name of the model is known that the record will have. Tokens are counted
    /// under it. Most responses name it with their first token, some with the last token, and some
    /// begin with an alias. The first responses that begin with a name show which of these an
    /// upstream does.
    fn label(&mut self, context: &CallContext, is_last: bool) {
        if self.is_labelled() {
            return;
        }
        let span = self.generation.timeline.all;
        let chunks = span.map_or(0, |span| span.chunks);
        // Looking up the known names takes a lock.
        if !is_last && chunks >= EARLY_CHUNKS && !chunks.is_multiple_of(EARLY_CHUNKS) {
            return;
        }
        let named = self.named(context);
        if chunks <= 1 {
            self.first_named = named;
        }
        let names = &context.shared.model_names;
        let is_known = is_last
            || match names.naming(&context.route_stats.upstream, named) {
                Some(Naming::Same) => true,
                Some(Naming::Another) => false,
                None => span.is_some_and(|span| span.duration() >= TRUSTED_AFTER),
            };
        if is_known {
            let requested = context.model_requested();
            let label = self.generation.model.as_deref().or(requested.as_deref());
            self.labelled = NameHash::of(label.unwrap_or_default());
        }
    }

    fn is_labelled(&self) -> bool {
        self.labelled != NameHash::default()
    }

    fn named(&self, context: &CallContext) -> NameHash {
        match self.generation.model.as_deref() {
            Some(model) => NameHash::of(model),
            None => NameHash::nameless(context.model_requested().as_deref()),
        }
    }

    pub(crate) fn sent(&mut self, at: Instant) {
        self.throughput.counted = Some(at);
    }

    /// Makes the contribution to the throughput final after the record has been made.
    pub(crate) fn conclude(&mut self, context: &CallContext, call: &FinishedCall, accepted: bool) {
        if !context.generates {
            return;
        }
        let ended = call.throughput();
        let last_named = self.named(context);
        let is_counted = call.record.tokens.normalised.output.is_some();
        let renamed = self.generation.model.is_some() && self.labelled != last_named;
        if (!is_counted || renamed) && guarded(|| self.retract(context, call, accepted)).is_none() {
            context.shared.counters.panicked();
        }
        if !is_counted || renamed {
            let series = is_counted.then(|| self.series(context, accepted));
            let throughput = &context.shared.throughput;
            self.throughput.relabel(throughput, series, call.ended);
        }
        if ended.tokens > Some(0) {
            self.ensure_series(context, accepted);
            let upstream = &context.route_stats.upstream;
            let names = &context.shared.model_names;
            if self.first_named != last_named {
                names.learn(upstream, self.first_named, Naming::Another);
            }
            // The name at the end of a response is not an alias.
            names.learn(upstream, last_named, Naming::Same);
        }
        self.throughput.end(&context.shared.throughput, ended);
    }

    /// Withdraws the tokens that were reported to the observers, because their number is unknown
    /// after all or they belong to another model.
    fn retract(&mut self, context: &CallContext, call: &FinishedCall, accepted: bool) {
        let Some(observers) = &mut self.observers else {
            return;
        };
        let observers = observers.iter_mut();
        observers.for_each(|watch| watch.retract(self.reported.all()));
        if call.record.tokens.normalised.output.is_none() {
            return;
        }
        let mut renamed = watch(&self.generation, context, accepted);
        for channel in CHANNELS {
            let tokens = *self.reported.of(channel);
            let observers = renamed.iter_mut();
            observers.for_each(|watch| watch.tokens(call.ended, channel, tokens));
        }
    }

    fn ensure_series(&mut self, context: &CallContext, accepted: bool) {
        if !self.throughput.has_series() {
            let series = self.series(context, accepted);
            self.throughput.count_in(series);
        }
    }

    fn series(&self, context: &CallContext, accepted: bool) -> Arc<RateSeries> {
        let answered = self.generation.model.as_deref();
        let requested = match answered {
            Some(_) => None,
            None => context.model_requested(),
        };
        let model = answered.or(requested.as_deref());
        let (route, upstream) = (&context.route_stats.route, &context.route_stats.upstream);
        let throughput = &context.shared.throughput;
        throughput.series(route, upstream, context.workload(), model, accepted)
    }

    fn publish(&mut self, context: &CallContext, at: Instant, accepted: bool) {
        if let Some(live) = &self.live {
            if let Some(model) = &self.generation.model {
                live.model(model);
            }
            live.chunk(at, self.generation.tokens());
            if let Some(repetition) = self.generation.counts.repetition() {
                live.repetition(repetition);
            }
        }
        self.label(context, self.whole);
        self.notify(context, at, accepted);
    }

    fn notify(&mut self, context: &CallContext, at: Instant, accepted: bool) {
        // A stored answer was counted when it was generated.
        if !context.generates {
            return;
        }
        let mut settled = self.generation.counts.settled();
        let new = settled.all().saturating_sub(u64::from(self.charged));
        self.charged = u32::try_from(settled.all()).unwrap_or(u32::MAX);
        (context.limited.iter()).for_each(|limited| limited.charge(new));
        if self.is_labelled() {
            let observers = match &mut self.observers {
                Some(observers) => observers,
                None => self
                    .observers
                    .insert(watch(&self.generation, context, accepted)),
            };
            for channel in CHANNELS {
                let (settled, reported) = (*settled.of(channel), self.reported.of(channel));
                let new = settled.saturating_sub(*reported);
                if new > 0 {
                    *reported = settled;
                    let observers = observers.iter_mut();
                    observers.for_each(|watch| watch.tokens(at, channel, new));
                }
            }
        }
        if !self.whole {
            if self.is_labelled() {
                self.ensure_series(context, accepted);
            }
            let tokens = (new, self.generation.tokens().all());
            let throughput = &context.shared.throughput;
            self.throughput
                .chunk(throughput, at, tokens, context.measure.buffered_above);
        }
    }
}

fn watch(
    generation: &Generation,
    context: &CallContext,
    accepted: bool,
) -> Box<[Box<dyn TokenObserver>]> {
    let requested = generation
        .model
        .is_none()
        .then(|| context.model_requested());
    let answered = generation.model.as_deref();
    context.shared.subscribers.watch(&Stream {
        route: &context.route_stats.route,
        upstream: &context.route_stats.upstream,
        workload: context.workload(),
        model: answered.or(requested.as_ref().and_then(|model| model.as_deref())),
        accepted,
    })
}
