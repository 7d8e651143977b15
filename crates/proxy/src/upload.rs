use super::agent_body::AgentBody;
use super::body_error::AgentBodyError;
use super::call_handle::CallHandle;
use super::clock::now;
use super::headers;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};
use tokio::time::{Sleep, sleep};

/// How long an agent's `expect: 100-continue` waits for the upstream's response.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// A request body that forwards chunks as they arrive and passes them to the observer.
pub(super) struct Upload {
    source: UploadSource,
    handle: Arc<CallHandle>,
    gate: Option<ContinueWait>,
    /// The part that was sent, if the body may have to be sent again.
    sent: Option<Box<SentBody>>,
    /// Chunks at the front of the source that the observer has seen.
    observed: usize,
    sent_report: SentReport,
}

/// When the observer learns that the last byte was sent. The observer then parses the request. A writer that reports
/// when the bytes were sent avoids that this delays the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SentReport {
    /// With the last chunk.
    Immediate,
    /// When the writer calls [`Upload::report_sent`].
    Deferred,
    /// Deferred, and the last chunk was taken at this time.
    Due(Instant),
}

/// The part of a body that was sent, as long as it fits into its limit.
struct SentBody {
    chunks: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
    room: usize,
}

pub(super) enum UploadSource {
    Agent(AgentBody),
    /// Buffered data, then the rest from the agent.
    Buffered(BufferedBody),
    Replaced(Bytes),
}

pub(super) struct BufferedBody {
    pub chunks: VecDeque<Bytes>,
    pub trailers: Option<HeaderMap>,
    pub remaining: Option<AgentBody>,
    pub sized: bool,
}

impl BufferedBody {
    pub fn new(body: &AgentBody) -> BufferedBody {
        BufferedBody {
            chunks: VecDeque::new(),
            trailers: None,
            remaining: None,
            sized: body.size_hint().exact().is_some(),
        }
    }
}

impl Upload {
    pub fn new(source: UploadSource, handle: &Arc<CallHandle>) -> Upload {
        Upload {
            source,
            handle: Arc::clone(handle),
            gate: None,
            sent: None,
            observed: 0,
            sent_report: SentReport::Immediate,
        }
    }

    /// From now on, only [`Upload::report_sent`] tells the observer that the last byte was sent.
    pub fn defer_sent_report(&mut self) {
        self.sent_report = SentReport::Deferred;
    }

    /// Tells the observer that the last byte was sent, unless the observer already knows.
    pub fn report_sent(&mut self) {
        if let SentReport::Due(at) = self.sent_report {
            self.sent_report = SentReport::Deferred;
            self.handle.notify(|call| call.sent(at));
        }
    }

    /// Starts to retain sent data, so that the body can be sent again. Gives up if the data exceeds `bytes`.
    pub fn retain(&mut self, bytes: usize) {
        self.sent = Some(Box::new(SentBody {
            chunks: VecDeque::new(),
            trailers: None,
            room: bytes,
        }));
    }

    pub fn release(&mut self) {
        self.sent = None;
    }

    pub fn is_retained(&self) -> bool {
        self.sent.is_some()
    }

    /// Returns the whole body, or `None` if not all sent data was retained.
    pub fn rewound(self) -> Option<Upload> {
        let sent = *self.sent?;
        let observed = sent.chunks.len();
        let mut body = BufferedBody {
            chunks: sent.chunks,
            trailers: sent.trailers,
            remaining: None,
            sized: self.source.is_sized(),
        };
        match self.source {
            UploadSource::Agent(agent) => body.remaining = Some(agent),
            UploadSource::Buffered(rest) => {
                body.chunks.extend(rest.chunks);
                body.trailers = body.trailers.or(rest.trailers);
                body.remaining = rest.remaining;
            }
            UploadSource::Replaced(bytes) if bytes.is_empty() => {}
            UploadSource::Replaced(bytes) => body.chunks.push_back(bytes),
        }
        if body.trailers.is_some() {
            // The agent's body ended with the trailers.
            body.remaining = None;
        }
        Some(Upload {
            source: UploadSource::Buffered(body),
            handle: self.handle,
            gate: None,
            sent: None,
            observed,
            sent_report: SentReport::Immediate,
        })
    }

    fn retain_frame(&mut self, frame: &Frame<Bytes>) {
        let Some(sent) = &mut self.sent else {
            return;
        };
        match frame.data_ref() {
            Some(bytes) if bytes.len() > sent.room => self.sent = None,
            Some(bytes) => {
                sent.room -= bytes.len();
                sent.chunks.push_back(bytes.clone());
            }
            None => sent.trailers = frame.trailers_ref().cloned(),
        }
    }

