use super::encoder::BodyEncoder;
use super::field_names::FieldNames;
use super::head::digits;
use super::write_buffer::WriteBuffer;
use crate::headers;
use crate::upload::Upload;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Request};
use http_body::Body;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

const USUAL_LINE: usize = 40;
/// Pieces of a body that are written before other tasks have their turn.
const TURNS: usize = 16;
/// The head and the available pieces are written together, up to this many bytes.
const WRITE_AT: usize = 16 * 1024;

pub(crate) struct RequestWriter {
    body: Upload,
    encoder: BodyEncoder,
    out: WriteBuffer,
    ended: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the agent did not send the whole request body")]
    Body,
}

impl RequestWriter {
    /// Prepares the framing of the body. Writes nothing yet.
    pub fn new(mut request: Request<Upload>, names: &FieldNames) -> RequestWriter {
        let encoder = framing(&mut request);
        let mut out = WriteBuffer::default();
        write_head(&request, names, encoder.copied_bytes(), out.text());
        let mut body = request.into_body();
        body.defer_sent_report();
        RequestWriter {
            ended: body.is_end_stream(),
            body,
            encoder,
            out,
        }
    }

    pub fn release(&mut self) {
        self.body.release();
    }

    pub fn into_body(self) -> Upload {
        self.body
    }

    /// Writes as much as possible. Ready when everything was sent. The observer learns of the last byte only after the
    /// socket was offered that byte, so that measurement does not delay the upstream.
    pub fn poll_send<I: AsyncWrite + Unpin>(
        &mut self,
        io: &mut I,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        let polled = self.poll_write(io, cx);
        self.body.report_sent();
        polled
    }

    fn poll_write<I: AsyncWrite + Unpin>(
        &mut self,
        io: &mut I,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        for _ in 0..TURNS {
            if self.ended || self.out.pending_bytes() >= WRITE_AT {
                ready!(self.out.poll_flush(io, cx))?;
            }
            if self.ended {
                return Poll::Ready(Ok(()));
            }
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => {
                    ready!(self.out.poll_flush(io, cx))?;
                    return Poll::Pending;
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(SendError::Body)),
                Poll::Ready(frame) => self.add(frame.and_then(Result::ok))?,
            }
        }
        ready!(self.out.poll_flush(io, cx))?;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn add(&mut self, frame: Option<http_body::Frame<bytes::Bytes>>) -> Result<(), SendError> {
        let trailers = match frame.map(http_body::Frame::into_data) {
            Some(Ok(content)) => {
                self.encoder.data(content, &mut self.out);
                if !self.body.is_end_stream() {
                    return Ok(());
                }
                None
            }
            Some(Err(frame)) => frame.into_trailers().ok(),
            None => None,
        };
        self.ended = true;
        let ended = self.encoder.end(trailers.as_ref(), &mut self.out);
        ended.map_err(|_| SendError::Body)
    }
}

/// Chooses the framing of the body and declares it in the head if necessary.
fn framing(request: &mut Request<Upload>) -> BodyEncoder {
    let (ended, exact) = (
        request.body().is_end_stream(),
        request.body().size_hint().exact(),
    );
    let headers = request.headers_mut();
    if ended {
        headers::remove_in_order(headers, &TRANSFER_ENCODING);
        return BodyEncoder::Length(0);
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        headers::remove_in_order(headers, &CONTENT_LENGTH);
        return BodyEncoder::chunked(headers);
    }
    let announced = headers.get(CONTENT_LENGTH);
    if let Some(length) = announced.and_then(|length| digits(length.as_bytes())) {
        return BodyEncoder::Length(length);
    }
    if let Some(length) = exact {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        return BodyEncoder::Length(length);
    }
    headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    BodyEncoder::chunked(headers)
}

/// Writes the head. Reserves `body` bytes of space after it.
fn write_head<B>(request: &Request<B>, names: &FieldNames, body: usize, text: &mut Vec<u8>) {
    let target = request.uri().path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    let usual = 64 + target.len() + request.headers().len() * USUAL_LINE;
    text.reserve(usual + body);
    text.extend_from_slice(request.method().as_str().as_bytes());
    text.push(b' ');
    if target.starts_with('?') {
        // A target may have only a host and a query.
        text.push(b'/');
    }
    text.extend_from_slice(target.as_bytes());
    text.extend_from_slice(b" HTTP/1.1\r\n");
    write_fields(request.headers(), names, text);
    text.extend_from_slice(b"\r\n");
}

