//! The scenarios: first tokens, paced streams, the same with noisy neighbours, flat out.

use crate::client::StreamStats;
use crate::neighbours::Neighbours;
use crate::peer::{Backends, Peer, RunningPeer};
use crate::process::{Cores, StealTime};
use crate::rounds::MAX_STOLEN;
use crate::wire::StreamRequest;
use anyhow::{Context, ensure};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout, timeout_at};

/// Streams that are measured with neighbours, and the microseconds between their events.
const STREAMS_WITH_NEIGHBOURS: usize = 50;
const INTERVAL_WITH_NEIGHBOURS_US: u64 = 20_000;
/// Streams of a flat-out run.
const FLAT_OUT_STREAMS: usize = 16;
/// Writes to each of them per second of the run: more than the backend can do.
const FLAT_OUT_WRITES: u32 = 20_000;
/// How long requests are made before the first that is measured.
const SETTLE: Duration = Duration::from_millis(1500);
/// How long streams run before and after the time that is measured.
const WARM_UP: Duration = Duration::from_millis(1000);
/// How long after their end streams are waited for.
const GRACE: Duration = Duration::from_secs(2);
/// After this no more first tokens are requested.
const FIRST_TOKENS_TIME: Duration = Duration::from_secs(8);

/// What a run does.
#[derive(Clone, Copy, Debug)]
pub enum Scenario {
    /// Requests one after the other over one connection.
    FirstToken { requests: usize },
    /// So many streams at once, at so many events a second each.
    Paced { streams: usize, per_second: u32 },
    /// A few streams while other agents load the same peer.
    WithNeighbours(Neighbours),
    /// Without pauses, so many events in each write of the backend.
    FlatOut { per_write: u32 },
}

/// The quantiles of the latencies that are shown.
pub const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// The results of one or more runs of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Measurement {
    /// Microseconds to the first event, or of each event, by scenario: those of [`QUANTILES`],
    /// by run.
    pub latencies: Vec<[f64; QUANTILES.len()]>,
    /// How many latencies the quantiles are of.
    pub samples: usize,
    /// Events in the time in which `seconds` and `cpu_seconds` were taken.
    pub events: u64,
    /// Events that were due in that time; 0 where they were not paced.
    pub due_events: u64,
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// Kilobytes resident before the streams and per stream while they are open, by run.
    pub idle_kb: Vec<f64>,
    pub kb_per_stream: Vec<f64>,
    /// Kilobytes resident in the middle, by run.
    pub busy_kb: Vec<f64>,
    /// Streams that were open in the middle, by run.
    pub open: Vec<f64>,
    /// Tokens that tokengauge counted, and frames it skipped, by its metrics.
    pub counted: f64,
    pub lagged: f64,
    /// The share of a core that a hypervisor gave to others, in the worst run.
    pub stolen: f64,
    /// Runs that lost more than [`MAX_STOLEN`].
    pub disturbed: u32,
    /// Runs that are included, and all that were made.
    pub runs: u32,
    pub tries: u32,
    /// Streams that failed, and the error of the first.
    pub failed: u64,
    pub error: Option<String>,
}

impl Measurement {
    /// Notes the latencies of a run, in nanoseconds.
    fn note(&mut self, mut nanoseconds: Vec<u64>) {
        self.samples = nanoseconds.len();
        nanoseconds.sort_unstable();
        let Some(last) = nanoseconds.len().checked_sub(1) else {
            return;
        };
        self.latencies.push(QUANTILES.map(|share| {
            let rank = (nanoseconds.len() as f64 * share) as usize;
            nanoseconds[rank.min(last)] as f64 / 1000.0
        }));
    }

