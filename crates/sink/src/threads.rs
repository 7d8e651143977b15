//! The threads of the sinks: one thread with its own runtime for each sink and source, so that no
//! warehouse can delay traffic or another warehouse.

use crate::clickhouse::ClickHouse;
use crate::delivery::Delivery;
use crate::s3::S3;
use crate::settings::{Location, SinkSettings};
use crate::sink::{Row, SendError, Sink};
use crate::source::{LedgerSource, MemoryQueue, MemorySource, Source};
use crate::status::{SharedStatus, SinkMetrics, SinkStatus};
use crate::table::Origin;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tokengauge_core::background::{self, BackgroundWork};
use tokengauge_core::subscriber::Subscriber;
use tokengauge_store::ledger::{Ledger, Reader};
use tokio::sync::watch;
use tokio::time::Instant;

#[derive(Debug)]
pub enum AnySink {
    ClickHouse(Box<ClickHouse>),
    S3(S3),
}

impl AnySink {
    /// A client for a warehouse.
    ///
    /// # Errors
    /// Returns an error if the settings cannot be used; the message says why.
    pub fn new(location: &Location, origin: &Origin) -> io::Result<AnySink> {
        Ok(match location {
            Location::ClickHouse(settings) => {
                let client = ClickHouse::new(settings.clone(), origin);
                AnySink::ClickHouse(Box::new(client.map_err(io::Error::other)?))
            }
            Location::S3(settings) => {
                AnySink::S3(S3::new(settings, origin).map_err(io::Error::other)?)
            }
        })
    }
}

impl AnySink {
    /// Like [`AnySink::new`], but errors contain the sink's name.
    ///
    /// # Errors
    /// Returns the errors of [`AnySink::new`].
    pub fn named(settings: &SinkSettings, origin: &Origin) -> io::Result<AnySink> {
        AnySink::new(&settings.location, origin)
            .map_err(|error| io::Error::other(format!("sink {}: {error}", settings.name)))
    }
}

impl Sink for AnySink {
    async fn send(&self, rows: &[Row]) -> Result<(), SendError> {
        match self {
            AnySink::ClickHouse(sink) => sink.send(rows).await,
            AnySink::S3(sink) => sink.send(rows).await,
        }
    }

    async fn missing(&self, rows: Vec<Row>) -> Result<Vec<Row>, SendError> {
        match self {
            AnySink::ClickHouse(sink) => sink.missing(rows).await,
            AnySink::S3(sink) => sink.missing(rows).await,
        }
    }
}

#[derive(Clone, Debug)]
pub struct SinkQueues(Vec<Arc<MemoryQueue>>);

impl SinkQueues {
    pub fn new(settings: &[SinkSettings]) -> SinkQueues {
        let queues = settings.iter();
        SinkQueues(queues.map(|one| MemoryQueue::new(one.queue)).collect())
    }

    /// The subscribers that fill the queues. They get the calls that the ledger does not write, or
    /// all calls if there is no ledger.
    pub fn subscribers(&self) -> Vec<Arc<dyn Subscriber>> {
        let queues = self.0.iter();
        queues.map(|queue| Arc::clone(queue) as _).collect()
    }
}

#[derive(Debug, Default)]
pub struct Sinks {
    statuses: Vec<SharedStatus>,
    ledger: Option<Arc<Reader>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    end: watch::Sender<Option<Instant>>,
}

