//! A call's observer. A panic of the observer is caught, so that it costs a measurement and not the call.

use super::send_timeout::DownstreamState;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokengauge_core::observer::{
    CallObserver, CallPolicy, CallStart, Chunk, End, ObservedCall, Observer,
};

/// The observer of one call, and the instants that timeouts depend on. The request body and the response body share it.
#[derive(Debug)]
pub(super) struct CallHandle {
    observer: PanicGuard,
    started: Instant,
    /// Nanoseconds from `started` to the last byte in either direction.
    last_activity: AtomicU64,
    /// Nanoseconds from `started` to the end of the request body. 0 until then.
    request_sent: AtomicU64,
    upload_failed: AtomicBool,
    upload_malformed: AtomicBool,
    awaiting_upload: AtomicBool,
}

impl CallHandle {
    /// Begins a call. If `observer` panics, the call gets an observer that does nothing.
    pub fn begin(
        observer: &dyn Observer,
        panics: &Arc<AtomicU64>,
        start: CallStart<'_>,
    ) -> CallHandle {
        let started = start.received;
        let call = catch_unwind(AssertUnwindSafe(|| observer.begin(start)));
        let panicked = AtomicBool::new(call.is_err());
        if call.is_err() {
            panics.fetch_add(1, Ordering::Relaxed);
        }
        CallHandle {
            observer: PanicGuard {
                call: call.unwrap_or_else(|_| Arc::new(NoopObserver)),
                panics: Arc::clone(panics),
                panicked,
                skipped_chunks: AtomicU64::new(0),
                skipped_bytes: AtomicU64::new(0),
            },
            started,
            last_activity: AtomicU64::new(0),
            request_sent: AtomicU64::new(0),
            upload_failed: AtomicBool::new(false),
            upload_malformed: AtomicBool::new(false),
            awaiting_upload: AtomicBool::new(false),
        }
    }

    pub fn started(&self) -> Instant {
        self.started
    }

    pub fn notify(&self, message: impl FnOnce(&dyn ObservedCall)) {
        self.observer.query(message);
    }

    /// Queries the observer. `None` once it has panicked.
    pub fn query<T>(&self, question: impl FnOnce(&dyn ObservedCall) -> T) -> Option<T> {
        self.observer.query(question)
    }

    pub fn response_chunk(&self, chunk: Chunk) {
        let bytes = chunk.bytes.len() as u64;
        if self
            .observer
            .query(|call| call.response_chunk(chunk))
            .is_none()
        {
            self.observer.skipped_chunks.fetch_add(1, Ordering::Relaxed);
            let skipped_bytes = &self.observer.skipped_bytes;
            skipped_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub fn record_activity(&self, at: Instant) {
        self.last_activity.store(self.since(at), Ordering::Relaxed);
    }

    pub fn last_activity(&self) -> Instant {
        self.started + Duration::from_nanos(self.last_activity.load(Ordering::Relaxed))
    }

    /// Records that the last byte of the request body was sent upstream, and tells the observer.
    pub fn request_sent(&self, at: Instant) {
        self.record_request_sent(at);
        self.notify(|call| call.sent(at));
    }

    /// Like [`CallHandle::request_sent`], but does not tell the observer.
    pub fn record_request_sent(&self, at: Instant) {
        self.request_sent
            .store(self.since(at).max(1), Ordering::Relaxed);
    }

    pub fn request_sent_at(&self) -> Option<Instant> {
        let nanos = self.request_sent.load(Ordering::Relaxed);
        (nanos > 0).then(|| self.started + Duration::from_nanos(nanos))
    }

    pub fn set_upload_failed(&self, malformed: bool) {
        self.upload_malformed.store(malformed, Ordering::Relaxed);
        self.upload_failed.store(true, Ordering::Relaxed);
    }

    pub fn set_awaiting_upload(&self, awaited: bool) {
        self.awaiting_upload.store(awaited, Ordering::Relaxed);
    }

    /// Whether the agent must send more of its body. Otherwise the upstream must accept the data that was sent.
    pub fn is_awaiting_upload(&self) -> bool {
        self.awaiting_upload.load(Ordering::Relaxed)
    }

    pub fn upload_error(&self) -> Option<UploadError> {
        let malformed = self.upload_malformed.load(Ordering::Relaxed);
        let failed = self.upload_failed.load(Ordering::Relaxed);
        failed.then_some(if malformed {
            UploadError::Malformed
        } else {
            UploadError::Abandoned
        })
    }

    fn end(&self, at: Instant, end: End) {
        self.observer.end(at, end);
    }

    fn since(&self, at: Instant) -> u64 {
        let nanos = at.saturating_duration_since(self.started).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UploadError {
    Abandoned,
    Malformed,
}

/// Owns a call and makes sure that its end is reported exactly once.
#[derive(Debug)]
pub(super) struct Call {
    handle: Arc<CallHandle>,
    downstream: DownstreamState,
    ended: bool,
}

impl Call {
    pub fn new(handle: CallHandle, downstream: DownstreamState) -> Call {
        Call {
            handle: Arc::new(handle),
            downstream,
            ended: false,
        }
    }

    pub fn handle(&self) -> &Arc<CallHandle> {
        &self.handle
    }

    pub fn downstream(&self) -> &DownstreamState {
        &self.downstream
    }

    pub fn end(mut self, at: Instant, end: End) {
        self.ended = true;
        self.handle.end(at, end);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            self.handle
                .end(super::clock::now(), self.downstream.abandoned_end());
        }
    }
}

struct PanicGuard {
    call: Arc<dyn ObservedCall>,
    panics: Arc<AtomicU64>,
    panicked: AtomicBool,
    /// Response chunks that the observer has not seen since it panicked.
    skipped_chunks: AtomicU64,
    skipped_bytes: AtomicU64,
}

impl PanicGuard {
    fn query<T>(&self, question: impl FnOnce(&dyn ObservedCall) -> T) -> Option<T> {
        if self.panicked.load(Ordering::Relaxed) {
            return None;
        }
        self.catch_panic(question)
    }

    fn catch_panic<T>(&self, question: impl FnOnce(&dyn ObservedCall) -> T) -> Option<T> {
        let result = catch_unwind(AssertUnwindSafe(|| question(&*self.call)));
        if result.is_err() {
            self.panicked.store(true, Ordering::Relaxed);
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
        result.ok()
    }

    /// Reports the end even to an observer that panicked, because it still counts the call as open.
    fn end(&self, at: Instant, end: End) {
        let skipped_chunks = self.skipped_chunks.swap(0, Ordering::Relaxed);
        if skipped_chunks > 0 {
            let bytes = self.skipped_bytes.swap(0, Ordering::Relaxed);
            self.catch_panic(|call| call.lagged(skipped_chunks, bytes));
        }
        self.catch_panic(|call| call.ended(at, end));
    }
}

impl std::fmt::Debug for PanicGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PanicGuard")
            .field("panicked", &self.panicked)
            .finish_non_exhaustive()
    }
}

/// Replaces an observer that panicked at the start of a call.
struct NoopObserver;

impl CallObserver for NoopObserver {}

impl CallPolicy for NoopObserver {}
