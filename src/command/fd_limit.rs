//! Open files: who may have how many, and room for them from the beginning.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A connection of an agent, and one to its upstream.
const PER_CONNECTION: u64 = 2;
/// Set apart for all else, where there are many: operators' connections, listeners, logs, the
/// ledger, exporters, look-ups of names.
const RESERVED: u64 = 512;
/// The same where there are few: what a process without traffic needs, and an operator.
const RESERVED_LEAST: u64 = 32;

/// What there is room for from the beginning at most: a table of a megabyte.
const MOST: u64 = 128 * 1024;

/// How many connections may be open at once, so that files are left for all else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Connections of agents, as many as were asked for at most.
    pub(super) agents: usize,
    /// Connections to all upstreams together. HTTP/2 agents may need more of them than there
    /// are of their own.
    pub(super) upstreams: usize,
}

impl Room {
    /// Agents have half of what is not set apart at most, upstreams the rest.
    fn of(files: u64, connections: usize) -> Room {
        let reserved = (files / 4).clamp(RESERVED_LEAST, RESERVED);
        let free = usize::try_from(files.saturating_sub(reserved)).unwrap_or(usize::MAX);
        let agents = connections.min(free / 2).max(1);
        Room {
            agents,
            upstreams: free.saturating_sub(agents).max(1),
        }
    }
}

/// Lets the process open as many files as its hard limit allows, and says where that is not
/// enough for so many connections of agents. Gives who may have how many.
///
/// The kernel grows a process's table of files when it is full, each time to twice its size.
/// Where there are several threads it waits for all processors then, 10 ms and more, in which
/// the thread that was to open a connection moves no traffic. So the table is made large at
/// the beginning.
pub(super) fn make_room(connections: usize) -> Room {
    let theirs = (connections as u64).saturating_mul(PER_CONNECTION);
    let wanted = theirs.saturating_add(RESERVED);
    let allowed = raised(wanted);
    let room = Room::of(allowed, connections);
    if room.agents < connections {
        let agents = room.agents;
        tracing::warn!(
            "at most {allowed} files may be open, enough for {agents} agents at once, not for the \
             {connections} of limits.connections; more agents wait: raise the limit (LimitNOFILE, ulimit -n), or lower the setting"
        );
    }
    grow(wanted.min(allowed).min(MOST));
    room
}

/// Raises the soft limit as far as it goes, or at least to `wanted`; gives what it is then.
fn raised(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Some systems allow less than their hard limit says.
    let least = Some(wanted.min(maximum.unwrap_or(u64::MAX)));
    for goal in [maximum, least] {
        let enough = current.unwrap_or(u64::MAX) >= goal.unwrap_or(u64::MAX);
        let limit = Rlimit {
            current: goal,
            maximum,
        };
        if !enough && setrlimit(Resource::Nofile, limit).is_ok() {
            return goal.unwrap_or(u64::MAX);
        }
    }
    current.unwrap_or(u64::MAX)
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
    fn files_are_left_for_operators_however_many_connections_there_are() {
        let room = |files, connections| {
            let room = Room::of(files, connections);
            (room.agents, room.upstreams)
        };
        assert_eq!(room(20_000, 10_000), (9_744, 9_744));
        assert_eq!(room(1 << 20, 10_000), (10_000, (1 << 20) - 512 - 10_000));
        assert_eq!(room(1024, 100), (100, 1024 - 256 - 100));
        assert_eq!(room(64, 10_000), (16, 16));
        assert_eq!(room(20, 10_000), (1, 1), "it still moves");
        assert_eq!(room(u64::MAX, 10_000).0, 10_000);
    }

    #[test]
    fn the_limit_is_as_high_as_it_goes_and_the_table_has_room_for_all_connections() {
        let maximum = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let files = maximum.min(4_096);
        make_room(((files - RESERVED) / PER_CONNECTION) as usize);
        let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert_eq!(current, maximum);
        assert!(table() >= files - 1, "{} of {files}", table());
        assert_eq!(raised(100), maximum, "what is allowed is not taken away");
        make_room(usize::MAX);
        assert!(table() <= 2 * MOST, "{}", table());
    }
}
