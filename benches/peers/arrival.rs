//! Checks the delivery of a stream: whether its bytes equal the backend's, and whether events arrive at once and one by
//! one.

use crate::environment::Environment;
use crate::peer::{Peer, RunningPeer};
use crate::run::{warm, with_peer};
use crate::scenario::Setup;
use crate::wire::{StreamRequest, answering_model, end, instants, write_event};
use anyhow::ensure;
use std::time::Duration;

const EVENTS: u32 = 20;
const INTERVAL: Duration = Duration::from_millis(50);
/// Time for a first token, ten warm-up streams, and a second of events.
const LIMIT: Duration = Duration::from_secs(20);

struct Arrived {
    body: Vec<u8>,
    sent: Vec<u64>,
    first_after: u64,
    /// Number of reads that contained an event.
    pieces: usize,
}

pub fn print(peers: &[Peer], environment: &Environment) {
    println!(
        "\narrival of a stream of {EVENTS} events, {} ms apart",
        INTERVAL.as_millis()
    );
    println!(
        "{:20}  {:>9}  {:>9}  {:>9}  {:>13}  {:>12}",
        "", "untouched", "bytes", "sent", "first event", "one by one"
    );
    for &peer in peers {
        match with_peer(
            peer,
            &Setup::default(),
            environment,
            LIMIT,
            async |running| arrived(running).await,
        ) {
            Ok(arrived) => println!("{peer:20}  {arrived}"),
            Err(error) => println!("FAILED: {peer}: {error:#}"),
        }
    }
}

async fn arrived(running: &RunningPeer) -> anyhow::Result<Arrived> {
    warm(running, 1).await?;
    let spec = StreamRequest {
        events: EVENTS,
        interval_us: INTERVAL.as_micros() as u64,
        ..StreamRequest::default()
    };
    let (mut whole, mut first, mut pieces, mut sent) = (Vec::new(), None, 0, Vec::new());
    let mut connection = running.connect().await?;
    connection
        .exchange(&running.call(spec).http1, |body, arrived| {
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
    ensure!(
        sent.len() == EVENTS as usize,
        "{} events arrived",
        sent.len()
    );
    Ok(Arrived {
        body: whole,
        sent,
        first_after: first.unwrap_or_default(),
        pieces,
    })
}

impl Arrived {
    /// The bytes that the backend sent, reconstructed from the timestamps in the received ones.
    fn original(&self) -> String {
        let mut original = String::new();
        for (index, instant) in (0..).zip(&self.sent) {
            write_event(index, *instant, &answering_model(0), &mut original);
        }
        original + &end(EVENTS, &answering_model(0))
    }
}

impl std::fmt::Display for Arrived {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let original = self.original();
        let untouched = if original.as_bytes() == self.body {
            "yes"
        } else {
            "no"
        };
        // An event counts as held back if it arrived no earlier than the next event was sent.
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
