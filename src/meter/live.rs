//! The streams in flight, for those who look while they run.

use super::counts::ByChannel;
use super::lane::{InFlight, Lane};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};
use uuid::Uuid;

/// Streams listed at a time; more are measured all the same.
const MAX_LISTED: usize = 20_000;
/// Streams looked at while the list is held: none that begins or ends waits for long.
const AT_ONCE: usize = 256;
/// How much of the recent past the current speed is taken over.
const WINDOW: Duration = Duration::from_secs(1);

/// A stream in flight, as the API gives it. Times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamNow {
    /// The call's id.
    pub id: String,
    /// The route that matched.
    pub route: String,
    /// The upstream it went to.
    pub upstream: String,
    /// The model that answers, else the one asked for.
    pub model: Option<String>,
    /// Wall-clock start, RFC 3339, milliseconds, UTC.
    pub started_at: String,
    /// Since the request head had been read.
    pub seconds: f64,
    /// Tokens so far, by channel.
    pub tokens: TokensNow,
    /// Tokens per second just now; `null` before the second frame with tokens.
    pub tps: Option<f64>,
    /// The last gap between frames with tokens.
    pub last_gap: Option<f64>,
    /// Since the last frame with tokens.
    pub silent: Option<f64>,
}

/// Normalised tokens so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokensNow {
    /// Visible text.
    pub answer: u64,
    /// Reasoning.
    pub reasoning: u64,
    /// Arguments of tool calls.
    pub tool_call: u64,
    /// All channels.
    pub output: u64,
}

/// The live side of one generation. Leaves the registry when dropped.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) id: Uuid,
    pub(crate) started_at: SystemTime,
    pub(crate) received: Instant,
    flight: InFlight,
    now: Mutex<Now>,
    registry: Weak<Registry>,
}

/// What moves.
#[derive(Debug, Default)]
struct Now {
    model: Option<Box<str>>,
    tokens: ByChannel,
    /// The last two frames with tokens.
    frames: [Option<Instant>; 2],
    /// Where the window began, and the tokens then.
    window: Option<(Instant, u64)>,
    /// The speed of the window before.
    rate: Option<f64>,
}

impl Live {
    /// Streams in flight on the upstream when this one began, itself included.
    pub(crate) fn concurrency(&self) -> u32 {
        self.flight.concurrency
    }

    pub(crate) fn lane(&self) -> &Lane {
        self.flight.lane()
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The model's name became known.
    pub(crate) fn model(&self, model: &str) {
        let mut now = self.now();
        if now.model.as_deref() != Some(model) {
            now.model = Some(model.into());
        }
    }

    /// A frame with tokens came.
    pub(crate) fn frame(&self, at: Instant, tokens: ByChannel) {
        let mut now = self.now();
        now.tokens = tokens;
        now.frames = [now.frames[1], Some(at)];
        let (since, before) = *now.window.get_or_insert((at, tokens.all()));
        let elapsed = at.saturating_duration_since(since);
        if elapsed >= WINDOW {
            let new = tokens.all().saturating_sub(before);
            now.rate = Some(new as f64 / elapsed.as_secs_f64());
            now.window = Some((at, tokens.all()));
        }
    }

    /// Whether tokens came, but none for longer than `threshold`.
    fn stalled(&self, at: Instant, threshold: Duration) -> bool {
        let last = self.now().frames[1];
        last.is_some_and(|last| at.saturating_duration_since(last) > threshold)
    }

    fn snapshot(&self, at: Instant) -> StreamNow {
        let now = self.now();
        let since = |instant: Instant| at.saturating_duration_since(instant).as_secs_f64();
        let gap = |pair: [Option<Instant>; 2]| Some(pair[1]?.saturating_duration_since(pair[0]?));
        StreamNow {
            id: self.id.to_string(),
            route: self.lane().route.to_string(),
            upstream: self.lane().upstream.to_string(),
            model: now.model.as_deref().map(str::to_owned),
            started_at: humantime::format_rfc3339_millis(self.started_at).to_string(),
            seconds: since(self.received),
            tokens: TokensNow {
                answer: now.tokens.answer,
                reasoning: now.tokens.reasoning,
                tool_call: now.tokens.tool_call,
                output: now.tokens.all(),
            },
            tps: now.speed(at),
            last_gap: gap(now.frames).map(|gap| gap.as_secs_f64()),
            silent: now.frames[1].map(since),
        }
    }
}

impl Now {
    /// Within a window the speed of the one before; a window that goes on for longer,
    /// as in a stall, speaks for itself.
    fn speed(&self, at: Instant) -> Option<f64> {
        let (since, before) = self.window?;
        let elapsed = at.saturating_duration_since(since);
        if elapsed < WINDOW && self.rate.is_some() {
            return self.rate;
        }
        let new = self.tokens.all().saturating_sub(before);
        let started = self.frames[0].is_some() && elapsed > Duration::ZERO;
        started.then(|| new as f64 / elapsed.as_secs_f64())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.streams().remove(&self.id);
        }
    }
}

/// The streams in flight, by id and so by start.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    streams: Mutex<BTreeMap<Uuid, Weak<Live>>>,
}

