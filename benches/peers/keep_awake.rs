//! Cores that do not go to rest.

use crate::cores::{Cores, pin, set_of};
use rustix::process::setpriority_process;
use rustix::thread::set_current_timer_slack;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Keeps cores from going to rest while it lives: one of a virtual machine wakes up late
/// where others want it, by milliseconds, which would be noted as latency. It naps on each
/// core, at the end of the queue. To keep them busy instead would make the kernel's own
/// threads wait for their turn, those that take packets among them.
pub struct KeepAwake {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Shorter than what a hypervisor waits for a core that has gone to rest.
const NAP: Duration = Duration::from_micros(50);

impl KeepAwake {
    pub fn keep(cores: Cores) -> KeepAwake {
        let over = Arc::new(AtomicBool::new(false));
        let nap = |core| {
            let over = Arc::clone(&over);
            thread::spawn(move || {
                // Where one of these is not allowed, it is as it was.
                let _ = pin(set_of(&[core]));
                let _ = setpriority_process(None, 19);
                let _ = set_current_timer_slack(NonZeroU64::new(1000));
                while !over.load(Ordering::Relaxed) {
                    thread::sleep(NAP);
                }
            })
        };
        let threads = cores.all().map(nap).collect();
        KeepAwake { over, threads }
    }
}

impl Drop for KeepAwake {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
