//! The streams in flight, for the live API and for objectives that evaluate running streams.

use super::context::CallContext;
use super::counts::ByChannel;
use super::route_stats::{InFlight, RouteStats};
use parking_lot::{Mutex, MutexGuard};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::call::OperationClass;
use tokengauge_core::observer::MAX_MEASURE_DELAY;
use tokengauge_core::payer::Payer;
use tokengauge_core::pod::PodName;
use tokengauge_core::prompt::Repetition;
use tokengauge_core::time::Timestamp;
use uuid::Uuid;

/// The limit for listed streams. Further streams are measured but not listed.
const MAX_LISTED: usize = 20_000;
/// The number of streams visited under one lock. It is small so that other threads do not wait for
/// long.
const LOCK_BATCH: usize = 256;
const WINDOW: Duration = Duration::from_secs(5);
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
const SAMPLES: usize = 7;

/// A stream in flight. All durations are in seconds.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Stream")]
pub struct StreamNow {
    /// The id of the call.
    pub id: String,
    /// The route that matched the request.
    pub route: String,
    /// The upstream that the request was sent to.
    pub upstream: String,
    /// The model that the response names, or the requested model if the response names none.
    pub model: Option<String>,
    /// The workload of the call, if it is known yet.
    pub workload: Option<String>,
    /// The session that the agent named.
    pub session: Option<String>,
    /// The name that the agent gives itself.
    pub agent: Option<String>,
    /// The team that pays for the call.
    #[serde(default)]
    pub team: Option<String>,
    /// The cost center of the team that pays for the call.
    #[serde(default)]
    pub cost_center: Option<String>,
    /// The tenant for whom the call is made.
    #[serde(default)]
    pub tenant: Option<String>,
    /// The wall-clock start of the call in RFC 3339 format, in UTC with milliseconds.
    pub started_at: Timestamp,
    /// Seconds since the proxy had read the request head.
    pub seconds: f64,
    /// The number of tokens received so far, by channel.
    pub tokens: TokensNow,
    /// The current speed in tokens per second; `null` before the second chunk with tokens.
    pub tps: Option<f64>,
    /// The last gap between two chunks with tokens, in seconds.
    pub last_gap: Option<f64>,
    /// Seconds since the last chunk with tokens.
    pub silent: Option<f64>,
    /// What the text of the stream repeats, if it repeats one period without any change.
    #[serde(default)]
    pub repetition: Option<Repetition>,
    /// The pod that the stream passes through. Set only in a list of streams from several pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Arc<PodName>>,
}

/// The number of tokens received so far, counted with one tokenizer for all models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct TokensNow {
    /// Tokens of visible text.
    pub answer: u64,
    /// Tokens of reasoning.
    pub reasoning: u64,
    /// Tokens of the arguments of tool calls.
    pub tool_call: u64,
    /// Tokens of all channels.
    pub output: u64,
}

/// The progress of a call or a turn in flight, for objectives that evaluate it while it runs.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The id that the call's record will have.
    pub id: Uuid,
    /// When the proxy had read the request head.
    pub received: Instant,
    pub route: Arc<str>,
    pub upstream: Arc<str>,
    /// The workload, if it is known yet.
    pub workload: Option<Arc<str>>,
    /// The model that the response names, or the requested model if the response names none.
    pub model: Option<String>,
    /// The name that the agent gives itself.
    pub agent: Option<String>,
    pub payer: Arc<Payer>,
    /// The session that the agent named.
    pub session: Option<String>,
    /// The trace that the agent named.
    pub trace_id: Option<String>,
    /// The class of the operation, as far as it is known yet.
    pub operation_class: OperationClass,
    /// Whether the response is a stream. Before there is a response, whether a stream was
    /// requested.
    pub streamed: Option<bool>,
    pub several_choices: bool,
    /// Whether the call is part of the upstream's warm-up.
    pub warm_up: bool,
    /// When the first chunk with tokens arrived, and the number of its tokens.
    pub first: Option<(Instant, u64)>,
    pub answered: bool,
    /// When the last chunk with tokens arrived.
    pub last: Option<Instant>,
    /// Tokens of all channels.
    pub tokens: u64,
    /// When the oldest chunk arrived that is not measured yet.
    pub unmeasured_since: Option<Instant>,
    /// Whether tokens arrive that are not measured while the call runs.
    pub unseen: bool,
}

