//! Open files: as many as agents' connections may need, and room for them from the beginning.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A connection of an agent, and one to its upstream.
const PER_CONNECTION: u64 = 2;
/// Listeners, logs, the ledger, exporters, look-ups of names.
const BESIDES: u64 = 128;

/// Lets the process open files for so many connections of agents, as far as its hard limit
/// goes, and tells where that is not enough.
///
/// The kernel grows a process's table of files when it is full, each time to twice its size.
/// Where there are several threads it waits for all processors then, 10 ms and more, in which
/// the thread that was to open a connection moves no traffic. So the table is made large at
/// the beginning.
pub(super) fn make_room(connections: usize) {
    let wanted = (connections as u64)
        .saturating_mul(PER_CONNECTION)
        .saturating_add(BESIDES);
    let allowed = allow(wanted);
    if allowed < wanted {
        let enough_for = allowed.saturating_sub(BESIDES) / PER_CONNECTION;
        tracing::warn!(
            "at most {allowed} files may be open, enough for some {enough_for} agents at once, not for the \
             {connections} of limits.connections: raise the limit (LimitNOFILE, ulimit -n), or lower the setting"
        );
    }
    grow(wanted.min(allowed));
}

/// Raises the soft limit to `wanted`, or as far as it goes; gives what it is then.
fn allow(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let current = current.unwrap_or(u64::MAX);
    if current >= wanted {
        return current;
    }
    let raised = wanted.min(maximum.unwrap_or(u64::MAX));
    let limit = Rlimit {
        current: Some(raised),
        maximum,
    };
    setrlimit(Resource::Nofile, limit).map_or(current, |()| raised)
}

/// Makes the table as large as it is when this many files are open.
fn grow(files: u64) {
    let last = i32::try_from(files).unwrap_or(i32::MAX) - 1;
    // Where it fails, the table grows when it has to.
    let file = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let _ = file.and_then(|file| fcntl_dupfd_cloexec(file, last));
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn table() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        size.and_then(|size| size.trim().parse().ok())
            .expect("a number")
    }

    #[test]
    fn the_limit_and_the_table_have_room_for_all_connections() {
        let maximum = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert!(
            maximum >= 4_096,
            "a hard limit of {maximum} is too low for this test"
        );
        make_room(1_900);
        let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!(current >= 3_928, "{current}");
        assert!(table() >= 3_928, "{}", table());
        assert_eq!(allow(100), current, "what is allowed is not taken away");
        if maximum < u64::MAX {
            assert_eq!(allow(u64::MAX), maximum);
        }
    }
}
