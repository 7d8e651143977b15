//! What was spent, over a restart: one JSON file, replaced as a whole.

use super::Budgets;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The file in the state directory.
const FILE: &str = "spending.json";

/// What was spent, by budget.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept(BTreeMap<String, OfBudget>);

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct OfBudget {
    /// The beginning of the period, in seconds since 1970.
    period: u64,
    spent: BTreeMap<String, f64>,
}

impl Kept {
    /// Reads what was kept; nothing where nothing was.
    ///
    /// # Errors
    /// Where the file cannot be read or is damaged.
    pub fn load(directory: &Path) -> io::Result<Kept> {
        match std::fs::read(directory.join(FILE)) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kept::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes it, so that a crash leaves either this or what was there.
    ///
    /// # Errors
    /// Where the directory cannot be written to.
    pub fn save(&self, directory: &Path) -> io::Result<()> {
        std::fs::create_dir_all(directory)?;
        let new = directory.join(format!("{FILE}.new"));
        std::fs::write(&new, serde_json::to_vec(self)?)?;
        std::fs::File::open(&new)?.sync_all()?;
        std::fs::rename(&new, directory.join(FILE))
    }
}

impl Budgets {
    /// What is to be kept at `now`.
    pub fn kept(&self, now: u64) -> Kept {
        let lines = self.lines.load();
        let of = lines.iter().map(|line| {
            let spent = line.spent(now);
            let of = OfBudget {
                period: spent.period.0,
                spent: spent
                    .names()
                    .map(|(name, usd)| (name.to_owned(), usd))
                    .collect(),
            };
            (line.budget.name.to_string(), of)
        });
        Kept(of.collect())
    }

    /// Takes over what was kept, as far as its period goes on at `now`.
    pub fn resume(&self, kept: &Kept, now: u64) {
        for line in self.lines.load().iter() {
            let mut spent = line.spent(now);
            let of = kept.0.get(&*line.budget.name);
            if let Some(of) = of.filter(|of| of.period == spent.period.0) {
                for (name, usd) in of.spent.iter().filter(|(_, usd)| **usd > 0.0) {
                    spent.add(name, *usd);
                }
            }
        }
    }
}
