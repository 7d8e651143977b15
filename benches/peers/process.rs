//! Processes: priority, files, CPU time, memory, and their end.

use crate::cores::pin;
use anyhow::Context;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setpriority_process, setrlimit,
};
use rustix::thread::CpuSet;
use std::fs;
use std::io::{self, Read};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

/// Raises the priority of this process and of processes that it starts, if the system allows it, so that other work of
/// the machine disturbs less.
pub fn raise_priority() -> bool {
    setpriority_process(None, -15).is_ok()
}

/// Enlarges the table of open files before there are threads, because growing it later waits for all processors, which
/// would count as latency. Raises the limit as far as possible without root, and to `files` as root.
pub fn make_room_for_files(files: u64) -> anyhow::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raise = |limit| {
        let both = Rlimit {
            current: limit,
            maximum: limit,
        };
        setrlimit(Resource::Nofile, both)
    };
    // Only root may exceed the maximum.
    let wanted = Some(maximum.unwrap_or(files).max(files));
    if raise(wanted).is_err() {
        raise(maximum)?;
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(files);
    let files = limit.min(files);
    fcntl_dupfd_cloexec(fs::File::open("/dev/null")?, files as i32 - 1)?;
    Ok(())
}

pub fn file_limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| limit as usize)
}

/// Ends this process when its standard input closes, which happens when the parent ends.
pub fn end_with_parent() {
    thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
}

/// Wraps a command so that it runs only on idle cores, by a command of util-linux.
pub fn with_idle_priority(command: &Command) -> Command {
    let mut behind = Command::new("chrt");
    behind
        .args(["--idle", "0"])
        .arg(command.get_program())
        .args(command.get_args());
    behind
}

/// A process and its children, ended on drop.
pub struct Processes {
    root: Child,
}

impl Processes {
    /// Starts the process on `cores`; later processes start on `back` again.
    pub fn start(mut command: Command, cores: CpuSet, back: CpuSet) -> anyhow::Result<Processes> {
        pin(cores)?;
        let started = command
            .spawn()
            .with_context(|| format!("starting {command:?}"));
        pin(back)?;
        Ok(Processes { root: started? })
    }

    /// Takes the pipe of the process's output.
    pub fn stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.root.stdout.take()
    }

    pub fn ended(&mut self) -> bool {
        !matches!(self.root.try_wait(), Ok(None))
    }

    pub fn cpu_nanoseconds(&self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for id in self.ids()? {
            for thread in fs::read_dir(format!("/proc/{id}/task"))? {
                // A thread may end while its file is read.
                let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else {
                    continue;
                };
                let used = text.split(' ').next().context("an empty schedstat")?;
                sum += used.parse::<u64>()?;
            }
        }
        Ok(sum)
    }

    /// Resident memory in kilobytes, with shared pages divided among their users.
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

    /// The ids of the process and of its children: nginx has a master and a worker.
    pub fn ids(&self) -> anyhow::Result<Vec<u32>> {
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
            // A process may end while its file is read.
            let parent = fields_of_stat(id)
                .ok()
                .and_then(|stat| stat[1].parse().ok());
            if parent == Some(root) {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    /// Sends SIGINT and waits for the end.
    pub fn interrupt(&mut self) -> anyhow::Result<()> {
        let id = Pid::from_raw(self.root.id() as i32).context("no process")?;
        kill_process(id, Signal::INT)?;
        self.root.wait()?;
        Ok(())
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
            thread::sleep(Duration::from_millis(5));
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

/// The fields after the name, which may itself contain blanks and parentheses.
fn fields_of_stat(id: u32) -> anyhow::Result<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    let (_, fields) = stat.rsplit_once(") ").context("a strange stat")?;
    Ok(fields.split(' ').map(str::to_owned).collect())
}
