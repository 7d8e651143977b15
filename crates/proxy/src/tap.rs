//! Taps a response body: reads the clock, keeps a reference to each chunk, forwards the chunk, and measures it
//! afterwards.

mod backpressure;
mod measure_queue;
mod measured_body;
mod relay;
mod silence;

pub(super) use measured_body::MeasuredBody;
pub(super) use relay::{Relay, Tail};

use super::body_error::BodyError;
use super::call_handle::{CallHandle, UploadError};
use super::clock::now;
use super::filter::BodyFilter;
use super::upstream_body::{PolledFrame, UpstreamBody};
use backpressure::Backpressure;
use bytes::Bytes;
use http_body::SizeHint;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokengauge_core::observer::{End, FailureKind, Filter};

pub(super) struct StreamingBody {
    /// Dropped first, so that the upstream's connection is closed before the call ends.
    body: UpstreamBody,
    measured: MeasuredBody,
    filter: Option<BodyFilter>,
    /// When the oldest chunk was received that the server may not have written yet.
    unwritten: Option<Instant>,
}

impl StreamingBody {
    pub fn new(body: UpstreamBody, measured: MeasuredBody) -> StreamingBody {
        StreamingBody {
            body,
            measured,
            filter: None,
            unwritten: None,
        }
    }

    pub fn filtered(mut self, filter: Box<dyn Filter>) -> StreamingBody {
        self.filter = Some(BodyFilter::new(filter));
        self
    }

    /// Returns the body as a relay if its chunks can be forwarded unchanged: the agent uses HTTP/1.1 and gets a chunked
    /// body, and no part of the body was read.
    pub fn take_relay(&mut self) -> Option<Box<Relay>> {
        let last_activity = self.measured.handle()?.last_activity();
        if self.filter.is_some() {
            return None;
        }
        let response = self.body.take_chunked()?;
        Some(Box::new(Relay {
            response: Some(*response),
            measured: std::mem::take(&mut self.measured),
            last_activity,
            head_unsent: true,
        }))
    }

    pub fn finish_if_empty(&mut self) {
        if self.filter.is_none() && self.body.is_end_stream() {
            self.finish(now(), End::Complete);
        }
    }

    pub fn is_over(&self) -> bool {
        let filtered = self.filter.as_ref().is_none_or(BodyFilter::is_finished);
        self.measured.is_over() && filtered
    }

    pub fn size_hint(&self) -> SizeHint {
        if self.filter.is_some() {
            SizeHint::default()
        } else {
            self.body.size_hint()
        }
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        if self.measured.is_over() {
            return Poll::Ready(self.next_remaining().map(Ok));
        }
        if self.measured.backpressure.chunk_requested(now) {
            // The agent's time does not count as the proxy's.
            self.unwritten = self.unwritten.map(|_| now());
        }
        self.measured.measure_if_full();
        loop {
            let frame = match self.body.poll_frame(cx) {
                Poll::Pending => return self.on_pending(cx),
                Poll::Ready(frame) => frame,
            };
            match self.process_frame(frame) {
                Some(frame) => return Poll::Ready(Some(frame)),
                None if self.measured.is_over() => {
                    return Poll::Ready(self.next_remaining().map(Ok));
                }
                // The filter held everything back, so there is no data to write.
                None => self.measured.backpressure = Backpressure::default(),
            }
        }
    }

    fn next_remaining(&mut self) -> Option<http_body::Frame<Bytes>> {
        self.filter.as_mut()?.next_remaining()
    }

    fn process_frame(
        &mut self,
        frame: Option<Result<http_body::Frame<Bytes>, BodyError>>,
    ) -> Option<Result<http_body::Frame<Bytes>, BodyError>> {
        let at = now();
        match frame {
            Some(Ok(frame)) => {
                self.record_frame(at, &frame);
                // Hyper does not poll again after trailers.
                if frame.is_trailers() || self.body.is_end_stream() {
                    self.finish(at, End::Complete);
                }
                let frame = match &mut self.filter {
                    Some(filter) => filter.apply(frame),
                    None => Some(frame),
                };
                frame.map(Ok)
            }
            Some(Err(error)) => {
                self.filter = None;
                self.finish(at, self.broken_end());
                Some(Err(error))
            }
            None => {
                self.finish(at, End::Complete);
                None
            }
        }
    }

    /// How a call ends if its response broke off. If the upload broke off first, the agent is at fault.
    fn broken_end(&self) -> End {
        match self.measured.handle().and_then(CallHandle::upload_error) {
            Some(UploadError::Malformed) => End::Failed(FailureKind::BadRequest),
            Some(UploadError::Abandoned) => self.measured.abandoned_end(),
            None => End::UpstreamReset,
        }
    }

    fn record_frame(&mut self, at: Instant, frame: &http_body::Frame<Bytes>) {
        if let Some(handle) = self.measured.handle() {
            handle.record_activity(at);
        }
        if let Some(bytes) = frame.data_ref() {
            self.measured.push(at, bytes.clone());
            self.measured.backpressure.chunk_given(at);
            self.unwritten.get_or_insert(at);
        }
        if let Some(trailers) = frame.trailers_ref() {
            self.measured.trailers(trailers);
        }
    }

    /// The upstream is silent, so there is time to measure. If the last chunk is not written yet, measuring waits for
    /// the next poll, because the server writes the chunk when this function returns.
    fn on_pending(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let written_at = self.unwritten.take().map(|received| {
            let at = now();
            self.measured.queue.record_written(received, at);
            at
        });
        let idle = self
            .measured
            .poll_idle(cx, written_at, CallHandle::last_activity);
        let at = ready!(idle);
        self.filter = None;
        self.finish(at, End::Failed(FailureKind::IdleTimeout));
        Poll::Ready(Some(Err(BodyError::Idle)))
    }

    fn finish(&mut self, at: Instant, end: End) {
        let reusable = self.body.finish();
        self.measured.finish(reusable, at, end);
    }
}

impl std::fmt::Debug for StreamingBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamingBody")
            .field("over", &self.is_over())
            .finish_non_exhaustive()
    }
}
