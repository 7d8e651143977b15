//! Writes batches: each is one transaction with the calls, the sums of their sessions and
//! experiments, the rollups, the spending by day and the distributions.

use super::Shared;
use super::analyses::Analyses;
use super::capacity;
use super::daily_spending::{DailySpending, RowCounts, SpendingKey};
use super::dictionary::Dictionary;
use super::distributions::{HourlyDistributions, SeriesIds};
use super::experiment_units::{UnitCounts, Units};
use super::file::{self, LedgerFile, Place};
use super::ledger_call::LedgerCall;
use super::ledger_figures::{experiment_unit, series_key, unit_key};
use super::marks;
use super::names::Names;
use super::retention_clock::Retention;
use super::rollups::Rollups;
use super::row::{Entry, micros, millis, nanos, segments, whole};
use super::scores;
use super::sessions::Sessions;
use super::throughput;
use super::undelivered::{self, Cursors};
use super::unsummed_marks::Marks;
use super::write_error::WriteError;
use crate::query::{Dimension, NewMark};
use rusqlite::{Connection, ErrorCode, Statement, params};
use std::path::Path;
use std::sync::Arc;
use tokengauge_core::background::Pauses;
use tokengauge_core::score::Score;
use tokengauge_core::throughput::ThroughputTick;

/// Instructions of SQLite's virtual machine between two readings of the clock. They take some
/// microseconds, about as long as one call.
const PAUSE_STEPS: i32 = 200;
/// Number of consecutive keys that are tried for calls in one millisecond.
const KEYS_TRIED: i64 = 64;

/// The ledger's file, opened for writing. After an error it must be reopened, because its caches
/// may contain uncommitted data.
#[derive(Debug)]
pub struct LedgerDatabase {
    pub(super) opened: LedgerFile,
    pub(super) dictionary: Dictionary,
    next_session: i64,
    pub(super) unit_counts: UnitCounts,
    pub(super) distribution_series: SeriesIds,
    pub(super) spending_rows: RowCounts,
    /// Older calls that are not yet in the sums.
    pub(super) unsummed: Marks,
    /// The sinks that get every written call, and their progress.
    pub(super) cursors: Cursors,
    pub(super) retention: Retention,
}

/// The contribution of a batch to experiments and distributions.
#[derive(Debug, Default)]
pub(super) struct SumsOfBatch {
    pub(super) units: Units,
    pub(super) distributions: HourlyDistributions,
}

