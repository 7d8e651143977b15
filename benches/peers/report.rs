//! The tables of the scenarios, and the goals they are held against.

use crate::peer::Peer;
use crate::run::{Found, Scenario};
use crate::table::Table;

/// The shares of the latencies that are shown.
const SHARES: [f64; 3] = [0.5, 0.99, 0.999];

/// Everything found, by scenario and peer, in the order it came.
#[derive(Default)]
pub struct Report {
    rows: Vec<(String, Peer, Found)>,
    failures: Vec<(String, Peer, String)>,
}

/// What the README has of a table: a name, and the columns that it is made of.
type Lines = &'static [(&'static str, &'static [&'static str])];
const ADDED: &[&str] = &["added p50", "added p99", "added p99.9"];
const FIRST_TOKEN_LINES: Lines = &[("added p50 / p99 / p99.9, µs", ADDED)];
const PACED_LINES: Lines = &[
    ("latency added p50 / p99 / p99.9, µs", ADDED),
    ("CPU per event, µs", &["CPU µs/event"]),
    ("events per second and core", &["events/s·core"]),
    ("memory per open stream, KB", &["KB/stream"]),
    ("resident idle, MB", &["idle MB"]),
    ("delivered, %", &["delivered %"]),
];
const FLAT_OUT_LINES: Lines = &[
    ("events/s", &["events/s"]),
    ("events per second and core", &["events/s·core"]),
];

impl Report {
    /// Adds a run to what is known of the same scenario and peer.
    pub fn add(&mut self, scenario: Scenario, peer: Peer, found: Found) {
        let title = title(scenario);
        if let Some(why) = &found.why {
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

    /// Notes a run that gave nothing.
    pub fn fail(&mut self, scenario: Scenario, peer: Peer, error: &anyhow::Error) {
        let why = format!("{error:#}");
        self.failures.push((title(scenario), peer, why));
    }

    /// Failures of others than the gateways: those make the benchmark itself worthless.
    pub fn proxies_that_failed(&self) -> usize {
        let proxies = self.failures.iter().filter(|(_, by, _)| !by.is_gateway());
        proxies.count()
    }

    /// Prints the table of a scenario.
    pub fn print(&mut self, scenario: Scenario) {
        let title = title(scenario);
        for (.., found) in self.rows.iter_mut().filter(|(of, ..)| *of == title) {
            found.latencies.sort_unstable();
        }
        println!("\n{title}");
        let (table, _) = self.table(scenario);
        table.print();
        table.print_ratios("nginx", "direct");
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

    /// Prints a scenario's lines of the README's table.
    pub fn print_markdown(&self, scenario: Scenario) {
        let (table, lines) = self.table(scenario);
        print_markdown(&table, &title(scenario), lines);
    }

    fn table(&self, scenario: Scenario) -> (Table, Lines) {
        let title = title(scenario);
        match scenario {
            Scenario::FirstToken { .. } => (self.first_token(&title), FIRST_TOKEN_LINES),
            Scenario::Paced { .. } => (self.paced(&title), PACED_LINES),
            Scenario::FlatOut { .. } => (self.flat_out(&title), FLAT_OUT_LINES),
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
            figures.push(Some(found.latencies.len() as f64));
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
                Some(100.0 * found.events as f64 / found.asked as f64),
            ]);
            table.row(peer, figures);
        }
        table
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

    /// The latencies, and what they are more than `direct`'s, where that ran.
    fn latencies(&self, title: &str, peer: Peer, found: &Found) -> Vec<Option<f64>> {
        let own = SHARES.map(|share| Some(percentile_us(found, share)));
        let direct = self.find(title, Peer::Direct);
        let added = SHARES.map(|share| {
            let direct = direct.filter(|_| peer != Peer::Direct)?;
            Some(percentile_us(found, share) - percentile_us(direct, share))
        });
        own.into_iter().chain(added).collect()
    }

    /// Prints whether tokengauge reached what was set for it.
    pub fn print_goals(&self) {
        println!("\ngoals");
        for (title, peer, ours) in &self.rows {
            if *peer != Peer::Tokengauge {
                continue;
            }
            let goal = |what, value, limit| goal(title, what, value, limit);
            if let Some(nginx) = self.find(title, Peer::Nginx) {
                self.print_goals_beside(title, ours, nginx);
            }
            if title.starts_with("paced") {
                goal("per open stream, KB", mean(&ours.kb_per_stream), 30.0);
                goal("resident idle, MB", mean(&ours.idle_kb) / 1024.0, 60.0);
            }
        }
    }

    fn print_goals_beside(&self, title: &str, ours: &Found, nginx: &Found) {
        let goal = |what, value, limit| goal(title, what, value, limit);
        if title.starts_with("paced") {
            // Both are against the same `direct`.
            let p99 = |found| percentile_us(found, 0.99);
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

    fn peers(&self, title: &str) -> impl Iterator<Item = (Peer, &Found)> {
        Peer::ALL
            .into_iter()
            .filter_map(|peer| Some((peer, self.find(title, peer)?)))
    }

    fn find(&self, title: &str, peer: Peer) -> Option<&Found> {
        self.rows
            .iter()
            .find(|(of, by, _)| of == title && *by == peer)
            .map(|(.., found)| found)
    }
}

/// Prints the head of the README's table.
pub fn print_markdown_head() {
    println!("\n| | nginx | haproxy | tokengauge | ÷ nginx | LiteLLM | Portkey |");
    println!("|---|---|---|---|---|---|---|");
}

/// Prints a table's lines of the README's.
pub fn print_markdown(table: &Table, title: &str, lines: &[(&str, &[&str])]) {
    let peers = ["nginx", "haproxy", "tokengauge", "litellm", "portkey"];
    table.print_markdown(title, lines, &peers, ("tokengauge", "nginx"));
}

/// Prints whether a figure is within what was set for it.
pub fn goal(title: &str, what: &str, value: f64, limit: f64) {
    let verdict = if value <= limit { "met" } else { "MISSED" };
    println!("{verdict:6} {title}: {what}: {value:.2} (goal {limit:.2})");
}

fn title(scenario: Scenario) -> String {
    match scenario {
        Scenario::FirstToken { .. } => "time to the first token, one by one".to_owned(),
        Scenario::Paced {
            streams,
            per_second,
        } => format!("paced, {streams} streams of {per_second} events a second"),
        Scenario::FlatOut { per_write } => {
            format!("flat out, {per_write} events a write of the backend")
        }
    }
}

/// Of sorted latencies, in microseconds.
fn percentile_us(found: &Found, share: f64) -> f64 {
    let rank = (found.latencies.len() as f64 * share) as usize;
    let at = found
        .latencies
        .get(rank.min(found.latencies.len().saturating_sub(1)));
    at.map_or(f64::NAN, |nanoseconds| *nanoseconds as f64 / 1000.0)
}

fn cpu_per_event(found: &Found) -> f64 {
    found.cpu_seconds * 1e6 / found.events as f64
}

fn events_per_second(found: &Found) -> f64 {
    found.events as f64 / found.seconds
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
