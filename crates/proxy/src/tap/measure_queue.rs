use crate::call_handle::{Call, CallHandle};
use crate::clock::{now, waited_for_core};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Context;
use std::time::{Duration, Instant};
use tokengauge_core::observer::{Chunk, End, Phase, UnmeasuredChunks};

const BUDGET: Duration = Duration::from_micros(200);
/// At this many queued bytes, chunks are measured even if the upstream is not silent.
const MEASURE_AT_BYTES: usize = 16 * 1024;
/// The first chunks of a stream are measured one by one, as soon as they are forwarded.
const MEASURED_SINGLY: u64 = 4;
/// The size of a batch of later chunks, in chunks and in bytes.
const BATCH_CHUNKS: usize = 8;
const BATCH_BYTES: usize = 4 * 1024;
/// How long after the last measurement a chunk may wait for a batch. After that a chunk is measured immediately, so
/// that the displayed state of a slow stream includes its last chunk.
const BATCH_WITHIN: Duration = Duration::from_millis(950);
/// Maximum queued bytes. Chunks beyond this are not measured.
const MAX_QUEUED_BYTES: usize = 256 * 1024;
/// Two consecutive chunks that take longer to measure than this pause measuring. Time in which other threads had the
/// core does not count.
const SLOW_CHUNK: Duration = Duration::from_millis(5);
/// The length of the pause, as a multiple of the slow chunk's measuring time.
const PAUSE_FACTOR: u32 = 4;

#[derive(Default)]
struct Skipped {
    chunks: u64,
    bytes: u64,
}

impl Skipped {
    fn add(&mut self, chunk: &Chunk) {
        self.chunks += 1;
        self.bytes += chunk.bytes.len() as u64;
    }
}

#[derive(Default)]
pub(super) struct MeasureQueue {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    total_chunks: u64,
    skipped: Skipped,
    last_measured: Option<Instant>,
    /// Whether written chunks must be measured after other tasks have had their turn.
    due: bool,
    slowest: Duration,
    slow_in_a_row: u32,
    paused_until: Option<Instant>,
    /// Tells observers of running calls which chunks are queued.
    unmeasured: Option<Arc<UnmeasuredChunks>>,
}

impl MeasureQueue {
    pub fn new(handle: &CallHandle) -> MeasureQueue {
        MeasureQueue {
            unmeasured: handle.query(|call| call.unmeasured_chunks()).flatten(),
            ..MeasureQueue::default()
        }
    }

    pub fn is_full(&self) -> bool {
        self.bytes >= MEASURE_AT_BYTES
    }

    /// Whether a batch is due. The first chunks are measured immediately, because objectives on the first token wait
    /// for them. Later chunks are measured in small batches: a call's state is usually not in the CPU cache, so one
    /// access for several chunks is cheaper.
    fn is_due(&self, at: Instant) -> bool {
        self.total_chunks <= MEASURED_SINGLY
            || self.chunks.len() >= BATCH_CHUNKS
            || self.bytes >= BATCH_BYTES
            || self
                .last_measured
                .is_none_or(|last_measured| at >= last_measured + BATCH_WITHIN)
    }

    pub fn oldest(&self) -> Option<Instant> {
        self.chunks.front().map(|chunk| chunk.at)
    }

    /// Records that chunks were written, and the time since the first of them was received.
    pub fn record_written(&mut self, received: Instant, written: Instant) {
        let delay = written.saturating_duration_since(received);
        self.slowest = self.slowest.max(delay);
        self.due |= self.is_due(written);
    }

    /// Measures due chunks, unless data was written in this poll, because other tasks take precedence. Returns whether
    /// measuring was deferred to the next poll.
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

    pub fn push(&mut self, chunk: Chunk) {
        self.total_chunks += 1;
        // A decoder would treat chunks after a gap as consecutive.
        let after_gap = self.skipped.chunks > 0;
        let too_much = self.bytes + chunk.bytes.len() > MAX_QUEUED_BYTES && !self.chunks.is_empty();
        if after_gap || too_much {
            self.skipped.add(&chunk);
            return;
        }
        self.bytes += chunk.bytes.len();
        if let Some(unmeasured) = &self.unmeasured {
            unmeasured.forwarded(chunk.at);
        }
        self.chunks.push_back(chunk);
    }

    /// Measures queued chunks within the budget. Returns whether it is done for now.
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
        while let Some(chunk) = self.chunks.pop_front() {
            self.bytes -= chunk.bytes.len();
            let waited_before = self.is_suspicious().then(waited_for_core);
            // The chunk's time starts after the statistics were read.
            let begun = waited_before.map_or(last, |_| now());
            handle.response_chunk(chunk);
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
            if !self.chunks.is_empty() && at.saturating_duration_since(started) > BUDGET {
                return false;
            }
        }
        let skipped = std::mem::take(&mut self.skipped);
        if skipped.chunks > 0 {
            handle.notify(|call| call.lagged(skipped.chunks, skipped.bytes));
        }
        true
    }

    /// Whether the last chunk took too long. Other threads may have had the core, so that time is subtracted for the
    /// next chunk.
    fn is_suspicious(&self) -> bool {
        self.slow_in_a_row > 0
    }

    /// Pauses measuring if it is slow enough to delay traffic: after two consecutive slow chunks. Time in which other
    /// threads had the core is subtracted for the second one.
    fn throttle(&mut self, at: Instant, cost: Duration) {
        self.slow_in_a_row = if cost > SLOW_CHUNK {
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

    fn measure_rest(&mut self, handle: &CallHandle) -> bool {
        if self.is_slow() {
            self.paused_until = None;
            self.chunks.iter().for_each(|chunk| self.skipped.add(chunk));
            self.chunks.clear();
            self.bytes = 0;
        }
        self.measure(handle) && self.chunks.is_empty()
    }
}

/// Unreported data at the end of a body. Dropping this reports the data, so that an aborted task cannot lose it.
pub(super) struct FinalFlush {
    queue: MeasureQueue,
    call: Option<Call>,
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

    /// Reports the data in another task.
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
        fn response_chunk(&self, chunk: Chunk) {
            // Exceeds the budget, so that only one chunk is measured at a time.
            std::thread::sleep(BUDGET * 2);
            self.add((chunk.bytes[0] as char).to_string());
        }

        fn lagged(&self, chunks: u64, _: u64) {
            self.add(format!("{chunks} lost"));
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
    fn chunks_after_a_gap_are_skipped_until_it_is_reported() {
        let notes = Notes::default();
        let handle = call_handle(&notes);
        let mut queue = MeasureQueue::default();
        let chunk = |name: u8| Chunk::new(now(), vec![name; MAX_QUEUED_BYTES / 2].into());
        for name in *b"abc" {
            queue.push(chunk(name));
        }
        assert!(!queue.measure(&handle), "its budget is one chunk");
        // The queue has room again, but a chunk before this one was skipped.
        queue.push(chunk(b'd'));
        while !queue.measure(&handle) {}
        assert_eq!(*notes.0.lock(), ["a", "b", "2 lost"]);
        queue.push(chunk(b'e'));
        assert!(queue.measure(&handle));
        assert_eq!(notes.0.lock().last().map(String::as_str), Some("e"));
    }
}