impl Registry {
    fn streams(&self) -> MutexGuard<'_, BTreeMap<Uuid, Weak<Live>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream begins; it is over when what is given is dropped.
    pub(crate) fn begin(
        self: &Arc<Self>,
        id: Uuid,
        lane: &Arc<Lane>,
        received: Instant,
        started_at: SystemTime,
    ) -> Arc<Live> {
        let live = Arc::new(Live {
            id,
            started_at,
            received,
            flight: InFlight::begin(lane),
            now: Mutex::default(),
            registry: Arc::downgrade(self),
        });
        let mut streams = self.streams();
        if streams.len() < MAX_LISTED {
            streams.insert(id, Arc::downgrade(&live));
        }
        live
    }

    /// How many streams are stalled at `at`, by route and upstream; none where it is 0.
    pub(crate) fn stalled(
        &self,
        at: Instant,
        threshold: Duration,
    ) -> HashMap<(Arc<str>, Arc<str>), u32> {
        let mut stalled = HashMap::new();
        let mut from = Bound::Unbounded;
        loop {
            let some: Vec<_> = {
                let streams = self.streams();
                let next = streams.range((from, Bound::Unbounded)).take(AT_ONCE);
                next.map(|(id, live)| (*id, live.clone())).collect()
            };
            let Some((last, _)) = some.last() else {
                return stalled;
            };
            from = Bound::Excluded(*last);
            let alive = some.iter().filter_map(|(_, live)| live.upgrade());
            for live in alive.filter(|live| live.stalled(at, threshold)) {
                let lane = live.lane();
                let place = (Arc::clone(&lane.route), Arc::clone(&lane.upstream));
                *stalled.entry(place).or_default() += 1;
            }
        }
    }

    /// The newest streams, at most `limit`, as they are at `at`.
    pub(crate) fn snapshot(&self, at: Instant, limit: usize) -> Vec<StreamNow> {
        let newest: Vec<_> = {
            let streams = self.streams();
            streams.values().rev().take(limit).cloned().collect()
        };
        let alive = newest.iter().filter_map(Weak::upgrade);
        alive.map(|live| live.snapshot(at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::lane::Lanes;
    use super::*;

    fn tokens(answer: u64) -> ByChannel {
        ByChannel {
            answer,
            ..ByChannel::default()
        }
    }

    fn begin(registry: &Arc<Registry>, start: Instant) -> Arc<Live> {
        let lane = Lanes::default().lane(&"r".into(), &"u".into());
        registry.begin(Uuid::now_v7(), &lane, start, SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn a_stream_is_listed_while_it_runs_with_its_current_speed() {
        let registry = Arc::new(Registry::default());
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let live = begin(&registry, start);
        live.model("m");
        for frame in 0..=25 {
            live.frame(at(1000 + frame * 100), tokens(frame * 5));
        }
        let streams = registry.snapshot(at(3600), 10);
        let stream = &streams[0];
        assert_eq!((stream.tps, stream.last_gap), (Some(50.0), Some(0.1)));
        assert_eq!((stream.seconds, stream.silent), (3.6, Some(0.1)));
        assert_eq!(stream.started_at, "1970-01-01T00:00:00.000Z");
        assert_eq!(stream.model.as_deref(), Some("m"));
        let stalled = registry.snapshot(at(13_000), 10)[0].tps.expect("a speed");
        assert!(stalled < 3.0, "a stall shows while it lasts: {stalled}");
        drop(live);
        assert!(registry.snapshot(at(3600), 10).is_empty());
    }

    #[test]
    fn a_stream_is_stalled_while_its_last_token_is_too_long_ago() {
        let registry = Arc::new(Registry::default());
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let second = Duration::from_secs(1);
        let lives: Vec<_> = (0..3 * AT_ONCE).map(|_| begin(&registry, start)).collect();
        assert!(
            registry.stalled(at(9000), second).is_empty(),
            "no token yet: that is not a stall"
        );
        lives
            .iter()
            .for_each(|live| live.frame(at(9000), tokens(1)));
        assert!(registry.stalled(at(10_000), second).is_empty());
        let stalled = registry.stalled(at(10_001), second);
        let place = (Arc::from("r"), Arc::from("u"));
        assert_eq!(stalled.get(&place), Some(&(3 * AT_ONCE as u32)));
        lives[0].frame(at(10_001), tokens(2));
        let stalled = registry.stalled(at(10_002), second);
        assert_eq!(stalled.get(&place), Some(&(3 * AT_ONCE as u32 - 1)));
        drop(lives);
        assert!(registry.stalled(at(20_000), second).is_empty());
    }

    #[test]
    fn the_list_is_bounded_and_the_newest_come_first() {
        let registry = Arc::new(Registry::default());
        let start = Instant::now();
        let lives: Vec<_> = (0..MAX_LISTED + 10)
            .map(|_| begin(&registry, start))
            .collect();
        assert_eq!(registry.snapshot(start, usize::MAX).len(), MAX_LISTED);
        let newest = registry.snapshot(start, 2);
        assert!(newest[0].id > newest[1].id);
        drop(lives);
        assert!(registry.streams().is_empty());
    }
}
