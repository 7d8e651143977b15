//! Writes a trace of calls for replay in Mooncake's format, which AIPerf, guidellm and `bench`
//! read.

use super::blocks::{BlockNumbers, lengths};
use crate::columns::CallRow;
use serde::Serialize;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use tokengauge_core::call::CallRecord;

/// The output file, and the state for the next line.
pub(super) struct Trace {
    file: BufWriter<Box<dyn Write + Send>>,
    first: Option<i64>,
    /// When the last call so far of each session ended, in milliseconds since 1970.
    ended: HashMap<String, i64>,
    /// `None` if lines have no blocks.
    numbers: Option<BlockNumbers>,
    /// Calls that are not written, because they generate nothing or their lengths are unknown.
    pub(super) left_out: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    /// Milliseconds since the first call began.
    timestamp: i64,
    input_length: u64,
    output_length: u64,
    /// A number for each block of 64 tokens of the prompt, equal for equal beginnings of prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    hash_ids: Option<Vec<u32>>,
    /// `None` with `hash_ids`: AIPerf would add each prompt of a session to the previous prompts, but
    /// the blocks already cover the whole prompt.
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
            numbers: Some(BlockNumbers::default()),
            left_out: 0,
        }
    }

    /// Keeps the sessions of calls whose blocks are known.
    pub(super) fn without_blocks(self) -> Trace {
        Trace {
            numbers: None,
            ..self
        }
    }

    pub(super) fn row(&mut self, row: &CallRow) -> io::Result<()> {
        self.call(row.record(), row.started_ms())
    }

    pub(super) fn call(&mut self, record: CallRecord, began: i64) -> io::Result<()> {
        let Some((input_length, output_length)) = lengths(&record) else {
            self.left_out += 1;
            return Ok(());
        };
        let timestamp = began - *self.first.get_or_insert(began);
        let numbers = self.numbers.as_mut();
        let line = match numbers.and_then(|numbers| numbers.prompt(&record)) {
            Some(prompt) => Line {
                timestamp,
                input_length: prompt.tokens,
                output_length,
                hash_ids: Some(prompt.ids),
                session_id: None,
                delay: None,
            },
            None => Line {
                timestamp,
                input_length,
                output_length,
                hash_ids: None,
                session_id: record.session.as_deref(),
                delay: self.delay(&record, began),
            },
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
