//! Frames that left and wait to be measured.

use super::now;
use crate::observer::{End, Frame, Phase};
use crate::proxy::watch::{Call, Watch};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time that measuring may take at once, before traffic has its turn again.
const BUDGET: Duration = Duration::from_micros(200);
/// Bytes that wait for their measurement before it is done without a pause in the traffic.
const KEEP: usize = 16 * 1024;
/// Frames of a stream that are measured one by one, as soon as they have left.
const EAGER: u64 = 4;
/// Later frames, and bytes of them, that are measured together at most.
const BATCH: usize = 8;
const BATCH_BYTES: usize = 4 * 1024;
/// How long a frame waits for others to be measured with, while they come.
const LATE: Duration = Duration::from_millis(250);
/// Bytes that wait at most; frames beyond are not measured.
const KEEP_AT_MOST: usize = 256 * 1024;
/// A frame that takes longer to measure, twice in a row, makes measuring rest.
const SLOW: Duration = Duration::from_millis(5);
/// How many times as long as it took it rests then.
const REST: u32 = 4;

/// Frames that are not going to be measured.
#[derive(Default)]
struct Skipped {
    frames: u64,
    bytes: u64,
}

impl Skipped {
    fn add(&mut self, frame: &Frame) {
        self.frames += 1;
        self.bytes += frame.bytes.len() as u64;
    }
}

/// Frames that left and are not measured yet.
#[derive(Default)]
pub(super) struct Kept {
    frames: VecDeque<Frame>,
    bytes: usize,
    /// Frames there were until now.
    seen: u64,
    skipped: Skipped,
    /// The server had its turn to write them.
    pub written: bool,
    slowest: Duration,
    /// Frames in a row that took too long to measure.
    slow: u32,
    rest_until: Option<Instant>,
}

impl Kept {
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether there is so much that it is time to measure.
    pub fn is_full(&self) -> bool {
        self.bytes >= KEEP
    }

    /// Whether it is time to measure what has left. The first frames are measured at once:
    /// objectives on the first token wait for them. Later ones in small batches: the state
    /// of a call is cold memory, and looking at it once for several frames is cheaper.
    pub fn is_due(&self, at: Instant) -> bool {
        self.seen <= EAGER
            || self.frames.len() >= BATCH
            || self.bytes >= BATCH_BYTES
            || self.since().is_some_and(|since| at >= since + LATE)
    }

    /// When the oldest of them came.
    pub fn since(&self) -> Option<Instant> {
        self.frames.front().map(|frame| frame.at)
    }

    /// The server has its turn to write them.
    pub fn written(&mut self, at: Instant) {
        self.written = true;
        if let Some(since) = self.since() {
            self.left(since, at);
        }
    }

    /// What came at one time left at another.
    pub fn left(&mut self, came: Instant, left: Instant) {
        self.slowest = self.slowest.max(left.saturating_duration_since(came));
    }

    pub fn keep(&mut self, frame: Frame) {
        self.written = false;
        self.seen += 1;
        if self.bytes + frame.bytes.len() > KEEP_AT_MOST && !self.frames.is_empty() {
            self.skipped.add(&frame);
            return;
        }
        self.bytes += frame.bytes.len();
        self.frames.push_back(frame);
    }

    /// Shows what there is, as far as the budget goes; whether to leave it at that.
    pub fn show(&mut self, watch: &Watch) -> bool {
        let began = now();
        if self.rests(began) {
            return true;
        }
        let mut last = began;
        while let Some(frame) = self.frames.pop_front() {
            self.bytes -= frame.bytes.len();
            watch.response_frame(frame);
            let at = now();
            self.pace(at, at.saturating_duration_since(last));
            last = at;
            if self.rests(at) {
                return true;
            }
            if !self.frames.is_empty() && at.saturating_duration_since(began) > BUDGET {
                return false;
            }
        }
        let skipped = std::mem::take(&mut self.skipped);
        if skipped.frames > 0 {
            watch.tell(|call| call.lagged(skipped.frames, skipped.bytes));
        }
        true
    }

    /// Lets measuring rest when it is so slow that traffic would feel it. Once may be an
    /// accident of scheduling.
    fn pace(&mut self, at: Instant, cost: Duration) {
        self.slow = if cost > SLOW { self.slow + 1 } else { 0 };
        self.rest_until = self.is_slow().then(|| at + cost * REST);
    }

    fn is_slow(&self) -> bool {
        self.slow > 1
    }

    fn rests(&self, at: Instant) -> bool {
        self.rest_until.is_some_and(|until| at < until)
    }

    /// Shows what is left when the body is over; whether that was all.
    fn show_last(&mut self, watch: &Watch) -> bool {
        if self.is_slow() {
            self.rest_until = None;
            self.frames.iter().for_each(|frame| self.skipped.add(frame));
            self.frames.clear();
            self.bytes = 0;
        }
        self.show(watch) && self.frames.is_empty()
    }
}

/// What is left to tell when a body is over. Told when it is dropped, so that nothing
/// that ends a task can lose it.
pub(super) struct Last {
    kept: Kept,
    call: Option<Call>,
    at: Instant,
    end: End,
}

impl Last {
    pub fn new(kept: Kept, call: Call, at: Instant, end: End) -> Last {
        let call = Some(call);
        Last {
            kept,
            call,
            at,
            end,
        }
    }

    /// Tells it in a task of its own.
    pub fn tell_later(self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(self.told());
        }
    }

    async fn told(mut self) {
        while !self
            .call
            .as_ref()
            .is_none_or(|call| self.kept.show_last(call.watch()))
        {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        while !self.kept.show_last(call.watch()) {}
        let slowest = self.kept.slowest;
        if slowest > Duration::ZERO {
            call.watch()
                .tell(|observer| observer.overhead(Phase::Chunk, slowest));
        }
        call.end(self.at, self.end.clone());
    }
}
