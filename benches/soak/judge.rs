//! What is judged, apart from how it is come by: `tests/soak_judge.rs` holds these
//! functions against what they must refuse.

use std::collections::BTreeMap;
use tokengauge::call::{CallRecord, Dialect, Event, Outcome, Segment, TpsUnavailable, Usage};
use tokengauge::sim::{Ending, Truth, TruthTokens};
use tokengauge::wire::{Decoder, Limits, ResponseHead};

/// How a call ended for its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The body came to its end.
    Whole,
    /// It broke off.
    Broken,
    /// The agent left, or tore the connection.
    Left,
}

/// What is known beforehand of a call's end.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// The simulator's truth says how it went.
    Simulated {
        /// The input tokens that a provider of vectors reports.
        input: Option<u64>,
    },
    /// A body or a behaviour of our own.
    Fixed {
        /// How the call ends.
        outcome: Outcome,
        /// Output tokens of its text.
        output: Option<u64>,
    },
    /// A Realtime session: a record a turn.
    Realtime,
}

/// The response head, as far as it decides how the body is read.
#[derive(Clone, Debug, Default)]
pub struct Head {
    pub status: u16,
    pub content_type: Option<String>,
    pub encoding: Option<String>,
    /// The proxy answered in the backend's place.
    pub ours: bool,
}

/// What an agent had of its call.
#[derive(Clone, Debug)]
pub struct Done {
    pub known: Known,
    /// Bytes of the request body.
    pub sent: u64,
    /// `None` where the agent left before.
    pub head: Option<Head>,
    pub received: u64,
    /// The first byte that is not the backend's.
    pub mismatch: Option<u64>,
    /// Bytes that the agent was to get, where that is not all that the backend wrote.
    pub due: Option<u64>,
    pub ended: Ended,
}

/// What the backend did for a call.
#[derive(Clone, Debug, Default)]
pub struct Written {
    pub bytes: Vec<u8>,
    /// How often the call reached it; in Realtime the turns.
    pub begun: u32,
    pub truths: Vec<Truth>,
}

/// Where `received` departs from the beginning of `written`.
pub fn mismatch(written: &[u8], received: &[u8]) -> Option<u64> {
    let same = written.iter().zip(received).take_while(|(a, b)| a == b);
    let same = same.count();
    (same < received.len()).then_some(same as u64)
}

/// What the agent gets of a stream whose usage the proxy asked for in its stead: all but
/// the event that carries nothing else, and the member that says `null` in the others.
pub fn without_usage(written: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(written);
    let events = text.split_inclusive("\n\n");
    let kept = events.filter(|event| !event.contains("\"choices\":[]"));
    let kept = kept.map(|event| event.replace(",\"usage\":null", ""));
    kept.collect::<String>().into_bytes()
}

impl Done {
    /// How many records there must be: from, to.
    pub fn records(&self, written: &Written) -> (usize, usize) {
        let complete = |truth: &&Truth| truth.outcome == Ending::Complete;
        match (&self.known, self.ended, &self.head) {
            (Known::Realtime, Ended::Whole, _) => (written.begun as usize, written.begun as usize),
            (Known::Realtime, ..) => {
                // A turn that was under way when the agent left may not have got that far.
                let told = written.truths.iter().filter(complete).count();
                (told.saturating_sub(1), (written.begun as usize).max(1))
            }
            // Whoever leaves before the head may leave before the proxy has read the request.
            (_, Ended::Left, None) => (0, 1),
            _ => (1, 1),
        }
    }

    /// Whether the backend has said all it will say.
    pub fn told(&self, written: &Written) -> bool {
        match self.known {
            Known::Fixed { .. } => true,
            _ => written.truths.len() == written.begun as usize,
        }
    }
}

/// Everything that is wrong with a call, and the tokens that were held against the truth.
pub fn verify(done: &Done, written: &Written, records: &[CallRecord]) -> (Vec<String>, u64) {
    let mut wrong = bytes(done, written);
    let (fewest, most) = done.records(written);
    if !(fewest..=most).contains(&records.len()) {
        let many = records.len();
        wrong.push(format!("{many} records in place of {fewest} to {most}"));
    }
    let mut tokens = 0;
    if done.known == Known::Realtime {
        for (record, truth) in records.iter().zip(&written.truths) {
            let left = done.ended == Ended::Left && record.outcome == Outcome::ClientCancelled;
            if truth.outcome == Ending::Complete && record.outcome == Outcome::Complete {
                tokens += counts(record, truth, &mut wrong);
            } else if !left {
                wrong.push(format!("turn {:?} is {:?}", truth.turn, record.outcome));
            }
        }
    } else if let Some(record) = records.first() {
        tokens += one(done, written, record, &mut wrong);
    }
    (wrong, tokens)
}

fn bytes(done: &Done, written: &Written) -> Vec<String> {
    let mut wrong = Vec::new();
    let ours = done.head.as_ref().is_some_and(|head| head.ours);
    if let Some(at) = done.mismatch.filter(|_| !ours) {
        wrong.push(format!("byte {at} of the answer is not what was written"));
    }
    let due = done.due.unwrap_or(written.bytes.len() as u64);
    if done.ended == Ended::Whole && !ours && done.received != due {
        let received = done.received;
        wrong.push(format!(
            "the answer came whole with {received} of {due} bytes"
        ));
    }
    let turns = done.known == Known::Realtime;
    if done.ended == Ended::Broken && !may_break(done, written) {
        wrong.push("the answer broke off, and the backend did not".to_owned());
    }
    if written.begun > 1 && !turns {
        wrong.push(format!("the backend got it {} times", written.begun));
    }
    wrong
}

