//! Processes: which core they run on, how much of it they used, how much memory they
//! hold, and their end.

use anyhow::Context;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setpriority_process, setrlimit,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The two cores of the benchmark: the peer has one to itself.
#[derive(Clone, Copy)]
pub struct Cores {
    pub peer: usize,
    pub load: usize,
}

impl Cores {
    /// The first two this process may use; the same twice where there is one.
    pub fn choose() -> anyhow::Result<Cores> {
        let allowed = sched_getaffinity(None)?;
        let mut usable = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let peer = usable.next().context("no core to run on")?;
        let load = usable.next().unwrap_or(peer);
        Ok(Cores { peer, load })
    }
}

/// Keeps this thread, and what it starts from now on, on one core.
pub fn pin(core: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Puts this process, and what it starts, before others while it lives.
pub struct Preference(());

/// Where Linux keeps the weight of all that a terminal or a job started.
const AUTOGROUP: &str = "/proc/self/autogroup";

impl Preference {
    /// Takes it where that is allowed: what else the machine does then disturbs less.
    pub fn take() -> Option<Preference> {
        setpriority_process(None, -15).ok()?;
        // Not every kernel has it.
        let _ = fs::write(AUTOGROUP, "-15");
        Some(Preference(()))
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        let _ = fs::write(AUTOGROUP, "0");
    }
}

/// Files that may be open here, where the limit allows it.
const FILES: u64 = 16 * 1024;

/// Raises the limit on open files as far as it goes, and makes their table large before
/// there are threads: one that opens a file too many waits for all processors then, which
/// would be noted as latency.
pub fn make_room_for_files() -> anyhow::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    )?;
    let files = maximum.unwrap_or(FILES).min(FILES);
    fcntl_dupfd_cloexec(fs::File::open("/dev/null")?, files as i32 - 1)?;
    Ok(())
}

/// A process and its children, ended when this is dropped.
pub struct Processes {
    root: Child,
}

impl Processes {
    /// Starts it on `core`; everything later starts on `back` again.
    pub fn start(mut command: Command, core: usize, back: usize) -> anyhow::Result<Processes> {
        pin(core)?;
        let started = command
            .spawn()
            .with_context(|| format!("starting {command:?}"));
        pin(back)?;
        Ok(Processes { root: started? })
    }

    /// The pipe from it, once.
    pub fn stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.root.stdout.take()
    }

    /// Whether it ended by itself.
    pub fn ended(&mut self) -> bool {
        !matches!(self.root.try_wait(), Ok(None))
    }

    /// Nanoseconds of processor used so far by the threads that are alive.
    pub fn cpu_nanoseconds(&self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for id in self.ids()? {
            for thread in fs::read_dir(format!("/proc/{id}/task"))? {
                // A thread may end while it is looked at.
                let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else {
                    continue;
                };
                let used = text.split(' ').next().context("an empty schedstat")?;
                sum += used.parse::<u64>()?;
            }
        }
        Ok(sum)
    }

    /// Kilobytes resident, shared pages divided among their users.
    pub fn resident_kb(&self) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for id in self.ids()? {
            let rollup = fs::read_to_string(format!("/proc/{id}/smaps_rollup"))?;
            let line = rollup
                .lines()
                .find_map(|line| line.strip_prefix("Pss:"))
                .context("no Pss")?;
            sum += line.trim().trim_end_matches(" kB").parse::<f64>()?;
        }
        Ok(sum)
    }

    /// Its own id and those of its children: nginx has a master and a worker.
    fn ids(&self) -> anyhow::Result<Vec<u32>> {
        let root = self.root.id();
        let mut ids = vec![root];
        for entry in fs::read_dir("/proc")? {
            let Some(id) = entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            // A process may end while it is looked at.
            let parent = fields_of_stat(id)
                .ok()
                .and_then(|stat| stat[1].parse().ok());
            if parent == Some(root) {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    fn terminate(&mut self) {
        if let Some(id) = Pid::from_raw(self.root.id() as i32) {
            let _ = kill_process(id, Signal::TERM);
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if self.ended() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.root.kill();
        let _ = self.root.wait();
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        if !self.ended() {
            self.terminate();
        }
    }
}

/// The fields after the name, which may itself hold blanks and parentheses.
fn fields_of_stat(id: u32) -> anyhow::Result<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    let (_, fields) = stat.rsplit_once(") ").context("a strange stat")?;
    Ok(fields.split(' ').map(str::to_owned).collect())
}
