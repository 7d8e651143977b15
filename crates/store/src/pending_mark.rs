//! A mark that is being sent to the ledger.

use crate::query::{MarkKind, NewMark};
use std::collections::HashMap;
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use strum::VariantArray;
use tokengauge_core::cells::Counter;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    #[error("the ledger cannot be written to ({0}); see the log of tokengauge")]
    Unwritable(&'static str),
    #[error("the ledger did not respond within {TIMEOUT:?}; the mark may still be added later")]
    Late,
}

#[derive(Clone, Debug, Default)]
pub struct MarkMetrics {
    pub(crate) added: HashMap<MarkKind, Counter>,
    lost: Counter,
}

impl MarkMetrics {
    /// Takes a counter of added marks for each kind, and a counter of marks that could not be
    /// added.
    pub fn new(added: impl Fn(MarkKind) -> Counter, lost: Counter) -> MarkMetrics {
        let added = MarkKind::VARIANTS.iter().map(|kind| (*kind, added(*kind)));
        MarkMetrics {
            added: added.collect(),
            lost,
        }
    }

    pub(crate) fn added(&self, kind: MarkKind) {
        if let Some(counter) = self.added.get(&kind) {
            counter.increment(1);
        }
    }
}

#[derive(Debug)]
pub(crate) struct PendingMark {
    pub(crate) mark: NewMark,
    pub(crate) metrics: MarkMetrics,
    pub(crate) waiting: Option<SyncSender<Result<u64, MarkError>>>,
}

impl PendingMark {
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.is_some()
    }

    /// Reports whether the mark is stored or lost.
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
