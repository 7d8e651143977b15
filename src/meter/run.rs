//! A generation while it runs: what it says, and those who watch it live.

use super::counts::ByChannel;
use super::generation::Generation;
use super::head::Head;
use super::live::Live;
use super::subscriber::{Stream, Watch};
use crate::call::Channel;
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
        if self.generation.frame(at, head.stall_threshold()) {
            self.show(head, at, accepted);
        }
    }

    /// The events of a whole body were given: its tokens count, but have no pace.
    pub(crate) fn whole(&mut self, head: &Head, at: Instant, accepted: bool) {
        if self.generation.counts.frame().text {
            self.show(head, at, accepted);
        }
    }

    /// No more text comes.
    pub(crate) fn finish(&mut self, head: &Head, at: Instant, accepted: bool) {
        self.generation.counts.finish();
        if self.generation.tokens().all() > 0 {
            self.tell(head, at, accepted);
        }
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
        if self.watches.is_none() {
            self.watches = Some(self.watch(head, accepted));
        }
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