const ENDED: u8 = 1;
const WARM_UP: u8 = 2;
const STREAM: u8 = 4;
const BODY: u8 = 8;
const UNSEEN: u8 = 16;
const REPEATS: u8 = 32;

/// The live state of a call. Dropping the state removes the call from the registry.
pub(crate) struct LiveCall {
    pub(crate) id: Uuid,
    pub(crate) received: Instant,
    context: Arc<CallContext>,
    flags: AtomicU8,
    flight: InFlight,
    now: Mutex<LiveState>,
    pub(crate) registry: Arc<Registry>,
}

#[derive(Debug, Default)]
struct LiveState {
    model: Option<Box<str>>,
    tokens: ByChannel,
    first: Option<(Instant, u64)>,
    chunks: [Option<Instant>; 2],
    samples: TokenSamples,
}

impl LiveCall {
    /// Streams in flight on the upstream when this one began, including this one.
    pub(crate) fn concurrency(&self) -> u32 {
        self.flight.concurrency
    }

    pub(crate) fn stats(&self) -> &RouteStats {
        self.flight.stats()
    }

    /// Computed from the wall clock that was read with the first request of the connection.
    fn started_at(&self) -> SystemTime {
        let context = &self.context;
        context.started_at + self.received.saturating_duration_since(context.received)
    }

    fn now(&self) -> MutexGuard<'_, LiveState> {
        self.now.lock()
    }

    /// Marks the call as ended, so that it is no longer evaluated as running.
    pub(crate) fn mark_ended(&self) {
        self.flags.fetch_or(ENDED, Ordering::Relaxed);
    }

    pub(crate) fn warm_up(&self, warm_up: bool) {
        let flag = if warm_up { WARM_UP } else { 0 };
        self.flags.fetch_or(flag, Ordering::Relaxed);
    }

    pub(crate) fn streamed(&self, streamed: bool) {
        let flag = if streamed { STREAM } else { BODY };
        self.flags.fetch_or(flag, Ordering::Relaxed);
    }

    /// Records that further chunks are measured only at the end, or not at all.
    pub(crate) fn unseen(&self) {
        self.flags.fetch_or(UNSEEN, Ordering::Relaxed);
    }

    fn progress(&self) -> Option<Progress> {
        let flags = self.flags.load(Ordering::Relaxed);
        if flags & ENDED != 0 {
            return None;
        }
        let (asked, several_choices) = self.context.asked();
        let streamed = match flags & (STREAM | BODY) {
            0 => asked,
            flag => Some(flag & STREAM != 0),
        };
        let who = self.context.who();
        let unmeasured_since = self
            .context
            .unmeasured_chunks
            .chunks()
            .map(|(oldest, _)| oldest);
        let now = self.now();
        let model = now.model.as_deref().map(str::to_owned);
        Some(Progress {
            id: self.id,
            received: self.received,
            route: Arc::clone(&self.stats().route),
            upstream: Arc::clone(&self.stats().upstream),
            workload: self.context.workload().cloned(),
            model: model.or_else(|| self.context.model_requested()),
            agent: who.agent,
            payer: Arc::clone(&self.context.payer),
            session: who.session,
            trace_id: who.trace_id.map(|id| format!("{id:032x}")),
            operation_class: self.context.operation.class(),
            streamed,
            several_choices,
            warm_up: flags & WARM_UP != 0,
            first: now.first,
            answered: now.tokens.answered() > 0,
            last: now.chunks[1],
            tokens: now.tokens.all(),
            unmeasured_since,
            unseen: flags & UNSEEN != 0,
        })
    }

    pub(crate) fn model(&self, model: &str) {
        let mut now = self.now();
        if now.model.as_deref() != Some(model) {
            now.model = Some(model.into());
        }
    }

    pub(crate) fn chunk(&self, at: Instant, tokens: ByChannel) {
        let mut now = self.now();
        now.tokens = tokens;
        let (first, _) = *now.first.get_or_insert((at, tokens.all()));
        now.chunks = [now.chunks[1], Some(at)];
        now.samples
            .add(at.saturating_duration_since(first), tokens.all());
    }

    pub(crate) fn repetition(&self, repetition: Repetition) {
        self.flags.fetch_or(REPEATS, Ordering::Relaxed);
        self.registry.repeating.lock().insert(self.id, repetition);
    }

    /// When the last chunk after the first tokens arrived, measured or not.
    fn last_chunk(&self) -> Option<Instant> {
        let waits = self
            .context
            .unmeasured_chunks
            .chunks()
            .map(|(_, newest)| newest);
        let last = self.now().chunks[1]?;
        Some(waits.map_or(last, |newest| newest.max(last)))
    }

    fn stalled(&self, at: Instant, threshold: Duration) -> bool {
        let last = self.last_chunk();
        last.is_some_and(|last| at.saturating_duration_since(last) > threshold)
    }

    fn snapshot(&self, at: Instant) -> StreamNow {
        let who = self.context.who();
        let asked_for = self.context.model_requested();
        let last = self.last_chunk();
        let now = self.now();
        let payer = &self.context.payer;
        let name = |name: &Option<Arc<str>>| name.as_deref().map(str::to_owned);
        let since = |instant: Instant| at.saturating_duration_since(instant).as_secs_f64();
        let gap = |pair: [Option<Instant>; 2]| Some(pair[1]?.saturating_duration_since(pair[0]?));
        StreamNow {
            id: self.id.to_string(),
            route: self.stats().route.to_string(),
            upstream: self.stats().upstream.to_string(),
            model: now.model.as_deref().map(str::to_owned).or(asked_for),
            workload: self.context.workload().map(|name| name.to_string()),
            session: who.session,
            agent: who.agent,
            team: name(&payer.team),
            cost_center: name(&payer.cost_center),
            tenant: name(&payer.tenant),
            started_at: self.started_at().into(),
            seconds: since(self.received),
            tokens: TokensNow {
                answer: now.tokens.answer,
                reasoning: now.tokens.reasoning,
                tool_call: now.tokens.tool_call,
                output: now.tokens.all(),
            },
            tps: now.speed(at),
            last_gap: gap(now.chunks).map(|gap| gap.as_secs_f64()),
            silent: last.map(since),
            repetition: self.registry.repeating.lock().get(&self.id).copied(),
            pod: None,
        }
    }
}

