//! Prevents cores from idling.

use crate::cores::{Cores, pin, set_of};
use rustix::process::setpriority_process;
use rustix::thread::set_current_timer_slack;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Prevents cores from idling until it is dropped: an idle core of a virtual machine wakes up milliseconds late, which
/// would count as latency. A low-priority thread sleeps briefly on each core in a loop. Busy loops instead would delay
/// kernel threads, such as those that receive packets.
pub struct KeepAwake {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Shorter than a hypervisor takes to wake an idle core.
const NAP: Duration = Duration::from_micros(50);

impl KeepAwake {
    pub fn keep(cores: Cores) -> KeepAwake {
        let over = Arc::new(AtomicBool::new(false));
        let nap = |core| {
            let over = Arc::clone(&over);
            thread::spawn(move || {
                // If the system refuses one of these settings, the thread runs without the setting.
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
