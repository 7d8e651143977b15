//! The tables of the scenarios, and whether the goals are met.

use crate::neighbours::Neighbours;
use crate::peer::Peer;
use crate::run::{Measurement, QUANTILES, Scenario};
use crate::table::Table;

/// The measurements by scenario and peer, in the order of the first runs.
#[derive(Default)]
pub struct Report {
    rows: Vec<(String, Peer, Measurement)>,
    failures: Vec<(String, Peer, String)>,
}

/// The latencies that are shown, as indices into [`QUANTILES`].
const FIGURES: [usize; QUANTILES.len()] = [0, P99, 2];
const P99: usize = 1;

/// The rows of docs/benchmarks.md that a table has: a label, and the columns in the cell.
type MarkdownRows = &'static [(&'static str, &'static [&'static str])];
const ADDED: &[&str] = &["added p50", "added p99", "added p99.9"];
const FIRST_TOKEN_ROWS: MarkdownRows = &[("added p50 / p99 / p99.9, µs", ADDED)];
const PACED_ROWS: MarkdownRows = &[
    ("latency added p50 / p99 / p99.9, µs", ADDED),
    ("CPU per event, µs", &["CPU µs/event"]),
    ("events per second and core", &["events/s·core"]),
    ("memory per open stream, KB", &["KB/stream"]),
    ("resident idle, MB", &["idle MB"]),
    ("delivered, %", &["delivered %"]),
];
const NEIGHBOUR_ROWS: MarkdownRows = &[("p99, µs", &["p99"]), ("p99 ÷ alone", &[RATIO_TO_ALONE])];
const RATIO_TO_ALONE: &str = "p99 ÷ alone";
const FLAT_OUT_ROWS: MarkdownRows = &[
    ("events/s", &["events/s"]),
    ("events per second and core", &["events/s·core"]),
];

impl Report {
    /// Adds a run to those of the same scenario and peer.
    pub fn add(&mut self, scenario: Scenario, peer: Peer, found: Measurement) {
        let title = title(scenario);
        if let Some(why) = &found.error {
            let why = format!("{} streams failed: {why}", found.failed);
            self.failures.push((title.clone(), peer, why));
        }
        let same = self
            .rows
            .iter_mut()
            .find(|(of, by, _)| *of == title && *by == peer);
        match same {
            Some((.., known)) => known.add(found),
            None => self.rows.push((title, peer, found)),
        }
    }

    /// Adds a run that failed.
    pub fn fail(&mut self, scenario: Scenario, peer: Peer, error: &anyhow::Error) {
        let why = format!("{error:#}");
        self.failures.push((title(scenario), peer, why));
    }

    /// Failures of peers other than the gateways, which make the comparison worthless.
    pub fn proxies_that_failed(&self) -> usize {
        let proxies = self.failures.iter().filter(|(_, by, _)| !by.is_gateway());
        proxies.count()
    }

    /// Prints the table of a scenario.
    pub fn print(&self, scenario: Scenario) {
        let title = title(scenario);
        println!("\n{title}");
        let (table, _) = self.table(scenario);
        table.print();
        table.print_ratios("nginx", "direct");
        self.print_stolen(&title);
        for (_, peer, why) in self.failures.iter().filter(|(of, ..)| *of == title) {
            println!("FAILED: {peer}: {why}");
        }
        if let Some(found) = self.find(&title, Peer::Tokengauge) {
            println!(
                "tokengauge counted {:.0} tokens meanwhile and skipped {:.0} frames",
                found.counted, found.lagged
            );
        }
    }

    /// Prints how many runs were discarded, and how many were used though disturbed.
    fn print_stolen(&self, title: &str) {
        for (peer, found) in self.peers(title) {
            let (again, disturbed) = (found.tries - found.runs, found.disturbed);
            if again > 0 || disturbed > 0 {
                let (runs, most) = (found.runs, 100.0 * found.stolen);
                println!(
                    "{peer}: others had a core in {disturbed} of {runs} runs, up to {most:.1} % of the time; {again} more were thrown away"
                );
            }
        }
    }

    /// Prints the table of noisy neighbours of docs/benchmarks.md.
    pub fn print_markdown_neighbours(&self, scenarios: &[Scenario]) {
        println!("\n| | direct | nginx | haproxy | tokengauge | ÷ nginx |");
        println!("|---|---|---|---|---|---|");
        let peers = ["direct", "nginx", "haproxy", "tokengauge"];
        for &scenario in scenarios {
            let (table, lines) = self.table(scenario);
            table.print_markdown(&title(scenario), lines, &peers, ("tokengauge", "nginx"));
        }
    }

