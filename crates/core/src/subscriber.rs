//! The interface to subscribers of the meter: exporters, the ledger, objectives, the call log.

use crate::call::Channel;
use crate::finished::FinishedCall;
use std::sync::Arc;
use std::time::Instant;

/// Receives finished calls from the meter.
pub trait Subscriber: Send + Sync + 'static {
    /// The first tokens of a generation arrived. Called on the threads of traffic, as is the
    /// observer it returns: both must be cheap and must not wait.
    fn watch(&self, _stream: &Stream<'_>) -> Option<Box<dyn TokenObserver>> {
        None
    }

    /// A call has ended. Called on the subscribers' own thread, one call at a time.
    fn finished(&self, finished_call: &Arc<FinishedCall>);

    /// Housekeeping, called now and then on the same thread.
    fn tidy(&self) {}

    /// Called before the process ends: everything pending must be written or sent.
    fn flush(&self) {}
}

/// Receives the tokens of one generation as they arrive.
pub trait TokenObserver: Send {
    /// `tokens` more arrived on `channel`; they are final.
    fn tokens(&mut self, at: Instant, channel: Channel, tokens: u64);

    /// The call has ended, and its record does not have these `tokens` under this model: their
    /// number is unknown after all, or the answer named another model at its end.
    fn retract(&mut self, _tokens: u64) {}
}

/// The labels of a generation.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    /// The route that matched.
    pub route: &'a Arc<str>,
    /// The upstream it went to.
    pub upstream: &'a Arc<str>,
    /// The workload it belongs to.
    pub workload: Option<&'a Arc<str>>,
    /// The model that answers, else the one asked for.
    pub model: Option<&'a str>,
    /// Whether the upstream accepted the call: only then may the model's name become a label.
    pub accepted: bool,
}
