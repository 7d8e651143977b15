//! The scenarios: first tokens, paced streams, the same beside trouble, flat out.

use crate::beside::Trouble;
use crate::client::Board;
use crate::peer::{Backends, Peer, Running};
use crate::process::{Cores, Theft};
use crate::rounds::MAY_BE_STOLEN;
use crate::wire::Ask;
use anyhow::{Context, ensure};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout, timeout_at};

/// Streams beside trouble, and between two events of each.
const STREAMS_BESIDE: usize = 50;
const INTERVAL_BESIDE_US: u64 = 20_000;
/// Streams of a flat-out run.
const FLAT_OUT_STREAMS: usize = 16;
/// Writes to each of them per second of the run: more than any backend manages.
const FLAT_OUT_WRITES: u32 = 20_000;
/// Requests one after the other, before those that are noted.
const SETTLE: Duration = Duration::from_millis(1500);
/// Streams settle before anything is noted.
const WARM_UP: Duration = Duration::from_millis(1000);
/// After which streams that should have ended are given up.
const GRACE: Duration = Duration::from_secs(2);
/// After which no more first tokens are asked for.
const FIRST_TOKENS_TIME: Duration = Duration::from_secs(8);

/// What one scenario asks.
#[derive(Clone, Copy, Debug)]
pub enum Scenario {
    /// Requests one after the other over one connection.
    FirstToken { requests: usize },
    /// So many streams at once, at so many events a second each.
    Paced { streams: usize, per_second: u32 },
    /// A few streams beside agents and backends that ask too much.
    Beside(Trouble),
    /// As fast as it goes, so many events in each write of the backend.
    FlatOut { per_write: u32 },
}

/// The shares of the latencies that are shown.
pub const SHARES: [f64; 3] = [0.5, 0.99, 0.999];

/// What one run of a scenario found; runs add up.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Microseconds to the first event, or of each event, by scenario: those of [`SHARES`],
    /// by run.
    pub latencies: Vec<[f64; SHARES.len()]>,
    /// Latencies that these are of.
    pub noted: usize,
    /// Events in the time in which `seconds` and `cpu_seconds` were taken.
    pub events: u64,
    /// Events that were due in that time; 0 where they were not paced.
    pub asked: u64,
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// Kilobytes resident before the streams and per stream while they are open, by run.
    pub idle_kb: Vec<f64>,
    pub kb_per_stream: Vec<f64>,
    /// Kilobytes resident in the middle, by run.
    pub busy_kb: Vec<f64>,
    /// Streams that were open in the middle, by run.
    pub open: Vec<f64>,
    /// Tokens that tokengauge says it counted, and frames it skipped.
    pub counted: f64,
    pub lagged: f64,
    /// The share that a hypervisor took of a core in that time, of the worst run.
    pub stolen: f64,
    /// Runs that lost more than they may.
    pub disturbed: u32,
    /// Runs that are in it, and those that were made for it.
    pub runs: u32,
    pub tries: u32,
    /// Streams that failed, and why the first of them did.
    pub failed: u64,
    pub why: Option<String>,
}

impl Found {
    /// Notes the latencies of a run, in nanoseconds.
    fn note(&mut self, mut nanoseconds: Vec<u64>) {
        self.noted = nanoseconds.len();
        nanoseconds.sort_unstable();
        let Some(last) = nanoseconds.len().checked_sub(1) else {
            return;
        };
        self.latencies.push(SHARES.map(|share| {
            let rank = (nanoseconds.len() as f64 * share) as usize;
            nanoseconds[rank.min(last)] as f64 / 1000.0
        }));
    }

