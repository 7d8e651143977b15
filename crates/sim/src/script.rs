//! Writes an answer in a dialect, chunk by chunk.

use super::plan::{Plan, PlannedResponse, Text};
use super::profile::FaultKind;
use super::stream::Source;
use super::truth::{ChunkTokens, ResponseSummary};
use bytes::BytesMut;
use std::sync::Arc;
use std::time::Duration;

/// How a dialect streams an answer, and writes it as one body.
pub trait Script: Send {
    fn content_type(&self) -> &'static str;
    /// Whether tool arguments are JSON objects, which cannot be streamed in pieces.
    fn whole_calls(&self) -> bool {
        false
    }
    /// Writes everything before the first token.
    fn open(&mut self, out: &mut BytesMut);
    fn say(&mut self, said: TokenRun<'_>, out: &mut BytesMut);
    /// Writes a keep-alive event if the dialect has one.
    fn ping(&mut self, _out: &mut BytesMut) {}
    /// Writes everything after the last token.
    fn close(&mut self, out: &mut BytesMut);
    /// The error type that the provider would use.
    fn error_type(&self) -> &'static str {
        "server_error"
    }
    fn error(&mut self, kind: &str, out: &mut BytesMut);
    fn whole(&mut self) -> Vec<u8>;
    /// The values that the end of the answer reports, streamed or not.
    fn summary(&self, streamed: bool) -> ResponseSummary;
}

pub struct TokenRun<'a> {
    pub text: &'a Text,
    pub fragment: &'a str,
    pub tokens: u64,
    pub first: bool,
    pub last: bool,
}

pub struct ScriptSource {
    pub script: Box<dyn Script>,
    pub planned: Arc<PlannedResponse>,
    pub plan: Plan,
}

impl Source for ScriptSource {
    fn open(&mut self, out: &mut BytesMut) {
        self.script.open(out);
    }

    fn step(&self, n: usize) -> Option<(u64, Duration)> {
        self.plan
            .steps
            .get(n)
            .map(|step| (step.position, step.pause))
    }

    fn chunk(&mut self, n: usize, out: &mut BytesMut) -> ChunkTokens {
        let mut carried = ChunkTokens::default();
        for piece in &self.plan.steps[n].pieces {
            let text = &self.planned.texts[piece.text];
            let units = &text.units[piece.units.clone()];
            carried.add(text.channel, units.len() as u64);
            let fragment = units.concat();
            let first = piece.units.start == 0;
            let last = piece.units.end == text.units.len();
            self.script.say(
                TokenRun {
                    text,
                    fragment: &fragment,
                    tokens: units.len() as u64,
                    first,
                    last,
                },
                out,
            );
        }
        carried
    }

    fn ping(&mut self, out: &mut BytesMut) {
        self.script.ping(out);
    }

    fn close(&mut self, out: &mut BytesMut) -> ResponseSummary {
        self.script.close(out);
        self.script.summary(true)
    }

    fn fault(&self) -> Option<FaultKind> {
        self.plan.fault.as_ref().map(|fault| fault.kind.clone())
    }

    fn error(&mut self, kind: Option<&str>, out: &mut BytesMut) -> String {
        let kind = kind.unwrap_or(self.script.error_type()).to_owned();
        self.script.error(&kind, out);
        kind
    }
}
