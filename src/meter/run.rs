//! A generation while it runs: what it says, and those who watch it live.

use super::counts::ByChannel;
use super::generation::Generation;
use super::head::Head;
use super::live::Live;
use super::subscriber::{Stream, Watch};
use crate::call::Channel;
use crate::throughput::{Ended, Flow};
use std::sync::Arc;
use std::time::Instant;

/// A generation and its live side.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) generation: Generation,
    pub(crate) live: Option<Arc<Live>>,
    watches: Option<Box<[Box<dyn Watch>]>>,
    /// Tokens that the watches know of.
    told: ByChannel,
    /// What it adds to the throughput of all.
    flow: Flow,
    /// Whether it came as one body.
    whole: bool,
}

impl Run {
    pub(crate) fn new(live: Arc<Live>) -> Run {
        Run {
            live: Some(live),
            ..Run::default()
        }
    }

    /// A run on a connection whose generation has not begun.
    pub(crate) fn behind(generation: Generation) -> Run {
        Run {
            generation,
            ..Run::default()
        }
    }

    /// The frame whose events were given is over.
    pub(crate) fn frame(&mut self, head: &Head, at: Instant, accepted: bool) {
        if !head.generates {
            // A stored answer has no pace of its own.
            self.generation.counts.frame();
            return;
        }
        if self.generation.frame(at, head.stall_threshold()) {
            self.show(head, at, accepted);
        }
    }

    /// The events of a whole body were given: its tokens count, but have no pace.
    pub(crate) fn whole(&mut self, head: &Head, at: Instant, accepted: bool) {
        self.whole = true;
        if self.generation.counts.frame().text {
            self.show(head, at, accepted);
        }
    }

    /// No more text comes.
    pub(crate) fn finish(&mut self, head: &Head, at: Instant, accepted: bool) {
        self.generation.counts.finish();
        // The last tokens are certain now: they came with the last text.
        let last = self.generation.timeline.all.map(|span| span.last);
        let at = last.unwrap_or(at);
        if self.generation.tokens().all() > 0 {
            self.tell(head, at, accepted);
        }
    }

    /// Its request had left.
    pub(crate) fn sent(&mut self, at: Instant) {
        self.flow.counted = Some(at);
    }

    /// Its record has been made: what it adds to the throughput is certain.
    pub(crate) fn conclude(&mut self, head: &Head, ended: Ended, accepted: bool) {
        if !head.generates {
            return;
        }
        if ended.tokens > Some(0) {
            self.count_at(head, accepted);
        }
        self.flow.end(&head.shared.throughput, ended);
    }

    /// Where its tokens are counted.
    fn count_at(&mut self, head: &Head, accepted: bool) {
        let answered = self.generation.model.as_deref();
        self.flow.lane(|| {
            let requested = answered.is_none().then(|| head.model_requested()).flatten();
            let model = answered.or(requested.as_deref());
            let (route, upstream) = (&head.lane.route, &head.lane.upstream);
            let throughput = &head.shared.throughput;
            throughput.lane(route, upstream, head.workload(), model, accepted)
        });
    }

    fn show(&mut self, head: &Head, at: Instant, accepted: bool) {
        if let Some(live) = &self.live {
            if let Some(model) = &self.generation.model {
                live.model(model);
            }
            live.frame(at, self.generation.tokens());
        }
        self.tell(head, at, accepted);
    }

    /// Tells the watches what they do not know yet.
    fn tell(&mut self, head: &Head, at: Instant, accepted: bool) {
        // What is stored was counted when it was generated.
        if !head.generates {
            return;
        }
        if self.watches.is_none() {
            self.watches = Some(self.watch(head, accepted));
        }
        let before = self.told.all();
        let mut settled = self.generation.counts.settled();
        for channel in [Channel::Answer, Channel::Reasoning, Channel::ToolCall] {
            let (settled, told) = (*settled.of(channel), self.told.of(channel));
            let new = settled.saturating_sub(*told);
            if new > 0 {
                *told = settled;
                head.charge(new);
                let watches = self.watches.iter_mut().flatten();
                watches.for_each(|watch| watch.tokens(at, channel, new));
            }
        }
        if !self.whole {
            self.count_at(head, accepted);
            let new = self.told.all().saturating_sub(before);
            let tokens = (new, self.generation.tokens().all());
            let throughput = &head.shared.throughput;
            self.flow
                .frame(throughput, at, tokens, head.measure.buffered_above);
        }
    }

    fn watch(&self, head: &Head, accepted: bool) -> Box<[Box<dyn Watch>]> {
        let requested = self
            .generation
            .model
            .is_none()
            .then(|| head.model_requested());
        let answered = self.generation.model.as_deref();
        head.shared.subscribers.watch(&Stream {
            route: &head.lane.route,
            upstream: &head.lane.upstream,
            workload: head.workload(),
            model: answered.or(requested.as_ref().and_then(|model| model.as_deref())),
            accepted,
        })
    }
}
