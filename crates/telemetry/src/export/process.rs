//! Resource usage of the process, from `/proc/self` on Linux.

use std::fs;

/// Clock ticks per second of CPU times in Linux, on every architecture.
const TICKS: f64 = 100.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
    pub open_files: u64,
    pub threads: u64,
}

pub fn figures() -> Option<Process> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    Some(Process {
        cpu_seconds: cpu_seconds(&stat)?,
        resident_bytes: status_field(&status, "VmRSS:")? * 1024,
        open_files: open_files()?,
        threads: status_field(&status, "Threads:")?,
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

/// Fields 14 and 15 of `stat`. The name in field 2 may contain spaces and parentheses.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let behind_name = stat.rsplit_once(") ")?.1;
    let mut fields = behind_name.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) as f64 / TICKS)
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
