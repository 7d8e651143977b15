//! The scenarios: first tokens, paced streams, flat out.

use crate::client::Board;
use crate::peer::{Peer, Running};
use crate::process::Cores;
use crate::wire::Ask;
use anyhow::Context;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout, timeout_at};

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
    /// As fast as it goes, so many events in each write of the backend.
    FlatOut { per_write: u32 },
}

/// What one run of a scenario found; runs add up.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Nanoseconds: to the first event, or of each event, by scenario.
    pub latencies: Vec<u64>,
    /// Events in the time in which `seconds` and `cpu_seconds` were taken.
    pub events: u64,
    /// Events that were due in that time; 0 where they were not paced.
    pub asked: u64,
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// Kilobytes resident before the streams and per stream while they are open, by run.
    pub idle_kb: Vec<f64>,
    pub kb_per_stream: Vec<f64>,
    /// Streams that were open in the middle, by run.
    pub open: Vec<f64>,
    /// Tokens that tokengauge says it counted, and frames it skipped.
    pub counted: f64,
    pub lagged: f64,
    /// Streams that failed, and why the first of them did.
    pub failed: u64,
    pub why: Option<String>,
}

impl Found {
    /// Adds another run of the same.
    pub fn add(&mut self, other: Found) {
        self.latencies.extend(other.latencies);
        self.events += other.events;
        self.asked += other.asked;
        self.seconds += other.seconds;
        self.cpu_seconds += other.cpu_seconds;
        self.idle_kb.extend(other.idle_kb);
        self.kb_per_stream.extend(other.kb_per_stream);
        self.open.extend(other.open);
        self.counted += other.counted;
        self.lagged += other.lagged;
        self.failed += other.failed;
        self.why = self.why.take().or(other.why);
    }
}

/// The backend, and the cores.
#[derive(Clone, Copy)]
pub struct Place {
    pub backend: SocketAddr,
    pub cores: Cores,
}

/// Runs a scenario once through a fresh peer, for `length` where it has none of its own.
pub fn run(
    scenario: Scenario,
    peer: Peer,
    place: Place,
    length: Duration,
) -> anyhow::Result<Found> {
    let limit = Duration::from_secs(30) + length * 2;
    with_peer(peer, place, limit, async |running| {
        measure(scenario, running, length).await
    })
}

/// Does something with a fresh peer, within a time limit.
pub fn with_peer<T>(
    peer: Peer,
    place: Place,
    limit: Duration,
    what: impl AsyncFnOnce(&Running) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let running = peer.start(place.backend, place.cores)?;
    LocalSet::new().block_on(&runtime, async {
        let done = timeout(limit, what(&running)).await;
        done.with_context(|| format!("given up after {limit:?}"))?
    })
}

async fn measure(scenario: Scenario, running: &Running, length: Duration) -> anyhow::Result<Found> {
    let mut found = match scenario {
        Scenario::FirstToken { requests } => first_tokens(running, requests).await?,
        Scenario::Paced {
            streams,
            per_second,
        } => {
            let seconds = (WARM_UP * 2 + length).as_secs_f64();
            let ask = Ask {
                events: (seconds * f64::from(per_second)) as u32,
                interval_us: 1_000_000 / u64::from(per_second),
                phase_us: 0,
                per_write: 1,
            };
            streams_at_once(running, streams, ask, length).await?
        }
        Scenario::FlatOut { per_write } => {
            let ask = Ask {
                events: FLAT_OUT_WRITES * per_write * length.as_secs().max(1) as u32,
                per_write,
                ..Ask::default()
            };
            streams_at_once(running, FLAT_OUT_STREAMS, ask, length).await?
        }
    };
    let metric = async |name| anyhow::Ok(running.metric(name).await?.unwrap_or(0.0));
    found.counted = metric("tokengauge_tokens_total").await?;
    found.lagged = metric("tokengauge_meter_lagged_frames_total").await?;
    Ok(found)
}

async fn first_tokens(running: &Running, requests: usize) -> anyhow::Result<Found> {
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
    let (mut found, start) = (Found::default(), Instant::now());
    while found.latencies.len() < requests && start.elapsed() < FIRST_TOKENS_TIME {
        found.latencies.push(connection.stream(ask, &board).await?);
    }
    Ok(found)
}

async fn streams_at_once(
    running: &Running,
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
    found.cpu_seconds = running.cpu_nanoseconds()?.saturating_sub(cpu) as f64 / 1e9;
    found.events = board.events.get() - events;
    found.latencies = board.latencies.take();
    found.open.push(open as f64);
    found.idle_kb.push(idle);
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