    /// Adds another run of the same.
    pub fn add(&mut self, other: Found) {
        self.latencies.extend(other.latencies);
        self.noted += other.noted;
        self.events += other.events;
        self.asked += other.asked;
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
        self.why = self.why.take().or(other.why);
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
) -> anyhow::Result<Found> {
    let limit = Duration::from_secs(30) + length * 2;
    with_peer(peer, environment, limit, async |running| {
        measure(scenario, running, environment.cores, length).await
    })
}

/// Does something with a fresh peer, within a time limit.
pub fn with_peer<T>(
    peer: Peer,
    environment: Environment,
    limit: Duration,
    what: impl AsyncFnOnce(&Running) -> anyhow::Result<T>,
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
    running: &Running,
    cores: Cores,
    length: Duration,
) -> anyhow::Result<Found> {
    let mut found = match scenario {
        Scenario::FirstToken { requests } => first_tokens(running, cores, requests).await?,
        Scenario::Paced {
            streams,
            per_second,
        } => {
            let ask = paced(1_000_000 / u64::from(per_second), length);
            streams_at_once(running, cores, streams, ask, length).await?
        }
        Scenario::Beside(trouble) => {
            let mut greedy = trouble.begin(running.greedy(), cores)?;
            let ask = paced(INTERVAL_BESIDE_US, length);
            let found = streams_at_once(running, cores, STREAMS_BESIDE, ask, length).await?;
            ensure!(
                !greedy.ended(),
                "what was beside the streams ended: see above"
            );
            found
        }
        Scenario::FlatOut { per_write } => {
            let ask = Ask {
                events: FLAT_OUT_WRITES * per_write * length.as_secs().max(1) as u32,
                per_write,
                ..Ask::default()
            };
            streams_at_once(running, cores, FLAT_OUT_STREAMS, ask, length).await?
        }
    };
    let metric = async |name| anyhow::Ok(running.metric(name).await?.unwrap_or(0.0));
    (found.runs, found.tries) = (1, 1);
    found.disturbed = u32::from(found.stolen > MAY_BE_STOLEN);
    found.counted = metric("tokengauge_tokens_total").await?;
    found.lagged = metric("tokengauge_meter_lagged_frames_total").await?;
    Ok(found)
}

/// A stream that goes on before and after the time that is looked at.
fn paced(interval_us: u64, length: Duration) -> Ask {
    let time = (WARM_UP * 2 + length).as_micros() as u64;
    Ask {
        events: (time / interval_us) as u32,
        interval_us,
        per_write: 1,
        ..Ask::default()
    }
}

async fn first_tokens(running: &Running, cores: Cores, requests: usize) -> anyhow::Result<Found> {
    let board = Board::default();
    let mut connection = running.connect().await?;
    let ask = Ask {
        events: 2,
        ..Ask::default()
    };
    // Connections are made and trusted, as in a proxy that has run for a while.
    let start = Instant::now();
    while start.elapsed() < SETTLE {
        connection.stream(ask, &board).await?;
        sleep(Duration::from_millis(5)).await;
    }
    let (mut latencies, start) = (Vec::new(), Instant::now());
    let theft = Theft::watch(cores);
    while latencies.len() < requests && start.elapsed() < FIRST_TOKENS_TIME {
        latencies.push(connection.stream(ask, &board).await?);
    }
    let mut found = Found {
        stolen: theft.share(),
        ..Found::default()
    };
    found.note(latencies);
    Ok(found)
}

async fn streams_at_once(
    running: &Running,
    cores: Cores,
    streams: usize,
    ask: Ask,
    length: Duration,
) -> anyhow::Result<Found> {
    let paced = ask.interval_us > 0;
    let mut found = Found::default();
    warm(running).await?;
    let idle = running.resident_kb()?;
    let board = Rc::new(Board::default());
    let mut under_way = open_streams(running, streams, ask, &board).await?;
    sleep(WARM_UP).await;

    let theft = Theft::watch(cores);
    let (start, cpu, events) = (
        Instant::now(),
        running.cpu_nanoseconds()?,
        board.events.get(),
    );
    board.noting.set(paced);
    sleep(length / 2).await;
    let (open, busy) = (board.open.get(), running.resident_kb()?);
    sleep(length / 2).await;
    board.noting.set(false);
    found.seconds = start.elapsed().as_secs_f64();
    found.stolen = theft.share();
    found.cpu_seconds = running.cpu_nanoseconds()?.saturating_sub(cpu) as f64 / 1e9;
    found.events = board.events.get() - events;
    found.note(board.latencies.take());
    found.open.push(open as f64);
    found.idle_kb.push(idle);
    found.busy_kb.push(busy);
    found.kb_per_stream.push((busy - idle) / open.max(1) as f64);

    // Flat out is over when its time is; paced streams run to their end, which checks them.
    if paced {
        let asked = streams as f64 * found.seconds * 1e6 / ask.interval_us as f64;
        found.asked = asked as u64;
        await_ends(&mut under_way, &mut found, WARM_UP + GRACE).await?;
    } else {
        await_ends(&mut under_way, &mut found, Duration::ZERO).await?;
    }
    Ok(found)
}

/// Waits so long for streams, and notes which of them failed. The table shows how much
/// of the others did not come.
async fn await_ends(
    under_way: &mut JoinSet<anyhow::Result<u64>>,
    found: &mut Found,
    patience: Duration,
) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + patience;
    while let Ok(Some(ended)) = timeout_at(deadline, under_way.join_next()).await {
        if let Err(error) = ended? {
            found.failed += 1;
            found.why.get_or_insert_with(|| format!("{error:#}"));
        }
    }
    Ok(())
}

async fn open_streams(
    running: &Running,
    streams: usize,
    ask: Ask,
    board: &Rc<Board>,
) -> anyhow::Result<JoinSet<anyhow::Result<u64>>> {
    let mut under_way = JoinSet::new();
    for number in 0..streams as u64 {
        let board = board.clone();
        let phase_us = ask.interval_us * number / streams as u64;
        let mut connection = running.connect().await?;
        under_way.spawn_local(async move {
            let ask = Ask { phase_us, ..ask };
            connection.stream(ask, &board).await
        });
    }
    Ok(under_way)
}

/// A few short streams, so that what is made once is there before memory is looked at.
pub async fn warm(running: &Running) -> anyhow::Result<()> {
    let board = Board::default();
    let mut connection = running.connect().await?;
    let ask = Ask {
        events: 100,
        ..Ask::default()
    };
    for _ in 0..10 {
        connection.stream(ask, &board).await?;
    }
    Ok(())
}