    /// Prints a scenario's lines of the table of docs/benchmarks.md.
    pub fn print_markdown(&self, scenario: Scenario) {
        let (table, lines) = self.table(scenario);
        print_markdown(&table, &title(scenario), lines);
    }

    fn table(&self, scenario: Scenario) -> (Table, MarkdownRows) {
        let title = title(scenario);
        match scenario {
            Scenario::FirstToken { .. } => (self.first_token(&title), FIRST_TOKEN_ROWS),
            Scenario::Paced { .. } => (self.paced(&title), PACED_ROWS),
            Scenario::WithNeighbours(_) => (self.with_neighbours(&title), NEIGHBOUR_ROWS),
            Scenario::FlatOut { .. } => (self.flat_out(&title), FLAT_OUT_ROWS),
        }
    }

    fn first_token(&self, title: &str) -> Table {
        let mut table = Table::new(&[
            ("p50 µs", 1, false),
            ("p99", 1, false),
            ("p99.9", 1, false),
            ("added p50", 1, true),
            ("added p99", 1, true),
            ("added p99.9", 1, true),
            ("requests", 0, false),
        ]);
        for (peer, found) in self.peers(title) {
            let mut figures = self.latencies(title, peer, found);
            figures.push(Some(found.samples as f64));
            table.row(peer, figures);
        }
        table
    }

    fn paced(&self, title: &str) -> Table {
        let mut table = Table::new(&[
            ("p50 µs", 1, false),
            ("p99", 1, false),
            ("p99.9", 1, false),
            ("added p50", 1, true),
            ("added p99", 1, true),
            ("added p99.9", 1, true),
            ("CPU µs/event", 2, true),
            ("events/s·core", 0, true),
            ("KB/stream", 1, true),
            ("idle MB", 1, true),
            ("open", 0, false),
            ("delivered %", 1, false),
        ]);
        for (peer, found) in self.peers(title) {
            let mut figures = self.latencies(title, peer, found);
            let proxy = |figure| (peer != Peer::Direct).then_some(figure);
            figures.extend([
                proxy(cpu_per_event(found)),
                proxy(1e6 / cpu_per_event(found)),
                proxy(mean(&found.kb_per_stream)),
                proxy(mean(&found.idle_kb) / 1024.0),
                Some(mean(&found.open)),
                Some(100.0 * found.events as f64 / found.due_events as f64),
            ]);
            table.row(peer, figures);
        }
        table
    }

    fn with_neighbours(&self, scenario: &str) -> Table {
        let mut table = Table::new(&[
            ("p50 µs", 1, true),
            ("p99", 1, true),
            ("p99.9", 1, true),
            (RATIO_TO_ALONE, 2, true),
            ("of its core %", 0, true),
            ("resident MB", 1, true),
            ("delivered %", 1, false),
        ]);
        for (peer, found) in self.peers(scenario) {
            let proxy = |figure| (peer != Peer::Direct).then_some(figure);
            let mut figures = FIGURES
                .map(|figure| Some(latency_us(found, figure)))
                .to_vec();
            figures.extend([
                self.ratio_to_alone(peer, found),
                proxy(100.0 * found.cpu_seconds / found.seconds),
                proxy(mean(&found.busy_kb) / 1024.0),
                Some(100.0 * found.events as f64 / found.due_events as f64),
            ]);
            table.row(peer, figures);
        }
        table
    }

    /// The p99 with neighbours, divided by the same peer's p99 without.
    fn ratio_to_alone(&self, peer: Peer, found: &Measurement) -> Option<f64> {
        let alone = self.find(&title(Scenario::WithNeighbours(Neighbours::None)), peer)?;
        Some(latency_us(found, P99) / latency_us(alone, P99))
    }

    fn flat_out(&self, title: &str) -> Table {
        let mut table = Table::new(&[
            ("events/s", 0, true),
            ("of its core %", 0, false),
            ("CPU µs/event", 2, true),
            ("events/s·core", 0, true),
        ]);
        for (peer, found) in self.peers(title) {
            let proxy = |figure| (peer != Peer::Direct).then_some(figure);
            table.row(
                peer,
                vec![
                    Some(events_per_second(found)),
                    proxy(100.0 * found.cpu_seconds / found.seconds),
                    proxy(cpu_per_event(found)),
                    proxy(1e6 / cpu_per_event(found)),
                ],
            );
        }
        table
    }

    /// The latencies, and their differences to `direct`'s, where that ran.
    fn latencies(&self, title: &str, peer: Peer, found: &Measurement) -> Vec<Option<f64>> {
        let own = FIGURES.map(|figure| Some(latency_us(found, figure)));
        let direct = self.find(title, Peer::Direct);
        let added = FIGURES.map(|figure| {
            let direct = direct.filter(|_| peer != Peer::Direct)?;
            Some(latency_us(found, figure) - latency_us(direct, figure))
        });
        own.into_iter().chain(added).collect()
    }

