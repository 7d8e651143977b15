use crate::agent_connection::AgentConnection;
use crate::body::Body;
use crate::body_error::BodyError;
use crate::http1::{BodyEncoder, BodyTooShort, WrittenHead};
use crate::tap::{Relay, Tail};
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Frames that are written per poll before other tasks have their turn.
const MAX_FRAMES_PER_POLL: usize = 16;

/// Writes a response body to an agent. The head is buffered and sent with the first bytes.
pub(super) struct ResponseWriter {
    content: Content,
    encoder: BodyEncoder,
    trailers: bool,
    last: bool,
    until_close: bool,
    head_unsent: bool,
}

enum Content {
    Frames(Body),
    Relay(Box<Relay>),
    Ended,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ResponseWriteError {
    #[error("{0}")]
    Body(#[from] BodyError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    TooShort(#[from] BodyTooShort),
}

impl ResponseWriter {
    pub fn new(mut body: Body, head: WrittenHead, trailers: bool) -> ResponseWriter {
        let relay = head.encoder.is_chunked().then(|| body.take_relay());
        let content = match relay.flatten() {
            Some(relay) => Content::Relay(relay),
            // For example, a response to HEAD.
            None if head.encoder.is_done() => Content::Ended,
            None => Content::Frames(body),
        };
        ResponseWriter {
            content,
            trailers,
            last: head.last,
            until_close: head.encoder.is_until_close(),
            encoder: head.encoder,
            head_unsent: true,
        }
    }

    pub fn is_last(&self) -> bool {
        self.last
    }

    pub fn is_until_close(&self) -> bool {
        self.until_close
    }

    /// Writes the available data. Ready when everything was sent.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        agent: &AgentConnection,
    ) -> Poll<Result<(), ResponseWriteError>> {
        for _ in 0..MAX_FRAMES_PER_POLL {
            match &mut self.content {
                Content::Ended => return agent.poll_flush(cx).map_err(ResponseWriteError::from),
                Content::Relay(relay) => {
                    let Tail { payload, trailers } = ready!(relay.poll(cx, agent))?;
                    self.add(agent, payload, false)?;
                    self.end(agent, trailers.as_ref())?;
                }
                Content::Frames(body) => {
                    if !std::mem::take(&mut self.head_unsent) {
                        ready!(agent.poll_flush(cx))?;
                    }
                    match Pin::new(&mut *body).poll_frame(cx) {
                        Poll::Pending => {
                            ready!(agent.poll_flush(cx))?;
                            return Poll::Pending;
                        }
                        Poll::Ready(Some(frame)) => {
                            let over = body.is_end_stream();
                            self.add_frame(agent, frame?, over)?;
                        }
                        Poll::Ready(None) => self.end(agent, None)?,
                    }
                }
            }
        }
        // Yields to other tasks on this thread.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn add_frame(
        &mut self,
        agent: &AgentConnection,
        frame: Frame<Bytes>,
        over: bool,
    ) -> Result<(), ResponseWriteError> {
        match frame.into_data() {
            Ok(payload) => self.add(agent, Some(payload), over),
            Err(frame) => self.end(agent, frame.into_trailers().ok().as_ref()),
        }
    }

    fn add(
        &mut self,
        agent: &AgentConnection,
        payload: Option<Bytes>,
        over: bool,
    ) -> Result<(), ResponseWriteError> {
        if let Some(payload) = payload {
            agent.write(|out| self.encoder.data(payload, out));
        }
        if over || self.encoder.is_done() {
            self.end(agent, None)
        } else {
            Ok(())
        }
    }

    fn end(
        &mut self,
        agent: &AgentConnection,
        trailers: Option<&HeaderMap>,
    ) -> Result<(), ResponseWriteError> {
        let trailers = trailers.filter(|_| self.trailers);
        agent.write(|out| self.encoder.end(trailers, out))?;
        self.content = Content::Ended;
        Ok(())
    }
}