pub(super) fn write_fields(headers: &HeaderMap, names: &FieldNames, text: &mut Vec<u8>) {
    let (mut last, mut nth) = (None, 0);
    for (name, value) in headers {
        nth = if last == Some(name) { nth + 1 } else { 0 };
        last = Some(name);
        text.extend_from_slice(names.original(name, nth));
        text.extend_from_slice(if value.is_empty() { b":" } else { b": " });
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::super::head::parse_request;
    use super::*;
    use crate::call_handle::CallHandle;
    use crate::upload::UploadSource;
    use parking_lot::Mutex;
    use std::sync::Arc;
    use std::time::{Instant, SystemTime};
    use tokengauge_core::observer::{CallObserver, CallPolicy, CallStart, ObservedCall, Observer};

    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<Vec<&'static str>>>);

    impl Observer for Notes {
        fn begin(&self, _: CallStart<'_>) -> Arc<dyn ObservedCall> {
            Arc::new(self.clone())
        }
    }

    impl CallObserver for Notes {
        fn sent(&self, _: Instant) {
            self.0.lock().push("observed");
        }
    }

    impl CallPolicy for Notes {}

    struct Socket {
        notes: Notes,
        full: bool,
    }

    impl AsyncWrite for Socket {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            if self.full {
                self.notes.0.lock().push("full");
                return Poll::Pending;
            }
            self.notes.0.lock().push("written");
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Returns the events when a request is sent to a socket, and the instant that its call records.
    fn send(full: bool) -> (Vec<&'static str>, Option<Instant>) {
        let notes = Notes::default();
        let (parts, ()) = Request::post("/v1")
            .body(())
            .expect("a request")
            .into_parts();
        let start = CallStart {
            received: Instant::now(),
            started_at: SystemTime::UNIX_EPOCH,
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            peer: None,
            port: None,
            route: &"r".into(),
            upstream: &"u".into(),
            dialect: None,
            workload: None,
            inject_usage: false,
            variant: None,
        };
        let handle = Arc::new(CallHandle::begin(&notes, &Arc::default(), start));
        let body = Upload::new(UploadSource::Replaced("{}".into()), &handle);
        let request = Request::from_parts(parts, body);
        let mut writer = RequestWriter::new(request, &FieldNames::default());
        let mut socket = Socket {
            notes: notes.clone(),
            full,
        };
        let polled = writer.poll_send(
            &mut socket,
            &mut Context::from_waker(std::task::Waker::noop()),
        );
        assert_eq!(polled.is_pending(), full);
        let noted = notes.0.lock().clone();
        (noted, handle.request_sent_at())
    }

    #[test]
    fn the_observer_reads_a_request_when_it_has_left_or_waits_for_the_upstream() {
        let (noted, sent) = send(false);
        assert_eq!(noted, ["written", "observed"]);
        assert!(sent.is_some());
        let (noted, sent) = send(true);
        assert_eq!(noted, ["full", "observed"]);
        assert!(sent.is_some(), "the time limit on the head goes by it");
    }

    #[test]
    fn a_target_without_a_path_gets_one() {
        let (head, _) = parse_request(b"GET http://b?x HTTP/1.1\r\nHost: b\r\n\r\n", 1_000)
            .expect("good")
            .expect("whole");
        let mut text = Vec::new();
        write_head(
            &Request::from_parts(head.parts, ()),
            &head.names,
            0,
            &mut text,
        );
        assert!(text.starts_with(b"GET /?x HTTP/1.1\r\n"), "{text:?}");
    }

    #[test]
    fn a_head_leaves_as_it_came_but_for_what_was_added() {
        let came = "POST /v1?x=%20 HTTP/1.1\r\nHost: h\r\nX-B: 2\r\nX-b: 3\r\nx-a: 4\r\nX-C:\r\nContent-Length: 0\r\n\r\n";
        let (head, _) = parse_request(came.as_bytes(), 1_000)
            .expect("good")
            .expect("whole");
        let mut request = Request::from_parts(head.parts, ());
        let headers = request.headers_mut();
        headers.append(http::header::VIA, HeaderValue::from_static("1.1 t"));
        let mut text = Vec::new();
        write_head(&request, &head.names, 0, &mut text);
        let expected = came.replace("0\r\n\r\n", "0\r\nvia: 1.1 t\r\n\r\n");
        assert_eq!(String::from_utf8(text).expect("text"), expected);
    }
}
