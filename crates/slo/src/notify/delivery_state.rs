//! The saved state of deliveries, so that a restart does not send all alerts again.

use super::Outbox;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use tokengauge_files::state::StateFile;

const FILE: &str = "slo-told.json";

#[derive(Debug)]
pub struct DeliveryState(Mutex<Outboxes>);

#[derive(Debug)]
struct Outboxes {
    file: StateFile,
    all: BTreeMap<String, Outbox>,
}

impl DeliveryState {
    /// Loads the state from `folder`. The state is empty if it cannot be read.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be written to.
    pub fn open(folder: &Path) -> io::Result<DeliveryState> {
        let file = StateFile::open(folder, FILE)?;
        let all = file.read().ok().flatten().unwrap_or_default();
        Ok(DeliveryState(Mutex::new(Outboxes { file, all })))
    }

    /// Checks that [`DeliveryState::open`] would succeed, without leaving files.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be written to.
    pub fn check(folder: &Path) -> io::Result<()> {
        StateFile::check(folder, FILE)
    }

    pub fn of(&self, receiver: &str) -> Outbox {
        let state = self.0.lock();
        state.all.get(receiver).cloned().unwrap_or_default()
    }

    /// Saves the outbox of `receiver`, unless another process holds the lock. Blocks on the disk.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn keep(&self, receiver: &str, outbox: Outbox) -> io::Result<()> {
        let mut state = self.0.lock();
        let Outboxes { file, all } = &mut *state;
        all.insert(receiver.to_owned(), outbox);
        file.write(all).map(drop)
    }
}
