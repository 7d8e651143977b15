//! Frames that were forwarded and wait to be measured.

use crate::call_handle::{Call, CallHandle};
use crate::clock::{now, waited_for_core};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Context;
use std::time::{Duration, Instant};
use tokengauge_core::observer::{End, Frame, Phase, UnmeasuredFrames};

/// How long measuring may run before it yields to traffic.
const BUDGET: Duration = Duration::from_micros(200);
/// Queued bytes from which on frames are measured without waiting for the upstream to fall silent.
const MEASURE_AT_BYTES: usize = 16 * 1024;
/// The first frames of a stream, which are measured one by one, as soon as they were forwarded.
const MEASURED_SINGLY: u64 = 4;
/// The size of a batch of later frames, in frames and in bytes.
const BATCH_FRAMES: usize = 8;
const BATCH_BYTES: usize = 4 * 1024;
/// How long after the last measurement a frame waits for a batch. A later one is measured at once,
/// as the state shown for a slow stream is that of its last frame.
const BATCH_WITHIN: Duration = Duration::from_millis(950);
/// The most bytes that are queued; frames beyond are not measured.
const MAX_QUEUED_BYTES: usize = 256 * 1024;
/// Two frames in a row that take longer to measure than this pause measuring; the time that others had the core is not theirs.
const SLOW_FRAME: Duration = Duration::from_millis(5);
/// How many times as long as the slow frame took measuring is paused.
const PAUSE_FACTOR: u32 = 4;

/// Frames that will not be measured.
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

/// The frames of one call that were forwarded and are not measured yet.
#[derive(Default)]
pub(super) struct MeasureQueue {
    frames: VecDeque<Frame>,
    bytes: usize,
    total_frames: u64,
    skipped: Skipped,
    last_measured: Option<Instant>,
    /// Whether what was written is to be measured once other tasks have had their turn.
    due: bool,
    slowest: Duration,
    /// Consecutive frames that took too long to measure.
    slow_in_a_row: u32,
    paused_until: Option<Instant>,
    /// Tells observers of running calls which frames are queued.
    unmeasured: Option<Arc<UnmeasuredFrames>>,
}

impl MeasureQueue {
    pub fn new(handle: &CallHandle) -> MeasureQueue {
        MeasureQueue {
            unmeasured: handle.query(|call| call.unmeasured_frames()).flatten(),
            ..MeasureQueue::default()
        }
    }

    /// Whether so much is queued that it has to be measured now.
    pub fn is_full(&self) -> bool {
        self.bytes >= MEASURE_AT_BYTES
    }

    /// Whether a batch is due. The first frames are measured at once, as objectives on the first
    /// token wait for them. Later ones are measured in small batches: a call's state is cold
    /// memory, and it is cheaper to touch it once for several frames.
    fn is_due(&self, at: Instant) -> bool {
        self.total_frames <= MEASURED_SINGLY
            || self.frames.len() >= BATCH_FRAMES
            || self.bytes >= BATCH_BYTES
            || self
                .last_measured
                .is_none_or(|last_measured| at >= last_measured + BATCH_WITHIN)
    }

    /// When the oldest queued frame was received.
    pub fn oldest(&self) -> Option<Instant> {
        self.frames.front().map(|frame| frame.at)
    }

    /// Records that frames were written, and how long that took since the first of them was
    /// received.
    pub fn record_written(&mut self, received: Instant, written: Instant) {
        let delay = written.saturating_duration_since(received);
        self.slowest = self.slowest.max(delay);
        self.due |= self.is_due(written);
    }

    /// Measures what is due, unless something was written in this poll: other tasks go first.
    /// Returns whether it was deferred to the next poll.
    pub fn measure_or_defer(
        &mut self,
        cx: &Context<'_>,
        handle: &CallHandle,
        just_written: bool,
    ) -> bool {
        if self.due && just_written {
            cx.waker().wake_by_ref();
            return true;
        }
        if self.due {
            self.measure(handle);
        }
        false
    }

    pub fn push(&mut self, frame: Frame) {
        self.total_frames += 1;
        // Frames after a gap would be decoded as if there were none.
        let after_gap = self.skipped.frames > 0;
        let too_much = self.bytes + frame.bytes.len() > MAX_QUEUED_BYTES && !self.frames.is_empty();
        if after_gap || too_much {
            self.skipped.add(&frame);
            return;
        }
        self.bytes += frame.bytes.len();
        if let Some(unmeasured) = &self.unmeasured {
            unmeasured.forwarded(frame.at);
        }
        self.frames.push_back(frame);
    }

    /// Measures queued frames within the budget. Returns whether it is done for now.
    pub fn measure(&mut self, handle: &CallHandle) -> bool {
        self.due = false;
        let done = self.measure_within_budget(handle);
        if let Some(unmeasured) = &self.unmeasured {
            unmeasured.measured(self.oldest());
        }
        done
    }

    fn measure_within_budget(&mut self, handle: &CallHandle) -> bool {
        let started = now();
        self.last_measured = Some(started);
        if self.is_paused(started) {
            return true;
        }
        let mut last = started;
        while let Some(frame) = self.frames.pop_front() {
            self.bytes -= frame.bytes.len();
            let waited_before = self.is_suspicious().then(waited_for_core);
            // The frame's time begins after the statistics were read.
            let begun = waited_before.map_or(last, |_| now());
            handle.response_frame(frame);
            let at = now();
            let waited = waited_before.map_or(Duration::ZERO, |before| {
                waited_for_core().saturating_sub(before)
            });
            let took = at.saturating_duration_since(begun);
            self.throttle(at, took.saturating_sub(waited));
            last = at;
            if self.is_paused(at) {
                return true;
            }
            if !self.frames.is_empty() && at.saturating_duration_since(started) > BUDGET {
                return false;
            }
        }
        let skipped = std::mem::take(&mut self.skipped);
        if skipped.frames > 0 {
            handle.notify(|call| call.lagged(skipped.frames, skipped.bytes));
        }
        true
    }

