//! Throughput of one generation, which is reported during the stream and at its end.

use super::ring::READ;
use super::{MAX_PARTS, RateSeries, Throughput};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Reports the tokens and the busy time of one generation to its series.
#[derive(Default)]
pub struct GenerationThroughput {
    series: Option<Arc<RateSeries>>,
    first: Option<Instant>,
    /// Tokens of the first chunk that are not certain yet.
    uncertain_first: u32,
    after_first: u32,
    /// The instant up to which busy time is counted: whole milliseconds after the request was sent.
    pub counted: Option<Instant>,
    /// Tokens that are held back because all of them may belong to one burst.
    pending: Vec<SecondTokens>,
    /// Whether tokens arrive slowly enough to be generated as they arrive.
    paced: bool,
    /// Milliseconds since the first chunk with tokens that are already assigned to chunks.
    decode_millis: u32,
    reported: u64,
    /// Reported tokens by second, for the newest seconds.
    by_second: VecDeque<(u32, u32)>,
}

struct SecondTokens {
    second: u64,
    tokens: u64,
    decoded: u64,
    millis: u64,
}

/// A finished generation as throughput counts it.
#[derive(Clone, Copy, Debug)]
pub struct FinishedGeneration {
    /// When the request was completely sent.
    pub sent: Instant,
    /// When the last byte of the response arrived.
    pub ended: Instant,
    /// Tokens of all channels. `None` if unknown.
    pub tokens: Option<u64>,
    /// Whether the response arrived at one instant. Its tokens count as generated evenly since
    /// `sent`.
    pub whole: bool,
}

impl GenerationThroughput {
    /// Whether a series is set.
    pub fn has_series(&self) -> bool {
        self.series.is_some()
    }

    /// Sets the series that counts the tokens.
    pub fn count_in(&mut self, series: Arc<RateSeries>) {
        self.series = Some(series);
    }

    /// Records a chunk with generated text. `tokens` is the number of tokens that became certain,
    /// and `running` is the total so far. A rate above `buffered_above` tokens per second is a
    /// burst. Tokens are held back until the series is set.
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
        // The busy time may be counted later, once the series is known.
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

    /// Ends the generation.
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

    /// Moves the reported tokens to another series when the response turns out to come from another
    /// model. Takes the tokens back if their number turns out to be unknown.
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
