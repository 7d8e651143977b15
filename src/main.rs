//! Command line, run, exit code.

use clap::Parser;
use mimalloc::MiMalloc;
use std::process::ExitCode;
use tokengauge::{Error, cli::Cli};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The exit code where a part was left out, where what was looked for is there, or where it is not known.
const LEFT_OUT: u8 = 3;
/// `EX_CONFIG` of sysexits.h.
const BAD_CONFIGURATION: u8 = 78;

fn main() -> ExitCode {
    match tokengauge::run(Cli::parse()) {
        Ok(()) | Err(Error::OutputClosed) => ExitCode::SUCCESS,
        Err(error) => {
            error.print();
            match error {
                Error::Configuration(_) => ExitCode::from(BAD_CONFIGURATION),
                Error::LeftOut(_) | Error::Found(_) | Error::Undecided(_) => {
                    ExitCode::from(LEFT_OUT)
                }
                Error::Failed(_) | Error::Address(_) | Error::OutputClosed => ExitCode::FAILURE,
            }
        }
    }
}