    /// Adds another run of the same scenario and peer.
    pub fn add(&mut self, other: Measurement) {
        self.latencies.extend(other.latencies);
        self.samples += other.samples;
        self.events += other.events;
        self.due_events += other.due_events;
        self.seconds += other.seconds;
        self.cpu_seconds += other.cpu_seconds;
        self.idle_kb.extend(other.idle_kb);
        self.kb_per_stream.extend(other.kb_per_stream);
        self.busy_kb.extend(other.busy_kb);
        self.open.extend(other.open);
        self.counted += other.counted;
        self.lagged += other.lagged;
        self.stolen = self.stolen.max(other.stolen);
        self.disturbed += other.disturbed;
        self.runs += other.runs;
        self.tries += other.tries;
        self.failed += other.failed;
        self.error = self.error.take().or(other.error);
    }
}

/// The backends, and the cores.
#[derive(Clone, Copy)]
pub struct Environment {
    pub backends: Backends,
    pub cores: Cores,
}

/// Runs a scenario once through a fresh peer, for `length` where it has none of its own.
pub fn run(
    scenario: Scenario,
    peer: Peer,
    environment: Environment,
    length: Duration,
) -> anyhow::Result<Measurement> {
    let limit = Duration::from_secs(30) + length * 2;
    with_peer(peer, environment, limit, async |running| {
        measure(scenario, running, environment.cores, length).await
    })
}

/// Calls `what` with a peer that has just been started, within a time limit.
pub fn with_peer<T>(
    peer: Peer,
    environment: Environment,
    limit: Duration,
    what: impl AsyncFnOnce(&RunningPeer) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let running = peer.start(environment.backends, environment.cores)?;
    LocalSet::new().block_on(&runtime, async {
        let done = timeout(limit, what(&running)).await;
        done.with_context(|| format!("given up after {limit:?}"))?
    })
}

async fn measure(
    scenario: Scenario,
    running: &RunningPeer,
    cores: Cores,
    length: Duration,
) -> anyhow::Result<Measurement> {
    let mut found = match scenario {
        Scenario::FirstToken { requests } => first_tokens(running, cores, requests).await?,
        Scenario::Paced {
            streams,
            per_second,
        } => {
            let request = paced(1_000_000 / u64::from(per_second), length);
            streams_at_once(running, cores, streams, request, length).await?
        }
        Scenario::WithNeighbours(neighbours) => {
            let mut greedy = neighbours.start(running.greedy(), cores)?;
            let request = paced(INTERVAL_WITH_NEIGHBOURS_US, length);
            let found =
                streams_at_once(running, cores, STREAMS_WITH_NEIGHBOURS, request, length).await?;
            ensure!(!greedy.ended(), "the neighbours' process ended: see above");
            found
        }
        Scenario::FlatOut { per_write } => {
            let request = StreamRequest {
                events: FLAT_OUT_WRITES * per_write * length.as_secs().max(1) as u32,
                per_write,
                ..StreamRequest::default()
            };
            streams_at_once(running, cores, FLAT_OUT_STREAMS, request, length).await?
        }
    };
    let metric = async |name| anyhow::Ok(running.metric(name).await?.unwrap_or(0.0));
    (found.runs, found.tries) = (1, 1);
    found.disturbed = u32::from(found.stolen > MAX_STOLEN);
    found.counted = metric("tokengauge_tokens_total").await?;
    found.lagged = metric("tokengauge_meter_lagged_frames_total").await?;
    Ok(found)
}

/// A stream that runs from before to after the time that is measured.
fn paced(interval_us: u64, length: Duration) -> StreamRequest {
    let time = (WARM_UP * 2 + length).as_micros() as u64;
    StreamRequest {
        events: (time / interval_us) as u32,
        interval_us,
        per_write: 1,
        ..StreamRequest::default()
    }
}

