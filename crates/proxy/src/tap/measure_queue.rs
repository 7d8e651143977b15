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
const KEEP: usize = 16 * 1024;
/// Frames of a stream that are measured one by one, as soon as they have left.
const EAGER: u64 = 4;
/// Later frames, and bytes of them, that are measured together at most.
const BATCH: usize = 8;
const BATCH_BYTES: usize = 4 * 1024;
/// How long after the last measuring a frame waits for others to be measured with. One that
/// comes later is measured at once: what is shown of a slow stream is its last frame.
const LATE: Duration = Duration::from_millis(950);
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
pub(super) struct MeasureQueue {
    frames: VecDeque<Frame>,
    bytes: usize,
    /// Frames there were until now.
    seen: u64,
    skipped: Skipped,
    /// When measuring was last begun.
    shown: Option<Instant>,
    /// The server had its turn to write them.
    pub written: bool,
    slowest: Duration,
    /// How long the agent took nothing after the last frame.
    pub agent_blocked: Duration,
    /// Frames in a row that took too long to measure.
    slow: u32,
    rest_until: Option<Instant>,
    /// Where others see that frames wait.
    unmeasured: Option<Arc<UnmeasuredFrames>>,
}

impl MeasureQueue {
    /// The queue of the call that `handle` belongs to.
    pub fn new(handle: &CallHandle) -> MeasureQueue {
        MeasureQueue {
            unmeasured: handle.ask(|call| call.unmeasured_frames()).flatten(),
            ..MeasureQueue::default()
        }
    }

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
            || self.shown.is_none_or(|shown| at >= shown + LATE)
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
        // Whatever came after a gap would be read as if there were none.
        let behind_a_gap = self.skipped.frames > 0;
        let too_much = self.bytes + frame.bytes.len() > KEEP_AT_MOST && !self.frames.is_empty();
        if behind_a_gap || too_much {
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
    pub fn show(&mut self, handle: &CallHandle) -> bool {
        let enough = self.show_some(handle);
        if let Some(unmeasured) = &self.unmeasured {
            unmeasured.measured(self.since());
        }
        enough
    }

    fn show_some(&mut self, handle: &CallHandle) -> bool {
        let began = now();
        self.shown = Some(began);
        if self.rests(began) {
            return true;
        }
        let mut last = began;
        while let Some(frame) = self.frames.pop_front() {
            self.bytes -= frame.bytes.len();
            handle.response_frame(frame);
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
            handle.notify(|call| call.lagged(skipped.frames, skipped.bytes));
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
    fn show_last(&mut self, handle: &CallHandle) -> bool {
        if self.is_slow() {
            self.rest_until = None;
            self.frames.iter().for_each(|frame| self.skipped.add(frame));
            self.frames.clear();
            self.bytes = 0;
        }
        self.show(handle) && self.frames.is_empty()
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
            .is_none_or(|call| self.queue.show_last(call.handle()))
        {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for FinalFlush {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        while !self.queue.show_last(call.handle()) {}
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

    fn watched(notes: &Notes) -> CallHandle {
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
        let handle = watched(&notes);
        let mut queue = MeasureQueue::default();
        let frame = |name: u8| Frame::new(now(), vec![name; KEEP_AT_MOST / 2].into());
        for name in *b"abc" {
            queue.keep(frame(name));
        }
        assert!(!queue.show(&handle), "its budget is one frame");
        // There is room again, but a frame is missing before it.
        queue.keep(frame(b'd'));
        while !queue.show(&handle) {}
        assert_eq!(*notes.0.lock(), ["a", "b", "2 lost"]);
        queue.keep(frame(b'e'));
        assert!(queue.show(&handle));
        assert_eq!(notes.0.lock().last().map(String::as_str), Some("e"));
    }
}
