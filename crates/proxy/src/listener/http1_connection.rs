//! Serves the requests of an agent's HTTP/1 connection one after the other.

use super::connection_service::{ActiveRequest, ConnectionService};
use super::http1_response::{ResponseWriteError, ResponseWriter};
use crate::agent_body::AgentBody;
use crate::agent_connection::{AgentConnection, AgentError, Http1Body};
use crate::discard_body::LINGER_TIMEOUT;
use crate::headers;
use crate::http1::{
    BodyLength, BodySize, FieldNames, RequestHead, ResponseContext, write_response,
};
use crate::message::{AgentRequest, AgentResponse};
use http::header::TE;
use http::{Response, StatusCode};
use http_body::Body as _;
use std::future::poll_fn;
use std::io;
use std::time::Duration;
use tokio::time::timeout;

/// How long an agent may take to read data that was written before a response broke off.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error("{0}")]
    Agent(#[from] AgentError),
    #[error("{0}")]
    Response(#[from] ResponseWriteError),
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> ConnectionError {
        ConnectionError::Agent(error.into())
    }
}

enum Next {
    Request,
    Close,
    Nothing,
}

pub(super) async fn serve_requests(
    agent: &AgentConnection,
    service: &ConnectionService,
    max_head_bytes: usize,
) -> Result<(), ConnectionError> {
    loop {
        let head = poll_fn(|cx| agent.poll_head(cx, max_head_bytes)).await;
        let request = match head.map(|head| head.map(|head| begin(agent, service, head))) {
            Ok(Some(request)) => request,
            Ok(None) => break,
            Err(error) => {
                if let AgentError::Head(error) = &error {
                    reject(agent, error.status()).await?;
                }
                return Err(error.into());
            }
        };
        match serve_request(agent, service, request).await? {
            Next::Request => {}
            Next::Close => break,
            Next::Nothing => return Ok(()),
        }
    }
    Ok(poll_fn(|cx| agent.poll_shutdown(cx)).await?)
}

async fn reject(agent: &AgentConnection, status: StatusCode) -> io::Result<()> {
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status;
    let context = ResponseContext {
        keep_alive: false,
        ..ResponseContext::default()
    };
    agent.write(|out| {
        let names = FieldNames::default();
        let text = out.text();
        write_response(&mut parts, &names, None, BodySize::None, &context, text);
    });
    poll_fn(|cx| agent.poll_shutdown(cx)).await
}

/// A request in flight. It does not contain the head, because every open connection reserves space for this type.
struct ForwardedRequest<F> {
    active: ActiveRequest,
    context: ResponseContext,
    response: F,
}

fn begin<'a>(
    agent: &AgentConnection,
    service: &'a ConnectionService,
    head: RequestHead,
) -> ForwardedRequest<impl Future<Output = AgentResponse> + use<'a>> {
    let context = ResponseContext {
        method: head.parts.method.clone(),
        version: head.parts.version,
        keep_alive: head.keep_alive,
        trailers: headers::has_token(&head.parts.headers, &TE, "trailers"),
    };
    let body = match head.body {
        BodyLength::Known(0) => AgentBody::Empty,
        _ => AgentBody::Http1(Http1Body::new(agent)),
    };
    let request = AgentRequest {
        parts: head.parts,
        names: head.names,
        body,
    };
    ForwardedRequest {
        active: service.begin(false),
        context,
        response: service.forward(request),
    }
}

async fn serve_request(
    agent: &AgentConnection,
    service: &ConnectionService,
    request: ForwardedRequest<impl Future<Output = AgentResponse>>,
) -> Result<Next, ConnectionError> {
    let ForwardedRequest {
        active,
        context,
        response,
    } = request;
    let mut response = response.await;
    if let Some(tunnel) = response.tunnel.take() {
        write_head(agent, response, context);
        poll_fn(|cx| agent.poll_flush(cx)).await?;
        if let Some((io, arrived)) = agent.take_io() {
            tunnel.start(io, arrived);
        }
        return Ok(Next::Nothing);
    }
    let mut writer = write_head(agent, response, context);
    if let Err(error) = poll_fn(|cx| writer.poll(cx, agent)).await {
        abort_response(agent, writer).await;
        return Err(error.into());
    }
    let last = writer.is_last();
    // The rest of the upload ends with the response.
    drop(writer);
    drop(active);
    agent.end_response();
    if last {
        poll_fn(|cx| agent.poll_shutdown(cx)).await?;
    }
    let settled = wait_for_upload(agent, service).await;
    if !settled {
        discard_upload(agent).await;
    }
    Ok(if settled && !last && agent.is_open() {
        Next::Request
    } else {
        Next::Close
    })
}

/// Waits until the request body has no reader. Returns whether another request can follow. An HTTP/2 upstream may
/// continue to read after its response.
async fn wait_for_upload(agent: &AgentConnection, service: &ConnectionService) -> bool {
    let mut waited = false;
    let settled = poll_fn(|cx| {
        let polled = agent.poll_body_settled(cx);
        if polled.is_pending() {
            waited = true;
            service.upload_continues();
        }
        polled
    })
    .await;
    if waited {
        service.upload_ended();
    }
    settled
}

/// Closes the sending side and discards data from the agent for at most [`LINGER_TIMEOUT`]. Closing the connection
/// while the agent sends would reset it, and the agent could lose the response.
async fn discard_upload(agent: &AgentConnection) {
    let discarded = async {
        poll_fn(|cx| agent.poll_shutdown(cx)).await?;
        poll_fn(|cx| agent.poll_discard(cx)).await;
        io::Result::Ok(())
    };
    let _ = timeout(LINGER_TIMEOUT, discarded).await;
}

fn write_head(
    agent: &AgentConnection,
    response: AgentResponse,
    mut context: ResponseContext,
) -> ResponseWriter {
    let AgentResponse {
        mut parts,
        names,
        reason,
        body,
        ends_upload,
        ..
    } = response;
    context.keep_alive &= agent.settle_body() && !ends_upload && agent.is_open();
    let size = match (body.is_end_stream(), body.size_hint().exact()) {
        (true, _) => BodySize::None,
        (false, Some(length)) => BodySize::Known(length),
        (false, None) => BodySize::Unknown,
    };
    let head = agent.write(|out| {
        let reason = reason.as_ref();
        write_response(&mut parts, &names, reason, size, &context, out.text())
    });
    ResponseWriter::new(body, head, context.trailers)
}

/// Sends the agent the data that was written before a body broke off, and makes the body recognizably incomplete. If
/// only the close of the connection ends the body, the close is a TCP reset.
async fn abort_response(agent: &AgentConnection, writer: ResponseWriter) {
    let until_close = writer.is_until_close();
    drop(writer);
    let flushed = timeout(FLUSH_TIMEOUT, poll_fn(|cx| agent.poll_flush(cx))).await;
    if until_close || flushed.is_err() {
        agent.reset_on_close();
    }
}
