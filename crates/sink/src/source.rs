//! The sources of a sink's calls: the ledger after a cursor, and a memory queue for calls that are
//! in no ledger.

use crate::sink::Row;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;
use tokengauge_core::cells::Counter;
use tokengauge_core::finished::FinishedCall;
use tokengauge_core::subscriber::Subscriber;
use tokengauge_core::time::duration_since_1970;
use tokengauge_store::columns::values;
use tokengauge_store::ledger::{
    Ledger, LedgerCall, QueryError, Reader, SinkProgress, SinkUpdate, UndeliveredCall,
};

/// Maximum number of calls per read of the ledger. A read blocks the checkpoint of the write-ahead
/// log, and takes long on a busy core.
const READ_AT_ONCE: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The ledger does not know the sink yet, because its file is not open.
    #[error("the ledger does not know the sink yet")]
    Unknown,
    /// The sink's progress cannot be saved.
    #[error("the ledger cannot be written to; see the ledger's log messages")]
    Unwritable,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Waiting {
    pub(crate) rows: u64,
    /// Seconds since the oldest waiting call ended.
    pub(crate) seconds: f64,
    /// Whether the process ended during a batch, which must be sent again unchanged.
    pub(crate) resumes: bool,
    /// Lost calls, as far as the source counts them.
    pub(crate) lost: u64,
    /// Calls lost since the process began because files of the ledger were lost.
    pub(crate) lost_with_files: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) rows: Vec<Row>,
    pub(crate) lost: u64,
    /// Number of the last call, valid for this opening of the file.
    last: i64,
    opened: u64,
}

impl Batch {
    fn add(&mut self, calls: Vec<UndeliveredCall>) {
        for call in calls {
            self.last = self.last.max(call.seq);
            match call.values {
                Some(row) => self.rows.push(row),
                None => self.lost += 1,
            }
        }
    }
}

pub(crate) trait Source: Send {
    fn waiting(&mut self) -> Result<Waiting, SourceError>;
    /// The next batch. It stays the same until it is done.
    fn begin(&mut self, limit: usize) -> Result<Batch, SourceError>;
    /// Marks the batch as stored, except for `refused` calls.
    fn done(&mut self, batch: &Batch, refused: u64) -> Result<(), SourceError>;
    /// Releases a batch that is not stored at all, so that the next one may have more calls.
    fn widen(&mut self) -> Result<(), SourceError>;
}

/// Calls in the ledger after the sink's cursor.
pub(crate) struct LedgerSource {
    pub(crate) sink: String,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) reader: Arc<Reader>,
    pub(crate) wall: fn() -> SystemTime,
    /// The sink's progress when the file could last be written to.
    pub(crate) known: Option<SinkProgress>,
}

impl LedgerSource {
    /// The sink's progress. A file that cannot be written to may belong to another process, whose
    /// unsent calls must not be sent here.
    fn progress(&mut self) -> Result<SinkProgress, SourceError> {
        if self.reader.unwritable().is_some() {
            return Err(SourceError::Unwritable);
        }
        let progress = self.reader.sink(&self.sink)?.ok_or(SourceError::Unknown)?;
        self.known = Some(progress);
        Ok(progress)
    }

    fn save(&self, update: SinkUpdate) -> Result<(), SourceError> {
        let saved = self.ledger.save_progress(&SinkUpdate {
            sink: self.sink.clone(),
            ..update
        });
        saved.then_some(()).ok_or(SourceError::Unwritable)
    }

    /// The number of the last call of the next batch. The ledger first saves that the batch is in
    /// progress, because the sender counts calls that retention deletes from then on.
    fn end_of_batch(
        &self,
        opened: u64,
        progress: &SinkProgress,
        limit: usize,
    ) -> Result<Option<i64>, SourceError> {
        if progress.pending.is_some() {
            return Ok(progress.pending);
        }
        let after = progress.delivered;
        let end = self.reader.undelivered_end(after, limit)?;
        if end.is_some() {
            self.save(SinkUpdate {
                opened,
                delivered: after,
                pending: end,
                ..SinkUpdate::default()
            })?;
        }
        Ok(end)
    }
}

