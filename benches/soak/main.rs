//! Half an hour of mixed traffic with faults: `cargo bench --bench soak`.
//!
//! The real binary runs with everything on that production has: a ledger, a call log,
//! objectives, quotas, budgets, OTLP, an engine's metrics. Agents of a seed call it in
//! every dialect, over HTTP/1.1, HTTP/2 and WebSocket; backends, agents and receivers
//! fail in every way of [`kinds::Fate`]. Each call is checked: its bytes are those that
//! the backend wrote, its record has the tokens that the backend's truth says, it is in
//! the call log once and in the ledger once. At the end memory has not grown, and file
//! descriptors, tasks and gauges are back where they were. What is violated is said in a
//! sentence, and the exit code is 1.

mod around;
mod backend;
mod client;
mod judge;
mod kinds;
mod past;
mod proxy;
mod random;
mod realtime;
mod records;
mod report;
mod rest;
mod sink;
mod traffic;

use backend::{Backend, Book};
use clap::Parser;
use judge::memory;
use kinds::{FATES, SHAPES};
use proxy::Proxy;
use random::Random;
use records::{Inbox, Records};
use report::{End, Report};
use sink::{Mood, Sink};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::task::JoinSet;
use traffic::Shared;

/// Mixed traffic with faults; everything that goes wrong is said, with exit code 1.
#[derive(Debug, Parser)]
struct Options {
    /// How long; under 2 minutes not every kind of call comes
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// What all dice follow from [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// Agents at work at the same time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1000))]
    agents: u64,
    /// Falsify one thing, which must be found: bytes, tokens, record, memory or descriptors
    #[arg(long = "break", value_name = "WHAT")]
    broken: Option<String>,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

/// Traffic of every kind before anything is compared: pools, rings, lazily opened files
/// and the allocator's arenas have what they need then.
const WARM_UP: Duration = Duration::from_secs(15);

/// Calls that the ledger has before a run: more than its page caches hold, where the run
/// is long enough for their filling up to be taken for a leak.
fn past(minutes: f64) -> usize {
    if minutes >= 10.0 { 300_000 } else { 10_000 }
}

/// What memory may grow by in the second half of a run, in KB a minute.
///
/// What is bounded is full by then: `recent_calls` after some ten seconds, the queues of
/// OTLP in the first bad mood of its receiver, the labels of metrics once every kind of
/// call has come, the page caches of the ledger (8 MB for its writer, 16 MB for each of
/// four readers) by its past. The allocator's share of bodies of a megabyte, which come at
/// random, takes some ten minutes to settle: three are too short to tell it from a leak
/// of less than 10 KB a call.
fn bound(minutes: f64) -> f64 {
    match minutes {
        20.0.. => 1000.0,
        2.0.. => 12_000.0,
        // Nothing can be known yet.
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
    // The backend has a thread of its own: nothing of the agents' delays it.
    let behind = runtime(1)?;
    let load = runtime(1)?;
    let report = Arc::new(Report::new(options.broken.clone()));
    let folder = tempfile::tempdir()?;
    let bodies = folder.path().join("bodies");
    backend::record(&bodies)?;
    let begin = SystemTime::now();
    let ledger = folder.path().join("state/ledger.sqlite");
    std::fs::create_dir_all(folder.path().join("state"))?;
    past::write(&ledger, past(options.minutes), begin)?;
    let book = Book::default();
    let backend = behind.block_on(backend::start(&book, &bodies))?;
    let (sink, address) = behind.block_on(Sink::start())?;
    let mut proxy = Proxy::start(folder.path(), backend, address)?;
    let soak = Soak {
        shared: Shared {
            proxy: proxy.traffic,
            book,
            inbox: Inbox::default(),
            report: Arc::clone(&report),
            seed,
        },
        backend,
        sink,
        options,
    };
    let (end, records) = load.block_on(soak.run(&proxy))?;
    if !proxy.end()? {
        report.violation("the proxy did not end with 0 within 20 s of a SIGTERM".to_owned());
    }
    rest::ledger(folder.path(), begin, &records, &report)?;
    report.print(&end);
    let well = report.violations() == 0;
    if !well {
        let log = proxy.log();
        let newest = &log[log.len().saturating_sub(15)..];
        println!("the proxy's last words:\n{}", newest.join("\n"));
    }
    Ok(if well {
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
    sink: Arc<Sink>,
    options: Options,
}

impl Soak {
    async fn run(&self, proxy: &Proxy) -> anyhow::Result<(End, Records)> {
        let report = &self.shared.report;
        let records = Records::open(&proxy.folder.join("calls.jsonl"))?;
        let records = Arc::new(Mutex::new(records));
        let sweeper = self.sweep(Arc::clone(&records));
        self.traffic(0, WARM_UP).await;
        around::look_everywhere(proxy.admin, report).await;
        let before = rest::reached(proxy, None).await?;
        let warmed = report.calls();
        println!("warmed up with {warmed} calls; at rest: {before:?}");

        let took = Duration::from_secs_f64(self.options.minutes * 60.0);
        let began = Instant::now();
        let samples = Arc::new(Mutex::new(Vec::new()));
        let beside = self.beside(proxy, began, &samples);
        tokio::select! {
            () = self.traffic(1, took) => {}
            // It never ends; it borrows the proxy, which a task could not.
            () = around::changes(proxy, self.backend, self.random(1), Arc::clone(report)) => {}
        }
        let took = began.elapsed();
        drop(beside);
        self.sink.feel(Mood::Well);
        self.settle(&records).await;
        sweeper.abort();
        let behind = rest::reached(proxy, Some(&before)).await?;
        let end = End {
            took,
            seed: self.shared.seed,
            memory: memory(&samples.lock().unwrap_or_else(PoisonError::into_inner)),
            bound: bound(self.options.minutes),
            rest: (before, behind),
        };
        let _ = sweeper.await;
        let records = Arc::into_inner(records).and_then(|records| records.into_inner().ok());
        let records = records.ok_or_else(|| anyhow::anyhow!("the records were lost"))?;
        self.judge(proxy, &end, &records).await?;
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

    /// Everything beside the calls; it ends with what is given.
    fn beside(
        &self,
        proxy: &Proxy,
        began: Instant,
        samples: &Arc<Mutex<Vec<(f64, f64)>>>,
    ) -> JoinSet<()> {
        let (admin, report) = (proxy.admin, &self.shared.report);
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&self.sink).live(Duration::from_secs(8)));
        tasks.spawn(around::scrapes(admin, Arc::clone(report)));
        tasks.spawn(around::looks(admin, self.random(2), Arc::clone(report)));
        for number in [3, 4] {
            tasks.spawn(around::listens(
                admin,
                self.random(number),
                Arc::clone(report),
            ));
            let random = self.random(number + 10);
            tasks.spawn(around::says_nothing(
                proxy.traffic,
                random,
                Arc::clone(report),
            ));
        }
        let leak = report.breaks("memory");
        tasks.spawn(sample(proxy.id(), began, leak, Arc::clone(samples)));
        tasks
    }

    /// Holds records against calls while they come.
    fn sweep(&self, records: Arc<Mutex<Records>>) -> tokio::task::JoinHandle<()> {
        let Shared {
            inbox,
            book,
            report,
            ..
        } = self.shared.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let mut records = records.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(error) = records.sweep(&inbox, &book, &report) {
                    report.once(&format!("the call log cannot be read: {error}"));
                }
            }
        })
    }

