//! Profiles of a peer's CPU time by Linux's `perf`.

use crate::folded::fold;
use crate::process::Processes;
use anyhow::{Context, ensure};
use rustix::thread::CpuSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Samples per second, not a divisor of any timer's rate.
const FREQUENCY: &str = "997";
/// Bytes of stack copied with each sample, because programs are built without frame pointers.
const CALL_GRAPH: &str = "dwarf,8192";
/// Lines of the table.
const SYMBOLS: usize = 40;

/// A recording of some processes.
pub struct Profile {
    perf: Processes,
    data: PathBuf,
}

impl Profile {
    /// Records the processes `ids`, on `cores`, into `target/profiles/NAME.perf.data`. Returns `None` if `perf` is not
    /// installed or there is no process.
    pub fn start(name: &str, ids: &[u32], cores: CpuSet) -> anyhow::Result<Option<Profile>> {
        if ids.is_empty() {
            return Ok(None);
        }
        if !is_installed() {
            println!("MISSING: perf (Debian: linux-perf); no profile of {name}");
            return Ok(None);
        }
        let data = folder()?.join(format!("{name}.perf.data"));
        let ids: Vec<_> = ids.iter().map(u32::to_string).collect();
        let mut command = Command::new("perf");
        command
            .args(["record", "-q", "-F", FREQUENCY, "--call-graph", CALL_GRAPH])
            .args(["-p", &ids.join(","), "-o"])
            .arg(&data);
        let perf = Processes::start(command, cores, cores)?;
        Ok(Some(Profile { perf, data }))
    }

    /// Ends the recording, prints the symbols with most samples, and writes folded stacks for flame graphs.
    pub fn finish(self) -> anyhow::Result<()> {
        let Profile { mut perf, data } = self;
        perf.interrupt()?;
        print_symbols(&data)?;
        let script = ["script", "--no-inline", "-F", "comm,ip,sym"];
        let folded = data.with_extension("").with_extension("folded");
        fs::write(&folded, fold(&output(&script, &data)?))?;
        println!("stacks: {}", folded.display());
        Ok(())
    }
}

fn is_installed() -> bool {
    let version = Command::new("perf").arg("version").output();
    version.is_ok_and(|done| done.status.success())
}

/// Returns `target/profiles`, derived from this program's folder `target/PROFILE/deps`.
fn folder() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(3).context("no target folder")?;
    let folder = target.join("profiles");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn print_symbols(data: &Path) -> anyhow::Result<()> {
    let report = [
        "report",
        "--stdio",
        "--no-children",
        "--no-inline",
        "-g",
        "none",
    ];
    let report = output(&[&report[..], &["-F", "overhead,sym"]].concat(), data)?;
    println!("\n{}: symbols with most samples", data.display());
    let lines = report.lines().map(str::trim_end);
    let symbols = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    symbols.take(SYMBOLS).for_each(|line| println!("{line}"));
    Ok(())
}

fn output(arguments: &[&str], data: &Path) -> anyhow::Result<String> {
    let mut command = Command::new("perf");
    let done = command
        .args(arguments)
        .arg("-i")
        .arg(data)
        .stderr(Stdio::null());
    let done = done.output().context("perf")?;
    ensure!(done.status.success(), "perf {} failed", arguments[0]);
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
