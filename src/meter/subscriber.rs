//! Those who take findings from the meter: exporters, the ring of recent calls, the
//! call log.

use super::timeline::InterToken;
use crate::background::{self, Work};
use crate::call::{CallRecord, Channel, GenerationSettings, TpsUnavailable};
use crate::cost::budget::Charge;
use crate::throughput::Ended;
use crate::trace::CallTrace;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

/// Finished calls that wait for the subscribers' thread; more are dropped and counted.
const QUEUE: usize = 8192;
/// After so many finished calls, or this long after the last one, subscribers tidy up.
const TIDY_EVERY: u32 = 256;
const TIDY_AFTER: Duration = Duration::from_secs(1);

/// Takes what the meter finds.
pub trait Subscriber: Send + Sync + 'static {
    /// The first tokens of a generation came. Called on the traffic's threads, as is
    /// what it gives: both must be cheap and must not wait.
    fn watch(&self, _stream: &Stream<'_>) -> Option<Box<dyn Watch>> {
        None
    }

    /// A call is over. Called on the subscribers' own thread, one call at a time.
    fn finished(&self, finding: &Arc<Finding>);

    /// Now and then, on the same thread.
    fn tidy(&self) {}

    /// Before the process ends: whatever waits must go out.
    fn flush(&self) {}
}

/// Takes the tokens of one generation as they come.
pub trait Watch: Send {
    /// `tokens` more came on `channel`, certain not to be taken back.
    fn tokens(&mut self, at: Instant, channel: Channel, tokens: u64);
}

/// What a generation is labelled with.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    /// The route that matched.
    pub route: &'a Arc<str>,
    /// The upstream it went to.
    pub upstream: &'a Arc<str>,
    /// The workload it belongs to.
    pub workload: Option<&'a Arc<str>>,
    /// The model that answers, else the one asked for.
    pub model: Option<&'a str>,
    /// Whether the upstream said yes: only then is the model's name worth a label.
    pub accepted: bool,
}

/// A finished call, and what of it no record holds.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The record, as it is shown.
    pub record: CallRecord,
    /// When the call ended.
    pub ended: Instant,
    /// The other instants of the call.
    pub moments: Moments,
    /// Its spans, where somebody traces.
    pub trace: Option<CallTrace>,
    /// The agent's `tracestate`, where its trace goes on and is recorded.
    pub trace_state: Option<Box<str>>,
    /// What the request asks for, where its spans are recorded.
    pub asked: Option<Box<Asked>>,
    /// Whether the trace of the record is recorded, so that it can be looked at.
    pub sampled: bool,
    /// The response's own id.
    pub response_id: Option<String>,
    /// Whether the session is no more than a guess.
    pub guessed_session: bool,
    /// Whether it was made for another call of this process, which counts for the session.
    pub nested: bool,
    /// Under which names it counts for budgets that block.
    pub charges: Arc<[Charge]>,
    /// Streams in flight on the upstream when the call began, itself included.
    pub concurrency: u32,
    /// Tokens after the first frame, and the seconds they took; where `output_tps` is known.
    pub decode: Option<(u64, f64)>,
    /// Latencies by token.
    pub inter_token: Option<Box<InterToken>>,
    /// Gaps between frames with generated text, in the same classes.
    pub inter_chunk: Option<Box<InterToken>>,
    /// What the proxy spent on the heads.
    pub head_overhead: Option<Duration>,
    /// The most it spent on one piece of the response body.
    pub chunk_overhead: Option<Duration>,
}

impl Finding {
    /// What of it counts for the throughput of all calls.
    pub(crate) fn throughput(&self) -> Ended {
        let record = &self.record;
        let held_back = record.tps.unavailable == Some(TpsUnavailable::Buffered);
        let tokens = &record.tokens;
        Ended {
            sent: self.moments.sent.unwrap_or(self.moments.received),
            ended: self.ended,
            tokens: tokens.normalised.output.or(tokens.reported.output),
            whole: record.streamed == Some(false) || held_back,
        }
    }
}

/// What a request asks for, of which no record tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// How the answer is to be generated.
    pub settings: GenerationSettings,
    /// How many choices.
    pub choices: Option<u32>,
    /// The class of service.
    pub service_tier: Option<String>,
}

