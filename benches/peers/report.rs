//! All results, their tables, and the status of goals.

use crate::columns::columns;
use crate::goals::{Against, goals};
use crate::metrics::Metric;
use crate::peer::Peer;
use crate::results::RunResult;
use crate::rounds::MAX_STOLEN;
use crate::scenario::{Scenario, Work};
use crate::statistics::{Interval, interval, median};
use crate::table::{Row, Table};

/// Required share of due events that arrived.
const DELIVERED_AT_LEAST: f64 = 0.98;
/// A peer that uses less of its core did not cause missing events.
const SATURATED: f64 = 0.9;

/// The runs of a scenario through a peer, by round; `None` for a failed run.
pub struct Runs {
    pub scenario: Scenario,
    pub peer: Peer,
    rounds: Vec<Option<RunResult>>,
}

/// All results in the order of their arrival.
#[derive(Default)]
pub struct Report {
    runs: Vec<Runs>,
    failures: Vec<(String, Peer, String)>,
}

impl Report {
    pub fn add(&mut self, scenario: &Scenario, peer: Peer, result: anyhow::Result<RunResult>) {
        let found = match result {
            Ok(found) => {
                if let Some(why) = &found.why {
                    let why = format!("{} streams failed: {why}", found.failed);
                    self.failures.push((scenario.title(), peer, why));
                }
                Some(found)
            }
            Err(error) => {
                let why = format!("{error:#}");
                self.failures.push((scenario.title(), peer, why));
                None
            }
        };
        let mut runs = self.runs.iter_mut();
        match runs.find(|runs| runs.scenario == *scenario && runs.peer == peer) {
            Some(runs) => runs.rounds.push(found),
            None => self.runs.push(Runs {
                scenario: scenario.clone(),
                peer,
                rounds: vec![found],
            }),
        }
    }

    /// Number of failures of proxies other than gateways, which make the benchmark worthless.
    pub fn proxies_that_failed(&self) -> usize {
        let proxies = self.failures.iter().filter(|(_, by, _)| !by.is_gateway());
        proxies.count()
    }

    pub fn print(&self, scenario: &Scenario) {
        let title = scenario.title();
        println!("\n{title}");
        self.table(scenario).print();
        for runs in self.of(scenario) {
            runs.print_stolen();
            runs.print_undelivered();
        }
        for (_, peer, why) in self.failures.iter().filter(|(of, ..)| *of == title) {
            println!("FAILED: {peer}: {why}");
        }
        if let Some(runs) = self.find(scenario, Peer::Tokengauge) {
            let sum = |of: fn(&RunResult) -> f64| runs.done().map(of).sum::<f64>();
            println!(
                "tokengauge counted {:.0} tokens in these runs and skipped {:.0} chunks",
                sum(|run| run.counted),
                sum(|run| run.lagged)
            );
        }
    }

    /// The medians of the rounds, and ratios between peers: to nginx, and with comparisons to tokengauge without them.
    fn table(&self, scenario: &Scenario) -> Table {
        let columns = columns(&scenario.work);
        let mut table = Table::new(columns);
        for runs in self.of(scenario) {
            let medians = columns.iter().map(|metric| runs.median(metric));
            table.row(runs.peer.to_string(), Row::Figures(medians.collect()));
        }
        for runs in self.of(scenario) {
            if matches!(runs.peer, Peer::Direct | Peer::Nginx) {
                continue;
            }
            let base = runs.peer.base();
            let ratios = columns.iter().map(|metric| {
                let against = Against::Peer(base);
                metric.ratio.then(|| self.compared(runs, metric, against))?
            });
            let ratios: Vec<Option<Interval>> = ratios.collect();
            if ratios.iter().any(Option::is_some) {
                table.row(format!("{} ÷ {base}", runs.peer), Row::Ratios(ratios));
            }
        }
        table
    }

    pub fn compared(&self, runs: &Runs, metric: &Metric, against: Against) -> Option<Interval> {
        let base = match against {
            Against::Nothing => return interval(&runs.values(metric)),
            Against::Peer(peer) => self.find(&runs.scenario, peer)?,
            Against::Baseline => self.find(&runs.scenario.baseline()?, runs.peer)?,
        };
        let pairs = runs.rounds.iter().zip(&base.rounds);
        let ratios = pairs.filter_map(|(ours, theirs)| {
            let ours = (metric.of)(ours.as_ref()?)?;
            let theirs = (metric.of)(theirs.as_ref()?)?;
            (theirs > 0.0).then(|| ours / theirs)
        });
        interval(&ratios.collect::<Vec<_>>())
    }