    /// Prints whether tokengauge met its goals.
    pub fn print_goals(&self) {
        println!("\ngoals");
        for (title, peer, ours) in &self.rows {
            if *peer != Peer::Tokengauge {
                continue;
            }
            let goal = |what, value, limit| goal(title, what, value, limit);
            if title.starts_with("neighbours") {
                let ratio_to_alone = self.ratio_to_alone(*peer, ours).unwrap_or(f64::NAN);
                goal("p99 within 20 % of alone", ratio_to_alone, 1.2);
                continue;
            }
            if let Some(nginx) = self.find(title, Peer::Nginx) {
                self.print_goals_against_nginx(title, ours, nginx);
            }
            if title.starts_with("paced") {
                goal("per open stream, KB", mean(&ours.kb_per_stream), 30.0);
                goal("resident idle, MB", mean(&ours.idle_kb) / 1024.0, 60.0);
            }
        }
    }

    fn print_goals_against_nginx(&self, title: &str, ours: &Measurement, nginx: &Measurement) {
        let goal = |what, value, limit| goal(title, what, value, limit);
        if title.starts_with("paced") {
            // Both are relative to the same `direct`.
            let p99 = |found| latency_us(found, P99);
            let direct = self.find(title, Peer::Direct).map_or(0.0, p99);
            let cpu = "CPU per event at most nginx's, µs";
            goal(cpu, cpu_per_event(ours), cpu_per_event(nginx));
            let added = "added p99 at most nginx's, µs";
            goal(added, p99(ours) - direct, p99(nginx) - direct);
        } else if title.starts_with("flat") {
            let ratio = events_per_second(nginx) / events_per_second(ours);
            goal("nginx's events/s over ours", ratio, 1.0);
        }
    }

    fn peers(&self, title: &str) -> impl Iterator<Item = (Peer, &Measurement)> {
        Peer::ALL
            .into_iter()
            .filter_map(|peer| Some((peer, self.find(title, peer)?)))
    }

    fn find(&self, title: &str, peer: Peer) -> Option<&Measurement> {
        self.rows
            .iter()
            .find(|(of, by, _)| of == title && *by == peer)
            .map(|(.., found)| found)
    }
}

/// Prints the head of the table of docs/benchmarks.md.
pub fn print_markdown_head() {
    println!("\n| | nginx | haproxy | tokengauge | ÷ nginx | LiteLLM | Portkey |");
    println!("|---|---|---|---|---|---|---|");
}

/// Prints a table's lines of docs/benchmarks.md.
pub fn print_markdown(table: &Table, title: &str, lines: &[(&str, &[&str])]) {
    let peers = ["nginx", "haproxy", "tokengauge", "litellm", "portkey"];
    table.print_markdown(title, lines, &peers, ("tokengauge", "nginx"));
}

/// Prints whether a figure is within its goal.
pub fn goal(title: &str, what: &str, value: f64, limit: f64) {
    let verdict = if value <= limit { "met" } else { "MISSED" };
    println!("{verdict:6} {title}: {what}: {value:.2} (goal {limit:.2})");
}

/// The scenario's title in tables and messages.
pub fn title(scenario: Scenario) -> String {
    match scenario {
        Scenario::FirstToken { .. } => "time to the first token, one by one".to_owned(),
        Scenario::Paced {
            streams,
            per_second,
        } => format!("paced, {streams} streams of {per_second} events a second"),
        Scenario::WithNeighbours(neighbours) => format!("neighbours: {}", neighbours.name()),
        Scenario::FlatOut { per_write } => {
            format!("flat out, {per_write} events a write of the backend")
        }
    }
}

/// A quantile of the latencies, in microseconds: the median of the runs', so that a run whose
/// core was stolen does not decide.
fn latency_us(found: &Measurement, figure: usize) -> f64 {
    let mut of_runs: Vec<f64> = found.latencies.iter().map(|run| run[figure]).collect();
    of_runs.sort_unstable_by(f64::total_cmp);
    let middle = of_runs.len() / 2;
    match of_runs.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => of_runs[middle],
        _ => (of_runs[middle - 1] + of_runs[middle]) / 2.0,
    }
}

fn cpu_per_event(found: &Measurement) -> f64 {
    found.cpu_seconds * 1e6 / found.events as f64
}

fn events_per_second(found: &Measurement) -> f64 {
    found.events as f64 / found.seconds
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
