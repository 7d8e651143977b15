//! Forwards the requests of one connection and counts them as in flight.

use super::connection_timeouts::ConnectionTimeouts;
use super::open_connections::OpenStream;
use super::server::Server;
use crate::ConnectionInfo;
use crate::agent_body::AgentBody;
use crate::body::Body;
use crate::drain::RequestGuard;
use crate::http1::FieldNames;
use crate::message::{AgentRequest, AgentResponse};
use crate::send_timeout::{SendState, current_stream};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Instant;

pub(super) struct ConnectionService {
    pub(super) server: Arc<Server>,
    pub(super) timeouts: Arc<ConnectionTimeouts>,
    pub(super) info: ConnectionInfo,
}

impl ConnectionService {
    /// Counts a request as in flight until the returned value is dropped.
    pub(super) fn begin(&self, multiplexed: bool) -> ActiveRequest {
        self.timeouts.request_started(multiplexed);
        ActiveRequest {
            timeouts: Arc::clone(&self.timeouts),
            stream: None,
            _guard: self.server.shutdown.request_guard(),
        }
    }

    /// Records that the agent still sends a request after its response.
    pub(super) fn upload_continues(&self) {
        self.timeouts.upload_continues();
    }

    pub(super) fn upload_ended(&self) {
        self.timeouts.upload_ended(Instant::now());
    }

    pub(super) fn forward(
        &self,
        request: AgentRequest,
    ) -> Pin<Box<impl Future<Output = AgentResponse>>> {
        let forwarder = &self.server.forwarder;
        forwarder.forward(request, &self.info, None)
    }

    /// Serves a request of an HTTP/2 connection. Counts it as in flight before the future is first polled, because that
    /// happens in another task, after the connection's timeouts have been checked. Refuses the stream if too many are
    /// open on all connections together.
    pub(super) fn call(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<CountedBody>, h2::Error>> {
        let limit = self.server.settings.load().total_http2_streams;
        let open = self.server.open.open_stream(limit);
        let call = open.map(|open| (self.begin(true), open));
        if call.is_none() {
            self.server.shutdown.record_stream_refused();
        }
        async move {
            let Some((mut call, open)) = call else {
                return Err(h2::Error::from(h2::Reason::REFUSED_STREAM));
            };
            call.stream = current_stream();
            let stream = call.stream.as_ref();
            let (parts, incoming) = request.into_parts();
            let request = AgentRequest {
                parts,
                names: FieldNames::default(),
                body: AgentBody::Http2(incoming),
            };
            let response = self.server.forwarder.forward(request, &self.info, stream);
            let response = Response::from(response.await);
            Ok(response.map(|body| CountedBody {
                body,
                call,
                _open: open,
            }))
        }
    }
}

pub(super) struct ActiveRequest {
    timeouts: Arc<ConnectionTimeouts>,
    stream: Option<Arc<SendState>>,
    _guard: RequestGuard,
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.timeouts.request_ended(Instant::now());
    }
}

pub(super) struct CountedBody {
    body: Body,
    call: ActiveRequest,
    _open: OpenStream,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = <Body as http_body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Some(stream) = &self.call.stream {
            // The server requests a frame after it has sent the previous one.
            stream.clear_blocked();
            if matches!(polled, Poll::Ready(Some(Ok(_)))) {
                stream.set_blocked();
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