impl Sinks {
    /// Starts the threads of each sink. They send the calls in its queue and those in the ledger,
    /// if there is one.
    ///
    /// # Errors
    /// Returns an error if a sink's settings cannot be used or a thread cannot be started; the
    /// message names the sink.
    pub fn start(
        settings: &[SinkSettings],
        queues: &SinkQueues,
        ledger: Option<(Arc<Ledger>, Arc<Reader>)>,
        origin: &Origin,
        metrics: impl Fn(&str) -> SinkMetrics,
        wall: fn() -> SystemTime,
    ) -> io::Result<Sinks> {
        let (end, ends) = watch::channel(None);
        let mut sinks = Sinks {
            statuses: Vec::new(),
            ledger: ledger.as_ref().map(|(_, reader)| Arc::clone(reader)),
            threads: Mutex::default(),
            end,
        };
        for (one, queue) in settings.iter().zip(&queues.0) {
            let named = |error: io::Error| io::Error::other(format!("sink {}: {error}", one.name));
            let sources = sources(one, queue, ledger.as_ref(), wall);
            let status = sources.iter().map(|(_, work)| SinkStatus {
                name: one.name.clone(),
                kind: one.kind().as_str().to_owned(),
                address: one.address(),
                durable: *work == OF_LEDGER,
                ..SinkStatus::default()
            });
            let status = SharedStatus::new(status.collect());
            for (number, (source, work)) in sources.into_iter().enumerate() {
                let delivery = Delivery {
                    name: one.name.clone(),
                    sink: AnySink::named(one, origin)?,
                    source,
                    batch_rows: one.batch_rows,
                    batch_wait: one.batch_wait,
                    metrics: metrics(&one.name),
                    status: status.clone(),
                    number,
                    end: ends.clone(),
                    wall,
                    progress: Default::default(),
                };
                let thread = spawn(delivery, work).map_err(named)?;
                sinks.threads.lock().push(thread);
            }
            sinks.statuses.push(status);
        }
        Ok(sinks)
    }

    pub fn statuses(&self) -> Vec<SinkStatus> {
        let ledger = self.ledger.as_ref();
        let error = ledger.and_then(|ledger| ledger.unwritable());
        let statuses = self.statuses.iter().map(|status| SinkStatus {
            durable: ledger.is_some() && error.is_none(),
            ledger_error: error.map(str::to_owned),
            ..status.all()
        });
        statuses.collect()
    }

    /// Lets the sinks send waiting calls and end. After `within`, unfinished batches are dropped.
    /// Returns whether all sinks ended. Blocks.
    pub fn finish(&self, within: Duration) -> bool {
        const LOOK: Duration = Duration::from_millis(10);
        /// Extra time for the threads to end after the deadline.
        const MARGIN: Duration = Duration::from_secs(1);
        let deadline = Instant::now() + within;
        self.end.send_replace(Some(deadline));
        let threads = std::mem::take(&mut *self.threads.lock());
        let ended = || threads.iter().all(JoinHandle::is_finished);
        while !ended() && Instant::now() < deadline + MARGIN {
            std::thread::sleep(LOOK);
        }
        ended()
    }
}

/// A ledger keeps calls that a late sink has not read; a bounded queue loses them.
const OF_LEDGER: BackgroundWork = BackgroundWork::WheneverIdle;
const OF_QUEUE: BackgroundWork = BackgroundWork::Steady;

/// The sources of a sink's calls: the ledger, if there is one, and the queue.
fn sources(
    settings: &SinkSettings,
    queue: &Arc<MemoryQueue>,
    ledger: Option<&(Arc<Ledger>, Arc<Reader>)>,
    wall: fn() -> SystemTime,
) -> Vec<(Box<dyn Source>, BackgroundWork)> {
    let mut sources: Vec<(Box<dyn Source>, BackgroundWork)> = Vec::new();
    if let Some((ledger, reader)) = ledger {
        let source = LedgerSource {
            sink: settings.name.clone(),
            ledger: Arc::clone(ledger),
            reader: Arc::clone(reader),
            wall,
            known: None,
        };
        sources.push((Box::new(source), OF_LEDGER));
    }
    let source = MemorySource {
        queue: Arc::clone(queue),
        wall,
        pending: 0,
    };
    sources.push((Box::new(source), OF_QUEUE));
    sources
}

fn spawn(delivery: Delivery<AnySink>, work: BackgroundWork) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let name = match work {
        OF_LEDGER => "sink",
        _ => "sink-queue",
    };
    background::spawn(name, work, move || {
        runtime.block_on(delivery.run());
    })
}
