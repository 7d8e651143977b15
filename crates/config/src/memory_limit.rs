//! The memory limit of the process: the lowest limit of its cgroup and the parent cgroups.

use std::fs;
use std::path::{Path, PathBuf};
use tokengauge_core::memory::DEFAULT_BYTES;

/// Minimum memory for measuring, however low the limit is.
const LEAST: usize = 8 << 20;
/// Measuring may use the limit divided by this. The rest is for open streams, the process itself, and the kernel's
/// socket buffers, which also count.
const PART: u64 = 4;

/// Bytes of the limit per open stream. A stream takes about a quarter of this, without the kernel's buffers.
const BYTES_PER_STREAM: u64 = 64 << 10;

/// Default of `total_http2_streams`. The descriptors for upstreams also limit the streams.
pub(crate) fn default_streams() -> usize {
    let streams =
        limit().map(|limit| usize::try_from(limit / BYTES_PER_STREAM).unwrap_or(usize::MAX));
    streams.unwrap_or(usize::MAX).max(1)
}

pub(crate) fn default_bytes() -> usize {
    of_limit(limit())
}

/// Logs a warning if `memory_bytes` is so high that the process may run out of memory.
pub fn warn_of(memory_bytes: usize) {
    if let Some(limit) = limit().filter(|limit| memory_bytes as u64 > limit / 2) {
        tracing::warn!(
            memory_bytes,
            limit,
            "measuring may hold more than half of the memory that the cgroup allows: lower \
             measure.memory_bytes or raise the limit, or the process may be killed under load"
        );
    }
}

fn of_limit(limit: Option<u64>) -> usize {
    let part = limit.map(|limit| usize::try_from(limit / PART).unwrap_or(usize::MAX));
    part.map_or(DEFAULT_BYTES, |part| part.clamp(LEAST, DEFAULT_BYTES))
}

/// The lowest limit that applies to this process, in bytes. `None` if there is none.
pub fn limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let folders = folders(&groups, &mounts);
    let limits = folders.iter().filter_map(|folder| limit_of(folder));
    limits.min()
}

/// The limit that one cgroup folder sets. For no limit, version 1 has a number near 2^63 and version 2 the word `max`.
fn limit_of(folder: &Path) -> Option<u64> {
    let files = ["memory.max", "memory.limit_in_bytes"];
    let texts = files
        .iter()
        .filter_map(|file| fs::read_to_string(folder.join(file)).ok());
    let limits = texts.filter_map(|text| text.trim().parse().ok());
    limits.filter(|limit| *limit < i64::MAX as u64 / 2).min()
}

/// The visible folders of the process's cgroup and its parents, in each hierarchy that limits memory.
fn folders(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let unified = controllers.is_empty();
        if !unified && !controllers.split(',').any(|name| name == "memory") {
            continue;
        }
        let mounted = mounts
            .lines()
            .filter_map(|mount| Mount::read(mount, unified));
        for mount in mounted {
            found.extend(mount.folders(path));
        }
    }
    found
}

struct Mount<'a> {
    /// The path within the hierarchy that is mounted.
    root: &'a str,
    point: &'a Path,
}

impl<'a> Mount<'a> {
    /// Reads a line of `mountinfo`: `id parent device root point options … - type source options`. Returns `None` if it
    /// is for another hierarchy.
    fn read(line: &'a str, unified: bool) -> Option<Mount<'a>> {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (name, options) = (kind.next()?, kind.nth(1)?);
        let fits = if unified {
            name == "cgroup2"
        } else {
            name == "cgroup" && options.split(',').any(|option| option == "memory")
        };
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        let point = Path::new(point);
        fits.then_some(Mount { root, point })
    }

    /// The folder of the cgroup at `path`, and its parents up to the mount.
    fn folders(&self, path: &str) -> Vec<PathBuf> {
        // A container sees its own cgroup mounted, but the path is relative to the host's root.
        let below = Path::new(path)
            .strip_prefix(self.root)
            .unwrap_or(Path::new(""));
        let ancestors = below.ancestors();
        ancestors.map(|below| self.point.join(below)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(groups: &str, mounts: &str) -> Vec<String> {
        let folders = folders(groups, mounts);
        folders
            .iter()
            .map(|folder| folder.display().to_string())
            .collect()
    }

    #[test]
    fn version_2_is_read_from_the_cgroup_up() {
        let mounts =
            "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            seen("0::/a.slice/b.scope\n", mounts),
            [
                "/sys/fs/cgroup/a.slice/b.scope",
                "/sys/fs/cgroup/a.slice",
                "/sys/fs/cgroup/"
            ]
        );
        assert_eq!(seen("0::/\n", mounts), ["/sys/fs/cgroup/"]);
    }

    #[test]
    fn version_1_is_read_where_its_memory_is_mounted_and_as_a_container_sees_it() {
        let groups = "5:devices:/x\n4:memory:/kubepods/pod1/c1\n1:cpu,cpuacct:/x\n0::/\n";
        let whole = "9 1 0:3 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                     9 1 0:3 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        assert_eq!(
            seen(groups, whole),
            [
                "/sys/fs/cgroup/memory/kubepods/pod1/c1",
                "/sys/fs/cgroup/memory/kubepods/pod1",
                "/sys/fs/cgroup/memory/kubepods",
                "/sys/fs/cgroup/memory/",
            ]
        );
        let own = "9 1 0:3 /kubepods/pod1/c1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        assert_eq!(seen(groups, own), ["/sys/fs/cgroup/memory/"]);
    }

    #[test]
    fn a_quarter_of_the_limit_is_held_within_bounds() {
        assert_eq!(of_limit(None), 256 << 20);
        assert_eq!(of_limit(Some(384 << 20)), 96 << 20);
        assert_eq!(of_limit(Some(64 << 30)), 256 << 20);
        assert_eq!(of_limit(Some(1 << 20)), 8 << 20);
    }

    #[test]
    fn a_limit_is_the_number_in_either_file_and_none_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |file, text| std::fs::write(folder.path().join(file), text).expect("written");
        assert_eq!(limit_of(folder.path()), None);
        write("memory.max", "max\n");
        assert_eq!(limit_of(folder.path()), None);
        write("memory.max", "402653184\n");
        assert_eq!(limit_of(folder.path()), Some(384 << 20));
        write("memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit_of(folder.path()), Some(384 << 20));
    }
}
