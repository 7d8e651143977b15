//! Half an hour of mixed traffic with faults: `cargo bench --bench soak`.
//!
//! The real binary runs with every production feature: a ledger, a call log, objectives, quotas, budgets, OTLP, an
//! engine's metrics. Agents call it in every dialect, over HTTP/1.1, HTTP/2 and WebSocket, with random numbers from a
//! seed. Backends, agents and receivers fail as [`scenarios::Scenario`] lists. Each call is verified: its bytes equal
//! the backend's, its record has the tokens of the backend's ground truth, and it is in the call log and in the ledger
//! exactly once. At the end memory must not have grown, and file descriptors, tasks and gauges must be back at their
//! initial values. Each violation is printed as a sentence, and any violation leads to exit code 1.

mod backend;
mod background;
mod client;
mod final_checks;
mod otlp_receiver;
mod proxy;
mod random;
mod realtime;
mod records;
mod report;
mod scenarios;
mod seed_ledger;
mod traffic;
mod verify;

use backend::{Backend, SentCalls};
use clap::Parser;
use otlp_receiver::{OtlpReceiver, ReceiverMode};
use parking_lot::Mutex;
use proxy::Proxy;
use random::Random;
use records::{Inbox, Records};
use report::{Report, RunSummary};
use scenarios::{ENDPOINTS, SCENARIOS};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::task::JoinSet;
use traffic::Shared;
use verify::memory;

/// Run mixed traffic with faults. Each violation is printed, and any violation leads to exit code 1.
#[derive(Debug, Parser)]
struct Options {
    /// Length of the run; a run of less than 2 minutes does not include every scenario
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Seed of all random numbers [default: a new one for each run]
    #[arg(long)]
    seed: Option<u64>,
    /// Number of concurrent agents
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1000))]
    agents: u64,
    /// Falsify one item, which must be detected: bytes, tokens, record, memory or descriptors
    #[arg(long = "break", value_name = "WHAT")]
    broken: Option<String>,
    /// Added by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Traffic before the first measurements, until pools, rings, lazily opened files and the allocator's arenas are
/// filled.
const WARM_UP: Duration = Duration::from_secs(15);

/// Calls in the ledger before the run: more than its page caches hold, if the run is long enough that filling them
/// would look like a leak.
fn seeded_calls(minutes: f64) -> usize {
    if minutes >= 10.0 { 300_000 } else { 10_000 }
}

