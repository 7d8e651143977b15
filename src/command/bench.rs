//! `tokengauge bench`: benchmarks a backend.

mod compare;
mod gauge;
mod html;
mod plan;
mod progress;
mod until;
mod write;

use crate::Error;
use crate::cli::BenchArgs;
use std::path::PathBuf;
use tokengauge_bench::level::LevelResult;
use tokengauge_bench::load::MAX_IN_FLIGHT;
use tokengauge_bench::results::NoHighest;
use tokengauge_bench::run::Levels;
use tokengauge_bench::{BenchError, Results};
use tokengauge_process::{Fatal, SystemError, output};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

#[derive(Debug, thiserror::Error)]
enum BenchCommandError {
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error("{file}: {1}; is it the JSON of `bench -o FILE.json`?", file = .0.display())]
    NoResults(PathBuf, #[source] serde_json::Error),
    #[error("{0}")]
    Worse(String),
    #[error("no figures for {0}: the reasons are above")]
    NoFigures(String),
    #[error(transparent)]
    NoHighest(#[from] NoHighest),
    #[error(
        "{origin} has no generations with known lengths that began since {since}; read older calls with --since"
    )]
    NoGenerations { origin: String, since: String },
    #[error("--until needs a range of loads to search, such as --concurrency 1..64")]
    UntilWithoutRange,
    #[error(
        "a range of loads needs an objective to search for; name one with --objective or --until"
    )]
    RangeWithoutObjective,
}

impl Fatal for BenchCommandError {}

const INTERRUPTED: i32 = 130;

pub(super) fn bench(args: &BenchArgs) -> Result<(), Error> {
    if args.schema {
        return output::print(&write::schema());
    }
    write::check(&args.output)?;
    if let Some([old, new]) = args.compare.as_deref() {
        return compare::compare(old, new, args);
    }
    let plan = plan::plan(args)?;
    let searches = matches!(plan.levels, Levels::Search(_));
    tokengauge_process::fd_limit::raise(MAX_IN_FLIGHT, 1);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| SystemError::Task("start threads", error))?;
    let mut shown = progress::Shown::new();
    let results = runtime.block_on(async {
        let stop = stop_on_signals()?;
        let results =
            tokengauge_bench::run(plan, stop, &mut |progress| shown.show(&progress)).await;
        Ok::<_, Error>(results.map_err(BenchCommandError::from)?)
    });
    shown.clear();
    let results = results?;
    write::results(&results, args)?;
    verdict(&results, searches)
}

/// Returns a channel that becomes true at the first signal. A second signal ends the process.
fn stop_on_signals() -> Result<watch::Receiver<bool>, SystemError> {
    let failed = |error| SystemError::Task("listen for signals", error);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if stop.send_replace(true) {
                std::process::exit(INTERRUPTED);
            }
        }
    });
    Ok(stopped)
}

fn verdict(results: &Results, searches: bool) -> Result<(), Error> {
    if results.interrupted {
        let reason =
            "the benchmark was interrupted; the results contain the trials before the interruption";
        return Err(Error::Interrupted(reason.to_owned()));
    }
    let without = results.levels.iter().flat_map(LevelResult::without);
    let without: Vec<_> = without.collect();
    if !without.is_empty() && !searches {
        return Err(BenchCommandError::NoFigures(without.join(", ")).into());
    }
    match results.no_highest() {
        Some(reason @ NoHighest::Undecided(_)) => Err(Error::Undecided(reason.to_string())),
        Some(reason) => Err(BenchCommandError::from(reason).into()),
        None => Ok(()),
    }
}
