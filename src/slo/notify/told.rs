//! What every receiver was told, on disk: a restart must not tell it all again.

use super::Outbox;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const FILE: &str = "slo-told.json";

/// The outboxes, by receiver.
#[derive(Debug)]
pub struct Told {
    path: PathBuf,
    all: Mutex<BTreeMap<String, Outbox>>,
}

impl Told {
    /// What is kept in `folder`; nothing where that cannot be read.
    pub fn open(folder: &Path) -> Told {
        let path = folder.join(FILE);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let all = serde_json::from_str(&text).unwrap_or_default();
        Told {
            path,
            all: Mutex::new(all),
        }
    }

    /// What `receiver` was told.
    pub fn of(&self, receiver: &str) -> Outbox {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(receiver).cloned().unwrap_or_default()
    }

    /// Keeps what `receiver` was told. Blocks on the disk.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn keep(&self, receiver: &str, outbox: Outbox) -> io::Result<()> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(receiver.to_owned(), outbox);
        let fresh = self.path.with_extension("json.new");
        let mut file = File::create(&fresh)?;
        file.write_all(&serde_json::to_vec(&*all)?)?;
        file.sync_all()?;
        std::fs::rename(&fresh, &self.path)
    }
}
