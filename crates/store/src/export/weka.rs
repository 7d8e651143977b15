//! Writes conversations for replay in the format of the Weka traces, which AIPerf and guidellm read:
//! a line of JSON per conversation, with the block numbers of each prompt.

use super::blocks::{BLOCK, BlockNumbers, lengths};
use crate::columns::CallRow;
use serde::Serialize;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use tokengauge_core::call::CallRecord;

/// Block numbers that are held at once. Beyond it the conversation that was idle longest is written;
/// if it continues, the rest is another conversation.
const MAX_HELD: usize = 1 << 25;

/// The output file, and the conversations that may continue.
pub(super) struct Conversations {
    file: BufWriter<Box<dyn Write + Send>>,
    open: HashMap<(String, Option<String>), OpenConversation>,
    written: u64,
    held: usize,
    max_held: usize,
    /// Calls that are not written, because they have no session or no block hashes, or because they
    /// generate nothing.
    pub(super) left_out: u64,
}

#[derive(Default)]
struct OpenConversation {
    numbers: BlockNumbers,
    /// When the first call began, and when the last call ended, in milliseconds since 1970.
    began: i64,
    ended: i64,
    models: Vec<String>,
    requests: Vec<Request>,
    held: usize,
}

#[derive(Serialize)]
struct Conversation<'a> {
    id: String,
    models: &'a [String],
    block_size: u64,
    /// Numbers of different conversations are unrelated.
    hash_id_scope: &'static str,
    requests: &'a [Request],
}

#[derive(Serialize)]
struct Request {
    /// Seconds since the first call of the conversation began.
    t: f64,
    /// `s` if the response was streamed, otherwise `n`.
    r#type: &'static str,
    model: String,
    r#in: u64,
    out: u64,
    hash_ids: Vec<u32>,
    /// Seconds of the call, to its first token, and between the previous call and this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    api_time: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttft: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    think_time: Option<f64>,
}

impl Conversations {
    pub(super) fn begin(file: Box<dyn Write + Send>) -> Conversations {
        Conversations {
            file: BufWriter::new(file),
            open: HashMap::new(),
            written: 0,
            held: 0,
            max_held: MAX_HELD,
            left_out: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn holding(self, max_held: usize) -> Conversations {
        Conversations { max_held, ..self }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn row(&mut self, row: &CallRow) -> io::Result<()> {
        self.call(row.record(), row.started_ms())
    }

    pub(super) fn call(&mut self, record: CallRecord, began: i64) -> io::Result<()> {
        let (Some(session), Some((_, output)), true) = (
            record.session.clone(),
            lengths(&record),
            record
                .prompt_blocks
                .as_ref()
                .is_some_and(|blocks| !blocks.is_empty()),
        ) else {
            self.left_out += 1;
            return Ok(());
        };
        let key = (session, record.agent.clone());
        let open = self.open.entry(key).or_insert_with(|| OpenConversation {
            began,
            ended: began,
            ..OpenConversation::default()
        });
        let held = open.call(record, began, output);
        self.held += held;
        while self.held > self.max_held && self.write_idle()? {}
        Ok(())
    }

    /// Writes the conversation that was idle longest. Returns `false` if there is none.
    fn write_idle(&mut self) -> io::Result<bool> {
        let idle = self.open.iter().min_by_key(|(_, open)| open.ended);
        let Some(key) = idle.map(|(key, _)| key.clone()) else {
            return Ok(false);
        };
        let Some(open) = self.open.remove(&key) else {
            return Ok(false);
        };
        self.held -= open.held;
        self.write(&open)?;
        Ok(true)
    }

    fn write(&mut self, open: &OpenConversation) -> io::Result<()> {
        self.written += 1;
        let conversation = Conversation {
            // The agent's own name of the session may say who it is.
            id: format!("conversation-{}", self.written),
            models: &open.models,
            block_size: BLOCK,
            hash_id_scope: "local",
            requests: &open.requests,
        };
        let mut line = serde_json::to_vec(&conversation)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        let mut rest: Vec<_> = self.open.drain().map(|(_, open)| open).collect();
        rest.sort_by_key(|open| open.began);
        rest.iter().try_for_each(|open| self.write(open))?;
        self.file.flush()
    }
}

impl OpenConversation {
    /// Adds a call that began at `began`. Returns the number of its blocks.
    fn call(&mut self, record: CallRecord, began: i64, output: u64) -> usize {
        let Some(prompt) = self.numbers.prompt(&record) else {
            return 0;
        };
        let held = prompt.ids.len();
        let since = |from: i64| (began - from) as f64 / 1e3;
        let follows = !self.requests.is_empty() && began >= self.ended;
        let took = record.seconds.duration.unwrap_or(0.0);
        let model = record.model.or(record.model_requested).unwrap_or_default();
        if !self.models.contains(&model) {
            self.models.push(model.clone());
        }
        self.requests.push(Request {
            t: since(self.began),
            r#type: if record.streamed == Some(true) {
                "s"
            } else {
                "n"
            },
            model,
            r#in: prompt.tokens,
            out: output,
            hash_ids: prompt.ids,
            api_time: record.seconds.duration,
            ttft: record
                .seconds
                .ttft
                .filter(|_| record.streamed == Some(true)),
            think_time: follows.then(|| since(self.ended)),
        });
        self.ended = self
            .ended
            .max(began.saturating_add((took * 1e3).round() as i64));
        self.held += held;
        held
    }
}
