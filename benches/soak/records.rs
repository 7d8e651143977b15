//! Follows the call log, and verifies each record against the observations of agent and backend.

use crate::backend::SentCalls;
use crate::report::{LAGGED, Report, VerifiedCall};
use crate::verify::{ReceivedCall, lagged, verify};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_core::call::{CallRecord, TpsUnavailable};

const EXTRA_RECORD_WAIT: Duration = Duration::from_millis(500);
/// Time to wait for a record that a call may or may not have: on a busy machine the proxy notices late that an agent
/// has disconnected.
const OPTIONAL_RECORD_WAIT: Duration = Duration::from_secs(15);
/// Time after which a record counts as missing.
const RECORD_TIMEOUT: Duration = Duration::from_secs(60);

pub struct EndedCall {
    pub id: String,
    pub received: ReceivedCall,
    /// This field and the next two are for tables and messages.
    pub scenario: &'static str,
    pub endpoint: &'static str,
    pub what: String,
    pub at: Instant,
}

/// The figures of a record that are compared with the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSummary {
    pub output: Option<u64>,
    pub response: u64,
    pub outcome: tokengauge_core::call::Outcome,
}

impl RecordSummary {
    pub fn of(record: &CallRecord) -> RecordSummary {
        RecordSummary {
            output: record.tokens.normalised.output,
            response: record.bytes.response,
            outcome: record.outcome,
        }
    }
}

/// Calls without their records yet, and records without their calls yet.
pub struct Records {
    log: BufReader<File>,
    rest: Vec<u8>,
    waiting: HashMap<String, Vec<CallRecord>>,
    ended: Vec<EndedCall>,
    verified: HashSet<String>,
    pub summaries: HashMap<String, RecordSummary>,
    pub output: u64,
    /// Response bytes of calls that could not be parsed. Tokens before the error were counted, but are not in the
    /// records.
    pub unreadable: u64,
}

#[derive(Clone, Default)]
pub struct Inbox(Arc<Mutex<Vec<EndedCall>>>);

impl Inbox {
    pub fn put(&self, call: EndedCall) {
        self.lock().push(call);
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Vec<EndedCall>> {
        self.0.lock()
    }
}

impl Records {
    pub fn open(log: &Path) -> anyhow::Result<Records> {
        Ok(Records {
            log: BufReader::new(File::open(log)?),
            rest: Vec::new(),
            waiting: HashMap::new(),
            ended: Vec::new(),
            verified: HashSet::new(),
            summaries: HashMap::new(),
            output: 0,
            unreadable: 0,
        })
    }

    pub fn unverified(&self) -> usize {
        self.ended.len()
    }

    pub fn sweep(
        &mut self,
        inbox: &Inbox,
        sent_calls: &SentCalls,
        report: &Report,
    ) -> anyhow::Result<()> {
        self.ended.append(&mut inbox.lock());
        self.read(report)?;
        let now = Instant::now();
        for call in std::mem::take(&mut self.ended) {
            let waited = now.duration_since(call.at);
            let records = self.waiting.get(&call.id).map_or(0, Vec::len);
            let (finished, (fewest, most)) = sent_calls.with(&call.id, |written| {
                (
                    call.received.backend_finished(written),
                    call.received.records(written),
                )
            });
            let all = records >= most && waited > EXTRA_RECORD_WAIT;
            let enough = records >= fewest && waited > OPTIONAL_RECORD_WAIT;
            let ready = finished && (all || enough);
            if ready || waited > RECORD_TIMEOUT {
                self.verify(&call, sent_calls, report);
            } else {
                self.ended.push(call);
            }
        }
        Ok(())
    }

    fn read(&mut self, report: &Report) -> anyhow::Result<()> {
        while self.log.read_until(b'\n', &mut self.rest)? > 0 {
            if self.rest.last() != Some(&b'\n') {
                return Ok(());
            }
            let line = std::mem::take(&mut self.rest);
            match serde_json::from_slice::<CallRecord>(&line) {
                Ok(record) => self.take(record, report),
                Err(error) => report.violation(format!(
                    "a line of the call log is not a record ({error}): {:.200}",
                    String::from_utf8_lossy(&line)
                )),
            }
        }
        Ok(())
    }

    fn take(&mut self, mut record: CallRecord, report: &Report) {
        let counted = record
            .tokens
            .normalised
            .output
            .is_some_and(|output| output > 0);
        let complete = record.outcome == tokengauge_core::call::Outcome::Complete;
        if counted && complete && report.breaks("tokens") {
            record.tokens.normalised.output = record.tokens.normalised.output.map(|n| n + 1);
        }
        if self
            .summaries
            .insert(record.id.clone(), RecordSummary::of(&record))
            .is_some()
        {
            report.violation(format!("record {} is in the call log twice", record.id));
        }
        self.output += record.tokens.normalised.output.unwrap_or(0);
        if record.tps.unavailable == Some(TpsUnavailable::Unparsed) {
            self.unreadable += record.bytes.response;
        }
        let Some(trace) = record.trace_id.clone() else {
            return report.violation(format!("a record without a call: {record:?}"));
        };
        if self.verified.contains(&trace) {
            return report.violation(format!("an additional record of call {trace}: {record:?}"));
        }
        if report.breaks("record") {
            return;
        }
        self.waiting.entry(trace).or_default().push(record);
    }

    fn verify(&mut self, call: &EndedCall, sent_calls: &SentCalls, report: &Report) {
        let mut records = self.waiting.remove(&call.id).unwrap_or_default();
        records.sort_by(|one, next| one.id.cmp(&next.id));
        let mut written = sent_calls.take(&call.id);
        written.truths.sort_by_key(|truth| truth.turn);
        let (wrong, tokens) = verify(&call.received, &written, &records);
        self.verified.insert(call.id.clone());
        for wrong in &wrong {
            report.violation(format!(
                "{} ({}, {}) {}: {wrong}",
                call.id, call.scenario, call.endpoint, call.what
            ));
        }
        if records.iter().any(lagged) {
            report.count(LAGGED);
        }
        report.add_verified(VerifiedCall {
            scenario: call.scenario,
            endpoint: call.endpoint,
            outcome: records.first().map(|record| record.outcome),
            bytes: call.received.received,
            tokens,
            chunks: records.iter().map(|record| record.frames).sum(),
        });
    }

    pub fn unclaimed(&self) -> impl Iterator<Item = &CallRecord> {
        self.waiting.values().flatten()
    }
}
