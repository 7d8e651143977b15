//! The ledger: every call record and the sums of every session, in SQLite.
//!
//! One thread writes (`writer`), fed with finished calls through a bounded queue; a
//! batch is one transaction (`store`). Whoever asks reads through connections of their
//! own ([`Reader`]). Nothing here can hold up traffic: what cannot be written is counted.

mod aggregates;
mod capacity;
mod dictionary;
mod export;
mod file;
mod interval_union;
mod names;
mod reader;
mod retention;
mod rollups;
mod row;
mod sessions;
mod sketch;
mod store;
mod stored_call;
mod throughput;
mod varint;
mod write_error;
mod writer;

pub use export::{ExportError, ExportOptions, FileFormat, export};
pub use reader::*;
pub use retention::Limits;
pub use store::{BatchResult, Store};
pub use stored_call::StoredCall;
pub use write_error::WriteError;
pub use writer::{LedgerMetrics, Settings};

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokengauge_core::background::wait_behind;
use tokengauge_core::background::{self, Work};
use tokengauge_core::throughput::Ticked;
use tokengauge_meter::{FinishedCall, Meter, Subscriber};
use writer::{Message, Writer};

/// Finished calls that wait to be written; more are dropped and counted.
const QUEUE: usize = 16_384;
/// How long the end of the process waits for the disk.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often what is new of the throughput is asked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The ledger of a running proxy.
pub struct Ledger {
    queue: SyncSender<Message>,
    settings: Settings,
    figures: LedgerMetrics,
}

impl Ledger {
    /// Starts the thread that writes. What is wrong with the file is logged and
    /// counted, and tried again: it keeps nothing from starting.
    ///
    /// # Errors
    /// Where the thread cannot be started.
    pub fn start(settings: Settings, figures: LedgerMetrics) -> io::Result<Arc<Ledger>> {
        Ledger::with_queue(settings, figures, QUEUE)
    }

    fn with_queue(
        settings: Settings,
        figures: LedgerMetrics,
        length: usize,
    ) -> io::Result<Arc<Ledger>> {
        let (queue, messages) = sync_channel(length);
        let mut writer = Writer::new(settings.clone(), figures.clone());
        background::spawn("ledger", Work::Steady, move || writer.run(&messages))?;
        Ok(Arc::new(Ledger {
            queue,
            settings,
            figures,
        }))
    }

    /// Takes what is new of the throughput once a second from now on, until the ledger ends.
    ///
    /// # Errors
    /// Where the thread cannot be started.
    pub fn look_at(self: &Arc<Self>, meter: &Arc<Meter>) -> io::Result<()> {
        let (ledger, meter) = (Arc::downgrade(self), Arc::downgrade(meter));
        background::spawn("ledger-look", Work::Steady, move || look(&ledger, &meter))?;
        Ok(())
    }
}

impl Ledger {
    fn take(&self, meter: &Meter) {
        let ticked = meter.tick((self.settings.clock)(), (self.settings.wall)());
        if ticked != Ticked::default() {
            // A queue that is full has no room for this either.
            let _ = self.queue.try_send(Message::Throughput(ticked));
        }
    }
}

/// Asks once a second. Holds neither the ledger nor the meter while it waits.
fn look(ledger: &Weak<Ledger>, meter: &Weak<Meter>) {
    loop {
        std::thread::sleep(LOOK_EVERY);
        let (Some(ledger), Some(meter)) = (ledger.upgrade(), meter.upgrade()) else {
            return;
        };
        ledger.take(&meter);
    }
}

impl Subscriber for Ledger {
    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        let message = Message::Finished(Arc::clone(finished_call));
        if self.queue.try_send(message).is_err() {
            self.figures.lose("queue", 1);
        }
    }

    fn flush(&self) {
        wait_behind(&self.queue, Message::Flush, TIMEOUT);
    }
}
