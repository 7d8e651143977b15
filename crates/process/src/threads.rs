//! The traffic threads, one per core by default.

use crate::fd_limit;
use crate::{ProcessError, SystemError};
use std::ffi::OsStr;
use std::thread;
use tokengauge_proxy::TrafficRuntimes;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;

/// The variable that sets the number of threads, as in other programs that use tokio.
const WORKERS: &str = "TOKIO_WORKER_THREADS";

/// Runs `command` on this thread. Tasks that it spawns run on threads that share them. Work that still blocks at the
/// end, such as a disk or a name lookup, does not delay the exit.
pub fn serve(command: impl Future<Output = Result<(), ProcessError>>) -> Result<(), ProcessError> {
    let workers = workers(std::env::var_os(WORKERS).as_deref())?;
    let runtime = made(Builder::new_multi_thread().worker_threads(workers))?;
    let result = runtime.block_on(command);
    runtime.shutdown_background();
    result
}

/// Runs `command` with a separate runtime on each thread, over which it spreads traffic. No thread takes tasks from
/// another. Tasks that `command` spawns itself run on the first thread.
pub fn forward<F>(command: impl FnOnce(TrafficRuntimes) -> F) -> Result<(), ProcessError>
where
    F: Future<Output = Result<(), ProcessError>>,
{
    let workers = workers(std::env::var_os(WORKERS).as_deref())?;
    fd_limit::raise_for(workers);
    // Dropped at the end, also after a panic.
    let (_until_the_end, the_end) = watch::channel(());
    let runtimes: Vec<Handle> = (0..workers)
        .map(|_| run_until(the_end.clone()))
        .collect::<Result<_, _>>()?;
    let first = runtimes[0].clone();
    first.block_on(command(TrafficRuntimes::new(runtimes)))
}

fn run_until(mut the_end: watch::Receiver<()>) -> Result<Handle, ProcessError> {
    let mut builder = Builder::new_current_thread();
    let runtime = made(builder.global_queue_interval(TURNS_BETWEEN_LOOKS))?;
    let handle = runtime.handle().clone();
    let traffic = move || {
        let _ = runtime.block_on(the_end.changed());
        runtime.shutdown_background();
    };
    let named = thread::Builder::new().name("traffic".into());
    named.spawn(traffic).map_err(no_threads)?;
    Ok(handle)
}

/// How many tasks a busy thread polls before it polls for I/O and for tasks from other threads. With a few streams of
/// tiny chunks that are always ready, Tokio's default of 61 takes more than a millisecond, since each poll forwards up
/// to 16 chunks.
const TURNS_BETWEEN_LOOKS: u32 = 8;

fn made(builder: &mut Builder) -> Result<Runtime, SystemError> {
    builder.event_interval(TURNS_BETWEEN_LOOKS);
    builder.enable_all().build().map_err(no_threads)
}

fn no_threads(error: std::io::Error) -> SystemError {
    SystemError::Task("start threads", error)
}

/// The configured number, or the number of cores. A container's CPU limit counts as its number of cores.
fn workers(set: Option<&OsStr>) -> Result<usize, ProcessError> {
    let Some(set) = set else {
        return Ok(thread::available_parallelism().map_or(1, usize::from));
    };
    let number = set.to_str().and_then(|number| number.parse().ok());
    number.filter(|number| *number > 0).ok_or_else(|| {
        ProcessError::Configuration(format!(
            "{WORKERS} is {set:?}: set it to a number of threads of at least 1, or unset it"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_threads_is_one_that_was_set_or_that_of_the_cores() {
        assert_eq!(workers(Some(OsStr::new("3"))).ok(), Some(3));
        assert!(workers(None).is_ok_and(|cores| cores > 0));
        for wrong in ["", "0", "-1", "2.5", "many"] {
            let error = workers(Some(OsStr::new(wrong))).expect_err(wrong);
            let said = error.to_string();
            assert!(
                said.starts_with(&format!("{WORKERS} is {wrong:?}: ")),
                "{said}"
            );
        }
    }
}
