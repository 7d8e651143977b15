//! A cgroup with a memory limit for a process of the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokengauge_test_support::skip::skipped;
use tokio::process::Command;

/// Names of the files of a memory controller.
struct Controller {
    limit: &'static str,
    swap: &'static str,
    peak: &'static str,
}

const V1: Controller = Controller {
    limit: "memory.limit_in_bytes",
    swap: "memory.memsw.limit_in_bytes",
    peak: "memory.max_usage_in_bytes",
};
const V2: Controller = Controller {
    limit: "memory.max",
    swap: "memory.swap.max",
    peak: "memory.peak",
};

/// A cgroup that is removed on drop.
pub struct Cgroup {
    path: PathBuf,
    controller: Controller,
}

impl Cgroup {
    /// Creates a cgroup of `bytes` below the cgroup of this process. Returns `None` on a machine that does not allow
    /// it. With `CI=true` that is an error.
    pub fn limited(bytes: u64) -> Option<Cgroup> {
        match Cgroup::make(bytes) {
            Ok(cgroup) => Some(cgroup),
            Err(why) => {
                assert!(
                    std::env::var("CI").as_deref() != Ok("true"),
                    "no cgroup with a memory limit can be made: {why}; run the tests as root, \
                     with a memory controller that may be written to"
                );
                skipped(&format!("no cgroup with a memory limit can be made: {why}"));
                None
            }
        }
    }

    fn make(bytes: u64) -> Result<Cgroup, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tokengauge-test-{}-{number}", std::process::id());
        let (root, controller) = if Path::new("/sys/fs/cgroup/memory").is_dir() {
            (Path::new("/sys/fs/cgroup/memory"), V1)
        } else {
            (Path::new("/sys/fs/cgroup"), V2)
        };
        let path = root.join(name);
        let said = |what: &str, error: std::io::Error| format!("{what}: {error}");
        if controller.limit == V2.limit {
            let control = root.join("cgroup.subtree_control");
            fs::write(&control, "+memory").map_err(|e| said("cgroup.subtree_control", e))?;
        }
        fs::create_dir(&path).map_err(|e| said("mkdir", e))?;
        let cgroup = Cgroup { path, controller };
        let limit = cgroup.path.join(cgroup.controller.limit);
        fs::write(limit, bytes.to_string()).map_err(|e| said(cgroup.controller.limit, e))?;
        let swap = if cgroup.controller.limit == V2.limit {
            0
        } else {
            bytes
        };
        let _ = fs::write(cgroup.path.join(cgroup.controller.swap), swap.to_string());
        Ok(cgroup)
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        let enter = "echo $$ > \"$0\" && exec \"$@\"";
        let tasks = self.path.join("cgroup.procs");
        command.args(["-c", enter]).arg(tasks).arg(program);
        command
    }

    /// Peak memory of the cgroup in bytes.
    pub fn peak(&self) -> u64 {
        let text = fs::read_to_string(self.path.join(self.controller.peak)).expect("counted");
        text.trim().parse().expect("a number")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.path).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
