//! Checks of observations without I/O, so that `tests/soak_verify.rs` can test that they find errors.

use std::collections::BTreeMap;
use tokengauge_core::call::{CallRecord, Dialect, Event, Outcome, Segment, TpsUnavailable, Usage};
use tokengauge_sim::{Ending, Truth, TruthTokens};
use tokengauge_wire::{Decoder, Limits, ResponseHead};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    Complete,
    Truncated,
    Cancelled,
}

/// The known facts about a call's outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// The simulator's ground truth has the outcome.
    Simulated {
        /// The input tokens that a provider of vectors reports.
        input: Option<u64>,
    },
    /// A recorded body, or a behaviour of the rogue backend.
    Fixed {
        outcome: Outcome,
        output: Option<u64>,
    },
    /// A Realtime session, which has one record per turn.
    Realtime,
}

/// The parts of the response head that decide how the body is read.
#[derive(Clone, Debug, Default)]
pub struct ReceivedHead {
    pub status: u16,
    pub content_type: Option<String>,
    pub encoding: Option<String>,
    pub from_proxy: bool,
}

#[derive(Clone, Debug)]
pub struct ReceivedCall {
    pub expected: Expected,
    pub sent: u64,
    /// `None` if the call ended before a head arrived.
    pub head: Option<ReceivedHead>,
    pub received: u64,
    /// The offset of the first byte that differs from the backend's.
    pub mismatch: Option<u64>,
    /// Bytes that the agent should receive, if the proxy removes some of the backend's.
    pub due: Option<u64>,
    pub ended: CallEnd,
}

#[derive(Clone, Debug, Default)]
pub struct SentCall {
    pub bytes: Vec<u8>,
    /// How often the call reached the backend; for Realtime the number of turns.
    pub begun: u32,
    pub truths: Vec<Truth>,
}

/// The offset at which `received` differs from the beginning of `written`.
pub fn mismatch(written: &[u8], received: &[u8]) -> Option<u64> {
    let same = written.iter().zip(received).take_while(|(a, b)| a == b);
    let same = same.count();
    (same < received.len()).then_some(same as u64)
}

/// A stream without the usage that the proxy requested for the agent: without the event that has only usage, and
/// without `"usage":null` in the others.
pub fn without_usage(written: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(written);
    let events = text.split_inclusive("\n\n");
    let kept = events.filter(|event| !event.contains("\"choices\":[]"));
    let kept = kept.map(|event| event.replace(",\"usage\":null", ""));
    kept.collect::<String>().into_bytes()
}

impl ReceivedCall {
    pub fn records(&self, written: &SentCall) -> (usize, usize) {
        let complete = |truth: &&Truth| truth.outcome == Ending::Complete;
        match (&self.expected, self.ended, &self.head) {
            (Expected::Realtime, CallEnd::Complete, _) => {
                (written.begun as usize, written.begun as usize)
            }
            (Expected::Realtime, ..) => {
                // The turn in which the agent disconnected may have no record.
                let turns = written.truths.iter().filter(complete).count();
                (turns.saturating_sub(1), (written.begun as usize).max(1))
            }
            // An agent that leaves before the head may leave before the proxy has read its request.
            (_, CallEnd::Cancelled, None) => (0, 1),
            _ => (1, 1),
        }
    }

    /// Whether the backend has reported the ground truth of every turn.
    pub fn backend_finished(&self, written: &SentCall) -> bool {
        match self.expected {
            Expected::Fixed { .. } => true,
            _ => written.truths.len() == written.begun as usize,
        }
    }
}

/// Returns all violations of a call, and the number of checked tokens.
pub fn verify(
    done: &ReceivedCall,
    written: &SentCall,
    records: &[CallRecord],
) -> (Vec<String>, u64) {
    let mut wrong = bytes(done, written);
    let (fewest, most) = done.records(written);
    if !(fewest..=most).contains(&records.len()) {
        let many = records.len();
        wrong.push(format!("{many} records instead of {fewest} to {most}"));
    }
    let mut tokens = 0;
    if done.expected == Expected::Realtime {
        for (record, truth) in records.iter().zip(&written.truths) {
            let left =
                done.ended == CallEnd::Cancelled && record.outcome == Outcome::ClientCancelled;
            if truth.outcome == Ending::Complete && record.outcome == Outcome::Complete {
                tokens += verify_counts(record, truth, &mut wrong);
            } else if !left {
                wrong.push(format!("turn {:?} is {:?}", truth.turn, record.outcome));
            }
        }
    } else if let Some(record) = records.first() {
        tokens += verify_record(done, written, record, &mut wrong);
    }
    (wrong, tokens)
}

