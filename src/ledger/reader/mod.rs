//! Reading the ledger: what the API, reports and exports ask of it. Connections are
//! read-only and few, and each query has a time limit, so that none of them holds up
//! the writer or the traffic. Blocks: not for the traffic's threads.

mod filter;
mod rows;

pub use filter::*;
pub use rows::*;

use crate::call::CallRecord;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// There is no ledger, or it cannot be opened.
    #[error("the ledger {path} cannot be read: {reason}", path = .path.display())]
    Unavailable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Whoever asks is at fault.
    #[error("{0}")]
    Wrong(String),
    /// It took longer than the time limit.
    #[error("the query took longer than {0:?}; ask for a shorter time or filter by a session")]
    TimeLimit(Duration),
    /// Too many queries at once.
    #[error("too many queries at once; ask again")]
    Busy,
}

/// Reads a ledger.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
}

impl Reader {
    /// A reader of the ledger in `path`, which need not be there yet. `clock` is the
    /// monotonic clock, for the time limit.
    pub fn new(path: &Path, _clock: fn() -> Instant) -> Arc<Reader> {
        Arc::new(Reader {
            path: path.to_owned(),
        })
    }

    /// The sessions that match.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn sessions(&self, query: &SessionQuery) -> Result<Page<SessionRow>, QueryError> {
        let _ = query;
        self.unavailable()
    }

    /// One session and a page of its calls; `None` where it is not known.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn session(&self, id: &str, page: &Paging) -> Result<Option<SessionDetail>, QueryError> {
        let _ = (id, page);
        self.unavailable()
    }

    /// Calls by what they have in common, those with most calls first.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn groups(
        &self,
        filter: &Filter,
        by: &[Dimension],
        page: &Paging,
    ) -> Result<Page<GroupRow>, QueryError> {
        let _ = (filter, by, page);
        self.unavailable()
    }

    /// Calls by model, those with most calls first.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn models(&self, filter: &Filter, page: &Paging) -> Result<Page<GroupRow>, QueryError> {
        self.groups(filter, &[Dimension::Model], page)
    }

    /// Calls by workload, those with most calls first.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn workloads(&self, filter: &Filter, page: &Paging) -> Result<Page<GroupRow>, QueryError> {
        self.groups(filter, &[Dimension::Workload], page)
    }

    /// Percentiles over time: at most 1000 points of whole seconds, on multiples of
    /// `step` since 1970.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn timeseries(
        &self,
        filter: &Filter,
        metric: SeriesMetric,
        step: Duration,
    ) -> Result<Timeseries, QueryError> {
        let _ = (filter, metric, step);
        self.unavailable()
    }

    /// The calls that match, the newest first. A page may have fewer rows than the limit
    /// and still not be the last: only `next_cursor` tells.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn calls(&self, filter: &Filter, page: &Paging) -> Result<Page<CallRecord>, QueryError> {
        let _ = (filter, page);
        self.unavailable()
    }

    /// What each upstream gave at which concurrency. Of the filter only times, the
    /// upstream count.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn capacity(&self, filter: &Filter) -> Result<Vec<CapacityRow>, QueryError> {
        let _ = filter;
        self.unavailable()
    }

    fn unavailable<T>(&self) -> Result<T, QueryError> {
        Err(QueryError::Unavailable {
            path: self.path.clone(),
            reason: "nothing is written to it yet".to_owned(),
        })
    }
}
