//! The scenarios: first tokens, paced streams, flat out.

use crate::client::{Board, Connection};
use crate::peer::{Peer, Running};
use crate::process::Cores;
use crate::wire::Ask;
use anyhow::Context;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::sleep;

/// Streams of a flat-out run.
const FLAT_OUT_STREAMS: usize = 16;
/// Writes to each of them per second of the run: more than any backend manages.
const FLAT_OUT_WRITES: u32 = 20_000;
/// Streams settle before anything is noted.
const WARM_UP: Duration = Duration::from_millis(1000);

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
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// Kilobytes resident before the streams and per stream while they are open, by run.
    pub idle_kb: Vec<f64>,
    pub kb_per_stream: Vec<f64>,
    /// Tokens that tokengauge says it counted, and frames it skipped.
    pub counted: f64,
    pub lagged: f64,
}

impl Found {
    /// Adds another run of the same.
    pub fn add(&mut self, other: Found) {
        self.latencies.extend(other.latencies);
        self.events += other.events;
        self.seconds += other.seconds;
        self.cpu_seconds += other.cpu_seconds;
        self.idle_kb.extend(other.idle_kb);
        self.kb_per_stream.extend(other.kb_per_stream);
        self.counted += other.counted;
        self.lagged += other.lagged;
    }
}

/// Runs a scenario once through a fresh peer, for `length` where it has none of its own.
pub fn run(
    scenario: Scenario,
    peer: Peer,
    backend: SocketAddr,
    cores: Cores,
    length: Duration,
) -> anyhow::Result<Found> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let running = peer.start(backend, cores)?;
    LocalSet::new()
        .block_on(&runtime, measure(scenario, &running, length))
        .with_context(|| format!("{scenario:?} through {peer}"))
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
    let mut connection = Connection::open(running.address).await?;
    let ask = Ask {
        events: 2,
        ..Ask::default()
    };
    for _ in 0..requests / 10 {
        connection.stream(ask, &board).await?;
    }
    let mut found = Found::default();
    for _ in 0..requests {
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
    let mut found = Found::default();
    warm(running).await?;
    let idle = resident(running)?;
    let board = Rc::new(Board::default());
    let mut under_way = open_streams(running.address, streams, ask, &board);
    sleep(WARM_UP).await;

    let (start, cpu, events) = (Instant::now(), cpu_seconds(running)?, board.events.get());
    board.noting.set(true);
    sleep(length / 2).await;
    let (open, busy) = (board.open.get(), resident(running)?);
    sleep(length / 2).await;
    board.noting.set(false);
    found.seconds = start.elapsed().as_secs_f64();
    found.cpu_seconds = cpu_seconds(running)? - cpu;
    found.events = board.events.get() - events;
    found.latencies = board.latencies.take();
    found.idle_kb.push(idle);
    found.kb_per_stream.push((busy - idle) / open.max(1) as f64);

    // Flat out is over when its time is; paced streams run to their end, which checks them.
    if ask.interval_us > 0 {
        while let Some(ended) = under_way.join_next().await {
            ended??;
        }
    }
    Ok(found)
}

fn open_streams(
    address: SocketAddr,
    streams: usize,
    ask: Ask,
    board: &Rc<Board>,
) -> JoinSet<anyhow::Result<u64>> {
    let mut under_way = JoinSet::new();
    for number in 0..streams as u64 {
        let board = board.clone();
        let phase_us = ask.interval_us * number / streams as u64;
        under_way.spawn_local(async move {
            let mut connection = Connection::open(address).await?;
            connection.stream(Ask { phase_us, ..ask }, &board).await
        });
    }
    under_way
}

/// A few short streams, so that what is made once is there before memory is looked at.
async fn warm(running: &Running) -> anyhow::Result<()> {
    let board = Board::default();
    let mut connection = Connection::open(running.address).await?;
    for _ in 0..10 {
        connection
            .stream(
                Ask {
                    events: 100,
                    ..Ask::default()
                },
                &board,
            )
            .await?;
    }
    Ok(())
}

fn resident(running: &Running) -> anyhow::Result<f64> {
    running
        .processes
        .as_ref()
        .map_or(Ok(0.0), |processes| processes.resident_kb())
}

fn cpu_seconds(running: &Running) -> anyhow::Result<f64> {
    running
        .processes
        .as_ref()
        .map_or(Ok(0.0), |processes| processes.cpu_seconds())
}