    /// Waits until every call is settled, one way or the other.
    async fn settle(&self, records: &Mutex<Records>) {
        let unsettled = || {
            let records = records.lock().unwrap_or_else(PoisonError::into_inner);
            records.unsettled()
        };
        tokio::time::sleep(Duration::from_secs(1)).await;
        while unsettled() > 0 {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// What only the end can tell.
    async fn judge(&self, proxy: &Proxy, end: &End, records: &Records) -> anyhow::Result<()> {
        let report = &self.shared.report;
        rest::counters(proxy, records, report).await?;
        rest::sink(&self.sink, report);
        let (before, mut behind) = end.rest.clone();
        if report.breaks("descriptors") {
            behind
                .entry("open files".to_owned())
                .and_modify(|files| *files += 1.0);
        }
        for back in judge::not_back(&before, &behind) {
            report.violation(back);
        }
        for id in self.shared.book.unclaimed() {
            report.violation(format!("the backend got call {id}, which nobody settled"));
        }
        match end.memory {
            None => report.violation("too short to tell whether memory grows".to_owned()),
            Some(memory) if memory.slope > end.bound => report.violation(format!(
                "memory grows by {:.0} KB a minute in the second half, more than {:.0}",
                memory.slope, end.bound
            )),
            _ => {}
        }
        let beside = [
            "scrapes",
            around::ANSWERS,
            "configurations",
            "wrong configurations",
            "listeners to events",
            "slow connections closed",
        ];
        let kinds = FATES.iter().map(|(fate, _)| fate.name());
        let kinds = kinds
            .chain(SHAPES.iter().map(|shape| shape.name))
            .chain(beside);
        for kind in report.missing(kinds) {
            report.violation(format!("nothing of this kind came at all: {kind}"));
        }
        Ok(())
    }
}

/// Looks at the proxy's memory every two seconds.
async fn sample(process: u32, began: Instant, leak: bool, samples: Arc<Mutex<Vec<(f64, f64)>>>) {
    loop {
        let at = began.elapsed().as_secs_f64();
        if let Some(resident) = proxy::resident_kb(process) {
            let leaked = if leak { at * 1000.0 } else { 0.0 };
            let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
            samples.push((at, resident + leaked));
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}
