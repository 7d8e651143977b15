//! Processes: which core they run on, how much CPU time they used and a hypervisor stole, how
//! much memory they have, and how they are ended.

use anyhow::Context;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setpriority_process, setrlimit,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use std::fs;
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The two cores of the benchmark: the peer has one to itself.
#[derive(Clone, Copy, Debug)]
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

/// Raises the priority of this process and of those it starts, so that other processes of the
/// machine disturb less. Returns whether that is allowed.
pub fn raise_priority() -> bool {
    setpriority_process(None, -15).is_ok()
}

/// The greatest size of the table of open files.
const FILES: u64 = 16 * 1024;

/// Raises the limit on open files to its maximum, and enlarges the table of open files before
/// there are threads: enlarging it later makes a thread wait for all processors, which would
/// be measured as latency.
pub fn raise_file_limit() -> anyhow::Result<()> {
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

/// Keeps the cores from idling until it is dropped: an idle core of a virtual machine may wake
/// up milliseconds late, which would be measured as latency. A thread of low priority on each
/// core sleeps for short times. Busy loops instead would delay the kernel's own threads, such
/// as those that receive packets.
pub struct KeepAwake {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Shorter than the time after which a hypervisor takes an idle core away.
const NAP: Duration = Duration::from_micros(50);

impl KeepAwake {
    /// Starts the threads.
    pub fn keep(cores: Cores) -> KeepAwake {
        let stop = Arc::new(AtomicBool::new(false));
        let nap = |core| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                // Each of these may not be allowed; the thread then sleeps without it.
                let _ = pin(core);
                let _ = setpriority_process(None, 19);
                let _ = set_current_timer_slack(NonZeroU64::new(1000));
                while !stop.load(Ordering::Relaxed) {
                    thread::sleep(NAP);
                }
            })
        };
        let threads = [cores.peer, cores.load].map(nap).into();
        KeepAwake { stop, threads }
    }
}

impl Drop for KeepAwake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The time of the two cores that a hypervisor gives to others, since this was created.
pub struct StealTime {
    cores: Cores,
    since: Instant,
    ticks: [u64; 2],
}

/// Ticks of `/proc/stat` in a second.
const TICKS: f64 = 100.0;

impl StealTime {
    /// Starts to measure.
    pub fn watch(cores: Cores) -> StealTime {
        StealTime {
            cores,
            since: Instant::now(),
            ticks: stolen_ticks(cores),
        }
    }

    /// The share of stolen time of the core that lost more.
    pub fn share(&self) -> f64 {
        let taken = stolen_ticks(self.cores).into_iter().zip(self.ticks);
        let most = taken
            .map(|(now, then)| now.saturating_sub(then))
            .max()
            .unwrap_or(0);
        most as f64 / TICKS / self.since.elapsed().as_secs_f64()
    }
}

/// The ticks stolen from both cores so far; 0 where the kernel does not count them.
fn stolen_ticks(cores: Cores) -> [u64; 2] {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    [cores.peer, cores.load].map(|core| {
        let name = format!("cpu{core}");
        let mut lines = text.lines().map(str::split_ascii_whitespace);
        let line = lines.find_map(|mut fields| (fields.next()? == name).then_some(fields));
        // user, nice, system, idle, iowait, irq, softirq, steal
        let stolen = line.and_then(|mut fields| fields.nth(7)?.parse().ok());
        stolen.unwrap_or(0)
    })
}

/// Ends this process when its standard input ends, which happens when the parent ends.
pub fn end_with_parent() {
    thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
}

/// The same command with idle priority: it runs only when no other process wants its core.
/// `chrt` is of util-linux.
pub fn with_idle_priority(command: &Command) -> Command {
    let mut idle = Command::new("chrt");
    idle.args(["--idle", "0"])
        .arg(command.get_program())
        .args(command.get_args());
    idle
}

/// A process and its children, ended when this is dropped.
pub struct Processes {
    root: Child,
}

impl Processes {
    /// Starts a process on `core`, and pins this thread to `back` again.
    pub fn start(mut command: Command, core: usize, back: usize) -> anyhow::Result<Processes> {
        pin(core)?;
        let started = command
            .spawn()
            .with_context(|| format!("starting {command:?}"));
        pin(back)?;
        Ok(Processes { root: started? })
    }

    /// The pipe from its standard output; `None` after the first call.
    pub fn stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.root.stdout.take()
    }

    /// Whether it has ended by itself.
    pub fn ended(&mut self) -> bool {
        !matches!(self.root.try_wait(), Ok(None))
    }

    /// CPU time in nanoseconds that its living threads have used so far.
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

/// The fields after the name, which may itself hold blanks and parentheses.
fn fields_of_stat(id: u32) -> anyhow::Result<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    let (_, fields) = stat.rsplit_once(") ").context("a strange stat")?;
    Ok(fields.split(' ').map(str::to_owned).collect())
}
