//! Reads the figures of stored calls, with the ids of their names.

use super::dictionary::{SeriesNames, select_series};
use super::distributions::SeriesKey;
use super::experiment_units::UnitKey;
use super::row::started_ms;
use crate::figures::{CallFigures, FinishClasses, session_number};
use crate::query::Dimension::{
    Agent, Experiment, Model, Outcome as Ended, Route, Variant, Workload,
};
use rusqlite::{Connection, OptionalExtension, Params, Row};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use tokengauge_core::call::{Operation, OperationClass, Outcome};

const COLUMNS: &str = "key, series, session, user, operation, finish_reasons, warm_up, \
    normalised_input, normalised_output, reported_input, reported_cached_input, reported_output, \
    cost_nano_usd, ttft_us, last_token_us, duration_us, tps_output_milli, \
    tps_unavailable IS NOT NULL, concurrency";

#[derive(Clone, Copy, Debug)]
pub(super) struct LedgerFigures {
    pub(super) names: UnitKey,
    pub(super) series: SeriesKey,
    pub(super) figures: CallFigures,
}

impl LedgerFigures {
    /// `None` if the call belongs to no experiment.
    pub(super) fn experiment_unit(&self) -> Option<UnitKey> {
        experiment_unit(self.names)
    }
}

pub(super) fn unit_key(common: &SeriesNames, session: Option<i64>, user: Option<i64>) -> UnitKey {
    let [experiment, variant, agent] = [Experiment, Variant, Agent].map(|by| common.of(by));
    [experiment, variant, session, agent, user].map(|id| id.unwrap_or(0))
}

/// `key`, or `None` if it belongs to no experiment.
pub(super) fn experiment_unit(key: UnitKey) -> Option<UnitKey> {
    (key[0] != 0).then_some(key)
}

pub(super) fn series_key(common: &SeriesNames) -> SeriesKey {
    [Model, Route, Workload].map(|by| common.of(by).unwrap_or(0))
}

pub(super) struct FiguresReader<'c> {
    connection: &'c Connection,
    series: HashMap<i64, SeriesNames>,
    outcomes: HashMap<i64, Option<Outcome>>,
    classes: HashMap<i64, Option<OperationClass>>,
    operations: HashMap<i64, Option<Operation>>,
    finish: HashMap<i64, FinishClasses>,
    /// Id and name of the last session: calls of a session are often consecutive.
    session: Option<(i64, Option<String>)>,
}

