//! Resource usage of the process, from `/proc/self` on Linux.

use std::fs;

/// Clock ticks per second of CPU times in Linux, on every architecture.
const TICKS: f64 = 100.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
    pub open_files: u64,
    pub max_open_files: u64,
    pub threads: u64,
    /// When the process started, in seconds since 1970.
    pub started: f64,
}

pub fn figures() -> Option<Process> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    Some(Process {
        cpu_seconds: cpu_seconds(&stat)?,
        resident_bytes: status_field(&status, "VmRSS:")? * 1024,
        open_files: open_files()?,
        max_open_files: max_open_files(&fs::read_to_string("/proc/self/limits").ok()?)?,
        threads: status_field(&status, "Threads:")?,
        started: started(&stat, &fs::read_to_string("/proc/stat").ok()?)?,
    })
}

/// Since Linux 6.2 the size of the folder is the number of files. Listing some hundred files takes
/// half a millisecond.
fn open_files() -> Option<u64> {
    const FOLDER: &str = "/proc/self/fd";
    match fs::metadata(FOLDER).ok()?.len() {
        0 => listed(FOLDER),
        number => Some(number),
    }
}

/// Counts the files without the descriptor of the listing.
fn listed(folder: &str) -> Option<u64> {
    let number = fs::read_dir(folder).ok()?.count() as u64;
    Some(number.saturating_sub(1))
}

fn status_field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The soft limit. A process without a limit may open as many files as an integer can count.
fn max_open_files(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    let limit = line.split_whitespace().next()?;
    Some(limit.parse().unwrap_or(u64::MAX))
}

/// The user and the system time.
fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((stat_field(stat, 14)? + stat_field(stat, 15)?) as f64 / TICKS)
}

/// The boot time, from `/proc/stat`, plus the time from boot to start.
fn started(stat: &str, system: &str) -> Option<f64> {
    let booted = system
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?;
    let booted: u64 = booted.trim().parse().ok()?;
    Some(booted as f64 + stat_field(stat, 22)? as f64 / TICKS)
}

/// A field of `/proc/self/stat` by its number in the manual page, proc_pid_stat(5). The name in field 2 may contain spaces and
/// parentheses.
fn stat_field(stat: &str, number: usize) -> Option<u64> {
    let behind_name = stat.rsplit_once(") ")?.1;
    behind_name.split(' ').nth(number - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_a_name_with_blanks() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 100 1 2";
        assert_eq!(cpu_seconds(stat), Some(3.0));
    }

    #[test]
    fn the_start_is_counted_from_boot() {
        let stat = "7 (x) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 150 1 2";
        assert_eq!(
            started(stat, "cpu 1 2\nbtime 1000\nprocesses 5\n"),
            Some(1001.5)
        );
        assert_eq!(started(stat, "cpu 1 2\n"), None);
    }

    #[test]
    fn the_limit_on_open_files_is_the_soft_one() {
        let limits = "Max processes 1 2 processes\nMax open files            1024                 1048576              files\n";
        assert_eq!(max_open_files(limits), Some(1_024));
        assert_eq!(
            max_open_files("Max open files unlimited unlimited files"),
            Some(u64::MAX)
        );
        assert_eq!(max_open_files(""), None);
    }

    #[test]
    fn status_fields_are_read_by_name() {
        let status = "Name:\tx\nVmRSS:\t    1234 kB\nThreads:\t5\n";
        assert_eq!(status_field(status, "VmRSS:"), Some(1234));
        assert_eq!(status_field(status, "Threads:"), Some(5));
        assert_eq!(status_field(status, "VmSwap:"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_memory_files_and_threads() {
        let figures = figures().expect("Linux tells");
        assert!(figures.resident_bytes > 1 << 20);
        assert!(figures.threads > 0);
        assert!(figures.max_open_files >= figures.open_files);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let age = now.expect("after 1970").as_secs_f64() - figures.started;
        assert!((-2.0..3_600.0).contains(&age), "started {age} s ago");
        let more = 200;
        let files: Vec<_> = (0..more).map(|_| fs::File::open("/dev/null")).collect();
        assert!(files.iter().all(Result::is_ok));
        // Other tests of this program also open files.
        for number in [open_files(), listed("/proc/self/fd")] {
            let number = number.expect("Linux tells");
            assert!((more..more + 100).contains(&number), "{number}");
        }
    }
}