    /// Prints one figure of all scenarios of a kind, with a row per scenario and a column per peer.
    pub fn print_costs(&self, metric: &'static Metric, kind: impl Fn(&Work) -> bool) {
        let peers = Peer::ALL.into_iter().filter(|peer| self.has(*peer));
        let peers: Vec<_> = peers.collect();
        let titles = peers.iter().map(|peer| (peer.name(), metric.decimals));
        let mut table = Table::with_columns(titles.collect());
        let ours = |runs: &&Runs| runs.peer == Peer::Tokengauge && kind(&runs.scenario.work);
        for Runs { scenario, .. } in self.runs.iter().filter(ours) {
            let figures = peers
                .iter()
                .map(|peer| self.find(scenario, *peer)?.median(metric));
            let label = format!("{}: {}", scenario.title(), metric.title);
            table.row(label, Row::Figures(figures.collect()));
        }
        table.print();
    }

    pub fn print_goals(&self) {
        println!("\ngoals, by the 95 % interval over the rounds");
        for runs in self
            .runs
            .iter()
            .filter(|runs| runs.peer == Peer::Tokengauge)
        {
            let title = runs.scenario.title();
            for goal in goals(&runs.scenario) {
                let Some(found) = self.compared(runs, goal.metric, goal.against) else {
                    continue;
                };
                let (what, against, bound) = (goal.metric.title, goal.against, goal.bound);
                let kind = if goal.moonshot { "moonshot" } else { "goal" };
                let verdict = bound.judge(&found);
                println!("{verdict:21} {title}: {what}{against}: {found} ({kind} {bound})");
            }
        }
    }

    pub fn of_tokengauge(&self) -> impl Iterator<Item = &Runs> {
        let runs = self.runs.iter();
        runs.filter(|runs| runs.peer == Peer::Tokengauge)
    }

    pub fn has(&self, peer: Peer) -> bool {
        self.runs.iter().any(|runs| runs.peer == peer)
    }

    fn of(&self, scenario: &Scenario) -> impl Iterator<Item = &Runs> {
        let peers = Peer::ALL.into_iter();
        peers.filter_map(|peer| self.find(scenario, peer))
    }

    pub fn find(&self, scenario: &Scenario, peer: Peer) -> Option<&Runs> {
        let mut runs = self.runs.iter();
        runs.find(|runs| runs.scenario == *scenario && runs.peer == peer)
    }
}

impl Runs {
    fn done(&self) -> impl Iterator<Item = &RunResult> {
        self.rounds.iter().flatten()
    }

    fn values(&self, metric: &Metric) -> Vec<f64> {
        self.done().filter_map(metric.of).collect()
    }

    /// The median of the rounds, so that a disturbed round does not decide.
    pub fn median(&self, metric: &Metric) -> Option<f64> {
        Some(median(&self.values(metric))).filter(|median| median.is_finite())
    }

    /// Prints discarded runs, and disturbed runs that are used nevertheless.
    fn print_stolen(&self) {
        let runs = self.done().count();
        let again = self.done().map(|run| run.tries as usize).sum::<usize>() - runs;
        let disturbed = self.done().filter(|run| run.stolen > MAX_STOLEN).count();
        if again > 0 || disturbed > 0 {
            let most = self.done().map(|run| run.stolen).fold(0.0, f64::max);
            println!(
                "{}: other virtual machines had a core in {disturbed} of {runs} runs, for up to {:.1} % of the time; {again} more runs were discarded",
                self.peer,
                100.0 * most
            );
        }
    }

    /// Prints whether the peer or the load was busy when due events did not arrive.
    fn print_undelivered(&self) {
        let late = |run: &&RunResult| {
            run.delivered()
                .is_some_and(|share| share < DELIVERED_AT_LEAST)
        };
        let late: Vec<_> = self.done().filter(late).collect();
        let Some(least) = late
            .iter()
            .filter_map(|run| run.delivered())
            .reduce(f64::min)
        else {
            return;
        };
        let saturated = late
            .iter()
            .any(|run| run.busy().is_some_and(|busy| busy > SATURATED));
        let why = if saturated {
            "the peer cannot keep up"
        } else {
            "the load cannot keep up"
        };
        let (peer, rounds, least) = (self.peer, late.len(), 100.0 * least);
        println!(
            "{peer}: {why}: {least:.1} % of the events arrived in the worst of {rounds} rounds"
        );
    }
}

/// Prints whether a figure of a single run is within its bound.
pub fn single_goal(title: &str, what: &str, value: f64, limit: f64) {
    let verdict = if value <= limit { "met" } else { "MISSED" };
    println!("{verdict:21} {title}: {what}: {value:.2} (goal ≤ {limit:.2})");
}
