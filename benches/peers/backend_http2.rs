//! HTTP/2 of the backend, over cleartext with prior knowledge.

use crate::wire::{StreamRequest, answering_model, now, write_event};
use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until};

/// Concurrent streams on a connection, more than any proxy opens here.
const STREAMS: u32 = 10_000;
const WINDOW: u32 = 1 << 20;

/// Answers requests until the peer disconnects.
pub async fn connection(socket: TcpStream) -> Result<(), h2::Error> {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(STREAMS)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    let mut connection = builder.handshake(socket).await?;
    while let Some(request) = connection.accept().await {
        let (request, respond) = request?;
        drop(spawn_local(answer(request, respond)));
    }
    Ok(())
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let (mut stream, mut body) = (request.into_body(), Vec::new());
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    let spec = StreamRequest::of_body(&body).unwrap_or_default();
    let mut head = Response::new(());
    let content_type = http::HeaderValue::from_static("text/event-stream");
    head.headers_mut().insert("content-type", content_type);
    let mut out = respond.send_response(head, false)?;
    if spec.one_write {
        let mut payload = String::new();
        for index in 0..spec.events {
            write_event(index, now(), &answering_model(spec.model), &mut payload);
        }
        payload += &spec.end();
        return out.send_data(payload.into(), true);
    }
    pace(&spec, &mut out).await?;
    out.send_data(spec.end().into(), true)
}

/// Sends paced events, which are slow enough to ignore the window.
async fn pace(spec: &StreamRequest, out: &mut SendStream<Bytes>) -> Result<(), h2::Error> {
    let start = Instant::now() + Duration::from_micros(spec.phase_us);
    for index in 0..spec.events {
        if spec.interval_us > 0 {
            sleep_until(start + Duration::from_micros(spec.interval_us * u64::from(index))).await;
        }
        let mut event = String::new();
        write_event(index, now(), &answering_model(spec.model), &mut event);
        out.send_data(event.into(), false)?;
    }
    Ok(())
}
