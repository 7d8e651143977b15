//! The ground truth of a call, recorded while it happens.

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokengauge_core::call::{Channel, Dialect, Usage, seconds_between};

const REMEMBERED: usize = 10_000;

/// The ground truth of a call. An unknown value is `null` and never 0.
#[derive(Clone, Debug, Serialize)]
pub struct Truth {
    /// The request's `x-sim-id`, or a generated id. The response carries it too.
    pub id: String,
    /// The number of the generation, from 1, on a connection with several generations (Realtime).
    pub turn: Option<u32>,
    pub dialect: Dialect,
    pub model: Option<String>,
    /// The request's `x-tokengauge-session`.
    pub session: Option<String>,
    pub streamed: bool,
    pub status: u16,
    pub outcome: Ending,
    pub error_type: Option<String>,
    /// The finish reasons as sent, by choice.
    pub finish_reasons: Vec<String>,
    /// The tokens that were written; `null` for a recorded body.
    pub tokens: Option<TruthTokens>,
    pub usage: Option<Usage>,
    /// The number of socket writes with tokens. Chunks that are late and share a write count once.
    pub frames: u64,
    /// Bytes of the encoded response body.
    pub bytes: u64,
    /// Calls in flight when this one began, including this one.
    pub concurrency: u64,
    pub seconds: TruthSeconds,
    /// (tokens − tokens of the first chunk) / (last token − first token).
    pub output_tps: Option<f64>,
    /// The instants on this machine's monotonic clock.
    #[serde(skip)]
    pub instants: Instants,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TruthTokens {
    pub answer: u64,
    pub reasoning: u64,
    pub tool_call: u64,
    pub output: u64,
    /// Tokens of the first chunk with tokens.
    pub first_frame: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TruthSeconds {
    /// received → the whole request read.
    pub request: f64,
    /// received → first token written.
    pub ttft: Option<f64>,
    /// The whole request read → first token written.
    pub ttft_upstream: Option<f64>,
    pub longest_gap: Option<f64>,
    /// received → last byte written.
    pub duration: f64,
}

/// The instants of a call. An instant of writing is the time when the write has returned.
#[derive(Clone, Copy, Debug)]
pub struct Instants {
    /// The request head was read from the socket.
    pub received: Instant,
    /// The last byte of the request was read from the socket.
    pub request_read: Instant,
    /// The first chunk with tokens was written.
    pub first_token: Option<Instant>,
    /// The last chunk with tokens was written.
    pub last_token: Option<Instant>,
    pub ended: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Complete,
    /// The client left before the end.
    Cancelled,
    /// A fault reset the connection.
    Reset,
    /// A fault closed the connection without a terminator.
    Closed,
    ErrorEvent,
    HttpError,
}

/// A callback that receives the simulator's events as they happen. Tests compare them with the
/// output of a proxy.
#[derive(Clone)]
pub struct Witness(Arc<See>);

type See = dyn Fn(&str, Seen<'_>) + Send + Sync;

/// An event of a call for a [`Witness`], which also gets the call's id.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// When the call began, or the turn in the Realtime API.
    Began,
    /// Bytes of the response body that are about to be written. In Realtime they are the events of
    /// a turn, one per line.
    Body(&'a [u8]),
    Ended(&'a Truth),
}

impl Witness {
    /// Creates a witness that calls `see` on the simulator's threads.
    pub fn new(see: impl Fn(&str, Seen<'_>) + Send + Sync + 'static) -> Witness {
        Witness(Arc::new(see))
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}

/// Finish reasons and usage, which the end of an answer reports.
#[derive(Clone, Debug, Default)]
pub struct ResponseSummary {
    pub finish_reasons: Vec<String>,
    pub usage: Option<Usage>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ChunkTokens {
    answer: u64,
    reasoning: u64,
    tool_call: u64,
}

impl ChunkTokens {
    pub fn add(&mut self, channel: Channel, tokens: u64) {
        match channel {
            Channel::Answer => self.answer += tokens,
            Channel::Reasoning => self.reasoning += tokens,
            Channel::ToolCall => self.tool_call += tokens,
        }
    }

    pub fn total(&self) -> u64 {
        self.answer + self.reasoning + self.tool_call
    }
}

/// A call in progress, shared by everything that may still write for it. Dropping the last
/// reference records the truth.
pub struct Call {
    ledger: Arc<TruthLog>,
    progress: Mutex<Progress>,
}

struct Progress {
    truth: Truth,
    handed_over: u64,
    written: u64,
}

impl Call {
    pub fn begin(ledger: Arc<TruthLog>, truth: Truth) -> Arc<Call> {
        ledger.in_flight.fetch_add(1, Ordering::Relaxed);
        ledger.show(&truth.id, Seen::Began);
        let progress = Progress {
            truth,
            handed_over: 0,
            written: 0,
        };
        Arc::new(Call {
            ledger,
            progress: Mutex::new(progress),
        })
    }

    pub fn note(&self, change: impl FnOnce(&mut Truth)) {
        change(&mut self.lock().truth);
    }

    /// Adds a chunk that is about to be written to the socket.
    pub fn handed_over(&self, bytes: &[u8]) {
        let mut progress = self.lock();
        progress.handed_over += 1;
        self.ledger.show(&progress.truth.id, Seen::Body(bytes));
    }

    pub fn wrote(&self, at: Instant, carried: &ChunkTokens, bytes: u64) {
        let mut progress = self.lock();
        progress.written += 1;
        let truth = &mut progress.truth;
        truth.bytes += bytes;
        truth.instants.ended = at;
        if carried.total() == 0 {
            return;
        }
        // One write is one chunk, regardless of the number of pieces in it.
        let same_write = truth.instants.last_token == Some(at);
        truth.frames += u64::from(!same_write);
        if let Some(tokens) = &mut truth.tokens {
            tokens.answer += carried.answer;
            tokens.reasoning += carried.reasoning;
            tokens.tool_call += carried.tool_call;
            tokens.output += carried.total();
            if truth.instants.first_token.is_none_or(|first| first == at) {
                tokens.first_frame += carried.total();
            }
        }
        truth.instants.first_token.get_or_insert(at);
        if let Some(before) = truth.instants.last_token.replace(at) {
            let longest = truth.seconds.longest_gap.get_or_insert(0.0);
            *longest = longest.max(seconds_between(before, at));
        }
    }

    /// Whether some chunks have not been written yet.
    pub fn unwritten(&self) -> bool {
        let progress = self.lock();
        progress.written < progress.handed_over
    }

    pub fn concurrency(&self) -> u64 {
        self.ledger.in_flight()
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.ledger.in_flight.fetch_sub(1, Ordering::Relaxed);
        let progress = self.progress.get_mut();
        if progress.written < progress.handed_over && progress.truth.outcome == Ending::Complete {
            progress.truth.outcome = Ending::Cancelled;
        }
        self.ledger.record(progress.truth.clone().settled());
    }
}

impl Truth {
    /// The truth of a call that has just begun.
    pub fn begun(id: String, dialect: Dialect, received: Instant) -> Truth {
        Truth {
            id,
            turn: None,
            dialect,
            model: None,
            session: None,
            streamed: false,
            status: 200,
            outcome: Ending::Cancelled,
            error_type: None,
            finish_reasons: Vec::new(),
            tokens: Some(TruthTokens::default()),
            usage: None,
            frames: 0,
            bytes: 0,
            concurrency: 1,
            seconds: TruthSeconds::default(),
            output_tps: None,
            instants: Instants {
                received,
                request_read: received,
                first_token: None,
                last_token: None,
                ended: received,
            },
        }
    }

    pub fn complete(&mut self, summary: ResponseSummary) {
        self.outcome = Ending::Complete;
        self.finish_reasons = summary.finish_reasons;
        self.usage = summary.usage;
    }

    fn settled(mut self) -> Truth {
        let at = self.instants;
        self.seconds.request = seconds_between(at.received, at.request_read);
        self.seconds.duration = seconds_between(at.received, at.ended);
        if self.streamed {
            self.seconds.ttft = at.first_token.map(|t| seconds_between(at.received, t));
            self.seconds.ttft_upstream =
                at.first_token.map(|t| seconds_between(at.request_read, t));
        }
        if let (Some(first), Some(last), Some(tokens)) =
            (at.first_token, at.last_token, self.tokens)
            && last > first
        {
            let after_first = (tokens.output - tokens.first_frame) as f64;
            self.output_tps = Some(after_first / seconds_between(first, last));
        }
        self
    }
}

/// The truths of finished calls, newest last, and the number of calls in progress.
pub struct TruthLog {
    finished: Mutex<VecDeque<Arc<Truth>>>,
    in_flight: AtomicU64,
    print: bool,
    witness: Option<Witness>,
}

impl TruthLog {
    pub fn new(print: bool, witness: Option<Witness>) -> Arc<TruthLog> {
        Arc::new(TruthLog {
            finished: Mutex::default(),
            in_flight: AtomicU64::new(0),
            print,
            witness,
        })
    }

    fn show(&self, id: &str, seen: Seen<'_>) {
        if let Some(Witness(see)) = &self.witness {
            see(id, seen);
        }
    }

    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub fn newest(&self, limit: usize) -> Vec<Arc<Truth>> {
        self.lock().iter().rev().take(limit).cloned().collect()
    }

    fn record(&self, truth: Truth) {
        if self.print
            && let Ok(mut line) = serde_json::to_vec(&truth)
        {
            line.push(b'\n');
            // The reader may have closed the pipe. The calls continue.
            let _ = std::io::stdout().lock().write_all(&line);
        }
        self.show(&truth.id, Seen::Ended(&truth));
        let mut finished = self.lock();
        if finished.len() == REMEMBERED {
            finished.pop_front();
        }
        finished.push_back(Arc::new(truth));
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Truth>>> {
        self.finished.lock()
    }
}
