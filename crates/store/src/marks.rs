//! Marks of a running proxy: in its ledger, otherwise the newest in memory.

use crate::ledger::{Ledger, QueryError, Reader};
use crate::pending_mark::{PendingMark, TIMEOUT};
use crate::query::{Mark, MarkQuery, NewMark};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};

pub use crate::pending_mark::{MarkError, MarkMetrics};

pub const MAX_IN_MEMORY: usize = 1_000;

/// Adds and finds marks; by default in memory.
#[derive(Default)]
pub struct Marks {
    ledger: Option<(Arc<Ledger>, Arc<Reader>)>,
    memory: Mutex<Memory>,
    metrics: MarkMetrics,
}

#[derive(Default)]
struct Memory {
    last_id: u64,
    marks: VecDeque<(u64, NewMark)>,
}

impl Marks {
    /// Marks in the ledger, if there is one, otherwise in memory.
    pub fn new(ledger: Option<(Arc<Ledger>, Arc<Reader>)>, metrics: MarkMetrics) -> Arc<Marks> {
        Arc::new(Marks {
            ledger,
            memory: Mutex::default(),
            metrics,
        })
    }

    /// Adds a mark without waiting. A mark that cannot be added is counted.
    pub fn add(&self, mark: NewMark) {
        match &self.ledger {
            Some((ledger, _)) => ledger.mark(self.pending(mark, None)),
            None => {
                self.remember(mark);
            }
        }
    }

    /// Adds a mark, and waits until it is stored. Blocks.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot store the mark.
    pub fn add_and_wait(&self, mark: NewMark) -> Result<Mark, MarkError> {
        let Some((ledger, _)) = &self.ledger else {
            let id = self.remember(mark.clone());
            return Ok(Mark::of(id, &mark));
        };
        let (waiting, answer) = sync_channel(1);
        ledger.mark(self.pending(mark.clone(), Some(waiting)));
        match answer.recv_timeout(TIMEOUT) {
            Ok(id) => Ok(Mark::of(id?, &mark)),
            Err(RecvTimeoutError::Timeout) => Err(MarkError::Late),
            Err(RecvTimeoutError::Disconnected) => Err(MarkError::Unwritable("ended")),
        }
    }

    /// The marks that match, newest first. Blocks.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn find(&self, query: &MarkQuery) -> Result<Vec<Mark>, QueryError> {
        if let Some((_, reader)) = &self.ledger {
            return reader.marks(query);
        }
        let memory = self.memory.lock();
        let mut found: Vec<_> = memory
            .marks
            .iter()
            .filter(|(_, mark)| query.matches(mark))
            .collect();
        found.sort_by(|(one_id, one), (id, other)| (other.at, id).cmp(&(one.at, one_id)));
        found.truncate(query.limit);
        Ok(found.iter().map(|(id, mark)| Mark::of(*id, mark)).collect())
    }

    fn pending(
        &self,
        mark: NewMark,
        waiting: Option<SyncSender<Result<u64, MarkError>>>,
    ) -> PendingMark {
        PendingMark {
            mark,
            metrics: self.metrics.clone(),
            waiting,
        }
    }

    fn remember(&self, mark: NewMark) -> u64 {
        self.metrics.added(mark.kind);
        let mut memory = self.memory.lock();
        memory.last_id += 1;
        let id = memory.last_id;
        if memory.marks.len() == MAX_IN_MEMORY {
            memory.marks.pop_front();
        }
        memory.marks.push_back((id, mark));
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::{MarkKind, MarkSubject};
    use std::time::{Duration, SystemTime};
    use tokengauge_core::cells::Counter;

    fn note(second: u64) -> NewMark {
        NewMark {
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(second),
            kind: MarkKind::Note,
            text: format!("at {second}"),
            tags: Vec::new(),
            subject: MarkSubject::default(),
        }
    }

    #[test]
    fn without_a_ledger_the_newest_are_in_memory() {
        let metrics = MarkMetrics::new(|_| Counter::default(), Counter::default());
        let marks = Marks::new(None, metrics.clone());
        for second in 0..MAX_IN_MEMORY as u64 + 5 {
            marks.add(note(second));
        }
        let late = marks.add_and_wait(note(500)).expect("added");
        assert_eq!(late.id, MAX_IN_MEMORY as u64 + 6);
        let query = |limit| MarkQuery {
            limit,
            ..MarkQuery::default()
        };
        let all = marks.find(&query(usize::MAX)).expect("an answer");
        assert_eq!(all.len(), MAX_IN_MEMORY);
        assert_eq!(all[0].text, format!("at {}", MAX_IN_MEMORY + 4));
        assert_eq!(all[MAX_IN_MEMORY - 1].text, "at 6");
        let at = all.iter().position(|mark| *mark == late).expect("there");
        assert_eq!(all[at + 1].text, "at 500", "the later one first");
        assert_eq!(marks.find(&query(2)).expect("an answer"), all[..2]);
        assert_eq!(
            metrics.added[&MarkKind::Note].value(),
            MAX_IN_MEMORY as u64 + 6
        );
    }
}
