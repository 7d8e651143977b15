//! Cost of a call and an event with many streams, many series, or many calls in the ledger.

use crate::configs::{KEPT_DAYS, KEPT_GB};
use crate::environment::Environment;
use crate::metrics::{CPU_PER_CALL, CPU_PER_EVENT};
use crate::options::Options;
use crate::peer::Peer;
use crate::process::file_limit;
use crate::report::Report;
use crate::rounds::run_all;
use crate::scenario::{Pace, Scenario, Setup, Work};
use crate::scenes::short_calls;
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokengauge_core::call::CallRecord;
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase, Limits, Now};
use tokengauge_test_support::records::Records;

const STREAMS: [usize; 4] = [10, 100, 1_000, 10_000];
const EVENTS: usize = 10_000;
const MODELS: [u32; 5] = [1, 10, 100, 1_000, 10_000];
const LEDGERS: [usize; 3] = [1_000_000, 10_000_000, 100_000_000];
/// Time range of the calls in a ledger.
const MONTH: Duration = Duration::from_secs(30 * 86_400);
/// Retention of the measured proxy.
const KEEP: Limits = Limits {
    age: Duration::from_secs(KEPT_DAYS * 86_400),
    bytes: KEPT_GB * 1_000_000_000,
};
const BATCH: usize = 1_000;
/// After this number of calls, the remaining time can be estimated.
const TRIAL: usize = 50_000;
const PACE: Pace = Pace {
    streams: 50,
    per_second: 100,
    per_call: Some(100),
};

pub fn run(
    options: &Options,
    peers: &[Peer],
    environment: &Environment,
    report: &mut Report,
) -> anyhow::Result<()> {
    // A stream needs two files of a proxy, and some files are reserved.
    let most = file_limit() * 7 / 20;
    if most < STREAMS[STREAMS.len() - 1] {
        println!("left out: more than {most} streams, because of the limit on open files");
    }
    let mut streams = STREAMS.map(|streams| streams.min(most)).to_vec();
    streams.dedup();
    let mut groups: Vec<_> = streams.into_iter().map(with_streams).collect();
    groups.extend(MODELS.map(with_models));
    for calls in LEDGERS {
        if let Some(ledger) = prepared(calls, options.prepare_minutes)? {
            let setup = Setup {
                ledger: Some(ledger),
                ..Setup::default()
            };
            groups.push(with_setup(&setup, 1));
        }
    }
    run_all(&groups, peers, environment, options.rounds(), report);
    println!("\ncost of an event");
    report.print_costs(&CPU_PER_EVENT, |work| matches!(work, Work::Paced(_)));
    println!("\ncost of a call");
    report.print_costs(&CPU_PER_CALL, |work| matches!(work, Work::Short { .. }));
    Ok(())
}

/// Events of `streams` streams, and calls while that many connections are open.
fn with_streams(streams: usize) -> Vec<Scenario> {
    let paced = Work::Paced(Pace {
        streams,
        per_second: (EVENTS / streams).max(1) as u32,
        per_call: None,
    });
    let agents = 8;
    let short = Work::Short {
        agents,
        silent: streams - agents,
    };
    let scenarios = [paced, short].map(|work| Scenario {
        setup: Setup {
            connections: 64 * 1024,
            ..Setup::default()
        },
        ..work.into()
    });
    scenarios.into()
}

fn with_models(models: u32) -> Vec<Scenario> {
    let setup = Setup {
        max_models: MODELS.last().copied(),
        ..Setup::default()
    };
    with_setup(&setup, models)
}

fn with_setup(setup: &Setup, models: u32) -> Vec<Scenario> {
    let scenarios = [Work::Paced(PACE).into(), short_calls()].map(|scenario: Scenario| Scenario {
        models,
        setup: setup.clone(),
        ..scenario
    });
    scenarios.into()
}

/// Returns a ledger of `calls` calls, and creates it if necessary. Returns `None` if that would take too long.
fn prepared(calls: usize, minutes: f64) -> anyhow::Result<Option<PathBuf>> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(3).context("no target folder")?;
    let folder = target.join("ledgers");
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{calls}.sqlite"));
    if path.exists() {
        return Ok(Some(path));
    }
    let unfinished = path.with_extension("part");
    let within = Duration::from_secs_f64(minutes * 60.0);
    match fill(&unfinished, calls, within)? {
        None => {
            fs::rename(&unfinished, &path)?;
            Ok(Some(path))
        }
        Some(needed) => {
            for extension in ["part", "part-wal", "part-shm"] {
                let _ = fs::remove_file(path.with_extension(extension));
            }
            let needed = needed.as_secs_f64() / 60.0;
            println!(
                "left out: a ledger of {calls} calls, which takes {needed:.0} minutes to create; allow that with `--prepare-minutes`"
            );
            Ok(None)
        }
    }
}

/// Writes `calls` calls of the last month. Returns the estimated time instead if it is longer than `within`.
fn fill(path: &Path, calls: usize, within: Duration) -> anyhow::Result<Option<Duration>> {
    let begin = Instant::now();
    let every = MONTH.as_millis() as f64 / calls as f64;
    let mut ledger = LedgerDatabase::open(path)?;
    let mut records = Records::new(SystemTime::now() - MONTH, every).take(calls);
    let mut written = 0;
    loop {
        let batch: Vec<CallRecord> = records.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            // Deletes old sums now, as a running proxy does from time to time. Otherwise the measured proxy would delete
            // weeks of sums during the measurement.
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
            let now = Now {
                monotonic: Instant::now(),
                wall_ms: i64::try_from(now)?,
            };
            while ledger.tidy(now, &KEEP)? {}
            return Ok(None);
        }
        let stored: Vec<_> = batch
            .iter()
            .filter_map(|record| LedgerCall::of_record(record, Some(4)))
            .collect();
        written += batch.len();
        ledger.write(&stored)?;
        let whole = begin.elapsed().mul_f64(calls as f64 / written as f64);
        if written >= TRIAL && whole > within {
            return Ok(Some(whole));
        }
    }
}
