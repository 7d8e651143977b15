//! Finds a text that repeats itself: one period again and again, without any change. The text is
//! compared with itself shifted by the period. A table or a list whose rows differ, and a loop that
//! varies its words, are therefore not found.

#[cfg(test)]
mod excerpts;
mod period;
#[cfg(test)]
mod tests;

use period::{Probe, equal_at_end, equal_at_start, tokens_of_period};
use std::sync::Arc;
use tokengauge_core::memory::{Memory, Share};
use tokengauge_tokenizer as tokenizer;

/// The longest period, in tokens.
pub(crate) const LONGEST_PERIOD: u64 = 256;
/// The bytes that are always kept, and the longest period in bytes.
const HISTORY: usize = 2560;
/// The longest text that may be pushed at once, in bytes.
pub(crate) const MAX_PUSH: usize = 512;
/// Older bytes are dropped once there are this many.
const DROP_AT: usize = HISTORY + 640;
const FIRST_CAPACITY: usize = 2 * STEP + MAX_PUSH;
const CAPACITY: usize = DROP_AT + STEP + MAX_PUSH;
/// The bytes between two checks, if tokens have at least [`LONG_TOKEN`] bytes, if they are shorter,
/// and while the text repeats itself.
const STEP: usize = 384;
const SHORT_STEP: usize = 128;
const RUN_STEP: usize = 64;
const LONG_TOKEN: u64 = 3;
/// How often a check may find the bytes that it searches for.
const MAX_HITS: usize = 32;
/// A repetition has at least twice its period, within these numbers of repeated tokens. The period
/// itself comes once more, before them.
const MIN_REPEATED: f64 = 352.0;
const MAX_REQUIRED: f64 = 400.0;

/// A repetition in one text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    /// The token of the text at which the first period begins.
    pub(crate) start: u64,
    /// Tokens of the period.
    pub(crate) period: u64,
    /// Tokens that repeat the text one period before them.
    pub(crate) tokens: u64,
}

impl Found {
    /// The start counts from the beginning of a generation that has `tokens` before the text.
    pub(crate) fn after(self, tokens: u64) -> Found {
        Found {
            start: self.start + tokens,
            ..self
        }
    }

    /// Both repetitions: the start of the first, the period of the longest, and all tokens.
    pub(crate) fn and(self, other: Found) -> Found {
        let longest = if self.tokens < other.tokens {
            other
        } else {
            self
        };
        Found {
            start: self.start.min(other.start),
            period: longest.period,
            tokens: self.tokens + other.tokens,
        }
    }
}

/// The last bytes of a text in flight, and what they repeat.
pub(crate) struct Watch {
    bytes: Box<[u8]>,
    length: usize,
    /// The length above which a check is due.
    due: usize,
    step: usize,
    probe: Probe,
    /// The tokens of the text when the probe was taken.
    probe_tokens: u64,
    run: Option<Run>,
    ended: Option<Found>,
    _share: Share,
}

/// A part of the text in which each byte is equal to the byte one period before it.
struct Run {
    period: usize,
    /// The number of its bytes.
    repeated: usize,
    /// The end of the part that was compared.
    end: usize,
    /// Once it may be long enough.
    period_tokens: Option<f64>,
    found: Option<Found>,
}

impl Watch {
    /// A watch over a text that has `tokens` so far; `None` if its memory would exceed the limit.
    pub(crate) fn begin(memory: &Arc<Memory>, tokens: u64) -> Option<Box<Watch>> {
        let mut share = Share::empty(memory);
        share.resize(CAPACITY).then(|| {
            Box::new(Watch {
                bytes: vec![0; FIRST_CAPACITY].into(),
                length: 0,
                due: SHORT_STEP,
                step: SHORT_STEP,
                probe: Probe::default(),
                probe_tokens: tokens,
                run: None,
                ended: None,
                _share: share,
            })
        })
    }

    /// Appends at most [`MAX_PUSH`] bytes. Returns whether a check is due.
    #[inline]
    pub(crate) fn push(&mut self, text: &[u8]) -> bool {
        let end = self.length + text.len();
        if let Some(free) = self.bytes.get_mut(self.length..end) {
            copy(text, free);
            self.length = end;
        }
        end > self.due
    }

    /// Compares the bytes that are new since the previous check. `tokens` is the count of the text
    /// so far. Returns whether the text repeats itself or has done so.
    pub(crate) fn check(&mut self, tokens: u64) -> bool {
        let mut hits = 0;
        while !self.continues(tokens) && self.search() {
            hits += 1;
            if hits == MAX_HITS {
                self.run = None;
                self.take_probe(tokens);
                break;
            }
        }
        self.prepare(tokens);
        self.found().is_some()
    }

