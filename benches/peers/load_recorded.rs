//! Recorded bodies as fast as possible, all bodies in turn, so that a reader cannot reuse what it learned from the
//! previous one.

use crate::client::{Connection, StreamStats};
use crate::recorded::{Library, Recorded, RecordedSpec};
use crate::results::RunResult;
use crate::run::{Run, await_ends};
use anyhow::ensure;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;

const CONNECTIONS: usize = 32;

/// A request for a recorded body, and the expected bytes.
struct Replay {
    request: Vec<u8>,
    body: Vec<u8>,
    events: u64,
    name: String,
}

impl Replay {
    fn new(recorded: &Recorded, spec: RecordedSpec) -> Replay {
        let events: Vec<_> = recorded.events(spec.repeated).collect();
        Replay {
            request: spec.request(recorded),
            body: events.concat(),
            events: events.len() as u64,
            name: recorded.name.clone(),
        }
    }

    /// Makes the call and compares the response with the recording.
    async fn run(&self, connection: &mut Connection, stats: &StreamStats) -> anyhow::Result<()> {
        let (mut rest, mut same) = (&self.body[..], true);
        let each = |body: &mut Vec<u8>, _| {
            let (now, later) = rest.split_at(body.len().min(rest.len()));
            same &= now == *body;
            rest = later;
            stats.bytes.set(stats.bytes.get() + body.len() as u64);
            body.clear();
        };
        connection.exchange(&self.request, each).await?;
        ensure!(
            same && rest.is_empty(),
            "{}: the received bytes differ from the recording",
            self.name
        );
        stats.events.set(stats.events.get() + self.events);
        stats.calls.set(stats.calls.get() + 1);
        Ok(())
    }
}

/// All bodies, or only one dialect, one after the other on each connection.
pub async fn recorded(
    run: &Run<'_>,
    dialect: Option<&str>,
    per_write: u32,
    repeated: bool,
) -> anyhow::Result<RunResult> {
    let library = Library::default();
    let mut replays = Vec::new();
    for (index, body) in library.all()?.iter().enumerate() {
        let wanted = dialect.is_none_or(|dialect| dialect == body.dialect);
        if wanted && (!repeated || body.can_be_repeated()) {
            let spec = RecordedSpec {
                index,
                per_write,
                repeated,
            };
            replays.push(Replay::new(body, spec));
        }
    }
    ensure!(!replays.is_empty(), "there are no such recordings");
    let (replays, next): (Rc<[Replay]>, Rc<Cell<usize>>) = (replays.into(), Rc::default());
    let mut under_way = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let mut connection = run.running.connect().await?;
        let (replays, next, stats) = (replays.clone(), next.clone(), Rc::clone(&run.stats));
        under_way.spawn_local(async move {
            loop {
                let replay = &replays[next.get() % replays.len()];
                next.set(next.get() + 1);
                replay.run(&mut connection, &stats).await?;
            }
        });
    }
    let mut result = run.measure(CONNECTIONS).await?;
    await_ends(under_way, &mut result, Duration::ZERO).await?;
    Ok(result)
}
