//! One long stream: its thousandth event must cost as much as its hundred-thousandth, and memory must not grow.

use crate::environment::Environment;
use crate::peer::{Peer, RunningPeer};
use crate::report::single_goal;
use crate::run::{warm, with_peer};
use crate::scenario::Setup;
use crate::table::{Row, Table};
use crate::wire::{StreamRequest, take_instants};
use anyhow::ensure;
use std::time::Duration;

/// Lengths of streams in events, and the number of streams for a measurement.
const STREAMS: [(u32, u32); 3] = [(1_000, 10), (10_000, 3), (100_000, 1)];
/// 25,000 events a second. Proxies keep up with this rate, so CPU time is spent in the tenth that it belongs to.
const INTERVAL_US: u64 = 40;
/// Gateways are slower: the longest stream would take them a minute.
const LIMIT: Duration = Duration::from_secs(40);
/// Allowed cost of the last tenth of the longest stream relative to the first. Proxies without buffering show 1.0 to
/// 1.2, because beginnings are cheap. Work that grew with the stream would cost a multiple.
const GROWTH: f64 = 1.3;
/// Allowed growth of memory in kilobytes from the first event to the last.
const GROWN_KB: f64 = 512.0;

#[derive(Default)]
struct Cost {
    /// Nanoseconds of CPU time and number of events, by tenth.
    tenths: [(u64, u64); 10],
    /// Kilobytes resident at the first event of the last stream.
    first_kb: f64,
    last_kb: f64,
}

const COLUMNS: [(&str, usize); 8] = [
    ("streams", 0),
    ("CPU µs/event", 2),
    ("first tenth", 2),
    ("last tenth", 2),
    ("last ÷ first", 2),
    ("MB at first", 2),
    ("MB at last", 2),
    ("KB grown", 0),
];

pub fn print(peers: &[Peer], environment: &Environment, rounds: u32) {
    println!("\none long stream of 25,000 events a second");
    let mut table = Table::with_columns(COLUMNS.to_vec());
    let (mut failures, mut longest) = (Vec::new(), None);
    for &peer in peers.iter().filter(|peer| **peer != Peer::Direct) {
        for (events, streams) in STREAMS {
            if peer.is_gateway() && events == STREAMS[2].0 {
                continue;
            }
            let streams = streams * if peer.is_gateway() { 1 } else { rounds };
            let limit = LIMIT * rounds;
            let cost = with_peer(
                peer,
                &Setup::default(),
                environment,
                limit,
                async |running| cost(running, events, streams).await,
            );
            match cost {
                Ok(cost) => {
                    let label = format!("{peer:10} {events:9}");
                    let figures = cost.figures(events, streams);
                    table.row(label, Row::Figures(figures));
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
        single_goal(title, "last tenth ÷ first", cost.growth(), GROWTH);
        single_goal(title, "grown, KB", cost.last_kb - cost.first_kb, GROWN_KB);
    }
}

async fn cost(running: &RunningPeer, events: u32, streams: u32) -> anyhow::Result<Cost> {
    warm(running, 1).await?;
    let mut cost = Cost::default();
    for _ in 0..streams {
        cost.add_stream(running, events).await?;
    }
    Ok(cost)
}

impl Cost {
    async fn add_stream(&mut self, running: &RunningPeer, events: u32) -> anyhow::Result<()> {
        let spec = StreamRequest {
            events,
            interval_us: INTERVAL_US,
            ..StreamRequest::default()
        };
        // CPU time and events at the first event and at the end of each tenth.
        let mut marks: Vec<(u64, u64)> = Vec::with_capacity(11);
        let (mut seen, mut failed) = (0, None);
        let mut connection = running.connect().await?;
        connection
            .exchange(&running.call(spec).http1, |body, _| {
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
        ensure!(marks.len() == 11, "{seen} of {events} events arrived");
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
        // In the shortest stream, begin and end of the call cost as much as the events of a tenth.
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