    /// All repetitions so far.
    pub(crate) fn found(&self) -> Option<Found> {
        let current = self.run.as_ref().and_then(|run| run.found);
        self.ended.into_iter().chain(current).reduce(Found::and)
    }

    fn take_probe(&mut self, tokens: u64) {
        self.probe = Probe::at_end(&self.bytes[..self.length]);
        self.probe_tokens = tokens;
    }

    /// Looks for the probe in the bytes that were not searched yet. Returns whether a run was found,
    /// which may have ended already.
    fn search(&mut self) -> bool {
        let Some(period) = self
            .probe
            .find(&self.bytes[..self.length])
            .filter(|period| *period <= HISTORY)
        else {
            return false;
        };
        let end = self.probe.found_at() + Probe::LENGTH;
        let repeated = equal_at_end(&self.bytes[..end], &self.bytes[..end - period]);
        self.run = Some(Run {
            period,
            repeated,
            end,
            period_tokens: None,
            found: None,
        });
        true
    }

    /// Extends the run. Returns whether it reaches the end of the text; otherwise the run has ended.
    fn continues(&mut self, tokens: u64) -> bool {
        let Some(run) = &mut self.run else {
            return false;
        };
        let text = &self.bytes[..self.length];
        let (new, before) = (&text[run.end..], &text[run.end - run.period..]);
        let equal = equal_at_start(new, before);
        run.end += equal;
        run.repeated += equal;
        let (before, rest) = text.split_at(run.end);
        run.judge(before, tokens, rest);
        if rest.is_empty() {
            return true;
        }
        if let Some(found) = self.run.take().and_then(|run| run.found) {
            self.ended = Some(self.ended.map_or(found, |ended| ended.and(found)));
            self.take_probe(tokens);
        }
        false
    }

    /// Prepares the next check.
    fn prepare(&mut self, tokens: u64) {
        let is_old = tokens.saturating_sub(self.probe_tokens) > LONGEST_PERIOD + 16;
        if self.run.is_none() && (is_old || self.probe.is_empty()) {
            self.step = match self.probe.bytes_until(self.length) as u64 {
                bytes if bytes >= LONG_TOKEN * tokens.saturating_sub(self.probe_tokens) => STEP,
                _ => SHORT_STEP,
            };
            self.take_probe(tokens);
        }
        if self.length > DROP_AT {
            let dropped = self.length - HISTORY;
            self.bytes.copy_within(dropped..self.length, 0);
            self.length = HISTORY;
            self.probe.moved(dropped);
            if let Some(run) = &mut self.run {
                run.end -= dropped;
            }
        }
        let step = if self.run.is_some() {
            RUN_STEP
        } else {
            self.step
        };
        self.due = self.length + step;
        if self.bytes.len() < self.due + MAX_PUSH {
            let mut more = vec![0; CAPACITY];
            more[..self.length].copy_from_slice(&self.bytes[..self.length]);
            self.bytes = more.into();
        }
    }
}

impl Run {
    /// Decides whether the run is a repetition. `text` ends with the run, and `rest` follows it.
    fn judge(&mut self, text: &[u8], tokens: u64, rest: &[u8]) {
        // Counting the period is expensive, and a token has at least one byte.
        let may_be_long =
            self.repeated >= MIN_REPEATED as usize && 2 * self.repeated >= 3 * self.period;
        if self.period_tokens.is_none() && may_be_long {
            let period = &text[text.len() - self.period..];
            self.period_tokens = Some(tokens_of_period(period));
        }
        let Some(period) = self.period_tokens else {
            return;
        };
        let repeated = period * (self.repeated as f64 / self.period as f64);
        let required = (2.0 * period).clamp(MIN_REPEATED, MAX_REQUIRED);
        if period.round() > LONGEST_PERIOD as f64 || repeated < required {
            return;
        }
        let found = self.found.get_or_insert_with(|| {
            let rest = tokenizer::count(&String::from_utf8_lossy(rest));
            let before = tokens.saturating_sub(rest) as f64 - repeated - period;
            Found {
                start: before.max(0.0).round() as u64,
                period: (period.round() as u64).max(1),
                tokens: 0,
            }
        });
        found.tokens = repeated.round() as u64;
    }
}

/// Copies a text to the beginning of `free`. Most texts are a token, for which `memcpy` is slow.
#[inline]
fn copy(text: &[u8], free: &mut [u8]) {
    match (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        (Some(first), Some(last)) if text.len() <= 8 => {
            if let Some(start) = free.first_chunk_mut() {
                *start = *first;
            }
            if let Some(end) = free.last_chunk_mut() {
                *end = *last;
            }
        }
        (None, _) => free.iter_mut().zip(text).for_each(|(to, byte)| *to = *byte),
        _ => free.copy_from_slice(text),
    }
}
