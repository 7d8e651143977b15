//! What every receiver was sent, on disk: a restart must not send it all again.

use super::Outbox;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use tokengauge_files::state::StateFile;

const FILE: &str = "slo-told.json";

/// The outboxes, by receiver.
#[derive(Debug)]
pub struct DeliveryState(Mutex<State>);

#[derive(Debug)]
struct State {
    file: StateFile,
    all: BTreeMap<String, Outbox>,
}

impl DeliveryState {
    /// What is kept in `folder`; nothing where that cannot be read.
    ///
    /// # Errors
    /// Where the folder cannot be written to.
    pub fn open(folder: &Path) -> io::Result<DeliveryState> {
        let file = StateFile::open(folder, FILE)?;
        let all = file.read().ok().flatten().unwrap_or_default();
        Ok(DeliveryState(Mutex::new(State { file, all })))
    }

    /// What `receiver` was sent.
    pub fn of(&self, receiver: &str) -> Outbox {
        let state = self.0.lock();
        state.all.get(receiver).cloned().unwrap_or_default()
    }

    /// Keeps what `receiver` was sent, unless another process keeps its own. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn keep(&self, receiver: &str, outbox: Outbox) -> io::Result<()> {
        let mut state = self.0.lock();
        let State { file, all } = &mut *state;
        all.insert(receiver.to_owned(), outbox);
        file.write(all).map(drop)
    }
}
