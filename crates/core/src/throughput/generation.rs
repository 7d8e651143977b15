//! What one generation adds to the throughput, while it runs and at its end.

use super::{RateSeries, Throughput};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The tokens and the time of one generation.
#[derive(Default)]
pub struct GenerationThroughput {
    series: Option<Arc<RateSeries>>,
    /// The first frame with tokens.
    first: Option<Instant>,
    /// Tokens of the first frame that are not certain yet.
    of_first: u32,
    /// Tokens after the first frame.
    behind_first: u32,
    /// The end of the time that is counted, whole milliseconds after its request had left.
    pub counted: Option<Instant>,
    /// Tokens that are not counted yet, since all of them may be one burst.
    held: Vec<Held>,
    /// Whether its tokens come slowly enough for them to be generated as they come.
    paced: bool,
    /// Tokens that were counted.
    handed_in: u64,
}

/// Tokens that came in one second.
struct Held {
    second: u64,
    tokens: u64,
    /// Those after the first frame, and the milliseconds that they took.
    decoded: u64,
    millis: u64,
}

/// A finished generation, as far as throughput goes.
#[derive(Clone, Copy, Debug)]
pub struct FinishedGeneration {
    /// When its request had left.
    pub sent: Instant,
    /// The last byte of the response.
    pub ended: Instant,
    /// Tokens of all channels; `None` where nobody counted them.
    pub tokens: Option<u64>,
    /// Whether it came at one instant, having been generated since `sent`.
    pub whole: bool,
}

impl GenerationThroughput {
    /// Where its tokens are counted; `series` is asked with the first of them.
    pub fn series(&mut self, series: impl FnOnce() -> Arc<RateSeries>) {
        self.series.get_or_insert_with(series);
    }

    /// A frame with generated text came, and with it so many tokens became certain, of `running`
    /// so far. More than `buffered_above` tokens a second are a burst.
    pub fn frame(
        &mut self,
        throughput: &Throughput,
        at: Instant,
        (tokens, running): (u64, u64),
        buffered_above: f64,
    ) {
        let millis = self.count_time(throughput, at);
        let is_first = self.first.is_none();
        let first = *self.first.get_or_insert(at);
        if is_first {
            self.of_first = u32::try_from(running).unwrap_or(u32::MAX);
        }
        let of_first = self.of_first.min(u32::try_from(tokens).unwrap_or(u32::MAX));
        self.of_first -= of_first;
        let decoded = tokens - u64::from(of_first);
        let more = u32::try_from(decoded).unwrap_or(u32::MAX);
        self.behind_first = self.behind_first.saturating_add(more);
        let held = Held {
            second: throughput.second(at),
            tokens,
            decoded,
            millis: if is_first { 0 } else { millis },
        };
        if self.paced {
            return self.hand_in(throughput, &held);
        }
        self.hold(held);
        let since = at.saturating_duration_since(first).as_secs_f64();
        if self.behind_first > 0 && f64::from(self.behind_first) <= buffered_above * since {
            self.release(throughput);
        }
    }

    /// The stream has ended.
    pub fn end(&mut self, throughput: &Throughput, ended: FinishedGeneration) {
        if !ended.whole {
            return self.release(throughput);
        }
        let rest = ended.tokens.unwrap_or(0).saturating_sub(self.handed_in);
        self.counted.get_or_insert(ended.sent);
        self.count_time(throughput, ended.ended);
        if let Some(series) = self.series.as_ref().filter(|_| rest > 0) {
            throughput.spread(series, ended.sent, ended.ended, rest);
        }
    }

    fn hold(&mut self, new: Held) {
        match self.held.last_mut() {
            Some(last) if last.second == new.second => {
                last.tokens += new.tokens;
                last.decoded += new.decoded;
                last.millis += new.millis;
            }
            _ => self.held.push(new),
        }
    }

    fn release(&mut self, throughput: &Throughput) {
        self.paced = true;
        for held in std::mem::take(&mut self.held) {
            self.hand_in(throughput, &held);
        }
    }

    fn hand_in(&mut self, throughput: &Throughput, held: &Held) {
        let Some(series) = &self.series else { return };
        self.handed_in += held.tokens;
        throughput.came(series, held.second, held.tokens);
        series.upstream.decoded.add(held.second, held.decoded);
        series.upstream.decode_millis.add(held.second, held.millis);
    }

    /// Counts its time up to `at`, and says how much more that is, in milliseconds.
    fn count_time(&mut self, throughput: &Throughput, at: Instant) -> u64 {
        let since = *self.counted.get_or_insert(at);
        let millis = at.saturating_duration_since(since).as_millis() as u64;
        if let Some(series) = self.series.as_ref().filter(|_| millis > 0) {
            let until = since + Duration::from_millis(millis);
            throughput.busy(&series.upstream, since, until);
            self.counted = Some(until);
        }
        millis
    }
}
