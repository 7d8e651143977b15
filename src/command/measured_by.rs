//! Describes this program and the machine that it runs on.

use crate::cli::COMMIT;
use std::fs;
use tokengauge_core::fingerprint::{METHOD_VERSION, Machine, MeasuredBy};

pub(super) fn measured_by() -> MeasuredBy {
    MeasuredBy {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: COMMIT.to_owned(),
        method_version: METHOD_VERSION,
        machine: machine(),
    }
}

fn machine() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    Machine {
        cpu: cpu(&read("/proc/cpuinfo")),
        // Respects the CPU quota of the cgroup.
        cores: std::thread::available_parallelism()
            .ok()
            .map(|cores| cores.get() as u64),
        memory_bytes: tokengauge_config::memory_limit()
            .into_iter()
            .chain(memory(&read("/proc/meminfo")))
            .min(),
        platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
    }
}

/// Returns the model of the processor. Linux on ARM does not report it.
fn cpu(info: &str) -> Option<String> {
    let named = info.lines().filter_map(|line| line.split_once(':'));
    let mut models = named.filter(|(name, _)| name.trim() == "model name");
    models.next().map(|(_, model)| model.trim().to_owned())
}

fn memory(info: &str) -> Option<u64> {
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_a_machine_are_read_where_the_kernel_says_them() {
        let info =
            "processor\t: 0\nmodel name\t: Some CPU @ 2.1GHz\nmodel name\t: Some CPU @ 2.1GHz\n";
        assert_eq!(cpu(info).as_deref(), Some("Some CPU @ 2.1GHz"));
        assert_eq!(cpu("BogoMIPS : 50\n"), None);
        assert_eq!(
            memory("MemTotal:       4026532 kB\nMemFree: 1 kB\n"),
            Some(4_026_532 * 1024)
        );
    }
}
