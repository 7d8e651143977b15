//! The interface of subscribers to the meter: exporters, the ledger, objectives, the call log.

use crate::call::Channel;
use crate::finished::FinishedCall;
use std::sync::Arc;
use std::time::Instant;

/// Receives finished calls from the meter.
pub trait Subscriber: Send + Sync + 'static {
    /// Called when the first tokens of a generation arrived. This method and the observer that it
    /// returns run on the threads of traffic, so they must be cheap and must not block.
    fn watch(&self, _stream: &Stream<'_>) -> Option<Box<dyn TokenObserver>> {
        None
    }

    /// Called when a call has ended, for one call at a time on the thread of the subscribers.
    fn finished(&self, finished_call: &Arc<FinishedCall>);

    /// Does housekeeping. Called from time to time on the thread of the subscribers.
    fn tidy(&self) {}

    /// Writes or sends everything pending before the process ends.
    fn flush(&self) {}
}

/// Receives the tokens of one generation as they arrive.
pub trait TokenObserver: Send {
    /// `tokens` more tokens arrived on `channel`. They are final.
    fn tokens(&mut self, at: Instant, channel: Channel, tokens: u64);

    /// The call has ended, and its record does not contain these `tokens` for this model. Either
    /// their number turned out to be unknown, or the response named another model at its end.
    fn retract(&mut self, _tokens: u64) {}
}

/// The labels of a generation.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    /// Name of the route.
    pub route: &'a Arc<str>,
    /// Name of the upstream.
    pub upstream: &'a Arc<str>,
    /// Name of the workload.
    pub workload: Option<&'a Arc<str>>,
    /// The model that responds, otherwise the requested model.
    pub model: Option<&'a str>,
    /// Whether the upstream accepted the call. Otherwise the model name must not become a label.
    pub accepted: bool,
}
