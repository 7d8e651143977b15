//! The threads that traffic runs on: as many as there are cores.

use crate::Error;
use std::ffi::OsStr;
use std::thread;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// Sets their number, as it does of other programs that run on tokio.
const WORKERS: &str = "TOKIO_WORKER_THREADS";

/// Runs `command` on this thread, and what it spawns on those of traffic. What is still
/// blocked when it is done (a disk, a name look-up) does not hold up the end.
pub(super) fn serve(command: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let workers = workers(std::env::var_os(WORKERS).as_deref())?;
    if workers == 1 {
        return on_one_core(command);
    }
    let runtime = made(Builder::new_multi_thread().worker_threads(workers))?;
    let result = runtime.block_on(command);
    runtime.shutdown_background();
    result
}

/// With one thread, nobody takes tasks from another: a scheduler that knows that costs less
/// per chunk. As with many, what `command` itself does is not in the way of traffic.
fn on_one_core(command: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let runtime = made(&mut Builder::new_current_thread())?;
    let handle = runtime.handle().clone();
    // Dropped at the end, by a panic, too.
    let (_until_the_end, the_end) = oneshot::channel::<()>();
    let traffic = move || {
        let _ = runtime.block_on(the_end);
        runtime.shutdown_background();
    };
    let named = thread::Builder::new().name("traffic".into());
    named.spawn(traffic).map_err(no_threads)?;
    handle.block_on(command)
}

/// Turns of tasks after which a busy thread asks which other streams can go on. Tokio's own
/// 61 are more than a millisecond where a few streams of tiny chunks have something to do all
/// the time: a turn passes on up to 16 of them.
const TURNS_BETWEEN_LOOKS: u32 = 8;

fn made(builder: &mut Builder) -> Result<Runtime, Error> {
    builder.event_interval(TURNS_BETWEEN_LOOKS);
    builder.enable_all().build().map_err(no_threads)
}

fn no_threads(error: std::io::Error) -> Error {
    Error::Failed(format!("cannot start threads: {error}"))
}

/// The number that was set, else that of the cores: the limit on processor time that a
/// container has counts as cores.
fn workers(set: Option<&OsStr>) -> Result<usize, Error> {
    let Some(set) = set else {
        return Ok(thread::available_parallelism().map_or(1, usize::from));
    };
    let number = set.to_str().and_then(|number| number.parse().ok());
    number.filter(|number| *number > 0).ok_or_else(|| {
        Error::Configuration(format!(
            "{WORKERS} is {set:?}: set it to a number of threads, 1 or more, or not at all"
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
