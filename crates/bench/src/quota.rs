//! Pauses of this process by the CPU quota of its cgroup.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CGROUPS: &str = "/sys/fs/cgroup";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// The number of quota periods with a pause.
    pub periods: u64,
    /// The pauses of all CPUs together.
    pub time: Duration,
}

impl Throttled {
    /// Returns the pauses since the cgroup was created; zero outside Linux and without a quota.
    pub fn so_far() -> Throttled {
        let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Throttled::of(&membership, Path::new(CGROUPS))
    }

    pub fn since(self, earlier: Throttled) -> Throttled {
        Throttled {
            periods: self.periods.saturating_sub(earlier.periods),
            time: self.time.saturating_sub(earlier.time),
        }
    }

    pub fn pause(self) -> f64 {
        self.time.as_secs_f64() / self.periods.max(1) as f64
    }

    /// Sums over the cgroups of the process, because the quota of any ancestor pauses it. A container sees the host
    /// path of its cgroup but only a part of the tree, so missing paths are skipped.
    fn of(membership: &str, root: &Path) -> Throttled {
        let files: BTreeSet<_> = membership
            .lines()
            .flat_map(|line| stats(line, root))
            .collect();
        let texts = files
            .iter()
            .filter_map(|file| std::fs::read_to_string(file).ok());
        texts.fold(Throttled::default(), |sum, text| {
            let one = Throttled::parse(&text);
            Throttled {
                periods: sum.periods + one.periods,
                time: sum.time + one.time,
            }
        })
    }

    /// Parses a `cpu.stat`. Version 2 uses microseconds, version 1 nanoseconds.
    fn parse(text: &str) -> Throttled {
        let value = |name: &str| -> Option<u64> {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
        };
        let time = value("throttled_usec").map(Duration::from_micros);
        let time = time.or_else(|| value("throttled_time").map(Duration::from_nanos));
        Throttled {
            periods: value("nr_throttled").unwrap_or_default(),
            time: time.unwrap_or_default(),
        }
    }
}

/// Returns the `cpu.stat` files of a cgroup and its ancestors, from a line `ID:CONTROLLERS:PATH` of
/// `/proc/self/cgroup`.
fn stats(line: &str, root: &Path) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
        return Vec::new();
    };
    let hierarchy = match controllers {
        "" => root.to_owned(), // version 2
        _ if controllers.split(',').any(|name| name == "cpu") => root.join("cpu"),
        _ => return Vec::new(),
    };
    let ancestors = Path::new(path.trim_start_matches('/')).ancestors();
    ancestors
        .map(|group| hierarchy.join(group).join("cpu.stat"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (file, text) in files {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            std::fs::write(file, text).expect("written");
        }
        root
    }

    #[test]
    fn quotas_of_both_versions_and_of_ancestors_count() {
        let second = tree(&[
            ("cpu.stat", "usage_usec 5\n"),
            (
                "pod/cpu.stat",
                "nr_periods 9\nnr_throttled 3\nthrottled_usec 150000\n",
            ),
            (
                "pod/container/cpu.stat",
                "nr_throttled 1\nthrottled_usec 50000\n",
            ),
        ]);
        let found = Throttled::of("0::/pod/container\n", second.path());
        let wanted = |periods, milliseconds| Throttled {
            periods,
            time: Duration::from_millis(milliseconds),
        };
        assert_eq!(found, wanted(4, 200));
        assert!((found.pause() - 0.05).abs() < 1e-12);
        // Docker with version 1: the path is the host's, and the files are at the root.
        let first = tree(&[("cpu/cpu.stat", "nr_throttled 2\nthrottled_time 90000000\n")]);
        let membership = "5:memory:/docker/1f\n4:cpu,cpuacct:/docker/1f\n1:name=systemd:/\n";
        assert_eq!(Throttled::of(membership, first.path()), wanted(2, 90));
        assert_eq!(Throttled::of("", first.path()), Throttled::default());
    }
}