impl LiveState {
    /// The speed in the window that ends with the last measured chunk. If that chunk is older than
    /// a chunk may wait, the window ends at that limit.
    fn speed(&self, at: Instant) -> Option<f64> {
        let last = self.chunks[1].filter(|_| self.chunks[0].is_some())?;
        let measured = at.checked_sub(MAX_MEASURE_DELAY).unwrap_or(at);
        let end = last.max(measured);
        if last + WINDOW <= end {
            return Some(0.0);
        }
        let (first, _) = self.first?;
        let end = end.saturating_duration_since(first);
        let (since, before) = self.samples.before(end.saturating_sub(WINDOW))?;
        let elapsed = end.saturating_sub(since);
        let new = self.tokens.all().saturating_sub(before);
        (elapsed > Duration::ZERO).then(|| new as f64 / elapsed.as_secs_f64())
    }
}

/// A ring of samples of the token count, from the first chunk with tokens on.
#[derive(Debug, Default)]
struct TokenSamples {
    /// Milliseconds since the first chunk, and the token count at that time.
    all: [(u32, u32); SAMPLES],
    count: u32,
}

impl TokenSamples {
    fn add(&mut self, since: Duration, tokens: u64) {
        let sample = (
            u32::try_from(since.as_millis()).unwrap_or(u32::MAX),
            tokens.min(u64::from(u32::MAX)) as u32,
        );
        let every = SAMPLE_INTERVAL.as_millis() as u32;
        let last = self
            .count
            .checked_sub(1)
            .map(|last| self.all[last as usize % SAMPLES]);
        if last.is_none_or(|(last, _)| sample.0 - last.min(sample.0) >= every) {
            self.all[self.count as usize % SAMPLES] = sample;
            self.count += 1;
        }
    }

