//! Marks of a running proxy: in its ledger, else the newest in memory.

use crate::ledger::{Ledger, QueryError, Reader};
use crate::query::{Mark, MarkKind, MarkQuery, NewMark};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use strum::VariantArray;
use tokengauge_core::cells::Counter;

/// Marks in memory at most.
pub const MAX_IN_MEMORY: usize = 1_000;
/// How long one that waits for the ledger waits.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why a mark was not added.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// The ledger cannot be written to.
    #[error("the ledger cannot be written to ({0}); the log of tokengauge says more")]
    Unwritable(&'static str),
    /// The ledger did not answer in time.
    #[error("the ledger did not answer within {TIMEOUT:?}; the mark may be in it later")]
    Late,
}

/// The metrics of marks.
#[derive(Clone, Debug, Default)]
pub struct MarkMetrics {
    added: HashMap<MarkKind, Counter>,
    lost: Counter,
}

impl MarkMetrics {
    /// With a counter of those that were added for each kind, and one of those that could not be.
    pub fn new(added: impl Fn(MarkKind) -> Counter, lost: Counter) -> MarkMetrics {
        let added = MarkKind::VARIANTS.iter().map(|kind| (*kind, added(*kind)));
        MarkMetrics {
            added: added.collect(),
            lost,
        }
    }

    fn added(&self, kind: MarkKind) {
        if let Some(counter) = self.added.get(&kind) {
            counter.increment(1);
        }
    }
}

/// A mark on its way to the ledger.
#[derive(Debug)]
pub(crate) struct PendingMark {
    pub(crate) mark: NewMark,
    metrics: MarkMetrics,
    /// Who waits for its number.
    waiting: Option<SyncSender<Result<u64, MarkError>>>,
}

impl PendingMark {
    /// Whether somebody waits for it.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.is_some()
    }

    /// It is in the ledger, or was lost.
    pub(crate) fn settle(self, result: Result<u64, &'static str>) {
        match result {
            Ok(_) => self.metrics.added(self.mark.kind),
            Err(_) => self.metrics.lost.increment(1),
        }
        if let Some(waiting) = self.waiting {
            let _ = waiting.try_send(result.map_err(MarkError::Unwritable));
        }
    }
}

/// Adds marks, and finds them; by default in memory.
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
    /// In the ledger, which its reader reads, else in memory.
    pub fn new(ledger: Option<(Arc<Ledger>, Arc<Reader>)>, metrics: MarkMetrics) -> Arc<Marks> {
        Arc::new(Marks {
            ledger,
            memory: Mutex::default(),
            metrics,
        })
    }

    /// Adds a mark without waiting. One that cannot be added is counted.
    pub fn add(&self, mark: NewMark) {
        match &self.ledger {
            Some((ledger, _)) => ledger.mark(self.pending(mark, None)),
            None => {
                self.remember(mark);
            }
        }
    }

    /// Adds a mark, and waits until it is there. Blocks.
    ///
    /// # Errors
    /// Where the ledger does not take it.
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

    /// The marks that match, the newest first. Blocks.
    ///
    /// # Errors
    /// As with every query of the ledger: see [`QueryError`].
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
    use crate::query::MarkSubject;
    use std::time::SystemTime;

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