    /// Whether the last frame took too long: others may have had the core meanwhile, so that for the next one that is counted.
    fn is_suspicious(&self) -> bool {
        self.slow_in_a_row > 0
    }

    /// Pauses measuring when it is so slow that it would delay traffic: by two frames in a row, the second without the time
    /// that others had its core.
    fn throttle(&mut self, at: Instant, cost: Duration) {
        self.slow_in_a_row = if cost > SLOW_FRAME {
            self.slow_in_a_row + 1
        } else {
            0
        };
        self.paused_until = self.is_slow().then(|| at + cost * PAUSE_FACTOR);
    }

    fn is_slow(&self) -> bool {
        self.slow_in_a_row > 1
    }

    fn is_paused(&self, at: Instant) -> bool {
        self.paused_until.is_some_and(|until| at < until)
    }

    /// Measures what is left at the end of the body. Returns whether the queue is empty.
    fn measure_rest(&mut self, handle: &CallHandle) -> bool {
        if self.is_slow() {
            self.paused_until = None;
            self.frames.iter().for_each(|frame| self.skipped.add(frame));
            self.frames.clear();
            self.bytes = 0;
        }
        self.measure(handle) && self.frames.is_empty()
    }
}

/// What has yet to be reported to the observer at the end of a body. It is reported at the latest
/// when this is dropped, so that an aborted task cannot lose it.
pub(super) struct FinalFlush {
    queue: MeasureQueue,
    call: Option<Call>,
    /// How long the agent accepted nothing after the last frame.
    agent_blocked: Duration,
    at: Instant,
    end: End,
}

impl FinalFlush {
    pub fn new(
        queue: MeasureQueue,
        call: Call,
        agent_blocked: Duration,
        at: Instant,
        end: End,
    ) -> FinalFlush {
        FinalFlush {
            queue,
            call: Some(call),
            agent_blocked,
            at,
            end,
        }
    }

    /// Reports it in another task.
    pub fn flush_later(self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(self.flush());
        }
    }

    async fn flush(mut self) {
        while !self
            .call
            .as_ref()
            .is_none_or(|call| self.queue.measure_rest(call.handle()))
        {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for FinalFlush {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        while !self.queue.measure_rest(call.handle()) {}
        let slowest = self.queue.slowest;
        if slowest > Duration::ZERO {
            call.handle()
                .notify(|observer| observer.overhead(Phase::Chunk, slowest));
        }
        let blocked = self.agent_blocked;
        if blocked > Duration::ZERO {
            call.handle()
                .notify(|observer| observer.agent_blocked(blocked));
        }
        call.end(self.at, self.end.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use http::{HeaderMap, Method, Uri};
    use parking_lot::Mutex;
    use std::sync::Arc;
    use tokengauge_core::observer::{CallObserver, CallPolicy, CallStart, ObservedCall, Observer};

    /// Notes the first byte of each measured frame, and the number of skipped ones.
    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<Vec<String>>>);

    impl Notes {
        fn add(&self, note: String) {
            self.0.lock().push(note);
        }
    }

    impl Observer for Notes {
        fn begin(&self, _: CallStart<'_>) -> Arc<dyn ObservedCall> {
            Arc::new(self.clone())
        }
    }

    impl CallObserver for Notes {
        fn response_frame(&self, frame: Frame) {
            // Over the budget, so that only one frame is measured at a time.
            std::thread::sleep(BUDGET * 2);
            self.add((frame.bytes[0] as char).to_string());
        }

        fn lagged(&self, frames: u64, _: u64) {
            self.add(format!("{frames} lost"));
        }
    }

    impl CallPolicy for Notes {}

    fn call_handle(notes: &Notes) -> CallHandle {
        let start = CallStart {
            received: now(),
            started_at: std::time::SystemTime::UNIX_EPOCH,
            method: &Method::GET,
            uri: &Uri::from_static("/"),
            headers: &HeaderMap::new(),
            peer: None,
            port: None,
            route: &"r".into(),
            upstream: &"u".into(),
            dialect: None,
            workload: None,
            inject_usage: false,
            variant: None,
        };
        CallHandle::begin(notes, &Arc::default(), start)
    }

    #[test]
    fn frames_after_a_gap_are_skipped_until_it_is_reported() {
        let notes = Notes::default();
        let handle = call_handle(&notes);
        let mut queue = MeasureQueue::default();
        let frame = |name: u8| Frame::new(now(), vec![name; MAX_QUEUED_BYTES / 2].into());
        for name in *b"abc" {
            queue.push(frame(name));
        }
        assert!(!queue.measure(&handle), "its budget is one frame");
        // The queue has room again, but a frame before this one was skipped.
        queue.push(frame(b'd'));
        while !queue.measure(&handle) {}
        assert_eq!(*notes.0.lock(), ["a", "b", "2 lost"]);
        queue.push(frame(b'e'));
        assert!(queue.measure(&handle));
        assert_eq!(notes.0.lock().last().map(String::as_str), Some("e"));
    }
}
