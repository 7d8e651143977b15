//! The tables, and the goals they are held against.

use crate::peer::Peer;
use crate::run::{Found, Scenario};

/// Everything found, by scenario and peer, in the order it came.
#[derive(Default)]
pub struct Report {
    rows: Vec<(String, Peer, Found)>,
}

impl Report {
    /// Adds a run to what is known of the same scenario and peer.
    pub fn add(&mut self, scenario: Scenario, peer: Peer, found: Found) {
        let title = title(scenario);
        let same = self
            .rows
            .iter_mut()
            .find(|(of, by, _)| *of == title && *by == peer);
        match same {
            Some((.., known)) => known.add(found),
            None => self.rows.push((title, peer, found)),
        }
    }

    /// Prints the table of a scenario.
    pub fn print(&mut self, scenario: Scenario) {
        let title = title(scenario);
        for (.., found) in self.rows.iter_mut().filter(|(of, ..)| *of == title) {
            found.latencies.sort_unstable();
        }
        println!("\n{title}");
        match scenario {
            Scenario::FirstToken { .. } => self.print_first_token(&title),
            Scenario::Paced { .. } => self.print_paced(&title),
            Scenario::FlatOut { .. } => self.print_flat_out(&title),
        }
    }

    fn print_first_token(&self, title: &str) {
        println!(
            "{:12} {:>12} {:>12} {:>12} {:>12}",
            "", "p50 µs", "p99 µs", "added p50", "added p99"
        );
        for (peer, found) in self.peers(title) {
            println!("{peer:12} {}", self.latency_columns(title, found));
        }
    }

    fn print_paced(&self, title: &str) {
        println!(
            "{:12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>10}",
            "",
            "p50 µs",
            "p99 µs",
            "added p50",
            "added p99",
            "CPU µs/event",
            "KB/stream",
            "idle MB"
        );
        for (peer, found) in self.peers(title) {
            let latencies = self.latency_columns(title, found);
            if peer == Peer::Direct {
                println!("{peer:12} {latencies}");
                continue;
            }
            println!(
                "{peer:12} {latencies} {:12.2} {:12.1} {:10.1}",
                cpu_per_event(found),
                mean(&found.kb_per_stream),
                mean(&found.idle_kb) / 1024.0
            );
        }
        self.print_counted(title);
    }

    fn print_flat_out(&self, title: &str) {
        println!(
            "{:12} {:>12} {:>12} {:>12}",
            "", "events/s", "CPU µs/event", "of its core"
        );
        for (peer, found) in self.peers(title) {
            print!("{peer:12} {:12.0}", events_per_second(found));
            if peer != Peer::Direct {
                let share = 100.0 * found.cpu_seconds / found.seconds;
                print!(" {:12.2} {share:11.0}%", cpu_per_event(found));
            }
            println!();
        }
        self.print_counted(title);
    }

    fn print_counted(&self, title: &str) {
        if let Some(found) = self.find(title, Peer::Tokengauge) {
            println!(
                "tokengauge counted {:.0} tokens meanwhile and skipped {:.0} frames",
                found.counted, found.lagged
            );
        }
    }

    fn latency_columns(&self, title: &str, found: &Found) -> String {
        let columns = [0.5, 0.99].map(|share| percentile_us(found, share));
        let added = [0.5, 0.99].map(|share| self.added_us(title, found, share));
        format!(
            "{:12.1} {:12.1} {:12.1} {:12.1}",
            columns[0], columns[1], added[0], added[1]
        )
    }

    fn added_us(&self, title: &str, found: &Found, share: f64) -> f64 {
        let direct = self
            .find(title, Peer::Direct)
            .map_or(0.0, |direct| percentile_us(direct, share));
        percentile_us(found, share) - direct
    }

    /// Prints whether tokengauge reached what was set for it.
    pub fn print_goals(&self) {
        println!("\ngoals");
        let titles: Vec<&str> = self
            .rows
            .iter()
            .filter(|(_, peer, _)| *peer == Peer::Tokengauge)
            .map(|row| row.0.as_str())
            .collect();
        for title in titles {
            let Some(ours) = self.find(title, Peer::Tokengauge) else {
                continue;
            };
            let nginx = self.find(title, Peer::Nginx);
            if title.starts_with("paced") {
                if let Some(nginx) = nginx {
                    let p99 = |found| self.added_us(title, found, 0.99);
                    goal(
                        title,
                        "CPU per event at most nginx's, µs",
                        cpu_per_event(ours),
                        cpu_per_event(nginx),
                    );
                    goal(
                        title,
                        "added p99 at most nginx's, µs",
                        p99(ours),
                        p99(nginx),
                    );
                }
                goal(
                    title,
                    "per open stream, KB",
                    mean(&ours.kb_per_stream),
                    40.0,
                );
                goal(
                    title,
                    "resident idle, MB",
                    mean(&ours.idle_kb) / 1024.0,
                    60.0,
                );
            } else if let (true, Some(nginx)) = (title.starts_with("flat"), nginx) {
                let half = events_per_second(nginx) / 2.0;
                goal(
                    title,
                    "half of nginx's events/s over ours",
                    half / events_per_second(ours),
                    1.0,
                );
            }
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

fn goal(title: &str, what: &str, value: f64, limit: f64) {
    let verdict = if value <= limit { "met" } else { "MISSED" };
    println!("{verdict:6} {title}: {what}: {value:.2} (goal {limit:.2})");
}

fn title(scenario: Scenario) -> String {
    match scenario {
        Scenario::FirstToken { requests } => {
            format!("time to the first token, {requests} requests one by one")
        }
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
