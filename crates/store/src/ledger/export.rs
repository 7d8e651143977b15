//! Exports call records: as CSV, JSON lines or Parquet for analysis, and as traces for replay.

mod mooncake;

use super::reader::calls::record;
use super::row::{key_at, milliseconds, started_ms};
use super::{QueryError, Reader};
use crate::columns::{COLUMNS, Column, ColumnKind, Value, values_of_row};
use crate::csv;
use crate::parquet_table::Table;
use mooncake::Trace;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use std::io::{self, BufWriter, Write};
use std::time::SystemTime;

/// Number of calls per query. Between queries the writer can checkpoint.
const CHUNK: i64 = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// Typed columns, compressed.
    Parquet,
    /// Comma-separated values with a header line (RFC 4180).
    Csv,
    /// One call record per line, as in the call log.
    Jsonl,
    /// A trace for replay, with one call per line: start, input length, output length, session.
    Mooncake,
}

#[derive(Clone, Copy, Debug)]
pub struct ExportOptions {
    /// Selects calls that began at this time or later.
    pub since: Option<SystemTime>,
    /// Selects calls that began before this time.
    pub until: Option<SystemTime>,
    pub format: FileFormat,
    /// Whether text in CSV that a spreadsheet would take for a formula begins with `'`.
    pub spreadsheet: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error("the file cannot be written: {0}")]
    File(#[from] io::Error),
}

/// Writes the calls that `options` select to `file`, in the order of their start. Returns the
/// number of calls.
///
/// # Errors
/// If the ledger cannot be read or the file cannot be written.
pub fn export(
    reader: &Reader,
    options: &ExportOptions,
    file: Box<dyn Write + Send>,
) -> Result<u64, ExportError> {
    let (since, until) = (options.since, options.until);
    let mut from = since.map_or(0, |since| key_at(milliseconds(since)));
    let to = until.map_or(i64::MAX, |until| key_at(milliseconds(until)));
    let mut output = Output::begin(options, file)?;
    let mut written = 0;
    loop {
        let part = reader.ask(|connection| chunk(connection, from, to, &mut output))?;
        let (rows, last) = part?;
        written += rows;
        match last.filter(|_| rows == CHUNK as u64) {
            Some(last) => from = last + 1,
            None => break,
        }
    }
    let left_out = output.left_out();
    output.end()?;
    Ok(written - left_out)
}

/// A page of rows, and the key after which the next page begins.
pub type RowPage = (Vec<Vec<Value>>, Option<i64>);

impl Reader {
    /// The values of calls that began within a time, in the order of their start, at most `limit`:
    /// from the first call, or after the key `after`.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn rows(
        &self,
        (since, until): (SystemTime, SystemTime),
        after: Option<i64>,
        limit: usize,
    ) -> Result<RowPage, QueryError> {
        let from = after.map_or(key_at(milliseconds(since)), |after| after + 1);
        let to = key_at(milliseconds(until));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.ask(|connection| {
            let sql =
                "SELECT * FROM calls_readable WHERE key >= ? AND key < ? ORDER BY key LIMIT ?";
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query([from, to, limit])?;
            let (mut found, mut last) = (Vec::new(), None);
            while let Some(row) = rows.next()? {
                last = Some(row.get("key")?);
                found.push(values_of_row(row)?);
            }
            Ok((found, last))
        })
    }
}

fn chunk(
    connection: &Connection,
    from: i64,
    to: i64,
    output: &mut Output,
) -> Result<io::Result<(u64, Option<i64>)>, QueryError> {
    let mut statement = connection.prepare_cached(
        "SELECT * FROM calls_readable WHERE key >= ? AND key < ? ORDER BY key LIMIT ?",
    )?;
    let mut rows = statement.query([from, to, CHUNK])?;
    let (mut count, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        last = Some(row.get("key")?);
        count += 1;
        if let Err(error) = output.row(row)? {
            return Ok(Err(error));
        }
    }
    Ok(Ok((count, last)))
}

enum Output {
    Parquet(Table<Box<dyn Write + Send>>),
    Csv {
        file: BufWriter<Box<dyn Write + Send>>,
        spreadsheet: bool,
    },
    Jsonl(BufWriter<Box<dyn Write + Send>>),
    Mooncake(Trace),
}

impl Output {
    fn begin(options: &ExportOptions, file: Box<dyn Write + Send>) -> io::Result<Output> {
        Ok(match options.format {
            FileFormat::Parquet => Output::Parquet(Table::begin(
                file,
                COLUMNS.iter().map(Column::field).collect(),
            )?),
            FileFormat::Jsonl => Output::Jsonl(BufWriter::new(file)),
            FileFormat::Mooncake => Output::Mooncake(Trace::begin(file)),
            FileFormat::Csv => {
                let mut file = BufWriter::new(file);
                let names: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
                write!(file, "{}\r\n", names.join(","))?;
                Output::Csv {
                    file,
                    spreadsheet: options.spreadsheet,
                }
            }
        })
    }

    fn row(&mut self, row: &Row<'_>) -> rusqlite::Result<io::Result<()>> {
        match self {
            Output::Parquet(table) => Ok(table.row(values_of_row(row)?)),
            Output::Csv { file, spreadsheet } => csv_line(file, row, *spreadsheet),
            Output::Mooncake(trace) => trace.row(row),
            Output::Jsonl(file) => {
                let record = record(row)?;
                let line = serde_json::to_vec(&record).map_err(io::Error::from);
                Ok(line.and_then(|mut line| {
                    line.push(b'\n');
                    file.write_all(&line)
                }))
            }
        }
    }

    /// Number of calls that were not written because the format cannot represent them.
    fn left_out(&self) -> u64 {
        match self {
            Output::Mooncake(trace) => trace.left_out,
            _ => 0,
        }
    }

    fn end(self) -> io::Result<()> {
        match self {
            Output::Parquet(table) => table.end().map(|_| ()),
            Output::Mooncake(trace) => trace.end(),
            Output::Csv { mut file, .. } | Output::Jsonl(mut file) => file.flush(),
        }
    }
}

fn csv_line(
    file: &mut impl Write,
    row: &Row<'_>,
    spreadsheet: bool,
) -> rusqlite::Result<io::Result<()>> {
    let mut line = Vec::new();
    for (at, column) in COLUMNS.iter().enumerate() {
        if at > 0 {
            line.push(b',');
        }
        let value = row.get_ref(at)?;
        let written = match (value, column.kind) {
            (ValueRef::Null, _) => Ok(()),
            (ValueRef::Integer(flag), ColumnKind::Flag) => write!(line, "{}", flag != 0),
            (ValueRef::Integer(number), _) => write!(line, "{number}"),
            (ValueRef::Real(number), _) => write!(line, "{number}"),
            (ValueRef::Text(text) | ValueRef::Blob(text), _) => {
                let text = String::from_utf8_lossy(text);
                line.write_all(csv::text(&text, spreadsheet).as_bytes())
            }
        };
        if written.is_err() {
            return Ok(written);
        }
    }
    line.extend(csv::LINE_END.as_bytes());
    Ok(file.write_all(&line))
}

fn instant(row: &Row<'_>) -> rusqlite::Result<i64> {
    Ok(started_ms(row.get("key")?))
}
