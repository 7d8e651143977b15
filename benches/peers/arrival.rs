//! Whether the bytes of a stream arrive as the backend sent them, and whether its events
//! arrive immediately and one by one.

use crate::peer::{Peer, RunningPeer};
use crate::run::{Environment, warm, with_peer};
use crate::wire::{StreamRequest, end, instants, write_event};
use anyhow::ensure;
use std::time::Duration;

const EVENTS: u32 = 20;
const INTERVAL: Duration = Duration::from_millis(50);
/// A first token, ten streams to warm up, and a second of events.
const LIMIT: Duration = Duration::from_secs(20);

/// A stream as it arrived.
struct ArrivedStream {
    body: Vec<u8>,
    /// When each event was sent.
    sent: Vec<u64>,
    /// Nanoseconds from the sending of the first event to its arrival.
    first_after: u64,
    /// How many reads had new events.
    pieces: usize,
}

/// Prints a row for each peer.
pub fn print(peers: &[Peer], environment: Environment) {
    println!(
        "\nwhat arrives of a stream of {EVENTS} events, {} ms apart",
        INTERVAL.as_millis()
    );
    println!(
        "{:20}  {:>9}  {:>9}  {:>9}  {:>13}  {:>12}",
        "", "untouched", "bytes", "sent", "first event", "one by one"
    );
    for &peer in peers {
        match with_peer(peer, environment, LIMIT, async |running| {
            arrived(running).await
        }) {
            Ok(arrived) => println!("{peer:20}  {arrived}"),
            Err(error) => println!("FAILED: {peer}: {error:#}"),
        }
    }
}

async fn arrived(running: &RunningPeer) -> anyhow::Result<ArrivedStream> {
    warm(running).await?;
    let request = StreamRequest {
        events: EVENTS,
        interval_us: INTERVAL.as_micros() as u64,
        ..StreamRequest::default()
    };
    let (mut whole, mut first, mut pieces, mut sent) = (Vec::new(), None, 0, Vec::new());
    let mut connection = running.connect().await?;
    connection
        .read(request, |body, arrived| {
            let before = sent.len();
            whole.append(body);
            sent.clear();
            instants(&whole, |instant| sent.push(instant));
            pieces += usize::from(sent.len() > before);
            if let (None, Some(instant)) = (first, sent.first()) {
                first = Some(arrived.saturating_sub(*instant));
            }
        })
        .await?;
    ensure!(sent.len() == EVENTS as usize, "{} events came", sent.len());
    Ok(ArrivedStream {
        body: whole,
        sent,
        first_after: first.unwrap_or_default(),
        pieces,
    })
}

impl ArrivedStream {
    /// The bytes that the backend sent, made from the instants in those that arrived.
    fn original(&self) -> String {
        let mut original = String::new();
        for (index, instant) in (0..).zip(&self.sent) {
            write_event(index, *instant, &mut original);
        }
        original + &end(EVENTS)
    }
}

impl std::fmt::Display for ArrivedStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let original = self.original();
        let untouched = match original.as_bytes() == self.body {
            true => "yes",
            false => "no",
        };
        // An event was held back if it arrived after the next one was sent.
        let first_after = Duration::from_nanos(self.first_after);
        let held = if first_after < INTERVAL { "" } else { " HELD" };
        let first = format!("{:.1} ms{held}", first_after.as_secs_f64() * 1e3);
        write!(
            f,
            "{untouched:>9}  {:9}  {:9}  {first:>13}  {:>12}",
            self.body.len(),
            original.len(),
            format!("{} of {EVENTS}", self.pieces)
        )
    }
}
