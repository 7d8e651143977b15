//! A running generation, its live state and the observers of its tokens.

use super::context::CallContext;
use super::counts::ByChannel;
use super::generation::Generation;
use super::live::LiveCall;
use super::model_names::{NameHash, Naming};
use super::{Stream, TokenObserver};
use std::sync::Arc;
use std::time::Instant;
use tokengauge_core::call::Channel;
use tokengauge_core::throughput::{FinishedGeneration, GenerationThroughput};

/// Frames with tokens after which the name of a model counts that no answer began with before.
const TRUSTED_FRAMES: u64 = 2;

/// A generation and its live state.
#[derive(Default)]
pub(crate) struct LiveGeneration {
    pub(crate) generation: Generation,
    pub(crate) live: Option<Arc<LiveCall>>,
    observers: Option<Box<[Box<dyn TokenObserver>]>>,
    /// Tokens that were reported to the observers.
    reported: ByChannel,
    /// Tokens that were charged to quotas.
    charged: u32,
    /// The model that the response had named by its first token.
    first_named: NameHash,
    /// Whether tokens are counted under the name of their model. Before, they are held back.
    is_labelled: bool,
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
        self.generation.finish();
        // The last tokens are final now: they arrived with the last text.
        let last = self.generation.timeline.all.map(|span| span.last);
        let at = last.unwrap_or(at);
        if self.generation.tokens().all() > 0 {
            self.label(context, true);
            self.notify(context, at, accepted);
        }
    }

    /// Decides whether the name of the model is known, in which tokens are counted: the record
    /// will have it. Most responses name it with their first token, some with the last, and some
    /// name an alias before. The first answers that begin with a name show which it is.
    fn label(&mut self, context: &CallContext, is_last: bool) {
        if self.is_labelled {
            return;
        }
        let frames = self.generation.timeline.all.map_or(0, |span| span.frames);
        let named = self.generation.model.as_deref();
        if frames <= 1 {
            self.first_named = NameHash::of(named);
        }
        let names = &context.shared.model_names;
        let naming = names.naming(&context.route_stats.upstream, NameHash::of(named));
        self.is_labelled = is_last
            || match naming {
                Some(Naming::Same) => true,
                Some(Naming::Another) => false,
                None => named.is_some() && frames >= TRUSTED_FRAMES,
            };
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
            let last_named = NameHash::of(self.generation.model.as_deref());
            let naming = match self.first_named == last_named {
                true => Naming::Same,
                false => Naming::Another,
            };
            let upstream = &context.route_stats.upstream;
            let names = &context.shared.model_names;
            names.learn(upstream, self.first_named, naming);
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
        self.label(context, self.whole);
        self.notify(context, at, accepted);
    }

    /// Notifies the observers of tokens that were not reported yet.
    fn notify(&mut self, context: &CallContext, at: Instant, accepted: bool) {
        // A stored answer was counted when it was generated.
        if !context.generates {
            return;
        }
        let mut settled = self.generation.counts.settled();
        let new = settled.all().saturating_sub(u64::from(self.charged));
        self.charged = u32::try_from(settled.all()).unwrap_or(u32::MAX);
        context.charge(new);
        if self.is_labelled {
            let observers = match &mut self.observers {
                Some(observers) => observers,
                None => self
                    .observers
                    .insert(watch(&self.generation, context, accepted)),
            };
            for channel in [Channel::Answer, Channel::Reasoning, Channel::ToolCall] {
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
            if self.is_labelled {
                self.ensure_series(context, accepted);
            }
            let tokens = (new, self.generation.tokens().all());
            let throughput = &context.shared.throughput;
            self.throughput
                .frame(throughput, at, tokens, context.measure.buffered_above);
        }
    }
}

/// The observers of the tokens of a generation, by the model that it has named by now.
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