fn bytes(done: &ReceivedCall, written: &SentCall) -> Vec<String> {
    let mut wrong = Vec::new();
    let from_proxy = done.head.as_ref().is_some_and(|head| head.from_proxy);
    if let Some(at) = done.mismatch.filter(|_| !from_proxy) {
        wrong.push(format!(
            "byte {at} of the answer differs from the byte that the backend sent"
        ));
    }
    let due = done.due.unwrap_or(written.bytes.len() as u64);
    if done.ended == CallEnd::Complete && !from_proxy && done.received != due {
        let received = done.received;
        wrong.push(format!(
            "the answer ended as complete, but with {received} of {due} bytes"
        ));
    }
    let turns = done.expected == Expected::Realtime;
    if done.ended == CallEnd::Truncated && !may_break(done, written) {
        wrong.push("the answer was cut off, although the backend does not cut it off".to_owned());
    }
    if written.begun > 1 && !turns {
        wrong.push(format!(
            "the call reached the backend {} times",
            written.begun
        ));
    }
    wrong
}

/// Whether the backend truncates this response.
fn may_break(done: &ReceivedCall, written: &SentCall) -> bool {
    let torn = |truth: &Truth| matches!(truth.outcome, Ending::Reset | Ending::Closed);
    match &done.expected {
        Expected::Fixed { outcome, .. } => *outcome == Outcome::UpstreamReset,
        _ => written.truths.iter().any(torn),
    }
}

/// Whether the record has no counts because the meter lagged. On a slow machine that may happen, and then a missing
/// number is better than a wrong one.
pub fn lagged(record: &CallRecord) -> bool {
    record.tps.unavailable == Some(TpsUnavailable::Lagged)
}

fn verify_record(
    done: &ReceivedCall,
    written: &SentCall,
    record: &CallRecord,
    wrong: &mut Vec<String>,
) -> u64 {
    let mut outcomes = outcomes(done, written);
    if lagged(record) {
        // An error inside a 200 may be in the unread part.
        outcomes.push(Outcome::Complete);
    }
    if !outcomes.contains(&record.outcome) {
        let (outcome, kind) = (record.outcome.as_str(), &record.error_type);
        wrong.push(format!(
            "recorded as {outcome} ({kind:?}), not {outcomes:?}"
        ));
    }
    let Some(head) = &done.head else { return 0 };
    if record.status != Some(head.status) {
        wrong.push(format!("status {:?}, not {}", record.status, head.status));
    }
    if head.from_proxy {
        return 0;
    }
    let forwarded = record.bytes.response;
    let rewritten = done.due.is_some();
    if done.ended == CallEnd::Complete && record.bytes.request != done.sent && !rewritten {
        let (recorded, sent) = (record.bytes.request, done.sent);
        wrong.push(format!("recorded {recorded} request bytes of {sent}"));
    }
    let most = written.bytes.len() as u64;
    let fits = match done.ended {
        CallEnd::Complete => forwarded == done.received || rewritten && forwarded == most,
        _ => (done.received..=most).contains(&forwarded),
    };
    if !fits {
        let received = done.received;
        wrong.push(format!(
            "recorded {forwarded} bytes; the agent has {received} of {most}"
        ));
    }
    if lagged(record) {
        let (counted, reported) = (record.tokens.normalised, record.tokens.reported);
        if counted.output.is_some() || reported.output.is_some() && record.finish_reasons.is_empty()
        {
            wrong.push(format!(
                "the meter lagged, but the record has counts: counted {counted:?}, reported {reported:?}"
            ));
        }
        return 0;
    }
    match (&done.expected, written.truths.first()) {
        (Expected::Simulated { input }, Some(truth)) if record.outcome == Outcome::Complete => {
            if done.ended == CallEnd::Cancelled && truth.outcome != Ending::Complete {
                return verify_prefix(head, written, record, wrong);
            }
            if let Some(input) = input {
                if record.tokens.reported.input != Some(*input) {
                    let recorded = record.tokens.reported.input;
                    wrong.push(format!("{recorded:?} input tokens, not {input}"));
                }
                return *input;
            }
            if matches!(record.dialect, Dialect::Embeddings | Dialect::Rerank) {
                return 0;
            }
            verify_counts(record, truth, wrong)
        }
        (
            Expected::Fixed {
                output: Some(output),
                ..
            },
            _,
        ) => {
            let counted = record.tokens.normalised.output;
            if counted != Some(*output) {
                wrong.push(format!("{counted:?} output tokens, not {output}"));
            }
            *output
        }
        _ => verify_prefix(head, written, record, wrong),
    }
}

fn outcomes(done: &ReceivedCall, written: &SentCall) -> Vec<Outcome> {
    let mut outcomes = match (&done.expected, written.truths.first()) {
        (Expected::Fixed { outcome, .. }, _) => vec![*outcome],
        (_, Some(truth)) => match truth.outcome {
            Ending::Complete => vec![Outcome::Complete],
            Ending::Reset | Ending::Closed => vec![Outcome::UpstreamReset],
            Ending::ErrorEvent => vec![Outcome::ErrorEvent],
            Ending::HttpError => vec![Outcome::HttpError],
            Ending::Cancelled => vec![],
        },
        (_, None) => vec![],
    };
    if done.ended == CallEnd::Cancelled {
        // The agent may have left before or after the proxy completed the response.
        outcomes.extend([Outcome::ClientCancelled, Outcome::Complete]);
    }
    outcomes
}

