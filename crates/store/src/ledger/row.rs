//! Converts a call record to a row of the ledger: whole numbers, and ids for names.

use super::ledger_call::LedgerCall;
use crate::figures::CallFigures;
use rusqlite::Row;
use serde::Serialize;
use std::time::{Duration, SystemTime};
use tokengauge_core::call::{CallRecord, OperationClass, Outcome};
use tokengauge_core::dimension::SPENDING;
use tokengauge_core::prompt::PromptSums;
use tokengauge_core::time::{Timestamp, duration_since_1970};

/// Milliseconds from 1970 to 2020, the origin of keys.
pub(super) const EPOCH_MS: i64 = 1_577_836_800_000;
pub(super) const KEY_BITS: u32 = 22;
/// Upper bounds of the classes of decode speed, in tokens per second.
pub(crate) const BANDS: [f64; 4] = [5.0, 15.0, 30.0, 60.0];

/// The smallest key of calls that began at `ms` (since 1970) or later.
pub(super) fn key_at(ms: i64) -> i64 {
    let last = i64::MAX >> KEY_BITS;
    (ms.saturating_sub(EPOCH_MS)).clamp(0, last) << KEY_BITS
}

/// When the call with this key began, in milliseconds since 1970.
pub(crate) fn started_ms(key: i64) -> i64 {
    (key >> KEY_BITS) + EPOCH_MS
}

pub(crate) fn milliseconds(at: SystemTime) -> i64 {
    i64::try_from(duration_since_1970(at).as_millis()).unwrap_or(i64::MAX)
}

pub(crate) fn timestamp(ms: i64) -> Timestamp {
    let since = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    (SystemTime::UNIX_EPOCH + since).into()
}

#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) record: &'a CallRecord,
    /// Streams in flight on the upstream when the call began.
    pub(super) concurrency: Option<u32>,
    /// Whether the call is nested in another call, which counts for the session.
    pub(super) nested: bool,
    pub(super) id: [u8; 16],
    pub(super) trace_id: Option<u128>,
    pub(super) key: i64,
    pub(super) started_us: i64,
    pub(super) ended_us: i64,
    pub(super) share: Share,
    pub(super) figures: CallFigures,
}

impl<'a> Entry<'a> {
    /// The first key to try for a call. If other calls have this key, the call gets one of the next
    /// keys.
    pub(super) fn key(call: &LedgerCall<'_>) -> i64 {
        let id = call.id.as_bytes();
        let low = u32::from_be_bytes([id[12], id[13], id[14], id[15]]) & ((1 << KEY_BITS) - 1);
        key_at(milliseconds(call.record.started_at.time())) | i64::from(low)
    }

