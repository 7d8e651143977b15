//! Persists spending over a restart: one JSON file, replaced atomically.

use super::Budgets;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use tokengauge_files::state::StateFile;

/// The file in the state directory.
const FILE: &str = "spending.json";

/// What was spent, by budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedSpending(BTreeMap<String, SavedBudget>);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SavedBudget {
    /// The beginning of the period, in seconds since 1970.
    period: u64,
    spent: BTreeMap<String, f64>,
    /// What names that are not listed count as having spent.
    #[serde(default, skip_serializing_if = "is_zero")]
    floor: f64,
}

fn is_zero(usd: &f64) -> bool {
    *usd == 0.0
}

/// The file that spending is stored in. One process writes it; another takes over when that one
/// ends.
#[derive(Debug)]
pub struct Store {
    file: StateFile,
    /// The content of the file when it was read.
    read: SavedSpending,
    /// The budgets when they were last written.
    written: Option<u64>,
}

impl Store {
    /// Opens the file in `folder`, which is created if missing, and restores the spending of
    /// `budgets` at `now`. A damaged file is moved aside.
    ///
    /// # Errors
    /// If the folder cannot be written or the file cannot be read.
    pub fn open(folder: &Path, budgets: &Budgets, now: u64) -> io::Result<Store> {
        let file = StateFile::open(folder, FILE)?;
        let read: SavedSpending = file.read()?.unwrap_or_default();
        budgets.resume(&read, now);
        Ok(Store {
            file,
            read,
            written: None,
        })
    }

    /// Whether [`Store::open`] would succeed. Leaves nothing behind.
    ///
    /// # Errors
    /// Why not.
    pub fn check(folder: &Path) -> io::Result<()> {
        StateFile::check(folder, FILE)
    }

    /// Whether another process writes the file.
    pub fn is_locked_elsewhere(&self) -> bool {
        !self.file.is_locked()
    }

    /// Writes the spending of `budgets` atomically, if it has changed. `false` if another process writes the file;
    /// once that has ended, what it had spent since this one read the file is added.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&mut self, budgets: &Budgets, now: u64) -> io::Result<bool> {
        if self.is_locked_elsewhere() {
            if !self.file.lock()? {
                return Ok(false);
            }
            let saved: SavedSpending = self.file.read()?.unwrap_or_default();
            budgets.resume(&saved.since(&self.read), now);
        }
        let state = budgets.fingerprint(now);
        if self.written == Some(state) {
            return Ok(true);
        }
        let written = self.file.write(&budgets.saved(now))?;
        self.written = written.then_some(state);
        Ok(written)
    }
}

impl SavedSpending {
    /// What was spent after `earlier`.
    fn since(mut self, earlier: &SavedSpending) -> SavedSpending {
        for (name, of) in &mut self.0 {
            let before = earlier.0.get(name);
            let Some(before) = before.filter(|before| before.period == of.period) else {
                continue;
            };
            for (name, usd) in &mut of.spent {
                *usd -= before.spent.get(name).copied().unwrap_or(0.0);
            }
        }
        self
    }
}

impl Budgets {
    /// A number that is another one once anything was spent, or a period has begun.
    fn fingerprint(&self, now: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        for state in self.states.load().iter() {
            let spent = state.spent(now);
            let total = spent.total.to_bits();
            (&state.budget.name, spent.period, total).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The spending to be saved at `now`.
    pub fn saved(&self, now: u64) -> SavedSpending {
        let states = self.states.load();
        let of = states.iter().map(|state| {
            let spent = state.spent(now);
            let of = SavedBudget {
                period: spent.period.0,
                spent: spent
                    .names()
                    .map(|(name, usd)| (name.to_owned(), usd))
                    .collect(),
                floor: spent.floor,
            };
            (state.budget.name.to_string(), of)
        });
        SavedSpending(of.collect())
    }

    /// Restores saved spending whose period has not ended at `now`.
    pub fn resume(&self, kept: &SavedSpending, now: u64) {
        for state in self.states.load().iter() {
            let mut spent = state.spent(now);
            let of = kept.0.get(&*state.budget.name);
            if let Some(of) = of.filter(|of| of.period == spent.period.0) {
                for (name, usd) in of.spent.iter().filter(|(_, usd)| **usd > 0.0) {
                    spent.add(name, *usd);
                }
                spent.floor = spent.floor.max(of.floor);
            }
        }
    }
}