/// Compares the counts of a complete response with the ground truth.
fn verify_counts(record: &CallRecord, truth: &Truth, wrong: &mut Vec<String>) -> u64 {
    let ours = record.tokens.normalised;
    let ours = [ours.answer, ours.reasoning, ours.tool_call, ours.output];
    let tokens = truth.tokens.unwrap_or_default();
    if ours != token_counts(tokens).map(Some) {
        let why = record.tps.unavailable;
        wrong.push(format!("counted {ours:?} ({why:?}), written {tokens:?}"));
    }
    let reported = record.tokens.reported;
    if let Some(usage) = truth.usage {
        let core = |usage: &Usage| (usage.input, usage.output);
        if core(&reported) != core(&usage) {
            wrong.push(format!("reported {reported:?}, written {usage:?}"));
        }
    }
    if record.finish_reasons != truth.finish_reasons {
        let (recorded, written) = (&record.finish_reasons, &truth.finish_reasons);
        wrong.push(format!("finish reasons {recorded:?}, written {written:?}"));
    }
    tokens.output
}

fn token_counts(tokens: TruthTokens) -> [u64; 4] {
    [
        tokens.answer,
        tokens.reasoning,
        tokens.tool_call,
        tokens.output,
    ]
}

/// Compares the counts of a truncated response with a decoder's results for the forwarded bytes.
fn verify_prefix(
    head: &ReceivedHead,
    written: &SentCall,
    record: &CallRecord,
    wrong: &mut Vec<String>,
) -> u64 {
    let Some(counted) = record.tokens.normalised.output else {
        return 0;
    };
    if record.streamed != Some(true) {
        return 0;
    }
    let forwarded = (record.bytes.response as usize).min(written.bytes.len());
    let complete = record.outcome == Outcome::Complete;
    let found = count_tokens(record.dialect, head, &written.bytes[..forwarded], complete);
    if found != counted {
        wrong.push(format!(
            "counted {counted} tokens, but {found} are in the {forwarded} bytes that went through"
        ));
    }
    found
}

fn count_tokens(dialect: Dialect, head: &ReceivedHead, bytes: &[u8], to_its_end: bool) -> u64 {
    let response = ResponseHead {
        status: head.status,
        content_type: head.content_type.as_deref(),
        content_encoding: head.encoding.as_deref(),
    };
    let mut texts: BTreeMap<Segment, String> = BTreeMap::new();
    let mut take = |event: Event<'_>| {
        if let Event::Delta { segment, text } = event {
            texts.entry(segment).or_default().push_str(text);
        }
    };
    let mut decoder = Decoder::new(dialect, &response, Limits::default());
    let read = decoder.push(bytes, &mut take);
    if to_its_end && read.is_ok() {
        let _ = decoder.finish(&mut take);
    }
    texts
        .values()
        .map(|text| tokengauge_tokenizer::count(text))
        .sum()
}

/// The slope of the least-squares line through (seconds, kilobytes), in KB a minute.
pub fn slope(samples: &[(f64, f64)]) -> f64 {
    let (x, y) = (mean(samples, |s| s.0), mean(samples, |s| s.1));
    let over: f64 = samples.iter().map(|s| (s.0 - x) * (s.1 - y)).sum();
    let under: f64 = samples.iter().map(|s| (s.0 - x).powi(2)).sum();
    if under > 0.0 {
        over / under * 60.0
    } else {
        0.0
    }
}

/// Resident memory over a run, in KB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    pub first: f64,
    pub middle: f64,
    pub last: f64,
    pub most: f64,
    /// Average of each tenth of the run.
    pub tenths: [f64; 10],
    /// KB per minute over the second half.
    pub slope: f64,
}

/// Summarises the samples (seconds, KB) of a run; `None` for fewer than 10 samples.
pub fn memory(samples: &[(f64, f64)]) -> Option<Memory> {
    if samples.len() < 10 {
        return None;
    }
    let second = &samples[samples.len() / 2..];
    Some(Memory {
        first: samples.first()?.1,
        middle: second.first()?.1,
        last: second.last()?.1,
        most: samples.iter().map(|sample| sample.1).fold(0.0, f64::max),
        tenths: std::array::from_fn(|tenth| {
            let part = |tenth: usize| tenth * samples.len() / 10;
            mean(&samples[part(tenth)..part(tenth + 1)], |s| s.1)
        }),
        slope: slope(second),
    })
}

fn mean(samples: &[(f64, f64)], of: fn(&(f64, f64)) -> f64) -> f64 {
    samples.iter().map(of).sum::<f64>() / samples.len() as f64
}

/// Number of additional threads that are accepted: tokio keeps a blocking thread for 10 s after its last task, so their
/// number varies.
const THREADS_TOLERANCE: f64 = 4.0;

/// The gauges that are higher after the run than before, each in a sentence.
pub fn not_restored(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> Vec<String> {
    let more = after.iter().filter(|(name, now)| {
        let then = before.get(*name).copied().unwrap_or(0.0);
        let tolerance = if *name == "threads" {
            THREADS_TOLERANCE
        } else {
            0.0
        };
        **now > then + tolerance
    });
    more.map(|(name, now)| {
        let then = before.get(name).copied().unwrap_or(0.0);
        format!("{name} was {then} when idle before the run and is {now} after it")
    })
    .collect()
}
