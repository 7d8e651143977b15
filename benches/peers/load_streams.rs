//! Streams at a constant pace, and as fast as possible.

use crate::agents::{Agent, Call};
use crate::client::StreamStats;
use crate::neighbours::Neighbours;
use crate::results::RunResult;
use crate::run::{Run, UnderWay, await_ends, settling};
use crate::scenario::Pace;
use crate::wire::StreamRequest;
use anyhow::ensure;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;

const STREAMS_PER_CONNECTION: usize = 10;
/// The measured streams next to noisy neighbours and scrapes.
pub const QUIET: Pace = Pace {
    streams: 50,
    per_second: 50,
    per_call: None,
};
/// Events of each flat-out stream per second of the run, more than any backend can send.
const FLAT_OUT_EVENTS: u32 = 960_000;
/// Time after which streams that should have ended are abandoned.
const GRACE: Duration = Duration::from_secs(2);

/// Streams with this number of events per second.
pub async fn paced(run: &Run<'_>, pace: Pace) -> anyhow::Result<RunResult> {
    let interval_us = 1_000_000 / u64::from(pace.per_second);
    let (under_way, patience) = match pace.per_call {
        None => (
            one_call_each(run, pace).await?,
            settling(pace.streams) + GRACE,
        ),
        Some(events) => (calls_in_a_row(run, pace, events).await?, Duration::ZERO),
    };
    let mut result = run.measure(pace.streams).await?;
    result.asked = (pace.streams as f64 * result.seconds * 1e6 / interval_us as f64) as u64;
    // Streams of one call run to their end, because their ends are checked.
    await_ends(under_way, &mut result, patience).await?;
    Ok(result)
}

/// Streams that last longer than the measured time.
async fn one_call_each(run: &Run<'_>, pace: Pace) -> anyhow::Result<UnderWay> {
    let interval_us = 1_000_000 / u64::from(pace.per_second);
    let time = settling(pace.streams) * 2 + run.environment.length;
    let time = time.as_micros() as u64;
    let call = |number: usize| {
        run.running.call(StreamRequest {
            events: (time / interval_us) as u32,
            interval_us,
            phase_us: interval_us * number as u64 / pace.streams as u64,
            per_write: 1,
            model: run.model(number),
            ..StreamRequest::default()
        })
    };
    spawn_once(run, pace.streams, call).await
}

pub async fn spawn_once(
    run: &Run<'_>,
    streams: usize,
    call: impl Fn(usize) -> Call,
) -> anyhow::Result<UnderWay> {
    let mut under_way = JoinSet::new();
    let agents = run.running.agents(streams, STREAMS_PER_CONNECTION).await?;
    for (number, mut agent) in (0..).zip(agents) {
        let (call, stats) = (call(number), Rc::clone(&run.stats));
        under_way.spawn_local(async move { agent.call(&call, &stats).await.map(drop) });
    }
    Ok(under_way)
}

/// Starts agents that make calls of `events` events one after the other. The first calls have different lengths, so
/// that ends are evenly distributed.
async fn calls_in_a_row(run: &Run<'_>, pace: Pace, events: u32) -> anyhow::Result<UnderWay> {
    let interval_us = 1_000_000 / u64::from(pace.per_second);
    let mut under_way = JoinSet::new();
    let agents = run
        .running
        .agents(pace.streams, STREAMS_PER_CONNECTION)
        .await?;
    for (number, agent) in (0..).zip(agents) {
        let share = number as f64 / pace.streams as f64;
        let spec = StreamRequest {
            events,
            interval_us,
            phase_us: interval_us,
            per_write: 1,
            model: run.model(number),
            ..StreamRequest::default()
        };
        let first = StreamRequest {
            events: 1 + (f64::from(events - 1) * share) as u32,
            phase_us: (interval_us as f64 * share) as u64,
            ..spec
        };
        let calls = (run.running.call(first), run.running.call(spec));
        under_way.spawn_local(repeat(agent, calls, Rc::clone(&run.stats)));
    }
    Ok(under_way)
}

async fn repeat(
    mut agent: Agent,
    (first, others): (Call, Call),
    stats: Rc<StreamStats>,
) -> anyhow::Result<()> {
    agent.call(&first, &stats).await?;
    loop {
        agent.call(&others, &stats).await?;
    }
}

/// Streams as fast as possible. Latencies are meaningful only with one event per write, because events of one write
/// share a timestamp.
pub async fn flat_out(run: &Run<'_>, streams: usize, per_write: u32) -> anyhow::Result<RunResult> {
    let seconds = run.environment.length.as_secs().max(1) as u32;
    let call = run.running.call(StreamRequest {
        events: FLAT_OUT_EVENTS * seconds,
        per_write,
        ..StreamRequest::default()
    });
    let under_way = spawn_once(run, streams, |_| call.clone()).await?;
    let mut result = run.measure(streams).await?;
    if per_write > 1 {
        result.chunk = None;
    }
    await_ends(under_way, &mut result, Duration::ZERO).await?;
    Ok(result)
}

pub async fn next_to(run: &Run<'_>, neighbours: Neighbours) -> anyhow::Result<RunResult> {
    let mut noisy = neighbours.start(run.running.noisy(), run.cores)?;
    let result = paced(run, QUIET).await?;
    ensure!(!noisy.ended(), "the noisy neighbours ended: see above");
    Ok(result)
}
