//! One long stream: its last events must cost no more CPU time than its first, and the memory
//! for it must not grow.

use crate::peer::{Peer, RunningPeer};
use crate::report::goal;
use crate::run::{Environment, warm, with_peer};
use crate::table::Table;
use crate::wire::{StreamRequest, take_instants};
use anyhow::ensure;
use std::time::Duration;

/// Streams of so many events, and how many of them make a measurement.
const STREAMS: [(u32, u32); 3] = [(1_000, 10), (10_000, 3), (100_000, 1)];
/// 25,000 events a second: proxies keep up with that, so that the CPU time of a part of the
/// stream is used while that part passes.
const INTERVAL_US: u64 = 40;
/// Gateways do not keep up: the longest stream would take a minute.
const LIMIT: Duration = Duration::from_secs(40);
/// The greatest ratio of the CPU time of the last tenth to that of the first. Proxies that
/// store nothing have 1.0 to 1.2, since the first events are cheap; work that grows with the
/// stream gives a multiple.
const GROWTH: f64 = 1.3;
/// How many kilobytes memory may grow between the first event and the last.
const GROWN_KB: f64 = 512.0;

/// CPU time and memory of some streams of one length.
#[derive(Default)]
struct Cost {
    /// CPU time in nanoseconds and events, by tenth.
    tenths: [(u64, u64); 10],
    /// Kilobytes resident at the first event and at the last, of the last stream.
    first_kb: f64,
    last_kb: f64,
}

const COLUMNS: [(&str, usize, bool); 8] = [
    ("streams", 0, false),
    ("CPU µs/event", 2, false),
    ("first tenth", 2, false),
    ("last tenth", 2, false),
    ("last ÷ first", 2, false),
    ("MB at first", 2, false),
    ("MB at last", 2, false),
    ("KB grown", 0, false),
];

/// Prints the table and whether tokengauge meets the goals. Returns the rows of the longest
/// stream.
pub fn print(peers: &[Peer], environment: Environment, rounds: u32) -> Table {
    println!("\none long stream of 25,000 events a second");
    let (mut table, mut longest_rows) = (Table::new(&COLUMNS), Table::new(&COLUMNS));
    let (mut failures, mut longest) = (Vec::new(), None);
    for &peer in peers.iter().filter(|peer| **peer != Peer::Direct) {
        for (events, streams) in STREAMS {
            if peer.is_gateway() && events == STREAMS[2].0 {
                continue;
            }
            let streams = streams * if peer.is_gateway() { 1 } else { rounds };
            let limit = LIMIT * rounds;
            let cost = with_peer(peer, environment, limit, async |running| {
                cost(running, events, streams).await
            });
            match cost {
                Ok(cost) => {
                    let label = format!("{peer:10} {events:9}");
                    let figures = cost.figures(events, streams);
                    if events == STREAMS[2].0 {
                        longest_rows.row(peer, figures.clone());
                    }
                    table.row(label, figures);
                    longest = (peer == Peer::Tokengauge).then_some(cost).or(longest);
                }
                Err(error) => failures.push(format!("FAILED: {peer}, {events}: {error:#}")),
            }
        }
    }
    table.print();
    for failure in failures {
        println!("{failure}");
    }
    if let Some(cost) = longest {
        let title = "one stream of 100,000 events";
        goal(title, "last tenth ÷ first", cost.growth(), GROWTH);
        goal(title, "grown, KB", cost.last_kb - cost.first_kb, GROWN_KB);
    }
    longest_rows
}

async fn cost(running: &RunningPeer, events: u32, streams: u32) -> anyhow::Result<Cost> {
    warm(running).await?;
    let mut cost = Cost::default();
    for _ in 0..streams {
        cost.add_stream(running, events).await?;
    }
    Ok(cost)
}

impl Cost {
    async fn add_stream(&mut self, running: &RunningPeer, events: u32) -> anyhow::Result<()> {
        let request = StreamRequest {
            events,
            interval_us: INTERVAL_US,
            ..StreamRequest::default()
        };
        // CPU time used and events seen, at the first event and at the end of each tenth.
        let mut marks: Vec<(u64, u64)> = Vec::with_capacity(11);
        let (mut seen, mut failed) = (0, None);
        let mut connection = running.connect().await?;
        connection
            .read(request, |body, _| {
                take_instants(body, |_| seen += 1);
                while failed.is_none() && is_due(marks.len() as u64, seen, events) {
                    match self.mark(running, marks.len()) {
                        Ok(used) => marks.push((used, seen)),
                        Err(error) => failed = Some(error),
                    }
                }
            })
            .await?;
        failed.map_or(Ok(()), Err)?;
        ensure!(marks.len() == 11, "{seen} events came of {events}");
        for (tenth, pair) in self.tenths.iter_mut().zip(marks.windows(2)) {
            tenth.0 += pair[1].0 - pair[0].0;
            tenth.1 += pair[1].1 - pair[0].1;
        }
        Ok(())
    }

    fn mark(&mut self, running: &RunningPeer, number: usize) -> anyhow::Result<u64> {
        match number {
            0 => self.first_kb = running.resident_kb()?,
            10 => self.last_kb = running.resident_kb()?,
            _ => {}
        }
        running.cpu_nanoseconds()
    }

    fn figures(&self, events: u32, streams: u32) -> Vec<Option<f64>> {
        let [first, .., last] = self.tenths;
        // In a tenth of the shortest, the start and end of the call cost as much as its events.
        let tenth = |figure| (events > STREAMS[0].0).then_some(figure);
        let whole = self
            .tenths
            .iter()
            .fold((0, 0), |sum, tenth| (sum.0 + tenth.0, sum.1 + tenth.1));
        vec![
            Some(f64::from(streams)),
            Some(per_event_us(whole)),
            tenth(per_event_us(first)),
            tenth(per_event_us(last)),
            tenth(self.growth()),
            Some(self.first_kb / 1024.0),
            Some(self.last_kb / 1024.0),
            Some(self.last_kb - self.first_kb),
        ]
    }

    fn growth(&self) -> f64 {
        let [first, .., last] = self.tenths;
        per_event_us(last) / per_event_us(first)
    }
}

/// Whether the first event has been seen, or the end of tenth `mark`.
fn is_due(mark: u64, seen: u64, events: u32) -> bool {
    mark <= 10 && seen >= (u64::from(events) * mark / 10).max(1)
}

fn per_event_us((nanoseconds, events): (u64, u64)) -> f64 {
    nanoseconds as f64 / 1000.0 / events as f64
}
