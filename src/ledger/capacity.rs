//! What an upstream gives at which number of calls at once: looked at once a second
//! while there is traffic.

use super::dictionary::{Dictionary, Kind};
use super::entry::whole;
use crate::call::Channel;
use crate::meter::{Figures, Stream, Watch};
use rusqlite::{Connection, params};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

/// Concurrencies up to here are kept one by one, those above in steps of an eighth.
const EXACT: u32 = 32;

/// Tokens of one upstream since somebody looked.
#[derive(Debug, Default)]
struct Tally {
    tokens: AtomicU64,
    /// Those that did not come first in their stream, and the time since the ones before.
    decode_tokens: AtomicU64,
    decode_us: AtomicU64,
}

/// The tokens of all upstreams, as they come. As many as are configured.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    all: RwLock<HashMap<Arc<str>, Arc<Tally>>>,
}

/// A second of an upstream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Seconds since 1970, of the hour.
    pub(crate) hour: i64,
    pub(crate) upstream: Arc<str>,
    pub(crate) concurrency: u32,
    pub(crate) tokens: u64,
    pub(crate) decode_tokens: u64,
    pub(crate) decode_us: u64,
}

struct Watching {
    tally: Arc<Tally>,
    last: Option<Instant>,
}

impl Watch for Watching {
    fn tokens(&mut self, at: Instant, _: Channel, tokens: u64) {
        self.tally.tokens.fetch_add(tokens, Ordering::Relaxed);
        if let Some(last) = self.last.replace(at) {
            let us = at.saturating_duration_since(last).as_micros();
            let us = u64::try_from(us).unwrap_or(u64::MAX);
            self.tally
                .decode_tokens
                .fetch_add(tokens, Ordering::Relaxed);
            self.tally.decode_us.fetch_add(us, Ordering::Relaxed);
        }
    }
}

impl Tallies {
    pub(crate) fn watch(&self, stream: &Stream<'_>) -> Box<dyn Watch> {
        let tally = self.tally(stream.upstream);
        Box::new(Watching { tally, last: None })
    }

    fn tally(&self, upstream: &Arc<str>) -> Arc<Tally> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(tally) = all.get(upstream) {
            return Arc::clone(tally);
        }
        drop(all);
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(Arc::clone(upstream)).or_default())
    }

    /// What came since the last time, of upstreams with calls under way then and now.
    pub(crate) fn look(&self, second: i64, before: &InFlight, now: &InFlight) -> Vec<Sample> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let samples = all.iter().filter_map(|(upstream, tally)| {
            let taken = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
            let tokens = taken(&tally.tokens);
            let (decode_tokens, decode_us) = (taken(&tally.decode_tokens), taken(&tally.decode_us));
            let streams = before.of(upstream) + now.of(upstream);
            (streams > 0).then(|| Sample {
                hour: second - second.rem_euclid(3600),
                upstream: Arc::clone(upstream),
                concurrency: class(streams.div_ceil(2)),
                tokens,
                decode_tokens,
                decode_us,
            })
        });
        samples.collect()
    }
}

/// Calls under way by upstream.
#[derive(Debug, Default)]
pub(crate) struct InFlight(HashMap<Arc<str>, u32>);

impl InFlight {
    pub(crate) fn of_figures(figures: &Figures) -> InFlight {
        let mut all = HashMap::new();
        for (_, upstream, streams) in &figures.in_flight {
            *all.entry(Arc::clone(upstream)).or_insert(0) += streams;
        }
        InFlight(all)
    }

    fn of(&self, upstream: &str) -> u32 {
        self.0.get(upstream).copied().unwrap_or(0)
    }
}

/// The concurrency that this one is kept under.
fn class(streams: u32) -> u32 {
    if streams <= EXACT {
        return streams;
    }
    let step = 1 << (streams.ilog2() - 3);
    streams / step * step
}

impl Sample {
    pub(super) fn save(
        &self,
        dictionary: &mut Dictionary,
        connection: &Connection,
    ) -> rusqlite::Result<()> {
        let upstream = dictionary.name(connection, Kind::Upstream, &self.upstream)?;
        let mut add = connection.prepare_cached(
            "INSERT INTO capacity VALUES (?, ?, ?, 1, ?, ?, ?)
             ON CONFLICT (hour, upstream, concurrency) DO UPDATE SET seconds = seconds + 1,
             tokens = tokens + excluded.tokens,
             decode_tokens = decode_tokens + excluded.decode_tokens,
             decode_us = decode_us + excluded.decode_us",
        )?;
        add.execute(params![
            self.hour,
            upstream,
            self.concurrency,
            whole(self.tokens),
            whole(self.decode_tokens),
            whole(self.decode_us),
        ])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_second_is_that_of_the_calls_under_way_at_both_of_its_ends() {
        let tallies = Tallies::default();
        let upstream: Arc<str> = "engine".into();
        let stream = Stream {
            route: &"r".into(),
            upstream: &upstream,
            workload: None,
            model: None,
            accepted: true,
        };
        let start = Instant::now();
        let mut watch = tallies.watch(&stream);
        for at in [0, 250, 1000] {
            watch.tokens(start + Duration::from_millis(at), Channel::Answer, 5);
        }
        let at = |streams| InFlight([(Arc::clone(&upstream), streams)].into());
        let samples = tallies.look(7_205, &at(2), &at(4));
        let should = Sample {
            hour: 7_200,
            upstream: Arc::clone(&upstream),
            concurrency: 3,
            tokens: 15,
            decode_tokens: 10,
            decode_us: 1_000_000,
        };
        assert_eq!(samples, [should]);
        assert!(tallies.look(7_206, &at(0), &at(0)).is_empty());
    }

    #[test]
    fn many_streams_share_a_class() {
        let classes: Vec<_> = [1, 32, 33, 35, 36, 63, 64, 71, 72, 1000].map(class).into();
        assert_eq!(classes, [1, 32, 32, 32, 36, 60, 64, 64, 72, 960]);
    }
}