impl SumsOfBatch {
    fn add(&mut self, entry: &Entry<'_>, names: &Names, session: Option<i64>) {
        // The enclosing call already contains the work of a nested call.
        let unit = unit_key(&names.common, session, names.name_of(Dimension::User));
        let unit = experiment_unit(unit).filter(|_| !entry.nested);
        if let Some(unit) = unit {
            self.units.add(unit, &entry.figures);
        }
        self.distributions
            .add(series_key(&names.common), &entry.figures);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchResult {
    pub records: u64,
    /// Number of names and combinations that became `other`, and of calls of units and spending
    /// beyond the bounds.
    pub collapsed: u64,
}

impl LedgerDatabase {
    /// Opens the file, or creates it if it is missing.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written to, is in use by another process, or has a newer version.
    pub fn open(path: &Path) -> Result<LedgerDatabase, WriteError> {
        LedgerDatabase::open_file(path, false)
    }

    /// Like [`open`](LedgerDatabase::open), but first checks a `suspect` file for damage, and renames
    /// it if it is damaged.
    ///
    /// # Errors
    /// Returns the errors of [`open`](LedgerDatabase::open).
    pub fn open_file(path: &Path, suspect: bool) -> Result<LedgerDatabase, WriteError> {
        let opened = file::open(path, suspect)?;
        let connection = &opened.connection;
        let retention = Retention::load(connection)?;
        let dictionary = Dictionary::load(connection)?;
        let unit_counts = UnitCounts::load(connection)?;
        let distribution_series = SeriesIds::load(connection)?;
        let unsummed = Marks::load(connection)?;
        let next_session = opened.connection.query_row(
            "SELECT coalesce(max(id), 0) + 1 FROM sessions",
            [],
            |row| row.get(0),
        )?;
        Ok(LedgerDatabase {
            opened,
            dictionary,
            next_session,
            unit_counts,
            distribution_series,
            spending_rows: RowCounts::default(),
            unsummed,
            cursors: Cursors::default(),
            retention,
        })
    }

    /// From now on, yields to traffic on the core every quarter of a millisecond; otherwise calls
    /// would wait for milliseconds. It does not yield while the
    /// [backlog](super::backlog::Backlog::is_high) is high.
    ///
    /// # Errors
    /// Returns an error if SQLite refuses the progress handler.
    pub(super) fn pause_for_traffic(&mut self, shared: &Arc<Shared>) -> Result<(), WriteError> {
        let (mut pauses, shared) = (Pauses::default(), Arc::clone(shared));
        let between = move || {
            if !shared.backlog.is_high() {
                pauses.between();
            }
            false
        };
        let connection = &mut self.opened.connection;
        Ok(connection.progress_handler(PAUSE_STEPS, Some(between))?)
    }

    /// Whether the file is still at its path, neither removed nor replaced.
    pub(super) fn is_in_place(&self) -> bool {
        self.opened.place() != Place::Gone
    }

    /// Whether a call is in the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn has(&self, call: &LedgerCall<'_>) -> Result<bool, WriteError> {
        let key = Entry::key(call);
        let sql = "SELECT EXISTS (SELECT 1 FROM calls WHERE key >= ? AND key < ? AND id = ?)";
        let mut ask = self.connection().prepare_cached(sql)?;
        let id = call.id.as_bytes().as_slice();
        Ok(ask.query_row(params![key, key + KEYS_TRIED, id], |row| row.get(0))?)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.opened.connection
    }

    /// Writes a batch completely or not at all.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written to. The caller then reopens the file.
    pub fn write(&mut self, batch: &[LedgerCall<'_>]) -> Result<BatchResult, WriteError> {
        self.write_all(batch, &ThroughputTick::default(), &|| false)
    }

    /// Writes a second of throughput.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written to. The caller then reopens the file.
    pub fn take(&mut self, tick: &ThroughputTick) -> Result<(), WriteError> {
        self.write_all(&[], tick, &|| false).map(|_| ())
    }

    /// Adds a mark, and returns its number.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written to. The caller then reopens the file.
    pub fn mark(&mut self, mark: &NewMark) -> Result<u64, WriteError> {
        Ok(marks::add(self.connection(), mark)?)
    }

    /// Adds scores. A later score of the same name and target replaces an earlier one.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written to. The caller then reopens the file.
    pub fn score(&mut self, scores: &[Score]) -> Result<(), WriteError> {
        Ok(scores::add(self.connection(), scores)?)
    }

    /// Writes the batch and the throughput in one transaction. It stops adding calls when `is_late`
    /// returns true, but always adds the first call.
    pub(super) fn write_all(
        &mut self,
        batch: &[LedgerCall<'_>],
        tick: &ThroughputTick,
        is_late: &dyn Fn() -> bool,
    ) -> Result<BatchResult, WriteError> {
        let mut records = 0;
        let transaction = self.opened.begin()?;
        let mut sessions = Sessions::new(self.next_session);
        let mut rollups = Rollups::default();
        let mut spending = DailySpending::default();
        let mut sums = SumsOfBatch::default();
        {
            let mut insert = transaction.prepare_cached(&insert_sql())?;
            let mut analyses = Analyses::of(&transaction)?;
            for call in batch {
                if records > 0 && is_late() {
                    break;
                }
                records += 1;
                let entry = &Entry::of(call);
                let names = Names::of(entry, &mut self.dictionary, &transaction)?;
                let session = sessions.add(entry, &names, &mut self.dictionary, &transaction)?;
                rollups.add(entry, names.series);
                let key = insert_call(&mut insert, entry, &names, session)?;
                analyses.add(key, call)?;
                if !self.cursors.is_empty() {
                    undelivered::add(&transaction, key)?;
                }
                if key >= self.unsummed.units {
                    sums.add(entry, &names, session);
                }
                if key >= self.unsummed.spending {
                    let second = entry.started_us.div_euclid(1_000_000);
                    spending.add(SpendingKey::of_names(second, &names), &entry.share);
                }
            }
        }
        sessions.save(&transaction)?;
        rollups.save(&transaction)?;
        spending.save(&transaction, &mut self.spending_rows, &mut self.dictionary)?;
        let collapsed = sums.units.save(&transaction, &mut self.unit_counts)?;
        sums.distributions.save(
            &transaction,
            &mut self.distribution_series,
            &mut self.dictionary,
        )?;
        for second in &tick.busy {
            capacity::save(second, &mut self.dictionary, &transaction)?;
        }
        throughput::save(&tick.deltas, &mut self.dictionary, &transaction)?;
        transaction.commit()?;
        self.next_session = sessions.next;
        self.cursors.added(records);
        Ok(BatchResult {
            records,
            collapsed: collapsed + std::mem::take(&mut self.dictionary.collapsed),
        })
    }
}

const INTEGERS: &str = "series, session, user, parent_agent, endpoint, dialect, operation, \
    model_requested, answered, streamed, status, error_type, finish_reasons, warm_up, \
    normalised_answer, normalised_reasoning, normalised_tool_call, normalised_output, \
    normalised_input, reported_input, reported_cached_input, reported_cache_write, \
    reported_output, reported_reasoning, token_source, ttft_us, ttft_upstream_us, \
    first_answer_us, connect_us, upload_us, last_token_us, longest_gap_us, duration_us, \
    tps_output_milli, tps_answer_milli, tps_total_milli, tps_unavailable, frames, stalls, \
    first_token_event, request_bytes, response_bytes, cost_nano_usd, cost_source, concurrency, \
    engine_prompt_tokens, engine_prompt_us, engine_output_tokens, engine_output_us, \
    engine_load_us, engine_total_us, method, path, hop, service_tier, agent_blocked_us, \
    tps_reported_milli, tps_prefill_milli, tps_total_unavailable, session_guess, key_hash, tools, \
    cost_unavailable, skipped_events, server_tools_us";

fn insert_sql() -> String {
    let columns = INTEGERS.matches(',').count() + 1;
    let places = ", ?".repeat(columns);
    format!(
        "INSERT INTO calls (key, id, trace_id, response_id, segments, {INTEGERS})
         VALUES (?, ?, ?, ?, ?{places})"
    )
}

fn integers(entry: &Entry<'_>, names: &Names, session: Option<i64>) -> [Option<i64>; 65] {
    let record = entry.record;
    let (counted, provider) = (&record.tokens.normalised, &record.tokens.reported);
    let (seconds, tps) = (&record.seconds, &record.tps);
    let engine = record.engine.unwrap_or_default();
    let [user, key_hash, tools] = names.spending;
    let flag = |flag: bool| Some(i64::from(flag));
    let count = |count: Option<u64>| count.map(whole);
    let us = |seconds: Option<f64>| seconds.and_then(micros);
    let speed = |speed: Option<f64>| speed.and_then(millis);
    [
        Some(names.series),
        session,
        user,
        names.parent_agent,
        names.endpoint,
        Some(names.dialect),
        Some(names.operation),
        names.model_requested,
        flag(record.model.is_some()),
        record.streamed.map(i64::from),
        record.status.map(i64::from),
        names.error_type,
        names.finish_reasons,
        flag(record.warm_up),
        count(counted.answer),
        count(counted.reasoning),
        count(counted.tool_call),
        count(counted.output),
        count(counted.input),
        count(provider.input),
        count(provider.cached_input),
        count(provider.cache_write),
        count(provider.output),
        count(provider.reasoning),
        names.token_source,
        us(seconds.ttft),
        us(seconds.ttft_upstream),
        us(seconds.first_answer),
        us(seconds.connect),
        us(seconds.upload),
        us(seconds.last_token),
        us(seconds.longest_gap),
        us(seconds.duration),
        speed(tps.output),
        speed(tps.answer),
        speed(tps.total),
        names.tps_unavailable,
        Some(whole(record.frames)),
        Some(whole(record.stalls)),
        count(record.first_token_event),
        Some(whole(record.bytes.request)),
        Some(whole(record.bytes.response)),
        record.cost_usd.and_then(nanos),
        names.cost_source,
        entry.concurrency.map(i64::from),
        count(engine.prompt_tokens),
        us(engine.prompt_seconds),
        count(engine.output_tokens),
        us(engine.output_seconds),
        us(engine.load_seconds),
        us(engine.total_seconds),
        names.method,
        names.path,
        record.hop.map(i64::from),
        names.service_tier,
        us(seconds.agent_blocked),
        speed(tps.reported),
        speed(tps.prefill),
        names.total_unavailable,
        names.session_guess,
        key_hash,
        tools,
        names.cost_unavailable,
        Some(whole(record.skipped_events)),
        us(seconds.server_tools),
    ]
}

/// Returns the call's key in the file.
fn insert_call(
    insert: &mut Statement<'_>,
    entry: &Entry<'_>,
    names: &Names,
    session: Option<i64>,
) -> rusqlite::Result<i64> {
    insert.raw_bind_parameter(2, entry.id)?;
    insert.raw_bind_parameter(3, entry.trace_id.map(u128::to_be_bytes))?;
    insert.raw_bind_parameter(4, entry.record.response_id.as_deref())?;
    insert.raw_bind_parameter(5, segments(entry.record))?;
    for (at, value) in integers(entry, names, session).iter().enumerate() {
        insert.raw_bind_parameter(at + 6, value)?;
    }
    for other in 0..KEYS_TRIED {
        insert.raw_bind_parameter(1, entry.key + other)?;
        match insert.raw_execute() {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {}
            done => return done.map(|_| entry.key + other),
        }
    }
    Ok(entry.key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_has_a_value_and_every_value_a_column() {
        let folder = tempfile::tempdir().expect("a folder");
        let ledger = LedgerDatabase::open(&folder.path().join("ledger.sqlite")).expect("opens");
        let statement = ledger.connection().prepare(&insert_sql()).expect("columns");
        assert_eq!(statement.parameter_count(), 5 + 65);
        let generated_and_given = 1 + 5 + 65;
        let served_by_of_version_11 = 1;
        let columns: i64 = ledger
            .connection()
            .query_row(
                "SELECT count(*) FROM pragma_table_xinfo('calls')",
                [],
                |row| row.get(0),
            )
            .expect("a count");
        assert_eq!(columns, generated_and_given + served_by_of_version_11);
    }
}
