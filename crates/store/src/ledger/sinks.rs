//! The sinks that the ledger knows, and their progress.

use super::database::LedgerDatabase;
use super::row::whole;
use super::undelivered::{Cursors, NEWEST, forget_delivered};
use super::write_error::WriteError;
use rusqlite::params;

/// The result of a batch, for the ledger to save.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkUpdate {
    pub sink: String,
    /// The opening of the file that its numbers belong to; see
    /// [`Reader::opened`](super::Reader::opened).
    pub opened: u64,
    /// The sink has all calls up to this number.
    pub delivered: i64,
    /// The end of the next batch, if one is in progress.
    pub pending: Option<i64>,
    /// Calls of the batch that were deleted before they could be sent.
    pub lost: u64,
    /// Calls of the batch that the warehouse refused.
    pub refused: u64,
}

impl LedgerDatabase {
    /// Sets the known sinks. A new sink begins with the next call; a removed sink is forgotten.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written to. The caller then reopens the file.
    pub fn deliver_to(&mut self, sinks: &[String]) -> Result<(), WriteError> {
        let transaction = self.opened.begin()?;
        let known: Vec<String> = transaction
            .prepare("SELECT name FROM sinks")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for gone in known.iter().filter(|name| !sinks.contains(name)) {
            transaction.execute("DELETE FROM sinks WHERE name = ?", [gone])?;
        }
        for sink in sinks {
            let sql = format!("INSERT OR IGNORE INTO sinks (name, delivered) SELECT ?, ({NEWEST})");
            transaction.execute(&sql, [sink])?;
        }
        forget_delivered(&transaction)?;
        self.cursors = Cursors::load(&transaction)?;
        transaction.commit()?;
        Ok(())
    }

    /// Saves the progress of a sink. Returns whether the ledger knows the sink.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written to. The caller then reopens the file.
    pub fn save_progress(&mut self, update: &SinkUpdate) -> Result<bool, WriteError> {
        let transaction = self.opened.begin()?;
        let sql = "UPDATE sinks SET delivered = ?, pending = ?, lost = lost + ?, refused = refused + ? WHERE name = ?";
        let known = transaction.prepare_cached(sql)?.execute(params![
            update.delivered,
            update.pending,
            whole(update.lost),
            whole(update.refused),
            update.sink,
        ])?;
        forget_delivered(&transaction)?;
        transaction.commit()?;
        if let Some(delivered) = self.cursors.delivered.get_mut(&update.sink) {
            *delivered = update.delivered;
        }
        Ok(known == 1)
    }
}
