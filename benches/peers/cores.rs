//! The cores on which peer and load run.

use anyhow::Context;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::OnceLock;

/// Cores of the benchmark. The peer has separate cores if there are enough.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    pub peer: CpuSet,
    pub load: CpuSet,
    load_core: usize,
    /// Whether the peer may also run on the load's core.
    pub shared: bool,
}

impl Cores {
    /// Chooses one core per worker of the peer, as far as available. The second usable core is the load's, and is
    /// shared if there are too few others.
    pub fn choose(workers: usize) -> anyhow::Result<Cores> {
        let mut usable = usable_cores()?;
        let first = *usable.first().context("no core to run on")?;
        let load_core = *usable.get(1).unwrap_or(&first);
        usable.retain(|core| *core != load_core);
        let shared = usable.len() < workers;
        if shared {
            usable.push(load_core);
        }
        usable.truncate(workers);
        Ok(Cores {
            peer: set_of(&usable),
            load: set_of(&[load_core]),
            load_core,
            shared,
        })
    }

    pub fn all(&self) -> impl Iterator<Item = usize> {
        let (peer, load) = (self.peer, self.load);
        (0..CpuSet::MAX_CPU).filter(move |core| peer.is_set(*core) || load.is_set(*core))
    }
}

impl std::fmt::Display for Cores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let peer = (0..CpuSet::MAX_CPU).filter(|core| self.peer.is_set(*core));
        let peer: Vec<_> = peer.map(|core| core.to_string()).collect();
        let (peer, load) = (peer.join(", "), self.load_core);
        write!(f, "cores of the peer: {peer}; of load and backend: {load}")?;
        if self.shared {
            f.write_str("; the peer shares that core, because there are too few cores")
        } else {
            Ok(())
        }
    }
}

/// The cores that this process could use at its start.
fn usable_cores() -> anyhow::Result<Vec<usize>> {
    static USABLE: OnceLock<Vec<usize>> = OnceLock::new();
    let allowed = sched_getaffinity(None)?;
    let usable = USABLE.get_or_init(|| {
        let all = 0..CpuSet::MAX_CPU;
        all.filter(|core| allowed.is_set(*core)).collect()
    });
    Ok(usable.clone())
}

pub fn set_of(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    set
}

/// Restricts this thread, and processes and threads that it starts later, to these cores.
pub fn pin(cores: CpuSet) -> anyhow::Result<()> {
    Ok(sched_setaffinity(None, &cores)?)
}
