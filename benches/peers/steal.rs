//! CPU time that a hypervisor gives to other machines.

use crate::cores::Cores;
use std::fs;
use std::time::Instant;

pub struct StealTime {
    cores: Cores,
    since: Instant,
    ticks: Vec<u64>,
}

/// Ticks of `/proc/stat` per second.
const TICKS: f64 = 100.0;

impl StealTime {
    pub fn watch(cores: Cores) -> StealTime {
        StealTime {
            cores,
            since: Instant::now(),
            ticks: stolen_ticks(cores),
        }
    }

    /// The stolen share of the core that lost most.
    pub fn share(&self) -> f64 {
        let taken = stolen_ticks(self.cores).into_iter().zip(&self.ticks);
        let most = taken
            .map(|(now, then)| now.saturating_sub(*then))
            .max()
            .unwrap_or(0);
        most as f64 / TICKS / self.since.elapsed().as_secs_f64()
    }
}

/// Stolen ticks per core; 0 if the kernel does not report them, as on physical machines.
fn stolen_ticks(cores: Cores) -> Vec<u64> {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = cores.all().map(|core| {
        let name = format!("cpu{core}");
        let mut lines = text.lines().map(str::split_ascii_whitespace);
        let line = lines.find_map(|mut fields| (fields.next()? == name).then_some(fields));
        // User, nice, system, idle, iowait, irq, softirq, steal.
        let stolen = line.and_then(|mut fields| fields.nth(7)?.parse().ok());
        stolen.unwrap_or(0)
    });
    ticks.collect()
}