impl<'c> FiguresReader<'c> {
    pub(super) fn new(connection: &'c Connection) -> FiguresReader<'c> {
        FiguresReader {
            connection,
            series: HashMap::new(),
            outcomes: HashMap::new(),
            classes: HashMap::new(),
            operations: HashMap::new(),
            finish: HashMap::new(),
            session: None,
        }
    }

    pub(super) fn read(
        &mut self,
        condition: &str,
        values: impl Params,
        mut each: impl FnMut(&LedgerFigures),
    ) -> rusqlite::Result<()> {
        let sql = format!("SELECT {COLUMNS} FROM calls WHERE {condition}");
        let connection = self.connection;
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(values)?;
        while let Some(row) = rows.next()? {
            if let Some(call) = self.call(row)? {
                each(&call);
            }
        }
        Ok(())
    }

    /// `None` if the file does not contain the outcome.
    fn call(&mut self, row: &Row<'_>) -> rusqlite::Result<Option<LedgerFigures>> {
        let connection = self.connection;
        let series: i64 = row.get(1)?;
        let common = match self.series.get(&series) {
            Some(common) => *common,
            None => *self
                .series
                .entry(series)
                .or_insert(names_of(connection, series)?),
        };
        let outcome = common
            .of(Ended)
            .map(|id| cached(&mut self.outcomes, connection, id));
        let Some(outcome) = outcome.transpose()?.flatten() else {
            return Ok(None);
        };
        let (session, user) = (row.get(2)?, row.get(3)?);
        let class = self.class(common.class(), row.get(4)?)?;
        let finish = self.finish(row.get(5)?)?;
        let started_ms = started_ms(row.get(0)?);
        let number = self.session_number(session, started_ms)?;
        let (counted_input, reported_input): (Option<i64>, Option<i64>) =
            (row.get(7)?, row.get(9)?);
        let (normalised_output, reported_output) = (row.get(8)?, row.get::<_, Option<i64>>(11)?);
        let figures = CallFigures {
            started_us: started_ms.saturating_mul(1000),
            duration_us: row.get(15)?,
            outcome,
            class,
            warm_up: row.get::<_, Option<bool>>(6)?.unwrap_or(false),
            input: reported_input.or(counted_input),
            cached_input: row.get(10)?,
            output: reported_output.or(normalised_output),
            normalised_output,
            reported_output,
            cost_nano: row.get(12)?,
            ttft_us: row.get(13)?,
            last_token_us: row.get(14)?,
            tps_milli: row.get(16)?,
            tps_unavailable: row.get(17)?,
            finish,
            concurrency: row.get(18)?,
            session: number,
        };
        Ok(Some(LedgerFigures {
            names: unit_key(&common, session, user),
            series: series_key(&common),
            figures,
        }))
    }

    /// The class of operations. For calls older than classes it is derived from the operation.
    fn class(
        &mut self,
        class: Option<i64>,
        operation: Option<i64>,
    ) -> rusqlite::Result<OperationClass> {
        let connection = self.connection;
        let known = class.map(|id| cached(&mut self.classes, connection, id));
        if let Some(class) = known.transpose()?.flatten() {
            return Ok(class);
        }
        let operation = operation.map(|id| cached(&mut self.operations, connection, id));
        let operation = operation.transpose()?.flatten();
        Ok(operation.map_or(OperationClass::Other, Operation::class))
    }

    fn session_number(&mut self, id: Option<i64>, started_ms: i64) -> rusqlite::Result<u64> {
        let Some(id) = id else {
            return Ok(session_number(None, started_ms));
        };
        if self.session.as_ref().is_none_or(|(known, _)| *known != id) {
            let sql = "SELECT name FROM sessions WHERE id = ?";
            let mut ask = self.connection.prepare_cached(sql)?;
            let name = ask.query_row([id], |row| row.get(0)).optional()?;
            self.session = Some((id, name));
        }
        let name = self.session.as_ref().and_then(|(_, name)| name.as_deref());
        Ok(session_number(name, started_ms))
    }

    fn finish(&mut self, id: Option<i64>) -> rusqlite::Result<FinishClasses> {
        let Some(id) = id else {
            return Ok(FinishClasses::default());
        };
        if let Some(classes) = self.finish.get(&id) {
            return Ok(*classes);
        }
        let text = name(self.connection, id)?.unwrap_or_default();
        let reasons: Vec<String> = serde_json::from_str(&text).unwrap_or_default();
        let classes = FinishClasses::of(&reasons);
        self.finish.insert(id, classes);
        Ok(classes)
    }
}

/// The enum value of the name with this id, looked up once.
fn cached<T: DeserializeOwned + Copy>(
    known: &mut HashMap<i64, Option<T>>,
    connection: &Connection,
    id: i64,
) -> rusqlite::Result<Option<T>> {
    if let Some(value) = known.get(&id) {
        return Ok(*value);
    }
    let text = name(connection, id)?.unwrap_or_default();
    let value = serde_json::from_value(serde_json::Value::String(text)).ok();
    known.insert(id, value);
    Ok(value)
}

fn name(connection: &Connection, id: i64) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached("SELECT name FROM names WHERE id = ?")?
        .query_row([id], |row| row.get(0))
        .optional()
}

fn names_of(connection: &Connection, series: i64) -> rusqlite::Result<SeriesNames> {
    let sql = format!("{} WHERE id = ?", select_series());
    let mut found = connection.prepare_cached(&sql)?;
    let found = found.query_row([series], |row| SeriesNames::read(row, 1));
    Ok(found.optional()?.unwrap_or_default())
}