/// Allowed growth of memory in the second half of a run, in KB per minute.
///
/// By then everything bounded is full: `recent_calls` after some ten seconds, the queues of OTLP once its receiver has
/// failed, the labels of metrics once every scenario has occurred. The page caches of the ledger (8 MB for its writer,
/// 16 MB for each of four readers) are full from the start. With random bodies of a megabyte the allocator needs some
/// ten minutes to become stable. In 19 runs of three minutes without a leak, memory grew by 3,000 KB a minute on
/// average, with a standard deviation of 3,500. The bound is almost five standard deviations above, so a short run does
/// not detect a leak of less than 12 KB a call.
fn bound(minutes: f64) -> f64 {
    match minutes {
        20.0.. => 1000.0,
        2.0.. => 20_000.0,
        // Too short for any conclusion.
        _ => 50_000.0,
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let random = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let seed = options.seed.unwrap_or(random.subsec_nanos().into());
    println!(
        "seed {seed}, {} minutes, {} agents",
        options.minutes, options.agents
    );
    // The backend has a separate thread, so that the agents do not delay it.
    let backends = runtime(1)?;
    let load = runtime(1)?;
    let report = Arc::new(Report::new(options.broken.clone()));
    let folder = tempfile::tempdir()?;
    let bodies = folder.path().join("bodies");
    backend::record(&bodies)?;
    let begin = SystemTime::now();
    let ledger = folder.path().join("state/ledger.sqlite");
    std::fs::create_dir_all(folder.path().join("state"))?;
    seed_ledger::write(&ledger, seeded_calls(options.minutes), begin)?;
    let sent_calls = SentCalls::default();
    let backend = backends.block_on(backend::start(&sent_calls, &bodies))?;
    let (otlp, address) = backends.block_on(OtlpReceiver::start())?;
    let mut proxy = Proxy::start(folder.path(), backend, address)?;
    let soak = Soak {
        shared: Shared {
            proxy: proxy.traffic,
            sent_calls,
            inbox: Inbox::default(),
            report: Arc::clone(&report),
            seed,
        },
        backend,
        otlp,
        options,
    };
    let (end, records) = load.block_on(soak.run(&proxy))?;
    if !proxy.end()? {
        report.violation("the proxy did not end with 0 within 20 s of a SIGTERM".to_owned());
    }
    final_checks::ledger(folder.path(), begin, &records, &report)?;
    report.print(&end);
    let passed = report.violations() == 0;
    if !passed {
        let log = proxy.log();
        let newest = &log[log.len().saturating_sub(15)..];
        println!("the end of the proxy's log:\n{}", newest.join("\n"));
        println!(
            "the first of {} violations:\n{}",
            report.violations(),
            report.first_violations()
        );
    }
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn runtime(threads: usize) -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
}

struct Soak {
    shared: Shared,
    backend: Backend,
    otlp: Arc<OtlpReceiver>,
    options: Options,
}

impl Soak {
    async fn run(&self, proxy: &Proxy) -> anyhow::Result<(RunSummary, Records)> {
        let report = &self.shared.report;
        let records = Records::open(&proxy.folder.join("calls.jsonl"))?;
        let records = Arc::new(Mutex::new(records));
        let sweeper = self.sweep(Arc::clone(&records));
        self.traffic(0, WARM_UP).await;
        background::query_all_endpoints(proxy.admin, report).await;
        let before = final_checks::wait_until_idle(proxy, None).await?;
        let warmed = report.calls();
        println!("warmed up with {warmed} calls; idle: {before:?}");

        let took = Duration::from_secs_f64(self.options.minutes * 60.0);
        let began = Instant::now();
        let samples = Arc::new(Mutex::new(Vec::new()));
        let background = self.spawn_background(proxy, began, &samples);
        tokio::select! {
            () = self.traffic(1, took) => {}
            // This future never ends. It borrows the proxy, which a task could not.
            () = background::reload_configuration(proxy, self.backend, self.random(1), Arc::clone(report)) => {}
        }
        let took = began.elapsed();
        drop(background);
        self.otlp.set_mode(ReceiverMode::Healthy);
        self.verify(&records).await;
        sweeper.abort();
        let after = final_checks::wait_until_idle(proxy, Some(&before)).await?;
        let end = RunSummary {
            took,
            seed: self.shared.seed,
            memory: memory(&samples.lock()),
            bound: bound(self.options.minutes),
            idle_gauges: (before, after),
        };
        let _ = sweeper.await;
        let records = Arc::into_inner(records).map(Mutex::into_inner);
        let records = records.ok_or_else(|| anyhow::anyhow!("the records were lost"))?;
        self.check(proxy, &end, &records).await?;
        Ok((end, records))
    }

    fn random(&self, number: u64) -> Random {
        Random::new(self.shared.seed, 1_000_000 + number)
    }

    async fn traffic(&self, phase: u64, length: Duration) {
        traffic::run(
            &self.shared,
            phase,
            self.options.agents,
            Instant::now() + length,
        )
        .await;
    }

    /// Starts the load other than the calls, which ends when the set is dropped.
    fn spawn_background(
        &self,
        proxy: &Proxy,
        began: Instant,
        samples: &Arc<Mutex<Vec<(f64, f64)>>>,
    ) -> JoinSet<()> {
        let (admin, report) = (proxy.admin, &self.shared.report);
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&self.otlp).cycle_modes(Duration::from_secs(8)));
        tasks.spawn(background::scrape_metrics(admin, Arc::clone(report)));
        tasks.spawn(background::query_api(
            admin,
            self.random(2),
            Arc::clone(report),
        ));
        for number in [3, 4] {
            tasks.spawn(background::subscribe_events(
                admin,
                self.random(number),
                Arc::clone(report),
            ));
            let random = self.random(number + 10);
            tasks.spawn(background::open_slow_connections(
                proxy.traffic,
                random,
                Arc::clone(report),
            ));
        }
        let leak = report.breaks("memory");
        tasks.spawn(sample(proxy.id(), began, leak, Arc::clone(samples)));
        tasks
    }

    fn sweep(&self, records: Arc<Mutex<Records>>) -> tokio::task::JoinHandle<()> {
        let Shared {
            inbox,
            sent_calls,
            report,
            ..
        } = self.shared.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let mut records = records.lock();
                if let Err(error) = records.sweep(&inbox, &sent_calls, &report) {
                    report.once(&format!("the call log cannot be read: {error}"));
                }
            }
        })
    }

    /// Waits until every call is verified or its record has timed out.
    async fn verify(&self, records: &Mutex<Records>) {
        let unverified = || {
            let records = records.lock();
            records.unverified()
        };
        tokio::time::sleep(Duration::from_secs(1)).await;
        while unverified() > 0 {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn check(
        &self,
        proxy: &Proxy,
        end: &RunSummary,
        records: &Records,
    ) -> anyhow::Result<()> {
        let report = &self.shared.report;
        final_checks::counters(proxy, records, report).await?;
        final_checks::otlp(&self.otlp, report);
        let (before, mut after) = end.idle_gauges.clone();
        if report.breaks("descriptors") {
            after
                .entry("open files".to_owned())
                .and_modify(|files| *files += 1.0);
        }
        for higher in verify::not_restored(&before, &after) {
            report.violation(higher);
        }
        for id in self.shared.sent_calls.unclaimed() {
            report.violation(format!(
                "the backend got call {id}, which no agent reported"
            ));
        }
        match end.memory {
            None => {
                report.violation("the run is too short to tell whether memory grows".to_owned())
            }
            Some(memory) if memory.slope > end.bound => report.violation(format!(
                "memory grows by {:.0} KB a minute in the second half, more than {:.0}",
                memory.slope, end.bound
            )),
            _ => {}
        }
        let background = [
            "scrapes",
            background::API_RESPONSES,
            "configurations",
            "wrong configurations",
            "listeners to events",
            "slow connections closed",
        ];
        let kinds = SCENARIOS.iter().map(|(scenario, _)| scenario.name());
        let kinds = kinds
            .chain(ENDPOINTS.iter().map(|endpoint| endpoint.name))
            .chain(background);
        for kind in report.missing(kinds) {
            report.violation(format!("this never occurred: {kind}"));
        }
        Ok(())
    }
}

/// Samples the proxy's memory every two seconds.
async fn sample(process: u32, began: Instant, leak: bool, samples: Arc<Mutex<Vec<(f64, f64)>>>) {
    loop {
        let at = began.elapsed().as_secs_f64();
        if let Some(resident) = proxy::resident_kb(process) {
            let leaked = if leak { at * 1000.0 } else { 0.0 };
            let mut samples = samples.lock();
            samples.push((at, resident + leaked));
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}