/// Whether the backend breaks this answer off.
fn may_break(done: &Done, written: &Written) -> bool {
    let torn = |truth: &Truth| matches!(truth.outcome, Ending::Reset | Ending::Closed);
    match &done.known {
        Known::Fixed { outcome, .. } => *outcome == Outcome::UpstreamReset,
        _ => written.truths.iter().any(torn),
    }
}

/// A record that says itself that it has no counts, for want of time: a slow machine may
/// do that to it, and the proxy must then say nothing rather than something wrong.
pub fn lagged(record: &CallRecord) -> bool {
    record.tps.unavailable == Some(TpsUnavailable::Lagged)
}

/// A call that has one record.
fn one(done: &Done, written: &Written, record: &CallRecord, wrong: &mut Vec<String>) -> u64 {
    let mut outcomes = outcomes(done, written);
    if lagged(record) {
        // An error inside a 200 may be among what was not read.
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
    if head.ours {
        return 0;
    }
    let forwarded = record.bytes.response;
    let rewritten = done.due.is_some();
    if done.ended == Ended::Whole && record.bytes.request != done.sent && !rewritten {
        let (recorded, sent) = (record.bytes.request, done.sent);
        wrong.push(format!("recorded {recorded} request bytes of {sent}"));
    }
    let most = written.bytes.len() as u64;
    let fits = match done.ended {
        Ended::Whole => forwarded == done.received || rewritten && forwarded == most,
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
                "lagged, and yet counted {counted:?}, reported {reported:?}"
            ));
        }
        return 0;
    }
    match (&done.known, written.truths.first()) {
        (Known::Simulated { input }, Some(truth)) if record.outcome == Outcome::Complete => {
            if done.ended == Ended::Left && truth.outcome != Ending::Complete {
                return prefix(head, written, record, wrong);
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
            counts(record, truth, wrong)
        }
        (
            Known::Fixed {
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
        _ => prefix(head, written, record, wrong),
    }
}

/// How the call may have ended.
fn outcomes(done: &Done, written: &Written) -> Vec<Outcome> {
    let mut outcomes = match (&done.known, written.truths.first()) {
        (Known::Fixed { outcome, .. }, _) => vec![*outcome],
        (_, Some(truth)) => match truth.outcome {
            Ending::Complete => vec![Outcome::Complete],
            Ending::Reset | Ending::Closed => vec![Outcome::UpstreamReset],
            Ending::ErrorEvent => vec![Outcome::ErrorEvent],
            Ending::HttpError => vec![Outcome::HttpError],
            Ending::Cancelled => vec![],
        },
        (_, None) => vec![],
    };
    if done.ended == Ended::Left {
        // The agent may have left before or after the proxy was through with it.
        outcomes.extend([Outcome::ClientCancelled, Outcome::Complete]);
    }
    outcomes
}

/// Holds a complete answer's counts against the truth.
fn counts(record: &CallRecord, truth: &Truth, wrong: &mut Vec<String>) -> u64 {
    let ours = record.tokens.normalised;
    let ours = [ours.answer, ours.reasoning, ours.tool_call, ours.output];
    let tokens = truth.tokens.unwrap_or_default();
    if ours != spread(tokens).map(Some) {
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

fn spread(tokens: TruthTokens) -> [u64; 4] {
    [
        tokens.answer,
        tokens.reasoning,
        tokens.tool_call,
        tokens.output,
    ]
}

/// Holds the counts of an answer that broke off against what a decoder finds in the
/// bytes that were forwarded, read at leisure.
fn prefix(head: &Head, written: &Written, record: &CallRecord, wrong: &mut Vec<String>) -> u64 {
    let Some(counted) = record.tokens.normalised.output else {
        return 0;
    };
    if record.streamed != Some(true) {
        return 0;
    }
    let forwarded = (record.bytes.response as usize).min(written.bytes.len());
    let complete = record.outcome == Outcome::Complete;
    let found = decoded(record.dialect, head, &written.bytes[..forwarded], complete);
    if found != counted {
        wrong.push(format!(
            "counted {counted} tokens, but {found} are in the {forwarded} bytes that went through"
        ));
    }
    found
}

fn decoded(dialect: Dialect, head: &Head, bytes: &[u8], to_its_end: bool) -> u64 {
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
        .map(|text| tokengauge::tokens::count(text))
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

/// What became of the memory of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    pub first: f64,
    pub middle: f64,
    pub last: f64,
    pub most: f64,
    /// On average in each tenth of the run.
    pub tenths: [f64; 10],
    /// KB a minute over the second half.
    pub slope: f64,
}

/// Looks at (seconds, kilobytes) of a run; `None` where there are too few.
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

/// Threads that work for tokio where something blocks live on for 10 s, and every other
/// second there is something to do for one of them: how many there are is a matter of luck.
const THREADS_MORE: f64 = 4.0;

/// What did not go back to where it was.
pub fn not_back(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> Vec<String> {
    let more = after.iter().filter(|(name, now)| {
        let then = before.get(*name).copied().unwrap_or(0.0);
        let luck = if *name == "threads" {
            THREADS_MORE
        } else {
            0.0
        };
        **now > then + luck
    });
    more.map(|(name, now)| {
        let then = before.get(name).copied().unwrap_or(0.0);
        format!("{name} was {then} at rest before the run and is {now} behind it")
    })
    .collect()
}
