//! What the meter finds in a trial: tokens by the time at which they came, and finished calls.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_core::call::Channel;
use tokengauge_core::finished::FinishedCall;
use tokengauge_core::subscriber::{Stream, Subscriber, TokenObserver};

/// Intervals of a trial at most: a week of seconds.
const MAX_INTERVALS: usize = 604_800;

/// Takes what the meter finds in one trial.
#[derive(Debug)]
pub struct Recorder {
    tokens: Arc<TokensByInterval>,
    calls: Mutex<Vec<Arc<FinishedCall>>>,
}

#[derive(Debug)]
struct TokensByInterval {
    began: Instant,
    interval: Duration,
    counts: Mutex<Vec<u64>>,
}

impl Recorder {
    /// Of a trial that begins then, with a count of tokens for each `interval`.
    pub fn new(began: Instant, interval: Duration) -> Arc<Recorder> {
        Arc::new(Recorder {
            tokens: Arc::new(TokensByInterval {
                began,
                interval,
                counts: Mutex::default(),
            }),
            calls: Mutex::default(),
        })
    }

    /// Tokens of each interval so far. Intervals at the end in which none came are missing.
    pub fn tokens(&self) -> Vec<u64> {
        self.tokens.counts.lock().clone()
    }

    /// The calls that have finished, in the order of their ends.
    pub fn calls(&self) -> Vec<Arc<FinishedCall>> {
        self.calls.lock().clone()
    }
}

impl Subscriber for Recorder {
    fn watch(&self, _: &Stream<'_>) -> Option<Box<dyn TokenObserver>> {
        Some(Box::new(StreamTokens(Arc::clone(&self.tokens))))
    }

    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        self.calls.lock().push(Arc::clone(finished_call));
    }
}

struct StreamTokens(Arc<TokensByInterval>);

impl TokenObserver for StreamTokens {
    fn tokens(&mut self, at: Instant, _: Channel, tokens: u64) {
        let all = &self.0;
        let passed = at.saturating_duration_since(all.began);
        let number = (passed.as_secs_f64() / all.interval.as_secs_f64()) as usize;
        if number >= MAX_INTERVALS {
            return;
        }
        let mut counts = all.counts.lock();
        if counts.len() <= number {
            counts.resize(number + 1, 0);
        }
        counts[number] += tokens;
    }
}
