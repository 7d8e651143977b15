//! Writes a trace of calls for replay in Mooncake's format, which AIPerf, guidellm and `bench`
//! read.

use crate::columns::CallRow;
use serde::Serialize;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use tokengauge_core::call::{CallRecord, OperationClass};

/// The output file, and the state for the next line.
pub(super) struct Trace {
    file: BufWriter<Box<dyn Write + Send>>,
    first: Option<i64>,
    /// When the last call so far of each session ended, in milliseconds since 1970.
    ended: HashMap<String, i64>,
    /// Calls that are not written, because they generate nothing or their lengths are unknown.
    pub(super) left_out: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    /// Milliseconds since the first call began.
    timestamp: i64,
    input_length: u64,
    output_length: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    /// Milliseconds since the previous calls of the session ended. `None` for the first call of a
    /// session and for a call that began before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<i64>,
}

impl Trace {
    pub(super) fn begin(file: Box<dyn Write + Send>) -> Trace {
        Trace {
            file: BufWriter::new(file),
            first: None,
            ended: HashMap::new(),
            left_out: 0,
        }
    }

    pub(super) fn row(&mut self, row: &CallRow) -> io::Result<()> {
        let (record, began) = (row.record(), row.started_ms());
        let Some((input_length, output_length)) = lengths(&record) else {
            self.left_out += 1;
            return Ok(());
        };
        let line = Line {
            timestamp: began - *self.first.get_or_insert(began),
            input_length,
            output_length,
            session_id: record.session.as_deref(),
            delay: self.delay(&record, began),
        };
        self.write(&line)
    }

    /// The delay of a call that began at `began`. Also records when the call ended.
    fn delay(&mut self, record: &CallRecord, began: i64) -> Option<i64> {
        let took = record.seconds.duration.unwrap_or(0.0) * 1e3;
        let ended = began.saturating_add(took.round() as i64);
        let session = record.session.as_ref()?;
        let before = match self.ended.get_mut(session) {
            Some(last) => Some(std::mem::replace(last, ended.max(*last))),
            None => self.ended.insert(session.clone(), ended),
        };
        before
            .map(|before| began - before)
            .filter(|delay| *delay >= 0)
    }

    fn write(&mut self, line: &Line<'_>) -> io::Result<()> {
        let mut line = serde_json::to_vec(line)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn lengths(record: &CallRecord) -> Option<(u64, u64)> {
    let (reported, normalised) = (&record.tokens.reported, &record.tokens.normalised);
    let input = reported.input.or(normalised.input)?;
    let output = reported.output.or(normalised.output)?;
    let generates = record.operation_class == OperationClass::Generation;
    (generates && input > 0 && output > 0).then_some((input, output))
}