impl Source for LedgerSource {
    fn waiting(&mut self) -> Result<Waiting, SourceError> {
        let progress = match (self.progress(), self.known) {
            // Calls in the file wait there.
            (Err(SourceError::Unwritable), Some(known)) => known,
            (progress, _) => progress?,
        };
        let now = duration_since_1970((self.wall)()).as_millis() as f64;
        let oldest = progress.oldest_ms.map_or(now, |ms| ms as f64);
        Ok(Waiting {
            rows: progress.waiting,
            seconds: ((now - oldest) / 1e3).max(0.0),
            resumes: progress.pending.is_some(),
            lost: progress.lost,
            lost_with_files: self.reader.lost_with_files(&self.sink),
        })
    }

    fn begin(&mut self, limit: usize) -> Result<Batch, SourceError> {
        // Read before the calls: progress is saved only if the file was not opened again since.
        let opened = self.reader.opened();
        let progress = self.progress()?;
        let mut batch = Batch {
            last: progress.delivered,
            opened,
            ..Batch::default()
        };
        let Some(end) = self.end_of_batch(opened, &progress, limit)? else {
            return Ok(batch);
        };
        loop {
            let calls = self.reader.undelivered(batch.last, end, READ_AT_ONCE)?;
            let all = calls.len() < READ_AT_ONCE;
            batch.add(calls);
            if all {
                break;
            }
        }
        // Calls that retention deleted at the end of the batch are counted already.
        batch.last = end;
        Ok(batch)
    }

    fn done(&mut self, batch: &Batch, refused: u64) -> Result<(), SourceError> {
        self.save(SinkUpdate {
            opened: batch.opened,
            delivered: batch.last,
            pending: None,
            lost: batch.lost,
            refused,
            ..SinkUpdate::default()
        })
    }

    fn widen(&mut self) -> Result<(), SourceError> {
        let opened = self.reader.opened();
        let delivered = self.progress()?.delivered;
        self.save(SinkUpdate {
            opened,
            delivered,
            ..SinkUpdate::default()
        })
    }
}

/// A bounded queue of finished calls for which there is no ledger or whose ledger cannot be
/// written. Calls that find the queue full are lost and counted.
#[derive(Debug)]
pub struct MemoryQueue {
    calls: Mutex<VecDeque<Arc<FinishedCall>>>,
    limit: usize,
    lost: Counter,
}

impl MemoryQueue {
    pub fn new(limit: usize) -> Arc<MemoryQueue> {
        Arc::new(MemoryQueue {
            calls: Mutex::default(),
            limit,
            lost: Counter::default(),
        })
    }
}

impl Subscriber for MemoryQueue {
    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        let mut calls = self.calls.lock();
        if calls.len() >= self.limit {
            self.lost.increment(1);
            return;
        }
        calls.push_back(Arc::clone(finished_call));
    }
}

pub(crate) struct MemorySource {
    pub(crate) queue: Arc<MemoryQueue>,
    pub(crate) wall: fn() -> SystemTime,
    /// Number of calls in the current batch.
    pub(crate) pending: usize,
}

impl Source for MemorySource {
    fn waiting(&mut self) -> Result<Waiting, SourceError> {
        let calls = self.queue.calls.lock();
        let seconds = calls.front().map_or(0.0, |call| {
            let lasted = call.record.seconds.duration.unwrap_or(0.0);
            let began = call.timestamps.started_at;
            let since = (self.wall)().duration_since(began).unwrap_or_default();
            (since.as_secs_f64() - lasted).max(0.0)
        });
        Ok(Waiting {
            rows: calls.len() as u64,
            seconds,
            resumes: self.pending > 0,
            lost: self.queue.lost.value(),
            lost_with_files: 0,
        })
    }

    fn begin(&mut self, limit: usize) -> Result<Batch, SourceError> {
        if self.pending == 0 {
            self.pending = self.queue.calls.lock().len().min(limit);
        }
        let calls = self.queue.calls.lock();
        let calls: Vec<_> = calls.iter().take(self.pending).cloned().collect();
        let rows = calls.iter();
        let rows = rows.map(|call| values(&LedgerCall::of_finished(call)));
        Ok(Batch {
            rows: rows.collect(),
            ..Batch::default()
        })
    }

    fn done(&mut self, _: &Batch, _: u64) -> Result<(), SourceError> {
        self.queue.calls.lock().drain(..self.pending);
        self.pending = 0;
        Ok(())
    }

    fn widen(&mut self) -> Result<(), SourceError> {
        self.pending = 0;
        Ok(())
    }
}
