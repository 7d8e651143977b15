//! Counts, violations, and the tables at the end.

use crate::verify::Memory;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokengauge_core::call::Outcome;

/// Number of printed violations. All are counted.
const PRINTED: usize = 60;

/// Violations that are repeated at the very end, because truncated output keeps its end.
const REPEATED: usize = 10;

/// Counts calls whose record says that the meter lagged.
pub const LAGGED: &str = "calls not measured in time";

#[derive(Default)]
pub struct Report {
    totals: Mutex<Totals>,
    /// An item to falsify once on purpose, to test that it is detected.
    broken: Mutex<Option<String>>,
}

#[derive(Default)]
struct Totals {
    violations: u64,
    first_violations: Vec<String>,
    reported_once: BTreeSet<String>,
    counts: BTreeMap<&'static str, u64>,
    scenarios: BTreeMap<&'static str, Row>,
    endpoints: BTreeMap<&'static str, Row>,
    all: Row,
}

#[derive(Clone, Default)]
struct Row {
    calls: u64,
    outcomes: BTreeMap<&'static str, u64>,
    bytes: u64,
    tokens: u64,
    chunks: u64,
}

pub struct VerifiedCall {
    pub scenario: &'static str,
    pub endpoint: &'static str,
    pub outcome: Option<Outcome>,
    pub bytes: u64,
    pub tokens: u64,
    pub chunks: u64,
}

pub struct RunSummary {
    pub took: Duration,
    pub seed: u64,
    pub memory: Option<Memory>,
    /// The maximum allowed slope of memory, in KB per minute.
    pub bound: f64,
    pub idle_gauges: (BTreeMap<String, f64>, BTreeMap<String, f64>),
}

impl Report {
    pub fn new(broken: Option<String>) -> Report {
        Report {
            totals: Mutex::default(),
            broken: Mutex::new(broken),
        }
    }

    /// Whether to falsify `what` now; true only once.
    pub fn breaks(&self, what: &str) -> bool {
        let mut broken = self.broken.lock();
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
        if sums.first_violations.len() < REPEATED {
            sums.first_violations.push(format!("{what:.400}"));
        }
        if sums.violations <= PRINTED as u64 {
            println!("VIOLATION: {what:.1500}");
        }
    }

    /// Reports a repeating violation only the first time.
    pub fn once(&self, what: &str) {
        // The text before ` is ` identifies the violation; the figure after it may change.
        let name = what.split(" is ").next().unwrap_or(what).to_owned();
        if self.lock().reported_once.insert(name) {
            self.violation(what.to_owned());
        }
    }

    pub fn violations(&self) -> u64 {
        self.lock().violations
    }

    pub fn first_violations(&self) -> String {
        self.lock().first_violations.join("\n")
    }

    pub fn calls(&self) -> u64 {
        self.lock().all.calls
    }

    pub fn add_verified(&self, call: VerifiedCall) {
        let mut sums = self.lock();
        let Totals {
            scenarios,
            endpoints,
            all,
            ..
        } = &mut *sums;
        let scenario = scenarios.entry(call.scenario).or_default();
        let endpoint = endpoints.entry(call.endpoint).or_default();
        for row in [scenario, endpoint, all] {
            row.add(&call);
        }
    }

    pub fn missing(&self, expected: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
        let sums = self.lock();
        let came = |name: &&str| {
            sums.scenarios.contains_key(name)
                || sums.endpoints.contains_key(name)
                || sums.counts.contains_key(name)
        };
        expected.filter(|name| !came(name)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock()
    }

    pub fn print(&self, end: &RunSummary) {
        let sums = self.lock();
        table("scenarios", &sums.scenarios, &sums.all);
        table("dialects", &sums.endpoints, &sums.all);
        let seconds = end.took.as_secs_f64();
        println!("\n{:<34}{:>12}", "other events", "");
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
            "chunks with tokens a second",
            sums.all.chunks as f64 / seconds
        );
        if let Some(memory) = end.memory {
            let rows = [
                ("resident at the start, KB", memory.first),
                ("resident in the middle, KB", memory.middle),
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
        println!("\n{:<58}{:>10}{:>10}", "idle", "before", "after");
        let (before, after) = &end.idle_gauges;
        for (name, before) in before {
            let after = after.get(name).copied().unwrap_or(0.0);
            println!("{name:<58}{before:>10}{after:>10}");
        }
        println!("\n{} violations", sums.violations);
    }
}

impl Row {
    fn add(&mut self, call: &VerifiedCall) {
        self.calls += 1;
        let outcome = call.outcome.map_or("no record", Outcome::as_str);
        *self.outcomes.entry(outcome).or_default() += 1;
        self.bytes += call.bytes;
        self.tokens += call.tokens;
        self.chunks += call.chunks;
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