async fn first_tokens(
    running: &RunningPeer,
    cores: Cores,
    requests: usize,
) -> anyhow::Result<Measurement> {
    let stats = StreamStats::default();
    let mut connection = running.connect().await?;
    let request = StreamRequest {
        events: 2,
        ..StreamRequest::default()
    };
    // Connections to the backend are open then, as in a proxy that has run for a while.
    let start = Instant::now();
    while start.elapsed() < SETTLE {
        connection.stream(request, &stats).await?;
        sleep(Duration::from_millis(5)).await;
    }
    let (mut latencies, start) = (Vec::new(), Instant::now());
    let steal_time = StealTime::watch(cores);
    while latencies.len() < requests && start.elapsed() < FIRST_TOKENS_TIME {
        latencies.push(connection.stream(request, &stats).await?);
    }
    let mut found = Measurement {
        stolen: steal_time.share(),
        ..Measurement::default()
    };
    found.note(latencies);
    Ok(found)
}

async fn streams_at_once(
    running: &RunningPeer,
    cores: Cores,
    streams: usize,
    request: StreamRequest,
    length: Duration,
) -> anyhow::Result<Measurement> {
    let paced = request.interval_us > 0;
    let mut found = Measurement::default();
    warm(running).await?;
    let idle = running.resident_kb()?;
    let stats = Rc::new(StreamStats::default());
    let mut under_way = open_streams(running, streams, request, &stats).await?;
    sleep(WARM_UP).await;

    let steal_time = StealTime::watch(cores);
    let (start, cpu, events) = (
        Instant::now(),
        running.cpu_nanoseconds()?,
        stats.events.get(),
    );
    stats.recording.set(paced);
    sleep(length / 2).await;
    let (open, busy) = (stats.open.get(), running.resident_kb()?);
    sleep(length / 2).await;
    stats.recording.set(false);
    found.seconds = start.elapsed().as_secs_f64();
    found.stolen = steal_time.share();
    found.cpu_seconds = running.cpu_nanoseconds()?.saturating_sub(cpu) as f64 / 1e9;
    found.events = stats.events.get() - events;
    found.note(stats.latencies.take());
    found.open.push(open as f64);
    found.idle_kb.push(idle);
    found.busy_kb.push(busy);
    found.kb_per_stream.push((busy - idle) / open.max(1) as f64);

    // Flat out ends with the time; paced streams run to their end, where they are checked.
    if paced {
        let asked = streams as f64 * found.seconds * 1e6 / request.interval_us as f64;
        found.due_events = asked as u64;
        await_ends(&mut under_way, &mut found, WARM_UP + GRACE).await?;
    } else {
        await_ends(&mut under_way, &mut found, Duration::ZERO).await?;
    }
    Ok(found)
}

/// Waits up to `limit` for streams to end, and counts those that failed. What those that did
/// not end are missing is in the table's column `delivered %`.
async fn await_ends(
    under_way: &mut JoinSet<anyhow::Result<u64>>,
    found: &mut Measurement,
    limit: Duration,
) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + limit;
    while let Ok(Some(ended)) = timeout_at(deadline, under_way.join_next()).await {
        if let Err(error) = ended? {
            found.failed += 1;
            found.error.get_or_insert_with(|| format!("{error:#}"));
        }
    }
    Ok(())
}

async fn open_streams(
    running: &RunningPeer,
    streams: usize,
    request: StreamRequest,
    stats: &Rc<StreamStats>,
) -> anyhow::Result<JoinSet<anyhow::Result<u64>>> {
    let mut under_way = JoinSet::new();
    for number in 0..streams as u64 {
        let stats = stats.clone();
        let phase_us = request.interval_us * number / streams as u64;
        let mut connection = running.connect().await?;
        under_way.spawn_local(async move {
            let request = StreamRequest {
                phase_us,
                ..request
            };
            connection.stream(request, &stats).await
        });
    }
    Ok(under_way)
}

/// A few short streams, so that what is allocated once is there before memory is measured.
pub async fn warm(running: &RunningPeer) -> anyhow::Result<()> {
    let stats = StreamStats::default();
    let mut connection = running.connect().await?;
    let request = StreamRequest {
        events: 100,
        ..StreamRequest::default()
    };
    for _ in 0..10 {
        connection.stream(request, &stats).await?;
    }
    Ok(())
}
