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
use tokengauge_bench::Results;
use tokengauge_bench::level::LevelResult;
use tokengauge_bench::load::MAX_IN_FLIGHT;
use tokengauge_bench::results::NoHighest;
use tokengauge_bench::run::Levels;
use tokengauge_process::output;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The exit code of a second signal, as of the first.
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
        .map_err(|error| Error::Failed(format!("cannot start: {error}")))?;
    let mut shown = progress::Shown::new();
    let results = runtime.block_on(async {
        let stop = stop_on_signals()?;
        let results =
            tokengauge_bench::run(plan, stop, &mut |progress| shown.show(&progress)).await;
        results.map_err(|error| Error::Failed(error.to_string()))
    });
    shown.clear();
    let results = results?;
    write::results(&results, args)?;
    verdict(&results, searches)
}

/// Becomes true at the first signal to end; the second ends the process.
fn stop_on_signals() -> Result<watch::Receiver<bool>, Error> {
    let failed = |error| Error::Failed(format!("cannot listen for signals: {error}"));
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

/// Why the exit code is not 0.
fn verdict(results: &Results, searches: bool) -> Result<(), Error> {
    let failed = |reason: String| Err(Error::Failed(reason));
    if results.interrupted {
        let reason = "stopped before its end; the results are of the trials until then";
        return Err(Error::Interrupted(reason.to_owned()));
    }
    let without = results.levels.iter().flat_map(LevelResult::without);
    let without: Vec<_> = without.collect();
    if !without.is_empty() && !searches {
        return failed(format!(
            "no figures for {}: the reasons are above",
            without.join(", ")
        ));
    }
    match results.no_highest() {
        Some(reason @ NoHighest::Undecided(_)) => Err(Error::Undecided(reason.to_string())),
        Some(reason) => failed(reason.to_string()),
        None => Ok(()),
    }
}
