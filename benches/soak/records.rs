//! The call log as it grows, held against what agents and backend know of each call.

use crate::backend::Book;
use crate::judge::{Done, lagged, verify};
use crate::report::{LAGGED, Report, Settled};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokengauge::call::{CallRecord, TpsUnavailable};

/// So long a call is looked at after its end, for one record too many.
const MOMENT: Duration = Duration::from_millis(500);
/// So long one is waited for that may be or not: on a busy machine an agent's leaving is
/// seen late.
const LINGER: Duration = Duration::from_secs(15);
/// Whoever has not been recorded after this is lost.
const LOST: Duration = Duration::from_secs(60);

/// A call that an agent is through with.
pub struct Over {
    pub id: String,
    pub done: Done,
    /// For tables and complaints.
    pub fate: &'static str,
    pub shape: &'static str,
    pub what: String,
    pub at: Instant,
}

/// What a record says of itself, briefly: what the ledger must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief {
    pub output: Option<u64>,
    pub response: u64,
    pub outcome: tokengauge::call::Outcome,
}

impl Brief {
    pub fn of(record: &CallRecord) -> Brief {
        Brief {
            output: record.tokens.normalised.output,
            response: record.bytes.response,
            outcome: record.outcome,
        }
    }
}

/// Calls that wait for their records, and records that wait for their calls.
pub struct Records {
    log: BufReader<File>,
    rest: Vec<u8>,
    waiting: HashMap<String, Vec<CallRecord>>,
    over: Vec<Over>,
    settled: HashSet<String>,
    /// Every record there was, by its id.
    pub briefs: HashMap<String, Brief>,
    /// Tokens that records have.
    pub output: u64,
    /// Response bytes of calls that turned out unreadable: what came before was counted, and
    /// their records have nothing.
    pub unreadable: u64,
}

/// Where agents put what they are through with.
#[derive(Clone, Default)]
pub struct Inbox(Arc<Mutex<Vec<Over>>>);

impl Inbox {
    pub fn put(&self, over: Over) {
        self.lock().push(over);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Over>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    pub fn open(log: &Path) -> anyhow::Result<Records> {
        Ok(Records {
            log: BufReader::new(File::open(log)?),
            rest: Vec::new(),
            waiting: HashMap::new(),
            over: Vec::new(),
            settled: HashSet::new(),
            briefs: HashMap::new(),
            output: 0,
            unreadable: 0,
        })
    }

    /// Calls that are not settled.
    pub fn unsettled(&self) -> usize {
        self.over.len()
    }

    /// Reads what is new, and settles what can be.
    pub fn sweep(&mut self, inbox: &Inbox, book: &Book, report: &Report) -> anyhow::Result<()> {
        self.over.append(&mut inbox.lock());
        self.read(report)?;
        let now = Instant::now();
        for over in std::mem::take(&mut self.over) {
            let waited = now.duration_since(over.at);
            let records = self.waiting.get(&over.id).map_or(0, Vec::len);
            let (told, (fewest, most)) = book.with(&over.id, |written| {
                (over.done.told(written), over.done.records(written))
            });
            let all = records >= most && waited > MOMENT;
            let enough = records >= fewest && waited > LINGER;
            let ready = told && (all || enough);
            if ready || waited > LOST {
                self.settle(&over, book, report);
            } else {
                self.over.push(over);
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
                    "a line of the call log is no record ({error}): {:.200}",
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
        let complete = record.outcome == tokengauge::call::Outcome::Complete;
        if counted && complete && report.breaks("tokens") {
            record.tokens.normalised.output = record.tokens.normalised.output.map(|n| n + 1);
        }
        if self
            .briefs
            .insert(record.id.clone(), Brief::of(&record))
            .is_some()
        {
            report.violation(format!("record {} is in the call log twice", record.id));
        }
        self.output += record.tokens.normalised.output.unwrap_or(0);
        if record.tps.unavailable == Some(TpsUnavailable::Unparsed) {
            self.unreadable += record.bytes.response;
        }
        let Some(trace) = record.trace_id.clone() else {
            return report.violation(format!("a record of no call: {record:?}"));
        };
        if self.settled.contains(&trace) {
            return report.violation(format!("one more record of call {trace}: {record:?}"));
        }
        if report.breaks("record") {
            return;
        }
        self.waiting.entry(trace).or_default().push(record);
    }

    fn settle(&mut self, over: &Over, book: &Book, report: &Report) {
        let mut records = self.waiting.remove(&over.id).unwrap_or_default();
        records.sort_by(|one, next| one.id.cmp(&next.id));
        let mut written = book.take(&over.id);
        written.truths.sort_by_key(|truth| truth.turn);
        let (wrong, tokens) = verify(&over.done, &written, &records);
        self.settled.insert(over.id.clone());
        for wrong in &wrong {
            report.violation(format!(
                "{} ({}, {}) {}: {wrong}",
                over.id, over.fate, over.shape, over.what
            ));
        }
        if records.iter().any(lagged) {
            report.count(LAGGED);
        }
        report.settled(Settled {
            fate: over.fate,
            shape: over.shape,
            outcome: records.first().map(|record| record.outcome),
            bytes: over.done.received,
            tokens,
            frames: records.iter().map(|record| record.frames).sum(),
        });
    }

    /// Records that nobody's call has.
    pub fn unclaimed(&self) -> impl Iterator<Item = &CallRecord> {
        self.waiting.values().flatten()
    }
}
