//! One run of a scenario: a new peer, a load, and the measured seconds.

use crate::client::StreamStats;
use crate::cores::Cores;
use crate::environment::Environment;
use crate::loads;
use crate::peer::{Peer, RunningPeer};
use crate::profile::Profile;
use crate::results::{RunResult, percentiles};
use crate::scenario::{Scenario, Setup};
use crate::steal::StealTime;
use crate::wire::StreamRequest;
use anyhow::Context;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout, timeout_at};

/// Time for a load to settle before the measurement.
const WARM_UP: Duration = Duration::from_millis(1000);
/// Time to open a stream while a peer has others.
const OPENING: Duration = Duration::from_micros(1000);

pub fn settling(streams: usize) -> Duration {
    WARM_UP + OPENING * streams as u32
}

pub fn run(
    scenario: &Scenario,
    peer: Peer,
    environment: &Environment,
) -> anyhow::Result<RunResult> {
    let profiling = Duration::from_secs(if environment.profile { 300 } else { 0 });
    let limit = Duration::from_secs(60) + environment.length * 2 + profiling;
    with_peer(peer, &scenario.setup, environment, limit, async |running| {
        warm(running, scenario.models).await?;
        let run = Run {
            scenario,
            running,
            environment,
            cores: Cores::choose(scenario.setup.workers)?,
            idle_kb: running.resident_kb()?,
            stats: Rc::default(),
        };
        let mut result = loads::run(&run).await?;
        let metric = async |name| anyhow::Ok(running.metric(name).await?.unwrap_or(0.0));
        result.tries = 1;
        result.counted = metric("tokengauge_tokens_total").await?;
        result.lagged = metric("tokengauge_meter_lagged_frames_total").await?;
        Ok(result)
    })
}

/// Calls a function with a new peer, within a time limit.
pub fn with_peer<T>(
    peer: Peer,
    setup: &Setup,
    environment: &Environment,
    limit: Duration,
    what: impl AsyncFnOnce(&RunningPeer) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let cores = Cores::choose(setup.workers)?;
    let running = peer.start(&environment.backends, setup, cores)?;
    LocalSet::new().block_on(&runtime, async {
        let done = timeout(limit, what(&running)).await;
        done.with_context(|| format!("given up after {limit:?}"))?
    })
}

/// Runs a few short streams of each model, so that lazily created state exists before memory is read.
pub async fn warm(running: &RunningPeer, models: u32) -> anyhow::Result<()> {
    let stats = StreamStats::default();
    let mut agents = running.agents(1, 1).await?;
    let agent = agents.first_mut().context("no agent")?;
    let call = |events, model| {
        running.call(StreamRequest {
            events,
            model,
            ..StreamRequest::default()
        })
    };
    let usual = call(100, 0);
    for _ in 0..10 {
        agent.call(&usual, &stats).await?;
    }
    if models > 1 {
        for model in 1..=models {
            agent.call(&call(2, model), &stats).await?;
        }
    }
    Ok(())
}

pub struct Run<'a> {
    pub scenario: &'a Scenario,
    pub running: &'a RunningPeer,
    pub environment: &'a Environment,
    pub cores: Cores,
    /// Kilobytes resident before there are streams.
    pub idle_kb: f64,
    pub stats: Rc<StreamStats>,
}

pub type UnderWay = JoinSet<anyhow::Result<()>>;

impl Run<'_> {
    /// The model of an agent; 0 is the default one.
    pub fn model(&self, agent: usize) -> u32 {
        match self.scenario.models {
            0 | 1 => 0,
            models => agent as u32 % models + 1,
        }
    }

    /// Waits until `streams` running streams have settled, and measures them for the length of a run.
    pub async fn measure(&self, streams: usize) -> anyhow::Result<RunResult> {
        sleep(settling(streams)).await;
        let length = self.environment.length;
        self.measure_while(async |run: &Run<'_>| {
            sleep(length / 2).await;
            let middle = (run.stats.open.get(), run.running.resident_kb()?);
            sleep(length / 2).await;
            Ok(middle)
        })
        .await
    }

    /// Measures running streams during `what`, which returns the number of streams open in its middle and the resident
    /// kilobytes.
    pub async fn measure_while(
        &self,
        what: impl AsyncFnOnce(&Run<'_>) -> anyhow::Result<(usize, f64)>,
    ) -> anyhow::Result<RunResult> {
        let Run { running, stats, .. } = self;
        let profile = self.start_profile()?;
        let steal = StealTime::watch(self.cores);
        let count = || (stats.events.get(), stats.bytes.get(), stats.calls.get());
        let (events, bytes, calls) = count();
        let (start, cpu) = (Instant::now(), running.cpu_nanoseconds()?);
        stats.noting.set(true);
        let (open, busy_kb) = what(self).await?;
        stats.noting.set(false);
        let used = running.cpu_nanoseconds()?.saturating_sub(cpu);
        let has_process = running.peer() != Peer::Direct;
        let result = RunResult {
            seconds: start.elapsed().as_secs_f64(),
            stolen: steal.share(),
            cpu_seconds: has_process.then_some(used as f64 / 1e9),
            events: count().0 - events,
            bytes: count().1 - bytes,
            calls: count().2 - calls,
            open,
            busy_kb,
            idle_kb: self.idle_kb,
            chunk: percentiles(stats.latencies.take()),
            first_token: percentiles(stats.first_tokens.take()),
            ..RunResult::default()
        };
        profile.map_or(Ok(()), Profile::finish)?;
        Ok(result)
    }

    fn start_profile(&self) -> anyhow::Result<Option<Profile>> {
        if !self.environment.profile {
            return Ok(None);
        }
        let name = format!("{} {}", self.running.peer(), self.scenario.title());
        let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        let ids = self.running.process_ids()?;
        Profile::start(&words.join("-"), &ids, self.cores.load)
    }
}

/// Waits up to `patience` for streams to end, and records failed ones. The table shows how many events of the others
/// are missing.
pub async fn await_ends(
    mut under_way: UnderWay,
    result: &mut RunResult,
    patience: Duration,
) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + patience;
    while let Ok(Some(ended)) = timeout_at(deadline, under_way.join_next()).await {
        if let Err(error) = ended? {
            result.fail(&error);
        }
    }
    Ok(())
}