    pub(super) fn of(kept: &LedgerCall<'a>) -> Entry<'a> {
        let (record, id) = (kept.record, kept.id.into_bytes());
        let ms = milliseconds(record.started_at.time());
        let started_us = ms.saturating_mul(1000);
        let lasted = record.seconds.duration.and_then(micros).unwrap_or(0);
        Entry {
            record,
            concurrency: kept.concurrency,
            nested: kept.nested,
            trace_id: kept.trace_id,
            id,
            key: Entry::key(kept),
            started_us,
            ended_us: started_us.saturating_add(lasted),
            share: Share::of(record),
            figures: CallFigures::of(record, kept.concurrency),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Share {
    pub(crate) error: bool,
    pub(crate) generates: bool,
    /// The ids of the names in [`SPENDING`]. Only calls that are read from the ledger have them.
    pub(crate) spending: [Option<i64>; SPENDING.len()],
    pub(crate) input: Option<i64>,
    pub(crate) cached_input: Option<i64>,
    pub(crate) output: Option<i64>,
    pub(crate) reasoning: Option<i64>,
    pub(crate) cost_nano: Option<i64>,
    /// Tokens after the first chunk, and the microseconds they took.
    pub(crate) decode: Option<(i64, i64)>,
    pub(crate) tps: Option<f64>,
    pub(crate) ttft: Option<f64>,
    pub(crate) duration_us: Option<i64>,
    /// Tokens per second in the provider's count, and its parts: thousandths of tokens, because
    /// parts of a report are rarely whole, and microseconds.
    pub(crate) reported: Option<f64>,
    pub(crate) reported_decode: Option<(i64, i64)>,
    pub(crate) prompt: Option<PromptSums>,
}

/// The columns of `calls` for [`Share::read`]; the last are [`SPENDING`].
pub(super) const SHARE_COLUMNS: &str = "coalesce(reported_input, normalised_input), \
    reported_cached_input, coalesce(reported_output, normalised_output), \
    coalesce(reported_reasoning, normalised_reasoning), cost_nano_usd, user, key_hash, tools";

impl Share {
    /// Reads [`SHARE_COLUMNS`], which begin at column `at`: tokens, cost and names, no times.
    pub(super) fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Share> {
        Ok(Share {
            input: row.get(at)?,
            cached_input: row.get(at + 1)?,
            output: row.get(at + 2)?,
            reasoning: row.get(at + 3)?,
            cost_nano: row.get(at + 4)?,
            spending: [row.get(at + 5)?, row.get(at + 6)?, row.get(at + 7)?],
            ..Share::default()
        })
    }

    /// The tokens and cost only.
    pub(super) fn without_times(self) -> Share {
        Share {
            decode: None,
            tps: None,
            ttft: None,
            duration_us: None,
            reported: None,
            reported_decode: None,
            prompt: None,
            ..self
        }
    }

    pub(crate) fn of(record: &CallRecord) -> Share {
        let (provider, counted) = (&record.tokens.reported, &record.tokens.normalised);
        let tps = record.tps.output.filter(|tps| tps.is_finite());
        let reported = record.tps.reported.filter(|tps| tps.is_finite());
        let seconds = &record.seconds;
        Share {
            reported,
            reported_decode: decode_milli(reported, seconds.ttft, seconds.last_token),
            error: is_error(record.outcome),
            generates: record.operation_class == OperationClass::Generation,
            spending: [None; SPENDING.len()],
            input: provider.input.or(counted.input).map(whole),
            cached_input: provider.cached_input.map(whole),
            output: provider.output.or(counted.output).map(whole),
            reasoning: provider.reasoning.or(counted.reasoning).map(whole),
            cost_nano: record.cost_usd.and_then(nanos),
            decode: decode(tps, record.seconds.ttft, record.seconds.last_token),
            tps,
            ttft: record.seconds.ttft,
            duration_us: record.seconds.duration.and_then(micros),
            prompt: record.prompt.as_deref().map(PromptSums::of),
        }
    }
}

/// Tokens after the first chunk and the microseconds they took, derived from the speed.
pub(super) fn decode(
    tps: Option<f64>,
    first: Option<f64>,
    last: Option<f64>,
) -> Option<(i64, i64)> {
    // A response that the server started by itself begins with its first token.
    let seconds = last? - first.unwrap_or(0.0);
    Some(((tps? * seconds).round() as i64, micros(seconds)?))
}

/// Like [`decode`], but in thousandths of tokens.
pub(super) fn decode_milli(
    tps: Option<f64>,
    first: Option<f64>,
    last: Option<f64>,
) -> Option<(i64, i64)> {
    decode(tps.map(|tps| tps * 1e3), first, last)
}

/// Whether a call failed. A call that its agent cancelled did not fail.
pub(super) fn is_error(outcome: Outcome) -> bool {
    !matches!(outcome, Outcome::Complete | Outcome::ClientCancelled)
}

pub(crate) fn micros(seconds: f64) -> Option<i64> {
    scaled(seconds, 1e6)
}

pub(super) fn micros_to_ms(us: i64) -> i64 {
    us.div_euclid(1_000)
}

/// Converts US dollars to billionths.
pub(crate) fn nanos(usd: f64) -> Option<i64> {
    scaled(usd, 1e9)
}

pub(crate) fn millis(speed: f64) -> Option<i64> {
    scaled(speed, 1e3)
}

fn scaled(value: f64, by: f64) -> Option<i64> {
    value.is_finite().then(|| (value * by).round() as i64)
}

/// Saturates, because SQLite's integers are signed.
pub(crate) fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The name of an enum's value in records.
pub(crate) fn word<T: Serialize>(value: &T) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    text.trim_matches('"').to_owned()
}

/// JSON pairs of tokens and seconds, rounded to microseconds; `None` if there are none.
pub(crate) fn segments(record: &CallRecord) -> Option<String> {
    let pairs = record.segments.iter();
    let pairs: Vec<_> = pairs
        .map(|segment| (segment.tokens, (segment.seconds * 1e6).round() / 1e6))
        .collect();
    (!pairs.is_empty()).then(|| serde_json::to_string(&pairs).unwrap_or_default())
}
