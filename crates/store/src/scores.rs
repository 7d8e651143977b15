//! Scores of a running proxy: in its ledger, otherwise the newest in memory.

use crate::ledger::Ledger;
use crate::pending_scores::{PendingScores, TIMEOUT};
use crate::query::ScoreIndex;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use tokengauge_core::score::{Score, ScoreTarget};

pub use crate::pending_scores::{ScoreError, ScoreMetrics};

pub const MAX_IN_MEMORY: usize = 20_000;

/// Adds scores; by default in memory.
#[derive(Default)]
pub struct Scores {
    ledger: Option<Arc<Ledger>>,
    memory: Mutex<Memory>,
    metrics: ScoreMetrics,
}

type Key = (ScoreTarget, String, String);

#[derive(Default)]
struct Memory {
    last: u64,
    numbers: HashMap<Key, u64>,
    scores: BTreeMap<u64, Score>,
}

impl Scores {
    /// Scores in the ledger, if there is one, otherwise in memory.
    pub fn new(ledger: Option<Arc<Ledger>>, metrics: ScoreMetrics) -> Arc<Scores> {
        Arc::new(Scores {
            ledger,
            memory: Mutex::default(),
            metrics,
        })
    }

    /// Adds scores, and waits until they are stored. A score replaces an earlier one of the same name and target.
    /// Blocks.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot store the scores.
    pub fn add_and_wait(&self, scores: Vec<Score>) -> Result<(), ScoreError> {
        let Some(ledger) = &self.ledger else {
            self.metrics.stored(&scores);
            let mut memory = self.memory.lock();
            scores.into_iter().for_each(|score| memory.add(score));
            return Ok(());
        };
        let (waiting, answer) = sync_channel(1);
        ledger.add_scores(PendingScores {
            scores,
            metrics: self.metrics.clone(),
            waiting,
        });
        match answer.recv_timeout(TIMEOUT) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(ScoreError::Late),
            Err(RecvTimeoutError::Disconnected) => Err(ScoreError::Unwritable("ended")),
        }
    }

    /// The scores in memory. With a ledger there are none.
    pub fn index(&self) -> ScoreIndex {
        self.memory.lock().scores.values().cloned().collect()
    }
}

impl Memory {
    fn add(&mut self, score: Score) {
        let key =
            |score: &Score| -> Key { (score.target, score.target_id.clone(), score.name.clone()) };
        self.last += 1;
        if let Some(earlier) = self.numbers.insert(key(&score), self.last) {
            self.scores.remove(&earlier);
        }
        self.scores.insert(self.last, score);
        if self.scores.len() > MAX_IN_MEMORY
            && let Some((_, oldest)) = self.scores.pop_first()
        {
            self.numbers.remove(&key(&oldest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;
    use tokengauge_core::cells::Counter;
    use tokengauge_core::score::ScoreType;

    fn score(session: usize, value: f64) -> Score {
        Score {
            name: "success".into(),
            value,
            data_type: ScoreType::Boolean,
            target: ScoreTarget::Session,
            target_id: format!("s{session}"),
            source: None,
            time: SystemTime::UNIX_EPOCH.into(),
        }
    }

    #[test]
    fn without_a_ledger_the_newest_are_in_memory() {
        let counter = Counter::default();
        let counted = counter.clone();
        let metrics = ScoreMetrics::new(move |_| counted.clone(), Counter::default());
        let scores = Scores::new(None, metrics);
        let all = (0..MAX_IN_MEMORY + 2).map(|at| score(at, 1.0)).collect();
        scores.add_and_wait(all).expect("added");
        scores.add_and_wait(vec![score(5, 0.0)]).expect("added");
        let index = scores.index();
        let of = |session: usize| index.of_session(&format!("s{session}"));
        assert_eq!((of(0), of(1)), (Vec::new(), Vec::new()));
        assert_eq!(of(2).len(), 1);
        assert_eq!(of(5)[0].value, 0.0, "the later one");
        assert_eq!(scores.memory.lock().numbers.len(), MAX_IN_MEMORY);
        assert_eq!(counter.value(), MAX_IN_MEMORY as u64 + 3);
    }
}
