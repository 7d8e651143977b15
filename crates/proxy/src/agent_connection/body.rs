use super::{AgentConnection, BodyState};
use crate::body_error::AgentBodyError;
use crate::http1::RequestDecoder;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::task::{Context, Poll};

pub(crate) struct Http1Body {
    connection: AgentConnection,
    request: u64,
}

impl Http1Body {
    pub fn new(connection: &AgentConnection) -> Http1Body {
        Http1Body {
            connection: connection.clone(),
            request: connection.state().request,
        }
    }

    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AgentBodyError>>> {
        let mut state = self.connection.state();
        if state.request == self.request {
            state.poll_frame(cx)
        } else {
            Poll::Ready(None)
        }
    }

    pub fn is_end_stream(&self) -> bool {
        let state = self.connection.state();
        let complete = state.decoder().is_none_or(RequestDecoder::is_complete);
        complete || state.request != self.request
    }

    pub fn size_hint(&self) -> SizeHint {
        let state = self.connection.state();
        let length = state.decoder().map_or(Some(0), RequestDecoder::length);
        length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Http1Body {
    fn drop(&mut self) {
        let mut state = self.connection.state();
        if state.request != self.request {
            return;
        }
        state.body_reader = None;
        state.body = match std::mem::replace(&mut state.body, BodyState::Complete) {
            BodyState::Reading(decoder) => BodyState::Abandoned(decoder),
            body => body,
        };
        if let Some(task) = state.task.take() {
            task.wake();
        }
    }
}
