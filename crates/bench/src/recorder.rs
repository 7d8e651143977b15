//! Collects tokens by time and finished calls of a trial from the meter.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_core::call::Channel;
use tokengauge_core::finished::FinishedCall;
use tokengauge_core::subscriber::{Stream, Subscriber, TokenObserver};

/// The maximum number of intervals of a trial: a week of seconds.
const MAX_INTERVALS: usize = 604_800;

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

    /// Returns the tokens of each interval so far. Intervals without tokens at the end are missing.
    pub fn tokens(&self) -> Vec<u64> {
        self.tokens.counts.lock().clone()
    }

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