    /// The newest sample that is not after `at`, or the oldest sample if all are after `at`.
    fn before(&self, at: Duration) -> Option<(Duration, u64)> {
        let samples = || self.all.iter().take(self.count as usize);
        let since = |sample: &(u32, u32)| Duration::from_millis(u64::from(sample.0));
        let before = samples().filter(|sample| since(sample) <= at);
        let newest = before.max_by_key(|sample| sample.0);
        let sample = newest.or_else(|| samples().min_by_key(|sample| sample.0))?;
        Some((since(sample), u64::from(sample.1)))
    }
}

impl Drop for LiveCall {
    fn drop(&mut self) {
        self.registry.streams().remove(&self.id);
        if self.flags.load(Ordering::Relaxed) & REPEATS != 0 {
            self.registry.repeating.lock().remove(&self.id);
        }
    }
}

/// The streams in flight, sorted by id and therefore by start.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    streams: Mutex<BTreeMap<Uuid, Weak<LiveCall>>>,
    /// Streams that repeat themselves. Few do, so the others have no room for it.
    repeating: Mutex<BTreeMap<Uuid, Repetition>>,
}

impl Registry {
    fn streams(&self) -> MutexGuard<'_, BTreeMap<Uuid, Weak<LiveCall>>> {
        self.streams.lock()
    }

    /// Adds a stream. It is removed when the returned value is dropped.
    pub(crate) fn begin(
        self: &Arc<Self>,
        id: Uuid,
        context: &Arc<CallContext>,
        received: Instant,
    ) -> Arc<LiveCall> {
        let live = Arc::new(LiveCall {
            id,
            received,
            context: Arc::clone(context),
            flags: AtomicU8::new(0),
            flight: InFlight::begin(&context.route_stats),
            now: Mutex::default(),
            registry: Arc::clone(self),
        });
        let mut streams = self.streams();
        if streams.len() < MAX_LISTED {
            streams.insert(id, Arc::downgrade(&live));
        }
        live
    }

    pub(crate) fn stalled(
        &self,
        at: Instant,
        threshold: Duration,
    ) -> HashMap<(Arc<str>, Arc<str>), u32> {
        let mut stalled = HashMap::new();
        self.each(|live| {
            if live.stalled(at, threshold) {
                let stats = live.stats();
                let key = (Arc::clone(&stats.route), Arc::clone(&stats.upstream));
                *stalled.entry(key).or_default() += 1;
            }
        });
        stalled
    }

    /// For each upstream, the start of the oldest generation in flight that has not sent anything
    /// yet.
    pub(crate) fn unanswered(&self) -> HashMap<Arc<str>, Instant> {
        let mut since: HashMap<Arc<str>, Instant> = HashMap::new();
        self.each(|live| {
            let generates = live.context.operation.class() == OperationClass::Generation;
            if generates && live.now().first.is_none() {
                let oldest = since.entry(Arc::clone(&live.stats().upstream));
                let oldest = oldest.or_insert(live.received);
                *oldest = live.received.min(*oldest);
            }
        });
        since
    }

    pub(crate) fn progress(&self, mut visit: impl FnMut(Progress)) {
        self.each(|live| {
            if let Some(progress) = live.progress() {
                visit(progress);
            }
        });
    }

    /// Visits every stream. The list is locked for a few streams at a time.
    fn each(&self, mut visit: impl FnMut(&LiveCall)) {
        let mut from = Bound::Unbounded;
        loop {
            let some: Vec<_> = {
                let streams = self.streams();
                let next = streams.range((from, Bound::Unbounded)).take(LOCK_BATCH);
                next.map(|(id, live)| (*id, live.clone())).collect()
            };
            let Some((last, _)) = some.last() else {
                return;
            };
            from = Bound::Excluded(*last);
            let alive = some.iter().filter_map(|(_, live)| live.upgrade());
            alive.for_each(|live| visit(&live));
        }
    }

    pub(crate) fn snapshot(&self, at: Instant, limit: usize) -> Vec<StreamNow> {
        let mut newest = Vec::new();
        let mut before = Bound::Unbounded;
        while newest.len() < limit {
            let some: Vec<_> = {
                let streams = self.streams();
                let next = streams.range((Bound::Unbounded, before)).rev();
                let next = next.take(LOCK_BATCH.min(limit - newest.len()));
                next.map(|(id, live)| (*id, live.clone())).collect()
            };
            let Some((last, _)) = some.last() else {
                break;
            };
            before = Bound::Excluded(*last);
            let alive = some.iter().filter_map(|(_, live)| live.upgrade());
            newest.extend(alive.map(|live| live.snapshot(at)));
        }
        newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Meter;
    use crate::settings::Measure;
    use http::{HeaderMap, Method, Uri};
    use tokengauge_core::observer::CallStart;

    fn tokens(answer: u64) -> ByChannel {
        ByChannel {
            answer,
            ..ByChannel::default()
        }
    }

    fn begin(registry: &Arc<Registry>, start: Instant) -> Arc<LiveCall> {
        let meter = Meter::new(Measure::default(), Vec::new());
        begin_of(&meter, registry, start)
    }

    fn begin_of(meter: &Meter, registry: &Arc<Registry>, start: Instant) -> Arc<LiveCall> {
        let call = CallStart {
            received: start,
            started_at: SystemTime::UNIX_EPOCH,
            method: &Method::POST,
            uri: &Uri::from_static("/v1/chat/completions"),
            headers: &HeaderMap::new(),
            peer: None,
            port: None,
            route: &"r".into(),
            upstream: &"u".into(),
            dialect: None,
            workload: None,
            inject_usage: false,
            variant: None,
        };
        let context = Arc::new(CallContext::new(&meter.shared, &call));
        registry.begin(Uuid::now_v7(), &context, start)
    }

    #[test]
    fn a_stream_is_listed_while_it_runs_with_its_current_speed() {
        let registry = Arc::new(Registry::default());
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let live = begin(&registry, start);
        live.model("m");
        for chunk in 0..=25 {
            live.chunk(at(1000 + chunk * 100), tokens(chunk * 5));
        }
        let streams = registry.snapshot(at(3600), 10);
        let stream = &streams[0];
        assert_eq!((stream.tps, stream.last_gap), (Some(50.0), Some(0.1)));
        assert_eq!((stream.seconds, stream.silent), (3.6, Some(0.1)));
        assert_eq!(stream.started_at, Timestamp::default());
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
        let meter = Meter::new(Measure::default(), Vec::new());
        let lives: Vec<_> = (0..3 * LOCK_BATCH)
            .map(|_| begin_of(&meter, &registry, start))
            .collect();
        assert!(
            registry.stalled(at(9000), second).is_empty(),
            "no token yet: that is not a stall"
        );
        lives
            .iter()
            .for_each(|live| live.chunk(at(9000), tokens(1)));
        assert!(registry.stalled(at(10_000), second).is_empty());
        let stalled = registry.stalled(at(10_001), second);
        let key = (Arc::from("r"), Arc::from("u"));
        assert_eq!(stalled.get(&key), Some(&(3 * LOCK_BATCH as u32)));
        lives[0].chunk(at(10_001), tokens(2));
        let stalled = registry.stalled(at(10_002), second);
        assert_eq!(stalled.get(&key), Some(&(3 * LOCK_BATCH as u32 - 1)));
        drop(lives);
        assert!(registry.stalled(at(20_000), second).is_empty());
    }

    #[test]
    fn the_list_is_bounded_and_the_newest_come_first() {
        let registry = Arc::new(Registry::default());
        let start = Instant::now();
        let meter = Meter::new(Measure::default(), Vec::new());
        let lives: Vec<_> = (0..MAX_LISTED + 10)
            .map(|_| begin_of(&meter, &registry, start))
            .collect();
        assert_eq!(registry.snapshot(start, usize::MAX).len(), MAX_LISTED);
        let newest = registry.snapshot(start, 2);
        assert!(newest[0].id > newest[1].id);
        drop(lives);
        assert!(registry.streams().is_empty());
    }
}
