//! Those who take finished calls from the meter: exporters, the ledger, objectives, the call log.

use crate::call::Channel;
use crate::finished::FinishedCall;
use std::sync::Arc;
use std::time::Instant;

/// Takes what the meter finds.
pub trait Subscriber: Send + Sync + 'static {
    /// The first tokens of a generation came. Called on the traffic's threads, as is
    /// what it gives: both must be cheap and must not wait.
    fn watch(&self, _stream: &Stream<'_>) -> Option<Box<dyn TokenObserver>> {
        None
    }

    /// A call is over. Called on the subscribers' own thread, one call at a time.
    fn finished(&self, finished_call: &Arc<FinishedCall>);

    /// Now and then, on the same thread.
    fn tidy(&self) {}

    /// Before the process ends: whatever waits must go out.
    fn flush(&self) {}
}

/// Takes the tokens of one generation as they come.
pub trait TokenObserver: Send {
    /// `tokens` more came on `channel`, certain not to be taken back.
    fn tokens(&mut self, at: Instant, channel: Channel, tokens: u64);
}

/// What a generation is labelled with.
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
    /// Whether the upstream said yes: only then is the model's name worth a label.
    pub accepted: bool,
}
