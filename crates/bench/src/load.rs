//! Puts a load on the backend through the phases of a trial.

use crate::client::{CallName, Client, Prepared};
use crate::clock::now;
use crate::lag::{self, Delays};
use crate::recorder::Recorder;
use crate::workload::{Prompts, Session};
use rand::RngExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokengauge_core::finished::FinishedCall;
use tokengauge_meter::Meter;
use tokengauge_meter::settings::Measure;
use tokengauge_stats::{Generator, seeded};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// The maximum number of calls in flight. An open loop that exceeds it is not answered any more.
pub const MAX_IN_FLIGHT: usize = 8_192;
const FLUSH: Duration = Duration::from_secs(10);
const TOLD_EVERY: Duration = Duration::from_millis(200);

#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// A closed loop with this many calls at once. Each call is followed by the next one.
    Concurrency(u32),
    /// An open loop with this many calls per second, however many are in flight.
    RequestRate(f64, ArrivalPattern),
    /// The start times of the calls of a trace, relative to its first call.
    Schedule(Arc<[Duration]>),
    /// The sessions of a trace. A call waits for the previous call of its session.
    Sessions(Arc<[Session]>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ArrivalPattern {
    /// Independent arrivals with exponential times between them.
    #[default]
    Poisson,
    Constant,
}

/// The phases of a trial. All of them have the same load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// Time for the backend to open connections, fill caches and compile. A closed loop reaches its concurrency in the
    /// first half.
    pub warm_up: Duration,
    /// Time at the full load for queues to fill.
    pub burn_in: Duration,
    /// Calls that begin in this phase count.
    pub measure: Duration,
    /// The maximum time for which the load continues until the counted calls have ended.
    pub drain: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Phase {
    WarmUp,
    BurnIn,
    Measure,
    Drain,
}

#[derive(Clone, Copy, Debug)]
pub struct TrialSettings {
    pub phases: Phases,
    /// The length of an observation of throughput.
    pub interval: Duration,
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialProgress {
    pub phase: Phase,
    pub calls: usize,
    /// Tokens per second of all calls together, over the last seconds.
    pub tps: f64,
    pub left: Duration,
}

#[derive(Debug)]
pub struct Trace {
    pub began: Instant,
    pub measure_from: Instant,
    pub measure_to: Instant,
    /// Tokens by interval, from the beginning of the trial.
    pub tokens: Vec<u64>,
    pub interval: Duration,
    pub calls: Vec<Arc<FinishedCall>>,
    /// The number of calls that began during the measurement as scheduled.
    pub begun: usize,
    pub delays: Arc<Delays>,
    /// The backend was so slow that an open loop had [`MAX_IN_FLIGHT`] calls in flight.
    pub overloaded: bool,
    pub interrupted: bool,
}

impl Trace {
    pub fn counts(&self, call: &FinishedCall) -> bool {
        (self.measure_from..self.measure_to).contains(&call.timestamps.received)
    }
}

/// Runs one trial. Setting `stop` to true ends it immediately.
pub async fn run(
    client: &Arc<Client>,
    load: &Load,
    prompts: Prompts,
    settings: TrialSettings,
    session: &str,
    mut stop: watch::Receiver<bool>,
    progress: &mut (dyn FnMut(TrialProgress) + Send),
) -> Trace {
    let began = now();
    let recorder = Recorder::new(began, settings.interval);
    let measure = Measure {
        warm_up_calls: 0,
        warm_up_for: Duration::ZERO,
        ..Measure::default()
    };
    let phases = settings.phases;
    let measure_from = began + phases.warm_up + phases.burn_in;
    let trial = Arc::new(Trial {
        client: Arc::clone(client),
        meter: Meter::new(measure, vec![recorder.clone()]),
        prompts,
        session: session.to_owned(),
        traces: settings.seed,
        measure_from,
        measure_to: measure_from + phases.measure,
        counters: Counters::default(),
        delays: Arc::default(),
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(lag::watch(Arc::clone(&trial.delays), measure_from));
    start(&trial, load, settings, &mut tasks);
    let interrupted = tokio::select! {
        () = trial.over(phases.drain) => false,
        () = tell(&trial, &recorder, settings, progress) => false,
        _ = stop.wait_for(|stop| *stop) => true,
    };
    trial.counters.stop.store(true, Ordering::Relaxed);
    if !interrupted {
        let rest = trial.idle();
        let _ = tokio::time::timeout(phases.drain, rest).await;
    }
    tasks.shutdown().await;
    let flushed = Arc::clone(&trial);
    let _ = tokio::task::spawn_blocking(move || flushed.meter.flush(FLUSH)).await;
    Trace {
        began,
        measure_from,
        measure_to: trial.measure_to,
        tokens: recorder.tokens(),
        interval: settings.interval,
        calls: recorder.calls(),
        begun: trial.counters.begun.load(Ordering::Relaxed),
        delays: Arc::clone(&trial.delays),
        overloaded: trial.counters.overloaded.load(Ordering::Relaxed),
        interrupted,
    }
}

struct Trial {
    client: Arc<Client>,
    meter: Arc<Meter>,
    prompts: Prompts,
    session: String,
    traces: u64,
    measure_from: Instant,
    measure_to: Instant,
    counters: Counters,
    delays: Arc<Delays>,
}

#[derive(Default)]
struct Counters {
    stop: AtomicBool,
    all: AtomicUsize,
    in_flight: AtomicUsize,
    ended: AtomicUsize,
    /// The number of counted calls, and of counted calls in flight.
    begun: AtomicUsize,
    open: AtomicUsize,
    overloaded: AtomicBool,
    changed: Notify,
}

impl Trial {
    async fn call(&self, prepared: Prepared, intended: Instant) {
        self.delays.starts(intended);
        let counters = &self.counters;
        let counts = (self.measure_from..self.measure_to).contains(&intended);
        let number = counters.all.fetch_add(1, Ordering::Relaxed) as u128 + 1;
        if counts {
            counters.begun.fetch_add(1, Ordering::Relaxed);
            counters.open.fetch_add(1, Ordering::Relaxed);
        }
        counters.in_flight.fetch_add(1, Ordering::Relaxed);
        let name = CallName {
            session: &self.session,
            trace: (u128::from(self.traces) << 64) | number,
        };
        let done = self.client.call(&self.meter, prepared, name, intended);
        let done = done.await;
        if done.is_err() {
            // Limits the rate of calls to a closed port.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if counts {
            counters.open.fetch_sub(1, Ordering::Relaxed);
        }
        counters.in_flight.fetch_sub(1, Ordering::Relaxed);
        counters.ended.fetch_add(1, Ordering::Relaxed);
        counters.changed.notify_waiters();
    }

    fn prepare(&self) -> Prepared {
        self.client.prepare(self.prompts.next())
    }

    fn stopped(&self) -> bool {
        self.counters.stop.load(Ordering::Relaxed)
    }

    /// Waits until all counted calls have ended, or for `drain` after the last one could have begun.
    async fn over(&self, drain: Duration) {
        let all_ended = async {
            tokio::time::sleep_until(self.measure_to.into()).await;
            self.until(|counters| counters.open.load(Ordering::Relaxed) == 0)
                .await;
        };
        let limit = self.measure_to + drain;
        let overload = self.until(|counters| counters.overloaded.load(Ordering::Relaxed));
        tokio::select! {
            _ = tokio::time::timeout_at(limit.into(), all_ended) => {}
            () = overload => {}
        }
    }

    async fn idle(&self) {
        self.until(|counters| counters.in_flight.load(Ordering::Relaxed) == 0)
            .await;
    }

    async fn until(&self, is: impl Fn(&Counters) -> bool) {
        loop {
            let changed = self.counters.changed.notified();
            if is(&self.counters) {
                return;
            }
            // The timeout covers a change between the two lines above.
            let _ = tokio::time::timeout(Duration::from_millis(50), changed).await;
        }
    }
}

fn start(trial: &Arc<Trial>, load: &Load, settings: TrialSettings, tasks: &mut JoinSet<()>) {
    let began = trial.measure_from - settings.phases.warm_up - settings.phases.burn_in;
    match load {
        Load::Concurrency(streams) => {
            // Starts are spread, because streams in lockstep would all wait for their first tokens at once.
            let spread = settings.phases.warm_up / 2;
            for number in 0..*streams {
                let at = began + spread.mul_f64(f64::from(number) / f64::from(*streams));
                tasks.spawn(one_stream(Arc::clone(trial), at));
            }
        }
        Load::RequestRate(rate, pattern) => {
            let arrivals = Arrivals {
                next: began,
                rate: *rate,
                pattern: *pattern,
                random: seeded(settings.seed),
            };
            tasks.spawn(open_loop(Arc::clone(trial), arrivals));
        }
        Load::Schedule(starts) => {
            let starts: Vec<_> = starts.iter().map(|start| began + *start).collect();
            tasks.spawn(open_loop(Arc::clone(trial), starts.into_iter()));
        }
        Load::Sessions(sessions) => {
            let random = seeded(settings.seed);
            tasks.spawn(replay(
                Arc::clone(trial),
                Arc::clone(sessions),
                began,
                random,
            ));
        }
    }
}

async fn one_stream(trial: Arc<Trial>, at: Instant) {
    tokio::time::sleep_until(at.into()).await;
    while !trial.stopped() {
        let prepared = trial.prepare();
        trial.call(prepared, now()).await;
    }
}

async fn open_loop(trial: Arc<Trial>, arrivals: impl Iterator<Item = Instant>) {
    let mut calls = JoinSet::new();
    for at in arrivals {
        let prepared = trial.prepare();
        tokio::time::sleep_until(at.into()).await;
        while calls.try_join_next().is_some() {}
        if trial.stopped() {
            break;
        }
        if calls.len() >= MAX_IN_FLIGHT {
            trial.counters.overloaded.store(true, Ordering::Relaxed);
            trial.counters.changed.notify_waiters();
            break;
        }
        let trial = Arc::clone(&trial);
        calls.spawn(async move { trial.call(prepared, at).await });
    }
    while calls.join_next().await.is_some() {}
}

async fn replay(
    trial: Arc<Trial>,
    sessions: Arc<[Session]>,
    began: Instant,
    mut random: Generator,
) {
    let mut open = JoinSet::new();
    for session in sessions.iter() {
        tokio::time::sleep_until((began + session.at).into()).await;
        while open.try_join_next().is_some() {}
        if trial.stopped() {
            break;
        }
        if open.len() >= MAX_IN_FLIGHT {
            trial.counters.overloaded.store(true, Ordering::Relaxed);
            trial.counters.changed.notify_waiters();
            break;
        }
        let (trial, session, seed) = (Arc::clone(&trial), session.clone(), random.random());
        open.spawn(async move { one_session(&trial, &session, began, seed).await });
    }
    while open.join_next().await.is_some() {}
}

async fn one_session(trial: &Trial, session: &Session, began: Instant, seed: u64) {
    let mut ended = None;
    for turn in &session.turns {
        let prompt = trial.prompts.turn(turn.line, seed);
        let prepared = trial.client.prepare(prompt);
        let recorded = began + turn.at.unwrap_or(session.at);
        let intended = match (ended, turn.delay) {
            (None, _) => began + session.at,
            (Some(ended), Some(delay)) => ended + delay,
            (Some(ended), None) => recorded.max(ended),
        };
        tokio::time::sleep_until(intended.into()).await;
        if trial.stopped() {
            return;
        }
        trial.call(prepared, intended).await;
        ended = Some(now());
    }
}

struct Arrivals {
    next: Instant,
    rate: f64,
    pattern: ArrivalPattern,
    random: Generator,
}

impl Iterator for Arrivals {
    type Item = Instant;

    fn next(&mut self) -> Option<Instant> {
        let share = match self.pattern {
            ArrivalPattern::Constant => 1.0,
            ArrivalPattern::Poisson => -(1.0 - self.random.random::<f64>()).ln(),
        };
        self.next += Duration::from_secs_f64(share / self.rate);
        Some(self.next)
    }
}

async fn tell(
    trial: &Trial,
    recorder: &Recorder,
    settings: TrialSettings,
    progress: &mut (dyn FnMut(TrialProgress) + Send),
) {
    loop {
        tokio::time::sleep(TOLD_EVERY).await;
        let now = now();
        let phase = match now {
            now if now + settings.phases.burn_in < trial.measure_from => Phase::WarmUp,
            now if now < trial.measure_from => Phase::BurnIn,
            now if now < trial.measure_to => Phase::Measure,
            _ => Phase::Drain,
        };
        // The last interval is incomplete.
        let counts = recorder.tokens();
        let counts = counts.split_last().map_or(&[][..], |(_, whole)| whole);
        let newest = &counts[counts.len().saturating_sub(5)..];
        let seconds = newest.len() as f64 * settings.interval.as_secs_f64();
        progress(TrialProgress {
            phase,
            calls: trial.counters.ended.load(Ordering::Relaxed),
            tps: newest.iter().sum::<u64>() as f64 / seconds.max(f64::MIN_POSITIVE),
            left: trial.measure_to.saturating_duration_since(now),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_the_rate_and_the_pattern() {
        let began = Instant::now();
        let after_1000 = |pattern, seed| {
            let mut arrivals = Arrivals {
                next: began,
                rate: 50.0,
                pattern,
                random: seeded(seed),
            };
            arrivals.nth(999).expect("endless") - began
        };
        let constant = after_1000(ArrivalPattern::Constant, 1).as_secs_f64();
        assert!((constant - 20.0).abs() < 1e-3, "{constant}");
        let poisson = after_1000(ArrivalPattern::Poisson, 1).as_secs_f64();
        assert!((poisson - 20.0).abs() < 2.0, "{poisson}");
        assert_ne!(
            poisson,
            after_1000(ArrivalPattern::Poisson, 2).as_secs_f64()
        );
    }
}