/// When what happened in a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// The wall clock at `received`.
    pub started_at: SystemTime,
    /// The request head had been read.
    pub received: Instant,
    /// An upstream connection was ready.
    pub connected: Option<Instant>,
    /// The last byte of the request had been passed on.
    pub sent: Option<Instant>,
    /// The response head had come.
    pub head: Option<Instant>,
    /// The first generated text.
    pub first_token: Option<Instant>,
    /// The first generated text other than reasoning.
    pub first_answer: Option<Instant>,
    /// The last generated text.
    pub last_token: Option<Instant>,
    /// When the first few stalls ended, and how long they took.
    pub stalls: Vec<(Instant, Duration)>,
}

impl Moments {
    /// An instant of the call on the wall clock.
    pub fn wall(&self, at: Instant) -> SystemTime {
        self.started_at + at.saturating_duration_since(self.received)
    }
}

enum Message {
    Finished(Arc<Finding>),
    Flush(SyncSender<()>),
}

/// The subscribers and their thread.
pub(crate) struct Subscribers {
    all: Arc<[Arc<dyn Subscriber>]>,
    queue: SyncSender<Message>,
    dropped: AtomicU64,
}

impl Subscribers {
    pub(crate) fn new(all: Vec<Arc<dyn Subscriber>>) -> Subscribers {
        Subscribers::with_queue(all, QUEUE)
    }

    fn with_queue(all: Vec<Arc<dyn Subscriber>>, length: usize) -> Subscribers {
        let all: Arc<[Arc<dyn Subscriber>]> = all.into();
        let (queue, messages) = sync_channel(length);
        let theirs = Arc::clone(&all);
        let run = move || deliver(&theirs, &messages);
        if let Err(error) = background::spawn("findings", Work::Steady, run) {
            tracing::error!(%error, "no thread for finished calls: none will be recorded");
        }
        Subscribers {
            all,
            queue,
            dropped: AtomicU64::new(0),
        }
    }

    /// Everyone who wants to watch `stream`.
    pub(crate) fn watch(&self, stream: &Stream<'_>) -> Box<[Box<dyn Watch>]> {
        let all = self.all.iter();
        all.filter_map(|subscriber| subscriber.watch(stream))
            .collect()
    }

    /// Hands a finished call over; drops and counts it where too many wait.
    pub(crate) fn finished(&self, finding: Finding) {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.queue.try_send(Message::Finished(Arc::new(finding)))
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Finished calls that nobody got to see.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until everything handed over has been taken and flushed, at most `patience`.
    pub(crate) fn flush(&self, patience: Duration) -> bool {
        wait_behind(&self.queue, Message::Flush, patience)
    }
}

/// Puts a marker into `queue` and waits, at most `patience` for each, until there is
/// room for it and until it has come out at the other end.
pub(crate) fn wait_behind<T>(
    queue: &SyncSender<T>,
    marker: impl Fn(SyncSender<()>) -> T,
    patience: Duration,
) -> bool {
    const PAUSE: Duration = Duration::from_millis(2);
    let (done, over) = sync_channel(1);
    let mut waited = Duration::ZERO;
    while queue.try_send(marker(done.clone())).is_err() {
        if waited >= patience {
            return false;
        }
        std::thread::sleep(PAUSE);
        waited += PAUSE;
    }
    over.recv_timeout(patience).is_ok()
}

fn deliver(all: &[Arc<dyn Subscriber>], messages: &Receiver<Message>) {
    let mut untidy = 0;
    loop {
        let message = if untidy == 0 {
            messages.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            messages.recv_timeout(TIDY_AFTER)
        };
        match message {
            Ok(Message::Finished(finding)) => {
                each(all, |subscriber| subscriber.finished(&finding));
                untidy += 1;
            }
            Ok(Message::Flush(done)) => {
                each(all, |subscriber| subscriber.flush());
                let _ = done.send(());
            }
            Err(RecvTimeoutError::Timeout) => untidy = TIDY_EVERY,
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if untidy >= TIDY_EVERY {
            each(all, |subscriber| subscriber.tidy());
            untidy = 0;
        }
    }
    each(all, |subscriber| subscriber.flush());
}

/// A subscriber that panics loses that one call and nobody else's.
fn each(all: &[Arc<dyn Subscriber>], act: impl Fn(&dyn Subscriber)) {
    for subscriber in all {
        let act = std::panic::AssertUnwindSafe(|| act(subscriber.as_ref()));
        if std::panic::catch_unwind(act).is_err() {
            tracing::error!("a subscriber of the meter panicked");
        }
    }
}
