//! Persists spending over a restart in one JSON file, which is replaced atomically.

use super::Budgets;
use super::spent::Spending;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use tokengauge_files::state::StateFile;

const FILE: &str = "spending.json";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedSpending(BTreeMap<String, SavedBudget>);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SavedBudget {
    /// The start of the period, in seconds since 1970.
    period: u64,
    spent: BTreeMap<String, f64>,
    /// The amount that unlisted names count as having spent.
    #[serde(default, skip_serializing_if = "is_zero")]
    floor: f64,
    /// The previous current period, in case the clock returns to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    other: Option<Box<SavedBudget>>,
}

impl SavedBudget {
    fn of(periods: &[Spending]) -> Option<SavedBudget> {
        let (spent, others) = periods.split_first()?;
        Some(SavedBudget {
            period: spent.period.0,
            spent: spent
                .names()
                .map(|(name, usd)| (name.to_owned(), usd))
                .collect(),
            floor: spent.floor,
            other: SavedBudget::of(others).map(Box::new),
        })
    }

    fn periods(&self) -> impl Iterator<Item = &SavedBudget> {
        std::iter::successors(Some(self), |one| one.other.as_deref())
    }
}

fn is_zero(usd: &f64) -> bool {
    *usd == 0.0
}

/// The file that spending is stored in. One process writes it. Another takes over when that process
/// ends.
#[derive(Debug)]
pub struct SpendingFile {
    file: StateFile,
    read: SavedSpending,
    /// The fingerprint of the budgets when they were last written.
    written: Option<u64>,
}

impl SpendingFile {
    /// Opens the file in `folder`, creates the folder if it is missing, and restores the spending
    /// of `budgets` at `now`. A damaged file is moved aside.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be written or the file cannot be read.
    pub fn open(folder: &Path, budgets: &Budgets, now: u64) -> io::Result<SpendingFile> {
        let file = StateFile::open(folder, FILE)?;
        let read: SavedSpending = file.read()?.unwrap_or_default();
        budgets.resume(&read, now);
        Ok(SpendingFile {
            file,
            read,
            written: None,
        })
    }

    /// Checks whether [`SpendingFile::open`] would succeed. Leaves nothing on disk.
    ///
    /// # Errors
    /// Returns the error with which [`SpendingFile::open`] would fail.
    pub fn check(folder: &Path) -> io::Result<()> {
        StateFile::check(folder, FILE)
    }

    pub fn is_locked_elsewhere(&self) -> bool {
        !self.file.is_locked()
    }

    /// Writes the spending of `budgets` atomically if it has changed. Returns `false` if another
    /// process writes the file. After that process has ended, its spending since this process read
    /// the file is added.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
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
    fn since(mut self, earlier: &SavedSpending) -> SavedSpending {
        for (name, of) in &mut self.0 {
            let Some(before) = earlier.0.get(name) else {
                continue;
            };
            let mut next = Some(of);
            while let Some(of) = next {
                let before = before.periods().find(|before| before.period == of.period);
                for (name, usd) in &mut of.spent {
                    let before = before.and_then(|before| before.spent.get(name));
                    *usd -= before.copied().unwrap_or(0.0);
                }
                next = of.other.as_deref_mut();
            }
        }
        self
    }
}

impl Budgets {
    /// A number that changes with any spending and with a new period.
    fn fingerprint(&self, now: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        for state in self.states.load().iter() {
            let spent = state.spent(now);
            let total = spent.total.to_bits();
            (&state.budget.name, spent.period, total).hash(&mut hasher);
        }
        hasher.finish()
    }

    pub fn saved(&self, now: u64) -> SavedSpending {
        let states = self.states.load();
        let of = states.iter().filter_map(|state| {
            let mut periods = state.spent.lock();
            periods.at(state.budget.period.bounds(now), now);
            let of = SavedBudget::of(&periods.all)?;
            Some((state.budget.name.to_string(), of))
        });
        SavedSpending(of.collect())
    }

    /// Restores saved spending. `now` decides which period is current. The other periods are kept
    /// in case the clock is wrong.
    pub fn resume(&self, kept: &SavedSpending, now: u64) {
        for state in self.states.load().iter() {
            let mut periods = state.spent.lock();
            let of = kept.0.get(&*state.budget.name).into_iter();
            for of in of.flat_map(SavedBudget::periods) {
                let bounds = state.budget.period.bounds(of.period);
                // The configured length of the period may have changed.
                let known = (bounds.0 == of.period).then(|| periods.known(bounds));
                let Some(spent) = known.flatten() else {
                    continue;
                };
                for (name, usd) in of.spent.iter().filter(|(_, usd)| **usd > 0.0) {
                    spent.add(name, *usd);
                }
                spent.floor = spent.floor.max(of.floor);
            }
            periods.at(state.budget.period.bounds(now), now);
        }
    }
}
