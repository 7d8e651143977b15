//! The throughput of one generation, reported while it runs and at its end.

use super::ring::READ;
use super::{MAX_PARTS, RateSeries, Throughput};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Reports the tokens and the time of one generation to its series.
#[derive(Default)]
pub struct GenerationThroughput {
    series: Option<Arc<RateSeries>>,
    /// The first chunk with tokens.
    first: Option<Instant>,
    /// Tokens of the first chunk that a later chunk may still change.
    uncertain_first: u32,
    /// Tokens after the first chunk.
    after_first: u32,
    /// Up to when its time is counted: whole milliseconds after its request was sent.
    pub counted: Option<Instant>,
    /// Tokens that are not reported yet because all of them may be one burst.
    pending: Vec<SecondTokens>,
    /// Whether its tokens arrive slowly enough to have been generated as they arrived.
    paced: bool,
    /// Milliseconds since the first chunk with tokens that chunks were given.
    decode_millis: u32,
    /// Tokens that were reported.
    reported: u64,
    /// The same by second, for the newest seconds.
    by_second: VecDeque<(u32, u32)>,
}

struct SecondTokens {
    second: u64,
    tokens: u64,
    /// Those after the first chunk, and the milliseconds that they took.
    decoded: u64,
    millis: u64,
}

/// A finished generation, as far as throughput goes.
#[derive(Clone, Copy, Debug)]
pub struct FinishedGeneration {
    /// When its request had been sent.
    pub sent: Instant,
    /// The last byte of the response.
    pub ended: Instant,
    /// Tokens of all channels; `None` if they are unknown.
    pub tokens: Option<u64>,
    /// Whether it arrived at one instant, having been generated since `sent`.
    pub whole: bool,
}

impl GenerationThroughput {
    /// Whether the series in which its tokens are counted is set.
    pub fn has_series(&self) -> bool {
        self.series.is_some()
    }

    /// Sets the series in which its tokens are counted.
    pub fn count_in(&mut self, series: Arc<RateSeries>) {
        self.series = Some(series);
    }

    /// A chunk with generated text arrived. `tokens` more became certain, of `running` so far.
    /// More than `buffered_above` tokens per second are a burst. Without a series they wait.
    pub fn chunk(
        &mut self,
        throughput: &Throughput,
        at: Instant,
        (tokens, running): (u64, u64),
        buffered_above: f64,
    ) {
        self.count_time(throughput, at);
        let is_first = self.first.is_none();
        let first = *self.first.get_or_insert(at);
        // Its time may be counted later, when its series is known.
        let since = at.saturating_duration_since(first);
        let until = u32::try_from(since.as_millis()).unwrap_or(u32::MAX);
        let millis = until.saturating_sub(self.decode_millis);
        self.decode_millis = until.max(self.decode_millis);
        if is_first {
            self.uncertain_first = u32::try_from(running).unwrap_or(u32::MAX);
        }
        let uncertain_first = self
            .uncertain_first
            .min(u32::try_from(tokens).unwrap_or(u32::MAX));
        self.uncertain_first -= uncertain_first;
        let decoded = tokens - u64::from(uncertain_first);
        let more = u32::try_from(decoded).unwrap_or(u32::MAX);
        self.after_first = self.after_first.saturating_add(more);
        let held = SecondTokens {
            second: throughput.second(at),
            tokens,
            decoded,
            millis: millis.into(),
        };
        if self.paced {
            return self.report(throughput, &held);
        }
        self.keep_pending(held);
        let is_paced = f64::from(self.after_first) <= buffered_above * since.as_secs_f64();
        if self.series.is_some() && self.after_first > 0 && is_paced {
            self.release(throughput);
        }
    }

    /// The stream has ended.
    pub fn end(&mut self, throughput: &Throughput, ended: FinishedGeneration) {
        if !ended.whole {
            return self.release(throughput);
        }
        let rest = ended.tokens.unwrap_or(0).saturating_sub(self.reported);
        self.counted.get_or_insert(ended.sent);
        self.count_time(throughput, ended.ended);
        if let Some(series) = self.series.as_ref().filter(|_| rest > 0) {
            throughput.spread(series, ended.sent, ended.ended, rest);
        }
    }

    /// Moves what was reported to another series, because its tokens are of another model than it
    /// seemed, or takes it back, because how many there are is unknown after all.
    pub fn relabel(
        &mut self,
        throughput: &Throughput,
        series: Option<Arc<RateSeries>>,
        at: Instant,
    ) {
        let Some(old) = self.series.take() else {
            return;
        };
        let is_same = series.as_ref().is_some_and(|new| Arc::ptr_eq(new, &old));
        let oldest = throughput.second(at).saturating_sub(READ - 10);
        for (second, tokens) in self.by_second.iter().filter(|_| !is_same) {
            let (second, tokens) = (u64::from(*second), i64::from(*tokens));
            let taken = (&old, -tokens);
            let given = series.as_ref().map(|new| (new, tokens));
            for (series, tokens) in [Some(taken), given].into_iter().flatten() {
                if second < oldest {
                    throughput.late(series, second, tokens, 0);
                } else {
                    throughput.add_streamed(series, second, tokens);
                }
            }
        }
        self.series = series;
    }

    fn keep_pending(&mut self, new: SecondTokens) {
        match self.pending.last_mut() {
            Some(last) if last.second == new.second => {
                last.tokens += new.tokens;
                last.decoded += new.decoded;
                last.millis += new.millis;
            }
            _ => self.pending.push(new),
        }
    }

    fn release(&mut self, throughput: &Throughput) {
        self.paced = true;
        for held in std::mem::take(&mut self.pending) {
            self.report(throughput, &held);
        }
    }

    fn report(&mut self, throughput: &Throughput, held: &SecondTokens) {
        let Some(series) = &self.series else { return };
        let tokens = u32::try_from(held.tokens).unwrap_or(u32::MAX);
        self.reported += u64::from(tokens);
        throughput.add_streamed(series, held.second, tokens.into());
        let second = held.second as u32;
        match self.by_second.back_mut() {
            Some(last) if last.0 == second => last.1 = last.1.saturating_add(tokens),
            _ => self.by_second.push_back((second, tokens)),
        }
        if self.by_second.len() > MAX_PARTS as usize {
            self.by_second.pop_front();
        }
        let upstream = &series.upstream;
        upstream.decoded.add(held.second, held.decoded as i64);
        (upstream.decode_millis).add(held.second, held.millis as i64);
    }

    /// Counts its time up to `at`, in whole milliseconds.
    fn count_time(&mut self, throughput: &Throughput, at: Instant) {
        let since = *self.counted.get_or_insert(at);
        let millis = at.saturating_duration_since(since).as_millis() as u64;
        if let Some(series) = self.series.as_ref().filter(|_| millis > 0) {
            let until = since + Duration::from_millis(millis);
            throughput.busy(&series.upstream, since, until);
            self.counted = Some(until);
        }
    }
}