    /// Holds the body back until the gate opens, for at most [`CONTINUE_TIMEOUT`].
    pub fn wait_for_continue(&mut self, gate: Arc<ContinueGate>) {
        self.gate = Some(ContinueWait {
            gate,
            timeout: Box::pin(sleep(CONTINUE_TIMEOUT)),
        });
    }

    pub fn into_source(self) -> UploadSource {
        self.source
    }

    fn record_frame(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let at = now();
        self.handle.record_activity(at);
        self.retain_frame(&frame);
        if self.observed > 0 {
            self.observed -= 1;
        } else if let Some(bytes) = frame.data_ref() {
            self.handle.notify(|call| call.request_chunk(bytes));
        }
        if frame.is_trailers() || self.source.is_end_stream() {
            self.mark_sent(at);
        }
        frame
    }

    fn mark_sent(&mut self, at: Instant) {
        if self.handle.request_sent_at().is_some() {
            return;
        }
        match self.sent_report {
            SentReport::Immediate => self.handle.request_sent(at),
            SentReport::Deferred | SentReport::Due(_) => {
                self.handle.record_request_sent(at);
                self.sent_report = SentReport::Due(at);
            }
        }
    }
}

impl UploadSource {
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AgentBodyError>>> {
        match self {
            UploadSource::Agent(body) => Pin::new(body).poll_frame(cx),
            UploadSource::Buffered(read) => read.poll_frame(cx),
            UploadSource::Replaced(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
        }
    }

    pub fn is_end_stream(&self) -> bool {
        match self {
            UploadSource::Agent(body) => body.is_end_stream(),
            UploadSource::Buffered(read) => read.is_end_stream(),
            UploadSource::Replaced(bytes) => bytes.is_empty(),
        }
    }

    /// Whether the agent declared the length.
    fn is_sized(&self) -> bool {
        match self {
            UploadSource::Agent(body) => body.size_hint().exact().is_some(),
            UploadSource::Buffered(read) => read.sized,
            UploadSource::Replaced(_) => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            UploadSource::Agent(body) => body.size_hint(),
            UploadSource::Buffered(read) => read.size_hint(),
            UploadSource::Replaced(bytes) => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

impl BufferedBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AgentBodyError>>> {
        if let Some(bytes) = self.chunks.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match &mut self.remaining {
            Some(remaining) => Pin::new(remaining).poll_frame(cx),
            None => Poll::Ready(self.trailers.take().map(Frame::trailers).map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        let remaining = self.remaining.as_ref().is_none_or(Body::is_end_stream);
        self.chunks.is_empty() && self.trailers.is_none() && remaining
    }

    fn size_hint(&self) -> SizeHint {
        let remaining = self
            .remaining
            .as_ref()
            .map_or(Some(0), |remaining| remaining.size_hint().exact());
        let read: usize = self.chunks.iter().map(Bytes::len).sum();
        match remaining {
            Some(remaining) if self.sized => SizeHint::with_exact(remaining + read as u64),
            _ => SizeHint::default(),
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = AgentBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AgentBodyError>>> {
        if let Some(waiting) = &mut self.gate {
            ready!(waiting.poll(cx));
            self.gate = None;
        }
        let polled = self.source.poll_frame(cx);
        self.handle.set_awaiting_upload(polled.is_pending());
        let frame = match ready!(polled) {
            Some(Ok(mut frame)) => {
                frame.trailers_mut().map(headers::retain_request_trailers);
                let frame = self.record_frame(frame);
                let is_empty = frame.trailers_ref().is_some_and(HeaderMap::is_empty);
                (!is_empty).then_some(Ok(frame))
            }
            Some(Err(error)) => {
                self.handle.set_upload_failed(error.is_malformed());
                Some(Err(error))
            }
            None => {
                self.mark_sent(now());
                None
            }
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.size_hint()
    }
}

/// Opens when the upstream responds with `100 Continue`.
#[derive(Default)]
pub(super) struct ContinueGate(Mutex<ContinueState>);

#[derive(Default)]
struct ContinueState {
    open: bool,
    waker: Option<Waker>,
}

impl ContinueGate {
    pub fn open(&self) {
        let mut state = self.0.lock();
        state.open = true;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.open {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

struct ContinueWait {
    gate: Arc<ContinueGate>,
    timeout: Pin<Box<Sleep>>,
}

impl ContinueWait {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.gate.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        self.timeout.as_mut().poll(cx)
    }
}
