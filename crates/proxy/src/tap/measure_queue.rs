//! Frames that left and wait to be measured.

use crate::call_handle::{Call, CallHandle};
use crate::clock::now;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_core::observer::{End, Frame, Phase, UnmeasuredFrames};

/// Time that measuring may take at once, before traffic has its turn again.
const BUDGET: Duration = Duration::from_micros(200);
/// Bytes that wait for their measurement before it is done without a pause in the traffic.
const MEASURE_AT_BYTES: usize = 16 * 1024;
/// Frames of a stream that are measured one by one, as soon as they have left.
const MEASURED_SINGLY: u64 = 4;
/// Later frames, and bytes of them, that are measured together at most.
const BATCH_FRAMES: usize = 8;
const BATCH_BYTES: usize = 4 * 1024;
/// How long after the last measuring a frame waits for others to be measured with. One that
/// comes later is measured at once: what is shown of a slow stream is its last frame.
const BATCH_WITHIN: Duration = Duration::from_millis(950);
/// Bytes that wait at most; frames beyond are not measured.
const MAX_QUEUED_BYTES: usize = 256 * 1024;
/// A frame that takes longer to measure, twice in a row, makes measuring rest.
const SLOW_FRAME: Duration = Duration::from_millis(5);
/// How many times as long as it took it rests then.
const PAUSE_FACTOR: u32 = 4;

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
pub(super) struct MeasureQueue {
    frames: VecDeque<Frame>,
    bytes: usize,
    /// Frames there were until now.
    total_frames: u64,
    skipped: Skipped,
    /// When measuring was last begun.
    last_measured: Option<Instant>,
    /// The server had its turn to write them.
    pub written: bool,
    slowest: Duration,
    /// How long the agent took nothing after the last frame.
    pub agent_blocked: Duration,
    /// Frames in a row that took too long to measure.
    slow_in_a_row: u32,
    paused_until: Option<Instant>,
    /// Where others see that frames wait.
    unmeasured: Option<Arc<UnmeasuredFrames>>,
}

impl MeasureQueue {
    /// The queue of the call that `handle` belongs to.
    pub fn new(handle: &CallHandle) -> MeasureQueue {
        MeasureQueue {
            unmeasured: handle.query(|call| call.unmeasured_frames()).flatten(),
            ..MeasureQueue::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether there is so much that it is time to measure.
    pub fn is_full(&self) -> bool {
        self.bytes >= MEASURE_AT_BYTES
    }

    /// Whether it is time to measure what has left. The first frames are measured at once:
    /// objectives on the first token wait for them. Later ones in small batches: the state
    /// of a call is cold memory, and looking at it once for several frames is cheaper.
    pub fn is_due(&self, at: Instant) -> bool {
        self.total_frames <= MEASURED_SINGLY
            || self.frames.len() >= BATCH_FRAMES
            || self.bytes >= BATCH_BYTES
            || self
                .last_measured
                .is_none_or(|last_measured| at >= last_measured + BATCH_WITHIN)
    }

    /// When the oldest of them came.
    pub fn oldest(&self) -> Option<Instant> {
        self.frames.front().map(|frame| frame.at)
    }

    /// The server has its turn to write them.
    pub fn mark_written(&mut self, at: Instant) {
        self.written = true;
        if let Some(oldest) = self.oldest() {
            self.record_delay(oldest, at);
        }
    }

    /// What came at one time left at another.
    pub fn record_delay(&mut self, received: Instant, written: Instant) {
        self.slowest = self
            .slowest
            .max(written.saturating_duration_since(received));
    }

    pub fn push(&mut self, frame: Frame) {
        self.written = false;
        self.total_frames += 1;
        // Whatever came after a gap would be read as if there were none.
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

    /// Shows what there is, as far as the budget goes; whether to leave it at that.
    pub fn measure(&mut self, handle: &CallHandle) -> bool {
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
            handle.response_frame(frame);
            let at = now();
            self.throttle(at, at.saturating_duration_since(last));
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

    /// Lets measuring rest when it is so slow that traffic would feel it. Once may be an
    /// accident of scheduling.
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

    /// Shows what is left when the body is over; whether that was all.
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

/// What the observer has still to be given when a body is over. It is given when this is
/// dropped, so that nothing that ends a task can lose it.
pub(super) struct FinalFlush {
    queue: MeasureQueue,
    call: Option<Call>,
    at: Instant,
    end: End,
}

impl FinalFlush {
    pub fn new(queue: MeasureQueue, call: Call, at: Instant, end: End) -> FinalFlush {
        let call = Some(call);
        FinalFlush {
            queue,
            call,
            at,
            end,
        }
    }

    /// Does it in a task of its own.
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
        let blocked = self.queue.agent_blocked;
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

    /// Notes the first byte of each frame it is shown, and how many it was not shown.
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
            // Over the budget, so that only one is shown at once.
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
        };
        CallHandle::begin(notes, &Arc::default(), start)
    }

    #[test]
    fn what_came_behind_lost_frames_is_not_shown_as_if_it_followed_those_before() {
        let notes = Notes::default();
        let handle = call_handle(&notes);
        let mut queue = MeasureQueue::default();
        let frame = |name: u8| Frame::new(now(), vec![name; MAX_QUEUED_BYTES / 2].into());
        for name in *b"abc" {
            queue.push(frame(name));
        }
        assert!(!queue.measure(&handle), "its budget is one frame");
        // There is room again, but a frame is missing before it.
        queue.push(frame(b'd'));
        while !queue.measure(&handle) {}
        assert_eq!(*notes.0.lock(), ["a", "b", "2 lost"]);
        queue.push(frame(b'e'));
        assert!(queue.measure(&handle));
        assert_eq!(notes.0.lock().last().map(String::as_str), Some("e"));
    }
}
