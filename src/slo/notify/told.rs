//! What every receiver was told, on disk: a restart must not tell it all again.

use super::Outbox;
use crate::state_file::StateFile;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

const FILE: &str = "slo-told.json";

/// The outboxes, by receiver.
#[derive(Debug)]
pub struct Told(Mutex<State>);

#[derive(Debug)]
struct State {
    file: StateFile,
    all: BTreeMap<String, Outbox>,
}

impl Told {
    /// What is kept in `folder`; nothing where that cannot be read.
    ///
    /// # Errors
    /// Where the folder cannot be written to.
    pub fn open(folder: &Path) -> io::Result<Told> {
        let file = StateFile::open(folder, FILE)?;
        let all = file.read().ok().flatten().unwrap_or_default();
        Ok(Told(Mutex::new(State { file, all })))
    }

    /// What `receiver` was told.
    pub fn of(&self, receiver: &str) -> Outbox {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.all.get(receiver).cloned().unwrap_or_default()
    }

    /// Keeps what `receiver` was told, unless another process keeps its own. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn keep(&self, receiver: &str, outbox: Outbox) -> io::Result<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State { file, all } = &mut *state;
        all.insert(receiver.to_owned(), outbox);
        file.write(all).map(drop)
    }
}
