//! Scores that are being sent to the ledger.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use tokengauge_core::cells::Counter;
use tokengauge_core::score::Score;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ScoreError {
    #[error("the ledger cannot be written to ({0}); see the log of tokengauge")]
    Unwritable(&'static str),
    #[error("the ledger did not respond within {TIMEOUT:?}; the scores may still be stored later")]
    Late,
}

/// Counts scores by name, and scores that could not be stored.
#[derive(Clone)]
pub struct ScoreMetrics {
    stored: Arc<dyn Fn(&str) -> Counter + Send + Sync>,
    lost: Counter,
}

impl ScoreMetrics {
    /// Takes a counter of stored scores for each name, and a counter of scores that could not be stored.
    pub fn new(
        stored: impl Fn(&str) -> Counter + Send + Sync + 'static,
        lost: Counter,
    ) -> ScoreMetrics {
        ScoreMetrics {
            stored: Arc::new(stored),
            lost,
        }
    }

    pub(crate) fn stored(&self, scores: &[Score]) {
        for score in scores {
            (self.stored)(&score.name).increment(1);
        }
    }
}

impl Default for ScoreMetrics {
    fn default() -> Self {
        ScoreMetrics::new(|_| Counter::default(), Counter::default())
    }
}

pub(crate) struct PendingScores {
    pub(crate) scores: Vec<Score>,
    pub(crate) metrics: ScoreMetrics,
    pub(crate) waiting: SyncSender<Result<(), ScoreError>>,
}

impl PendingScores {
    /// Reports whether the scores are stored or lost.
    pub(crate) fn settle(self, result: Result<(), &'static str>) {
        match result {
            Ok(()) => self.metrics.stored(&self.scores),
            Err(_) => self.metrics.lost.increment(self.scores.len() as u64),
        }
        let _ = self
            .waiting
            .try_send(result.map_err(ScoreError::Unwritable));
    }
}
