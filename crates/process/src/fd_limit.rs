//! Raises the limit on open files at the start and divides it among connections.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokengauge_proxy::settings::Limits;

/// File descriptors per call: a connection from an agent and one to an upstream.
const PER_CONNECTION: u64 = 2;
/// HTTP/2 streams that are assumed for each connection to an upstream. Streams that wait for a connection need no
/// descriptor, and an upstream may accept many streams on one connection.
const STREAMS_PER_CONNECTION: usize = 8;
/// Upper limit on descriptors reserved for everything else: admin connections, listeners, logs, the ledger, exporters,
/// DNS.
const RESERVED: u64 = 512;
/// Lower limit on reserved descriptors, for an idle process with one admin connection and one traffic thread.
const RESERVED_LEAST: u64 = 32;
/// Descriptors of each further traffic thread: two for epoll, one to wake it, one for signals.
const PER_THREAD: u64 = 4;

/// Maximum size to which the table of open files is grown at the start. It then takes one megabyte.
const MOST: u64 = 128 * 1024;

/// How many connections may be open, so that descriptors remain for everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdLimits {
    /// Connections from agents, at most the configured number.
    pub(crate) agents: usize,
    /// Connections to all upstreams together. Agents with HTTP/2 may need more upstream connections than agent
    /// connections.
    pub(crate) upstreams: usize,
}

impl FdLimits {
    pub(crate) fn apply(self, limits: &mut Limits) {
        limits.connections = self.agents;
        let most = self.upstreams.saturating_mul(STREAMS_PER_CONNECTION);
        limits.total_http2_streams = limits.total_http2_streams.min(most);
    }

    /// Agents get at most half of the descriptors that are not reserved. Upstreams get the rest.
    fn of(files: u64, connections: usize, threads: usize) -> FdLimits {
        let reserved = (files / 4).clamp(RESERVED_LEAST, RESERVED) + of_other_threads(threads);
        let free = usize::try_from(files.saturating_sub(reserved)).unwrap_or(usize::MAX);
        let agents = connections.min(free / 2).max(1);
        FdLimits {
            agents,
            upstreams: free.saturating_sub(agents).max(1),
        }
    }
}

/// Descriptors of all traffic threads except the first.
fn of_other_threads(threads: usize) -> u64 {
    PER_THREAD.saturating_mul(threads.saturating_sub(1) as u64)
}

/// Raises the limit on open files to the hard limit and returns how many connections may be open. Logs a warning if
/// that is not enough for `connections` connections from agents on `threads` traffic threads.
///
/// The kernel doubles a process's table of open files when it is full. In a process with several threads it then waits
/// for all processors, 10 ms or more, during which the thread that opens a connection moves no traffic. So the table is
/// grown at the start.
pub fn raise(connections: usize, threads: usize) -> FdLimits {
    let theirs = (connections as u64).saturating_mul(PER_CONNECTION);
    let others = RESERVED.saturating_add(of_other_threads(threads));
    let wanted = theirs.saturating_add(others);
    let allowed = raised(wanted);
    let limits = FdLimits::of(allowed, connections, threads);
    if limits.agents < connections {
        let agents = limits.agents;
        tracing::warn!(
            "at most {allowed} files may be open, which is enough for {agents} agents at once instead of the \
             {connections} of limits.connections. More agents wait. Raise the limit (LimitNOFILE, ulimit -n), or lower the setting"
        );
    }
    grow(wanted.min(allowed).min(MOST));
    limits
}

pub(crate) fn raise_for(threads: usize) {
    raised(RESERVED.saturating_add(of_other_threads(threads)));
}

/// Raises the soft limit to the hard limit if possible, otherwise to `wanted`. Returns the new limit.
fn raised(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Some systems allow less than their hard limit.
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

/// Grows the table to the size that it has with this many open files.
fn grow(files: u64) {
    let last = i32::try_from(files).unwrap_or(i32::MAX) - 1;
    // If this fails, the table grows later, when it is full.
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
        let limits = |files, connections| {
            let limits = FdLimits::of(files, connections, 1);
            (limits.agents, limits.upstreams)
        };
        assert_eq!(limits(20_000, 10_000), (9_744, 9_744));
        assert_eq!(limits(1 << 20, 10_000), (10_000, (1 << 20) - 512 - 10_000));
        assert_eq!(limits(1024, 100), (100, 1024 - 256 - 100));
        assert_eq!(limits(64, 10_000), (16, 16));
        assert_eq!(limits(20, 10_000), (1, 1), "it still moves");
        assert_eq!(limits(u64::MAX, 10_000).0, 10_000);
        let of_nine_threads = FdLimits::of(1024, 10_000, 9);
        assert_eq!(of_nine_threads.agents, (1024 - 256 - 8 * 4) / 2);
    }

    #[test]
    fn the_limit_is_as_high_as_it_goes_and_the_table_has_room_for_all_connections() {
        let maximum = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let files = maximum.min(4_096);
        raise(((files - RESERVED) / PER_CONNECTION) as usize, 1);
        let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert_eq!(current, maximum);
        assert!(table() >= files - 1, "{} of {files}", table());
        assert_eq!(raised(100), maximum, "what is allowed is not taken away");
        raise(usize::MAX, 1);
        assert!(table() <= 2 * MOST, "{}", table());
    }
}
