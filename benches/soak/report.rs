//! What is counted, what went wrong, and the tables at the end.

use crate::judge::Memory;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokengauge::call::Outcome;

/// Violations that are printed; all are counted.
const PRINTED: usize = 60;

/// Calls that the meter had no time for, and said so.
pub const LAGGED: &str = "calls not measured in time";

/// What the run comes to.
#[derive(Default)]
pub struct Report {
    sums: Mutex<Sums>,
    /// What is falsified on purpose, once, to see that it is found.
    broken: Mutex<Option<String>>,
}

#[derive(Default)]
struct Sums {
    violations: u64,
    told: BTreeSet<String>,
    counts: BTreeMap<&'static str, u64>,
    fates: BTreeMap<&'static str, Row>,
    shapes: BTreeMap<&'static str, Row>,
    all: Row,
}

/// A row of a table.
#[derive(Clone, Default)]
struct Row {
    calls: u64,
    outcomes: BTreeMap<&'static str, u64>,
    bytes: u64,
    tokens: u64,
    frames: u64,
}

/// A call that has been judged.
pub struct Settled {
    pub fate: &'static str,
    pub shape: &'static str,
    pub outcome: Option<Outcome>,
    pub bytes: u64,
    pub tokens: u64,
    pub frames: u64,
}

/// What is said at the end beside the calls.
pub struct End {
    pub took: Duration,
    pub seed: u64,
    pub memory: Option<Memory>,
    pub bound: f64,
    pub rest: (BTreeMap<String, f64>, BTreeMap<String, f64>),
}

impl Report {
    /// A report that falsifies `broken` once.
    pub fn new(broken: Option<String>) -> Report {
        Report {
            sums: Mutex::default(),
            broken: Mutex::new(broken),
        }
    }

    /// Whether this is to be falsified now: true once.
    pub fn breaks(&self, what: &str) -> bool {
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        broken.take_if(|broken| broken == what).is_some()
    }

    pub fn count(&self, what: &'static str) {
        *self.lock().counts.entry(what).or_default() += 1;
    }

    pub fn counted(&self, what: &'static str) -> u64 {
        self.lock().counts.get(what).copied().unwrap_or(0)
    }

    pub fn violation(&self, what: String) {
        let mut sums = self.lock();
        sums.violations += 1;
        if sums.violations <= PRINTED as u64 {
            println!("VIOLATION: {what:.1500}");
        }
    }

    /// A violation that would come again and again.
    pub fn once(&self, what: &str) {
        // The figure in it may rise; the name of it stays.
        let name = what.split(" is ").next().unwrap_or(what).to_owned();
        if self.lock().told.insert(name) {
            self.violation(what.to_owned());
        }
    }

    pub fn violations(&self) -> u64 {
        self.lock().violations
    }

    pub fn calls(&self) -> u64 {
        self.lock().all.calls
    }

    pub fn settled(&self, settled: Settled) {
        let mut sums = self.lock();
        let Sums {
            fates, shapes, all, ..
        } = &mut *sums;
        let fate = fates.entry(settled.fate).or_default();
        let shape = shapes.entry(settled.shape).or_default();
        for row in [fate, shape, all] {
            row.add(&settled);
        }
    }

    /// Kinds of `expected` that did not come at all.
    pub fn missing(&self, expected: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
        let sums = self.lock();
        let came = |name: &&str| {
            sums.fates.contains_key(name)
                || sums.shapes.contains_key(name)
                || sums.counts.contains_key(name)
        };
        expected.filter(|name| !came(name)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn print(&self, end: &End) {
        let sums = self.lock();
        table("what became of them", &sums.fates, &sums.all);
        table("dialects", &sums.shapes, &sums.all);
        let seconds = end.took.as_secs_f64();
        println!("\n{:<34}{:>12}", "beside them", "");
        for (what, count) in &sums.counts {
            println!("{what:<34}{count:>12}");
        }
        println!("\n{:<34}{:>12}", "seed", end.seed);
        println!("{:<34}{:>12.0}", "seconds of traffic", seconds);
        println!(
            "{:<34}{:>12.1}",
            "calls a second",
            sums.all.calls as f64 / seconds
        );
        println!(
            "{:<34}{:>12.0}",
            "frames with tokens a second",
            sums.all.frames as f64 / seconds
        );
        if let Some(memory) = end.memory {
            let rows = [
                ("resident at the start, KB", memory.first),
                ("resident at half-time, KB", memory.middle),
                ("resident at the end, KB", memory.last),
                ("resident at most, KB", memory.most),
                ("slope of the second half, KB/min", memory.slope),
                ("its bound", end.bound),
            ];
            for (what, value) in rows {
                println!("{what:<34}{value:>12.0}");
            }
            let tenths = memory.tenths.map(|mean| format!("{:.1}", mean / 1000.0));
            println!("{:<34}{}", "resident in each tenth, MB", tenths.join(" "));
        }
        println!("\n{:<58}{:>10}{:>10}", "at rest", "before", "behind");
        for (name, before) in &end.rest.0 {
            let behind = end.rest.1.get(name).copied().unwrap_or(0.0);
            println!("{name:<58}{before:>10}{behind:>10}");
        }
        println!("\n{} violations", sums.violations);
    }
}

impl Row {
    fn add(&mut self, settled: &Settled) {
        self.calls += 1;
        let outcome = settled.outcome.map_or("no record", Outcome::as_str);
        *self.outcomes.entry(outcome).or_default() += 1;
        self.bytes += settled.bytes;
        self.tokens += settled.tokens;
        self.frames += settled.frames;
    }

    fn line(&self, name: &str) -> String {
        let outcomes = self.outcomes.iter();
        let outcomes: Vec<String> = outcomes.map(|(name, n)| format!("{name} {n}")).collect();
        format!(
            "{name:<30}{:>8}{:>14}{:>12}  {}",
            self.calls,
            self.bytes,
            self.tokens,
            outcomes.join(", ")
        )
    }
}

fn table(title: &str, rows: &BTreeMap<&'static str, Row>, all: &Row) {
    println!(
        "\n{title:<30}{:>8}{:>14}{:>12}  outcomes recorded",
        "calls", "bytes equal", "tokens equal"
    );
    for (name, row) in rows {
        println!("{}", row.line(name));
    }
    println!("{}", all.line("all"));
}
